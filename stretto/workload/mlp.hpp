// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "stretto/base/buffer.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/workload/dense_kernels.hpp"

namespace stretto {

/// The trainable tensors of a fully connected network, in backward order: `fc8.bias`, `fc8.weight`,
/// `fc7.bias`... to `fc1.weight`. `widths` = inputs, hidden layers, classes.
[[nodiscard]] std::vector<TensorSpec> mlp_tensors(const std::vector<std::size_t>& widths);

/// A fully connected ReLU network with softmax cross-entropy, run one layer at a time on the
/// calling thread, so that the caller can send a layer's gradients while the next is computed.
///
/// One step: fill input() and labels(), set the batch; forward_layer(0) to forward_layer(n-1);
/// loss(); backward_layer(n-1) down to backward_layer(0). Nothing is allocated after the
/// constructor.
class Mlp {
 public:
  /// Weights: He et al. 2015
  /// (doi:10.1109/ICCV.2015.123), uniform with variance 2 / inputs, from `seed` alone; biases 0.
  /// @throws Error kInvalidArgument for fewer than two widths, a width below 1, or batch 0.
  Mlp(std::vector<std::size_t> widths,
      std::size_t max_batch,
      std::uint64_t seed,
      const DenseKernels& kernels = *available_dense_kernels().front());

  [[nodiscard]] std::size_t layers() const noexcept { return widths_.size() - 1; }
  [[nodiscard]] const DenseKernels& kernels() const noexcept { return kernels_; }
  /// mlp_tensors(widths)
  [[nodiscard]] const std::vector<TensorSpec>& tensors() const noexcept { return tensors_; }
  /// All weights, tensor after tensor in the order of tensors(), without gaps.
  [[nodiscard]] std::span<float> weights() noexcept { return weights_; }
  [[nodiscard]] std::span<const float> weights() const noexcept { return weights_; }
  /// Moves them to other memory of that length, which must outlive this.
  void move_weights(std::span<float> to);

  /// @throws Error kInvalidArgument above max_batch.
  void set_batch(std::size_t batch);
  /// [batch, inputs], to be filled by the caller.
  [[nodiscard]] std::span<float> input() noexcept;
  [[nodiscard]] std::span<std::uint8_t> labels() noexcept {
    return std::span(labels_).first(batch_);
  }

  void forward_layer(std::size_t layer);
  /// Of the batch, mean per sample; prepares backward. After the last forward_layer().
  [[nodiscard]] double loss();
  /// How many of the batch have their label's output highest. After the last forward_layer().
  [[nodiscard]] std::size_t correct() const;

  /// Where gradient i is to be written, and who is told that it was.
  using GradientAt = std::function<BufferView(std::size_t i)>;
  using OnGradient = std::function<void(std::size_t i)>;
  /// Writes the gradients of the mean loss for this layer's two tensors, each followed by its
  /// on_gradient(i), and only then what the layer below needs: communication starts as early as it
  /// can.
  void backward_layer(std::size_t layer,
                      const GradientAt& gradient_at,
                      const OnGradient& on_gradient);

 private:
  [[nodiscard]] std::size_t bias_tensor(std::size_t layer) const noexcept {
    return 2 * (layers() - 1 - layer);
  }
  [[nodiscard]] std::size_t weight_tensor(std::size_t layer) const noexcept {
    return bias_tensor(layer) + 1;
  }
  [[nodiscard]] const float* weights_of(std::size_t tensor) const noexcept {
    return weights_.data() + offsets_[tensor];
  }
  [[nodiscard]] float* gradient_data(const GradientAt& gradient_at, std::size_t tensor) const;

  std::vector<std::size_t> widths_;
  const DenseKernels& kernels_;
  std::vector<TensorSpec> tensors_;
  std::vector<std::size_t> offsets_;
  std::vector<float> own_weights_;  ///< Empty once they were moved.
  std::span<float> weights_;
  std::size_t max_batch_;
  std::size_t batch_;
  std::vector<std::uint8_t> labels_;
  /// activations_[l] is the input of layer l; the last, the logits.
  std::vector<std::vector<float>> activations_;
  std::vector<float> delta_;       ///< Gradient of the output of the layer to come.
  std::vector<float> next_delta_;  ///< Of its input.
};

}  // namespace stretto
