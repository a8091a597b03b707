// SPDX-License-Identifier: Apache-2.0
#include "stretto/compress/residuals.hpp"

#include <algorithm>
#include <cmath>
#include <new>

namespace stretto {

// From calloc: pages that nobody writes cost nothing.
Residuals::Memory Residuals::zeroed(std::size_t elements) {
  Memory memory(
      static_cast<float*>(std::calloc(std::max<std::size_t>(elements, 1), sizeof(float))));
  if (!memory) {
    throw std::bad_alloc();
  }
  return memory;
}

Residuals::Residuals(std::size_t elements)
    : elements_(elements),
      own_{zeroed(elements), zeroed(elements)},
      sums_{zeroed(elements), zeroed(elements)} {}

// NOLINTNEXTLINE(readability-make-member-function-const): what it owns changes
void Residuals::keep(std::size_t begin, std::size_t end) noexcept {
  std::copy(own(begin), own(end), next_own(begin));
  for (std::size_t i = begin; i < end; ++i) {
    if (sums_.next[i] != sums_.current[i]) {  // most pages of it are never written
      sums_.next[i] = sums_.current[i];
    }
  }
}

void Residuals::commit() noexcept {
  std::swap(own_.current, own_.next);
  std::swap(sums_.current, sums_.next);
}

// NOLINTNEXTLINE(readability-make-member-function-const): what it owns changes
void Residuals::settle() noexcept {
  // Reading a page of zeros does not cost one, writing it does.
  const auto set = [](float& to, float value) {
    if (to != value) {
      to = value;
    }
  };
  for (std::size_t i = 0; i < elements_; ++i) {
    set(own_.current[i], own_.current[i] + sums_.current[i]);
    set(own_.next[i], own_.current[i]);
    set(sums_.current[i], 0.0F);
    set(sums_.next[i], 0.0F);
  }
}

// NOLINTNEXTLINE(readability-make-member-function-const): what it owns changes
void Residuals::set(std::size_t begin,
                    std::span<const float> own,
                    std::span<const float> sums) noexcept {
  for (std::size_t i = 0; i < own.size(); ++i) {
    own_.current[begin + i] = own_.next[begin + i] = own[i];
    const float sum = sums.empty() ? 0.0F : sums[i];
    if (sums_.current[begin + i] != sum || sums_.next[begin + i] != sum) {
      sums_.current[begin + i] = sums_.next[begin + i] = sum;
    }
  }
}

double Residuals::norm() const noexcept {
  double squares = 0.0;
  for (std::size_t i = 0; i < elements_; ++i) {
    const auto own_part = static_cast<double>(own_.current[i]);
    const auto sum_part = static_cast<double>(sums_.current[i]);
    squares += own_part * own_part + sum_part * sum_part;
  }
  return std::sqrt(squares);
}

}  // namespace stretto
