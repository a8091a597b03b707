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
      sums_{zeroed(elements), zeroed(elements)},
      velocity_{zeroed(elements), zeroed(elements)} {}

namespace {

/// Most pages of most arrays are never written: reading a page of zeros does not cost one, writing
/// it does.
void set_if_other(float& to, float value) noexcept {
  if (to != value) {
    to = value;
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-make-member-function-const): what it owns changes
void Residuals::keep(std::size_t begin, std::size_t end) noexcept {
  std::copy(own(begin), own(end), next_own(begin));
  for (std::size_t i = begin; i < end; ++i) {
    set_if_other(sums_.next[i], sums_.current[i]);
    set_if_other(velocity_.next[i], velocity_.current[i]);
  }
}

void Residuals::commit() noexcept {
  std::swap(own_.current, own_.next);
  std::swap(sums_.current, sums_.next);
  std::swap(velocity_.current, velocity_.next);
}

// NOLINTNEXTLINE(readability-make-member-function-const): what it owns changes
void Residuals::settle() noexcept {
  for (std::size_t i = 0; i < elements_; ++i) {
    set_if_other(own_.current[i], own_.current[i] + sums_.current[i]);
    set_if_other(own_.next[i], own_.current[i]);
    set_if_other(sums_.current[i], 0.0F);
    set_if_other(sums_.next[i], 0.0F);
    set_if_other(velocity_.next[i], velocity_.current[i]);
  }
}

// NOLINTNEXTLINE(readability-make-member-function-const): what it owns changes
void Residuals::scale(float factor) noexcept {
  for (const Pair* const pair : {&own_, &sums_, &velocity_}) {
    for (float* const values : {pair->current.get(), pair->next.get()}) {
      for (std::size_t i = 0; i < elements_; ++i) {
        set_if_other(values[i], values[i] * factor);
      }
    }
  }
}

// NOLINTNEXTLINE(readability-make-member-function-const): what it owns changes
void Residuals::end_velocity(std::size_t begin,
                             std::size_t end,
                             float own,
                             float velocity) noexcept {
  for (std::size_t i = begin; i < end; ++i) {
    const float value = own * own_.current[i] + velocity * velocity_.current[i];
    set_if_other(own_.current[i], value);
    set_if_other(own_.next[i], value);
    set_if_other(velocity_.current[i], 0.0F);
    set_if_other(velocity_.next[i], 0.0F);
  }
}

// NOLINTNEXTLINE(readability-make-member-function-const): what it owns changes
void Residuals::set(std::size_t begin,
                    std::span<const float> own,
                    std::span<const float> sums,
                    std::span<const float> velocity) noexcept {
  for (std::size_t i = 0; i < own.size(); ++i) {
    own_.current[begin + i] = own_.next[begin + i] = own[i];
    for (const auto& [pair, values] : {std::pair(&sums_, sums), std::pair(&velocity_, velocity)}) {
      const float value = values.empty() ? 0.0F : values[i];
      set_if_other(pair->current[begin + i], value);
      set_if_other(pair->next[begin + i], value);
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
