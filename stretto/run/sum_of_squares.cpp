// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/sum_of_squares.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "stretto/base/half.hpp"

namespace stretto {
namespace {

// Eight sums side by side, so that one addition need not wait for the one before it.
template <typename Stored, typename Widen>
double add_up(const BufferView& data, Widen widen) noexcept {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  const auto at = [&](std::size_t i) {
    Stored value;
    std::memcpy(&value, data.data + i * sizeof(Stored), sizeof(Stored));
    return static_cast<double>(widen(value));
  };
  std::size_t i = 0;
  for (; i + kLanes <= data.count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = at(i + lane);
      sums[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < data.count; ++i, ++lane) {
    const double value = at(i);
    sums[lane] += value * value;
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

double sum_of_squares(const BufferView& data) noexcept {
  const auto same = [](auto value) { return value; };
  switch (data.dtype) {
    case DType::kF32:
      return add_up<float>(data, same);
    case DType::kF64:
      return add_up<double>(data, same);
    case DType::kF16:
      return add_up<std::uint16_t>(data, f16_to_f32);
    case DType::kBF16:
      return add_up<std::uint16_t>(data, bf16_to_f32);
    default:
      return 0.0;
  }
}

}  // namespace stretto
