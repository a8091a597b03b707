// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

namespace stretto {

/// Sum of two numbers that are not negative; the highest there is if it does not fit. For plain
/// sums of durations: those that a broken file gives may add up to anything.
[[nodiscard]] constexpr std::int64_t add_saturating(std::int64_t a, std::int64_t b) noexcept {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return a > kMost - b ? kMost : a + b;
}

}  // namespace stretto
