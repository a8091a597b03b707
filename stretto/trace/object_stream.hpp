// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "stretto/trace/event_scanner.hpp"
#include "stretto/trace/input.hpp"

/// JSON objects one after the other, as programs log them: usually one a line. Private to trace/:
/// not installed.
namespace stretto::detail {

class ObjectStream {
 public:
  explicit ObjectStream(Input& input);

  /// The next object, with its braces; readable 16 bytes beyond. Holds until the next call.
  /// After a fault: goes on at the next line that begins with a brace if `salvage`, else ends.
  [[nodiscard]] bool next(std::string_view& object, bool salvage);

  [[nodiscard]] std::uint64_t objects() const noexcept { return objects_; }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }
  [[nodiscard]] const std::optional<Fault>& fault() const noexcept { return fault_; }
  /// Of the byte behind the last object.
  [[nodiscard]] std::uint64_t offset() const noexcept;

 private:
  [[nodiscard]] bool refill();
  [[nodiscard]] bool skip_space();
  /// Counts what is here as lost and goes on behind it; false at the end.
  [[nodiscard]] bool pass_fault(const char* what, bool salvage);

  Input& input_;
  std::vector<char> window_;
  const char* at_;
  const char* end_;
  std::uint64_t base_ = 0;  // of window_[0] in the text
  bool eof_ = false;
  std::uint64_t objects_ = 0;
  std::uint64_t lost_ = 0;
  std::optional<Fault> fault_;
};

}  // namespace stretto::detail
