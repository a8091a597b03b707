// SPDX-License-Identifier: Apache-2.0
#include "stretto/compress/codec/low_rank.hpp"

#include <array>
#include <cmath>
#include <cstdint>

namespace stretto {
namespace {

constexpr double kNegligible = 1e-6;  // of a column's length: rounding of fp32, not a direction

// Sixteen sums, then of these: the same order everywhere, and the compiler may take several at a
// time.
double dot(std::span<const double> a, std::span<const double> b) {
  constexpr std::size_t kLanes = 16;
  std::array<double, kLanes> sums{};
  const std::size_t whole = a.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += a[i + lane] * b[i + lane];
    }
  }
  for (std::size_t i = whole; i < a.size(); ++i) {
    sums[i - whole] += a[i] * b[i];
  }
  double sum = 0.0;
  for (const double each : sums) {
    sum += each;
  }
  return sum;
}

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): from -1 to 1.
float drawn(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  x ^= x >> 31;
  return static_cast<float>(static_cast<std::int32_t>(x >> 32)) * 0x1p-31F;
}

// In fp64 squares of floats neither overflow nor vanish. False for zeros.
bool normalise(std::span<float> column) {
  double squares = 0.0;
  for (const float value : column) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  if (!(squares > 0.0)) {
    return false;
  }
  const double length = std::sqrt(squares);
  for (float& value : column) {
    value = static_cast<float>(static_cast<double>(value) / length);
  }
  return true;
}

}  // namespace

void orthonormalise(std::span<float> p, std::size_t rank, std::vector<double>& scratch) {
  const std::size_t rows = rank == 0 ? 0 : p.size() / rank;
  scratch.resize(p.size());
  const auto column = [&](std::size_t k) {
    return std::span<double>(scratch).subspan(k * rows, rows);
  };
  for (std::size_t k = 0; k < rank; ++k) {
    const std::span<double> current = column(k);
    for (std::size_t i = 0; i < rows; ++i) {
      current[i] = static_cast<double>(p[i * rank + k]);
    }
    const double before = std::sqrt(dot(current, current));
    for (int time = 0; time < 2; ++time) {
      for (std::size_t other = 0; other < k; ++other) {
        const std::span<double> direction = column(other);
        const double along = dot(current, direction);
        for (std::size_t i = 0; i < rows; ++i) {
          current[i] -= along * direction[i];
        }
      }
    }
    const double length = std::sqrt(dot(current, current));
    const double factor = length > kNegligible * before ? 1.0 / length : 0.0;
    for (std::size_t i = 0; i < rows; ++i) {
      current[i] *= factor;
      p[i * rank + k] = static_cast<float>(current[i]);
    }
  }
}

void normalise_columns(std::span<float> q, std::size_t rank, std::uint64_t key) {
  const std::size_t cols = rank == 0 ? 0 : q.size() / rank;
  for (std::size_t k = 0; k < rank; ++k) {
    const std::span<float> column = q.subspan(k * cols, cols);
    if (!normalise(column)) {
      for (std::size_t j = 0; j < cols; ++j) {
        column[j] = drawn(key + k * cols + j);
      }
      (void)normalise(column);
    }
  }
}

namespace detail {

const LowRankKernels& low_rank_kernels(InstructionSet set) noexcept {
#if defined(__x86_64__)
  switch (set) {
    case InstructionSet::kV4:
      return kLowRankV4;
    case InstructionSet::kV3:
      return kLowRankV3;
    case InstructionSet::kBaseline:
      break;
  }
#else
  static_cast<void>(set);
#endif
  return kLowRankBaseline;
}

const LowRankKernels& low_rank_kernels() noexcept {
  static const LowRankKernels& best = low_rank_kernels(best_instruction_set());
  return best;
}

}  // namespace detail
}  // namespace stretto
