// SPDX-License-Identifier: Apache-2.0
#include "stretto/base/dtype.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"

namespace stretto {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, std::size(kAllDTypes)> kNames = {
    "f32", "f64", "f16", "bf16", "i32", "i64"};

}  // namespace

std::string_view to_string(DType dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < kNames.size() ? kNames[index] : "unknown";
}

DType dtype_from_string(std::string_view name) {
  for (const DType dtype : kAllDTypes) {
    if (to_string(dtype) == name) {
      return dtype;
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              {"no such element type", {}, quote(name), "one of " + join(kNames), {}});
}

}  // namespace stretto
