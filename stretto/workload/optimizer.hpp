// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace stretto {

enum class OptimizerKind : std::uint8_t {
  kSgd,    ///< With momentum m:  v = m v + g;  w = w - rate v.
  kAdam,   ///< Kingma and Ba 2015, arXiv:1412.6980, algorithm 1.
  kAdamW,  ///< The same with decoupled weight decay: Loshchilov and Hutter 2019, arXiv:1711.05101,
           ///< algorithm 2.
};
[[nodiscard]] std::string_view to_string(OptimizerKind kind) noexcept;
/// @throws Error kInvalidArgument listing the known names: `sgd`, `adam`, `adamw`.
[[nodiscard]] OptimizerKind optimizer_from_string(std::string_view name);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  float momentum = 0.9F;  ///< Of kSgd.
  float beta1 = 0.9F;     ///< Of the others, and so are the next two.
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0.0F;  ///< Added to the gradient as decay x weight; kAdamW: to the step.
};

/// An optimizer that works on any part of the weights at a time. The result does not depend, bit
/// for bit, on how they were cut: every element is computed alone and nothing is fused.
class Optimizer {
 public:
  /// State for `elements` weights; zero.
  Optimizer(std::size_t elements, const OptimizerOptions& options);

  /// `weights` and `gradient` are elements [first, first + size) of the whole. `gradient` is taken
  /// times `scale` (clipping). `number` counts the updates of each weight, from 1. `velocity`, of
  /// kSgd: the gradient has its momentum already, this optimizer's (CodecSpec::momentum): what is
  /// left here is the momentum of weight decay and of gradients that came before without.
  void step(std::size_t first,
            std::span<float> weights,
            std::span<const float> gradient,
            float learning_rate,
            float scale,
            std::uint32_t number,
            bool velocity = false) noexcept;

  /// Of the state, in fp32.
  [[nodiscard]] std::size_t state_bytes() const noexcept;

 private:
  OptimizerOptions options_;
  std::vector<float> first_;   ///< Momentum, or mean of gradients.
  std::vector<float> second_;  ///< Mean of their squares; empty for kSgd.
};

/// What clipping to `limit` multiplies all gradients by, when their norm is `norm`: 1, or less if
/// that is above the limit (Pascanu et al. 2013, arXiv:1211.5063, algorithm 1). 0 = no limit.
[[nodiscard]] float clip_scale(double norm, double limit) noexcept;

}  // namespace stretto
