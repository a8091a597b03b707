// SPDX-License-Identifier: Apache-2.0
#include "numbers.hpp"

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "stretto/base/text.hpp"

namespace stretto::cli {

CLI::Validator whole_number_from(std::int64_t low, std::int64_t high) {
  return {[low, high](const std::string& text) {
            std::string_view digits = text;
            digits.remove_prefix(digits.starts_with('+') ? 1 : 0);
            std::int64_t value = 0;
            const char* const last = digits.data() + digits.size();
            const auto [end, error] = std::from_chars(digits.data(), last, value);
            return error == std::errc() && end == last && value >= low && value <= high
                       ? std::string()
                       : fmt::format("{} is no whole number from {} to {}", quote(text), low, high);
          },
          ""};
}

}  // namespace stretto::cli
