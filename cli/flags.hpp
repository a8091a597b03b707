// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "stretto/base/error.hpp"

namespace stretto::cli {

/// Runs `parse`; an Error of it says which flag it is about.
template <typename Parse>
auto from_flag(std::string_view flag, Parse parse) {
  try {
    return parse();
  } catch (const Error& error) {
    ErrorDetail detail = error.detail();
    detail.where =
        detail.where.empty() ? std::string(flag) : std::string(flag) + ", " + detail.where;
    throw Error(error.code(), std::move(detail));
  }
}

/// Runs `parse` on the content of a file. What is wrong there is bad input, not bad usage.
template <typename Parse>
auto from_file(std::string_view path, Parse parse) {
  try {
    return parse();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) {
      throw;
    }
    ErrorDetail detail = error.detail();
    if (detail.where.find(path) == std::string::npos) {
      detail.where =
          detail.where.empty() ? std::string(path) : std::string(path) + ", " + detail.where;
    }
    throw Error(ErrorCode::kParse, std::move(detail));
  }
}

/// For CLI::Option::check(): a number from `low` to `high`. CLI11's own ranges let nan pass.
[[nodiscard]] CLI::Validator number_from(double low, double high);
/// A finite number above 0.
[[nodiscard]] CLI::Validator positive_number();

/// `784-512-10`
/// @throws Error kInvalidArgument.
[[nodiscard]] std::vector<std::size_t> parse_widths(const std::string& text);

}  // namespace stretto::cli
