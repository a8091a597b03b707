// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/mlp.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stretto/base/error.hpp"
#include "stretto/workload/random.hpp"

namespace stretto {
std::vector<TensorSpec> mlp_tensors(const std::vector<std::size_t>& widths) {
  std::vector<TensorSpec> tensors;
  for (std::size_t layer = widths.size(); layer > 1; --layer) {
    const auto in = static_cast<std::int64_t>(widths[layer - 2]);
    const auto out = static_cast<std::int64_t>(widths[layer - 1]);
    tensors.push_back({fmt::format("fc{}.bias", layer - 1), DType::kF32, {out}});
    tensors.push_back({fmt::format("fc{}.weight", layer - 1), DType::kF32, {out, in}});
  }
  return tensors;
}

Mlp::Mlp(std::vector<std::size_t> widths,
         std::size_t max_batch,
         std::uint64_t seed,
         const DenseKernels& kernels)
    : widths_(std::move(widths)), kernels_(kernels), max_batch_(max_batch), batch_(max_batch) {
  // Beyond 2^20 neither weights nor activations would fit a host, and products stay in 64 bits.
  constexpr std::size_t kMost = std::size_t{1} << 20;
  const auto bad = [](std::size_t n) { return n == 0 || n > kMost; };
  if (widths_.size() < 2 || std::any_of(widths_.begin(), widths_.end(), bad) || bad(max_batch_)) {
    throw Error(ErrorCode::kInvalidArgument,
                {"a network of this shape cannot be made",
                 "",
                 fmt::format("widths {} and batch {}", fmt::join(widths_, "-"), max_batch_),
                 fmt::format("two or more widths, each width and the batch 1 to {}", kMost),
                 "Example: 784-512-512-10"});
  }
  tensors_ = mlp_tensors(widths_);
  std::size_t total = 0;
  for (const TensorSpec& tensor : tensors_) {
    offsets_.push_back(total);
    total += static_cast<std::size_t>(tensor.elements());
  }
  own_weights_.resize(total);
  weights_ = own_weights_;
  SplitMix64 random(seed);
  for (std::size_t layer = 0; layer < layers(); ++layer) {
    const std::size_t first = offsets_[weight_tensor(layer)];
    const std::size_t count = widths_[layer] * widths_[layer + 1];
    const float limit = std::sqrt(6.0F / static_cast<float>(widths_[layer]));
    for (float& weight : weights_.subspan(first, count)) {
      weight = (2.0F * random.next_unit() - 1.0F) * limit;
    }
  }
  labels_.resize(max_batch_);
  for (const std::size_t width : widths_) {
    activations_.emplace_back(max_batch_ * width);
  }
  delta_.resize(max_batch_ * *std::max_element(widths_.begin() + 1, widths_.end()));
  next_delta_.resize(delta_.size());
}

void Mlp::move_weights(std::span<float> to) {
  if (to.size() != weights_.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the weights do not fit there",
                 "Mlp::move_weights",
                 fmt::format("{} elements", to.size()),
                 fmt::format("{}", weights_.size()),
                 ""});
  }
  std::copy(weights_.begin(), weights_.end(), to.begin());
  weights_ = to;
  own_weights_ = {};
}

void Mlp::set_batch(std::size_t batch) {
  if (batch > max_batch_) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the batch is larger than the network was made for",
                 "",
                 fmt::format("{}", batch),
                 fmt::format("at most {}", max_batch_),
                 ""});
  }
  batch_ = batch;
}

std::span<float> Mlp::input() noexcept {
  return std::span(activations_.front()).first(batch_ * widths_.front());
}

void Mlp::forward_layer(std::size_t layer) {
  kernels_.forward(activations_[layer].data(),
                   weights_of(weight_tensor(layer)),
                   weights_of(bias_tensor(layer)),
                   activations_[layer + 1].data(),
                   batch_,
                   widths_[layer],
                   widths_[layer + 1],
                   layer + 1 < layers());
}

double Mlp::loss() {
  const std::size_t classes = widths_.back();
  const float scale = 1.0F / static_cast<float>(batch_);
  double total = 0.0;
  for (std::size_t row = 0; row < batch_; ++row) {
    const auto logits = std::span<const float>(activations_.back()).subspan(row * classes, classes);
    const auto delta = std::span(delta_).subspan(row * classes, classes);
    const float highest = *std::max_element(logits.begin(), logits.end());
    float sum = 0.0F;
    for (std::size_t i = 0; i < classes; ++i) {
      delta[i] = std::exp(logits[i] - highest);
      sum += delta[i];
    }
    const std::size_t label = labels_[row];
    total += static_cast<double>(std::log(sum) - (logits[label] - highest));
    for (float& value : delta) {
      value *= scale / sum;
    }
    delta[label] -= scale;
  }
  return total / static_cast<double>(batch_);
}

std::size_t Mlp::correct() const {
  const std::size_t classes = widths_.back();
  std::size_t right = 0;
  for (std::size_t row = 0; row < batch_; ++row) {
    const auto logits = std::span<const float>(activations_.back()).subspan(row * classes, classes);
    const auto highest = std::max_element(logits.begin(), logits.end()) - logits.begin();
    right += static_cast<std::size_t>(highest) == labels_[row] ? 1U : 0U;
  }
  return right;
}

float* Mlp::gradient_data(const GradientAt& gradient_at, std::size_t tensor) const {
  const BufferView view = gradient_at(tensor);
  const auto elements = static_cast<std::size_t>(tensors_[tensor].elements());
  if (view.dtype != DType::kF32 || view.count != elements || view.device != Device{}) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the gradient does not fit its buffer",
                 fmt::format("tensor '{}'", tensors_[tensor].name),
                 fmt::format("{} x {}", view.count, to_string(view.dtype)),
                 fmt::format("{} x f32 in host memory", elements),
                 ""});
  }
  return as_span<float>(view).data();
}

void Mlp::backward_layer(std::size_t layer,
                         const GradientAt& gradient_at,
                         const OnGradient& on_gradient) {
  const std::size_t in = widths_[layer];
  const std::size_t out = widths_[layer + 1];
  const float* x = activations_[layer].data();

  kernels_.bias_gradient(
      delta_.data(), gradient_data(gradient_at, bias_tensor(layer)), batch_, out);
  on_gradient(bias_tensor(layer));

  kernels_.weight_gradient(
      x, delta_.data(), gradient_data(gradient_at, weight_tensor(layer)), batch_, in, out);
  on_gradient(weight_tensor(layer));

  if (layer > 0) {
    kernels_.input_gradient(
        delta_.data(), weights_of(weight_tensor(layer)), x, next_delta_.data(), batch_, in, out);
    std::swap(delta_, next_delta_);
  }
}

}  // namespace stretto
