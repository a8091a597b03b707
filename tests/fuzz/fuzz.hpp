// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "stretto/base/error.hpp"

/// What all fuzz targets share. A target may throw nothing but Error; what it accepts must survive
/// its own writer.
namespace stretto::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// The result, or nothing if an Error said why there is none.
template <typename Parse>
auto parsed(Parse parse) -> std::optional<decltype(parse())> {
  try {
    return parse();
  } catch (const Error&) {
    return std::nullopt;
  }
}

inline void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

}  // namespace stretto::fuzz
