// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace stretto {

/// Stochastic gradient descent with momentum:  v = momentum v + g;  w = w - rate v.
///
/// Works on any part of the weights at a time. The result does not depend, bit for bit, on how they
/// were cut: every element is computed alone and nothing is fused.
class Sgd {
 public:
  Sgd(std::size_t elements, float momentum) : velocity_(elements), momentum_(momentum) {}

  /// `weights` and `gradient` are elements [first, first + size) of the whole.
  void step(std::size_t first,
            std::span<float> weights,
            std::span<const float> gradient,
            float learning_rate) noexcept;

 private:
  std::vector<float> velocity_;
  float momentum_;
};

}  // namespace stretto
