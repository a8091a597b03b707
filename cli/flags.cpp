// SPDX-License-Identifier: Apache-2.0
#include "flags.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>

#include <fmt/format.h>

namespace stretto::cli {

std::vector<std::size_t> parse_widths(const std::string& text) {
  std::vector<std::size_t> widths;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find('-', begin), text.size());
    std::size_t width = 0;
    const char* last = text.data() + end;
    const auto [stop, status] = std::from_chars(text.data() + begin, last, width);
    if (status != std::errc() || stop != last || width == 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"the layers cannot be read",
                   "",
                   fmt::format("'{}'", text),
                   "widths above 0 with a dash between, inputs first",
                   "Example: 784-512-512-10"});
    }
    widths.push_back(width);
    begin = end + 1;
  }
  return widths;
}

}  // namespace stretto::cli
