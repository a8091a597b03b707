// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/compute_load.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>

namespace stretto {
namespace {

constexpr std::size_t kEdge = 32;  // 4 KiB a matrix, about 5 us a product
constexpr std::size_t kCells = kEdge * kEdge;
constexpr std::size_t kMatrices = 96;  // three of each: 1.1 MiB

}  // namespace

ComputeLoad::ComputeLoad()
    : left_(kCells * kMatrices), right_(kCells * kMatrices), sums_(kCells * kMatrices, 0.0F) {
  for (std::size_t i = 0; i < left_.size(); ++i) {
    left_[i] = static_cast<float>(i % 7) * 0.01F;
    right_[i] = static_cast<float>(i % 11) * 0.01F;
  }
  using Clock = std::chrono::steady_clock;
  constexpr auto kCalibration = std::chrono::milliseconds(100);
  run(static_cast<std::int64_t>(kMatrices));  // caches and clock rate
  const auto begin = Clock::now();
  std::int64_t products = 0;
  auto now = begin;
  while (now - begin < kCalibration) {
    run(16);
    products += 16;
    now = Clock::now();
  }
  products_per_s_ = static_cast<double>(products) / Seconds(now - begin).count();
}

std::int64_t ComputeLoad::work_for(Seconds alone) const noexcept {
  return std::max<std::int64_t>(1, std::llround(alone.count() * products_per_s_));
}

void ComputeLoad::run(std::int64_t products) noexcept {
  for (std::int64_t i = 0; i < products; ++i) {
    multiply(next_);
    next_ = (next_ + 1) % kMatrices;
  }
}

void ComputeLoad::multiply(std::size_t which) noexcept {
  const float* const a = left_.data() + which * kCells;
  const float* const b = right_.data() + which * kCells;
  float* const c = sums_.data() + which * kCells;
  for (std::size_t row = 0; row < kEdge; ++row) {
    float* const out = c + row * kEdge;
    for (std::size_t column = 0; column < kEdge; ++column) {
      out[column] *= 0.5F;  // stays finite
    }
    for (std::size_t k = 0; k < kEdge; ++k) {
      const float factor = a[row * kEdge + k];
      for (std::size_t column = 0; column < kEdge; ++column) {
        out[column] += factor * b[k * kEdge + column];
      }
    }
  }
}

}  // namespace stretto
