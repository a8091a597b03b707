// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

/// Regular expressions that users give. Private to trace/: not installed.
namespace stretto::detail {

class Pattern {
 public:
  /// ECMAScript syntax, without references to earlier groups.
  /// @throws Error kInvalidArgument naming the expression.
  explicit Pattern(const std::string& expression, bool ignore_case = false);

  /// Whether it matches anywhere in the first 4096 bytes.
  [[nodiscard]] bool is_in(std::string_view text) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace stretto::detail
