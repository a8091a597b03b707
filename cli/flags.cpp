// SPDX-License-Identifier: Apache-2.0
#include "flags.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "stretto/base/text.hpp"

namespace stretto::cli {
namespace {

/// The whole text as a number; nan and infinity are numbers.
std::optional<double> number_of(std::string_view text) {
  text.remove_prefix(text.starts_with('+') ? 1 : 0);
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

}  // namespace

CLI::Validator number_from(double low, double high) {
  return {[low, high](const std::string& text) {
            const std::optional<double> value = number_of(text);
            return value && *value >= low && *value <= high
                       ? std::string()
                       : fmt::format("{} is no number from {} to {}", quote(text), low, high);
          },
          ""};
}

CLI::Validator positive_number() {
  return {[](const std::string& text) {
            const std::optional<double> value = number_of(text);
            return value && *value > 0.0 && std::isfinite(*value)
                       ? std::string()
                       : fmt::format("{} is no number above 0", quote(text));
          },
          ""};
}

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
