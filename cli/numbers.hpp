// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <CLI/CLI.hpp>

namespace stretto::cli {

/// For CLI::Option::check(): as number_from() in flags.hpp, without a fraction. What is no number,
/// like a range `8-32`, is said to be none; CLI11's own ranges say that it is not in them.
[[nodiscard]] CLI::Validator whole_number_from(std::int64_t low, std::int64_t high);

}  // namespace stretto::cli
