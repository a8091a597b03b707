// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/pattern.hpp"

#include <regex>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"

namespace stretto::detail {
namespace {

constexpr std::size_t kLongestMatched = 4096;

// libstdc++'s usual matcher recurses for each character and may try exponentially many ways: a
// kernel's name of a few KiB, or an expression like (a*)*, ends the process or the user's patience.
// This one does neither.
#if defined(__GLIBCXX__)
constexpr auto kSyntax = std::regex::ECMAScript | std::regex_constants::__polynomial;
#else
constexpr auto kSyntax = std::regex::ECMAScript;
#endif

}  // namespace

struct Pattern::Compiled {
  std::regex regex;
};

Pattern::Pattern(const std::string& expression, bool ignore_case) {
  try {
    const auto syntax = ignore_case ? kSyntax | std::regex::icase : kSyntax;
    compiled_ = std::make_shared<Compiled>(Compiled{std::regex(expression, syntax)});
  } catch (const std::regex_error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                {"not a regular expression",
                 {},
                 quote(expression),
                 std::string("ECMAScript syntax: ") + error.what(),
                 "Escape characters such as ( [ * + with a backslash to mean themselves"});
  }
}

bool Pattern::is_in(std::string_view text) const {
  const std::string_view head = text.substr(0, kLongestMatched);
  return std::regex_search(head.begin(), head.end(), compiled_->regex);
}

}  // namespace stretto::detail
