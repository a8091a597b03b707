// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace stretto {

/// SplitMix64 (Steele, Lea, Flood 2014, doi:10.1145/2714064.2660195). Not std::mt19937 with a
/// std:: distribution, because those give other numbers with another standard library, and two
/// ranks or two hosts must draw the same.
class SplitMix64 {
 public:
  explicit constexpr SplitMix64(std::uint64_t seed) noexcept : state_(seed) {}

  constexpr std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
  }
  /// In [0, 1), a multiple of 2^-24: exact in fp32.
  constexpr float next_unit() noexcept { return static_cast<float>(next() >> 40) * 0x1p-24F; }

 private:
  std::uint64_t state_;
};

/// Fisher and Yates. The remainder's bias is below count / 2^64.
template <typename T>
void shuffle(std::span<T> values, SplitMix64& random) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[random.next() % i]);
  }
}

}  // namespace stretto
