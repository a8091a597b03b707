// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace stretto::detail {

/// No tensor, and no sum of tensors, of more elements than this is accepted from a file or a plan,
/// so that sizes in bytes cannot overflow.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;

/// Product of the dimensions; 1 for a scalar. Nothing if a dimension is negative or the product
/// passes kMaxElements.
[[nodiscard]] constexpr std::optional<std::int64_t> checked_elements(
    std::span<const std::int64_t> shape) noexcept {
  std::int64_t product = 1;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) {
      return std::nullopt;
    }
    if (dimension == 0) {
      product = 0;
    } else if (product > kMaxElements / dimension) {
      return std::nullopt;
    } else {
      product *= dimension;
    }
  }
  return product;
}

}  // namespace stretto::detail
