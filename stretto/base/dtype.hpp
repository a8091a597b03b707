// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stretto {

enum class DType : std::uint8_t { kF32, kF64, kF16, kBF16, kI32, kI64 };

inline constexpr std::array kAllDTypes = {
    DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI32, DType::kI64};

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
  }
  return 0;
}

[[nodiscard]] constexpr bool is_floating(DType dtype) noexcept {
  return dtype != DType::kI32 && dtype != DType::kI64;
}

/// `f32`, `bf16`, `i64`...
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;
/// @throws Error kInvalidArgument listing the known names.
[[nodiscard]] DType dtype_from_string(std::string_view name);

}  // namespace stretto
