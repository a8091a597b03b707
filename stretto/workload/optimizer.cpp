// SPDX-License-Identifier: Apache-2.0
// Compiled with -ffp-contract=off: where the compiler may fuse multiply and add, it does so in the
// vector part of a loop and not in its rest, or the other way round, and the cut would show.
#include "stretto/workload/optimizer.hpp"

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

constexpr auto kNames =
    std::to_array<std::pair<OptimizerKind, std::string_view>>({{OptimizerKind::kSgd, "sgd"},
                                                               {OptimizerKind::kAdam, "adam"},
                                                               {OptimizerKind::kAdamW, "adamw"}});

}  // namespace

std::string_view to_string(OptimizerKind kind) noexcept {
  return kNames.at(static_cast<std::size_t>(kind)).second;
}

OptimizerKind optimizer_from_string(std::string_view name) {
  for (const auto& [kind, known] : kNames) {
    if (known == name) {
      return kind;
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              {"no such optimizer", "", "'" + std::string(name) + "'", "sgd, adam or adamw", ""});
}

Optimizer::Optimizer(std::size_t elements, const OptimizerOptions& options)
    : options_(options),
      first_(elements),
      second_(options.kind == OptimizerKind::kSgd ? 0 : elements) {}

std::size_t Optimizer::state_bytes() const noexcept {
  return (first_.size() + second_.size()) * sizeof(float);
}

void Optimizer::step(std::size_t first,
                     std::span<float> weights,
                     std::span<const float> gradient,
                     float learning_rate,
                     float scale,
                     std::uint32_t number,
                     bool velocity) noexcept {
  float* const mean = first_.data() + first;
  if (options_.kind == OptimizerKind::kSgd) {
    const float momentum = options_.momentum;
    const float decay = options_.weight_decay;
    if (velocity) {
      constexpr float kNothing = 1e-30F;  // below, numbers become slow, and stay so for ever
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const float left = momentum * mean[i] + decay * weights[i];
        mean[i] = std::abs(left) < kNothing ? 0.0F : left;
        weights[i] -= learning_rate * (mean[i] + scale * gradient[i]);
      }
      return;
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
      mean[i] = momentum * mean[i] + (scale * gradient[i] + decay * weights[i]);
      weights[i] -= learning_rate * mean[i];
    }
    return;
  }
  float* const square = second_.data() + first;
  const bool decoupled = options_.kind == OptimizerKind::kAdamW;
  const float decay = decoupled ? 0.0F : options_.weight_decay;
  const float keep = decoupled ? 1.0F - learning_rate * options_.weight_decay : 1.0F;
  const float beta1 = options_.beta1;
  const float beta2 = options_.beta2;
  const double steps = number;
  const auto bias1 = static_cast<float>(1.0 - std::pow(static_cast<double>(beta1), steps));
  const auto bias2 =
      static_cast<float>(std::sqrt(1.0 - std::pow(static_cast<double>(beta2), steps)));
  const float rate = learning_rate / bias1;
  const float epsilon = options_.epsilon;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float g = scale * gradient[i] + decay * weights[i];
    mean[i] = beta1 * mean[i] + (1.0F - beta1) * g;
    square[i] = beta2 * square[i] + (1.0F - beta2) * (g * g);
    weights[i] = keep * weights[i] - rate * (mean[i] / (std::sqrt(square[i]) / bias2 + epsilon));
  }
}

float clip_scale(double norm, double limit) noexcept {
  return limit > 0.0 && norm > limit ? static_cast<float>(limit / norm) : 1.0F;
}

}  // namespace stretto
