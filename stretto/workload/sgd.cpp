// SPDX-License-Identifier: Apache-2.0
// Compiled with -ffp-contract=off: where the compiler may fuse multiply and add, it does so in the
// vector part of a loop and not in its rest, or the other way round, and the cut would show.
#include "stretto/workload/sgd.hpp"

namespace stretto {

void Sgd::step(std::size_t first,
               std::span<float> weights,
               std::span<const float> gradient,
               float learning_rate) noexcept {
  float* velocity = velocity_.data() + first;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    velocity[i] = momentum_ * velocity[i] + gradient[i];
    weights[i] -= learning_rate * velocity[i];
  }
}

}  // namespace stretto
