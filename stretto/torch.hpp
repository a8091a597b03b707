// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include "stretto/base/error.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/run/session.hpp"

/// For C++ programs on LibTorch, which has no DistributedDataParallel. Only in this header: nothing
/// of the library includes it, and the program that does links torch itself.
///
///     auto communicator = stretto::connect();
///     stretto::TorchDataParallel parallel(*model, *communicator);
///     for (...) {
///       optimizer.zero_grad(/*set_to_none=*/false);
///       loss.backward();    // gradients travel meanwhile
///       parallel.finish();  // and are the mean over all ranks
///       optimizer.step();
///     }
namespace stretto {

struct TorchOptions {
  /// Larger tensors are split.
  Bytes bucket_cap = Bytes(4 << 20);
  SessionOptions session;
  /// Rank 0's parameters and buffers go to all ranks first.
  bool broadcast = true;
};

/// Averages the gradients of a module over all ranks, while backward computes the others.
///
/// Parameters in host memory that need a gradient, in the reverse order of their registration
/// (which is backward's in most models; Session::replan() cuts them otherwise). Each must get a
/// gradient in every backward. Gradients are views into the Session's memory: a
/// zero_grad(set_to_none=true) costs one copy per step. The module must outlive this object, whose
/// hooks take the place of other post-accumulate hooks of its parameters; the object may not move,
/// and is used by one thread.
class TorchDataParallel {
 public:
  /// Collective.
  /// @throws Error kMismatch on all ranks if their models differ; kUnavailable for parameters that
  ///         are not in host memory; kInvalidArgument for types that have no mean.
  TorchDataParallel(torch::nn::Module& module,
                    Communicator& communicator,
                    const TorchOptions& options = {});
  ~TorchDataParallel();
  TorchDataParallel(const TorchDataParallel&) = delete;
  TorchDataParallel& operator=(const TorchDataParallel&) = delete;

  /// After every backward() outside accumulate(). @throws Error as Session::finish() does.
  void finish() {
    session_->finish();
    session_->drain();  // the optimizer reads all of it
  }
  /// While it lives, gradients of several micro-batches add up on this rank.
  [[nodiscard]] Session::Hold accumulate() { return session_->accumulate(); }
  [[nodiscard]] Session& session() noexcept { return *session_; }

 private:
  struct Hook;
  struct Tracked {
    torch::Tensor parameter;
    torch::Tensor view;  // what its gradient is
  };

  void ready(std::size_t i);
  [[nodiscard]] static DType dtype_of(const torch::Tensor& tensor, const std::string& name);
  static void broadcast(const torch::Tensor& tensor,
                        const std::string& name,
                        Communicator& communicator);

  std::vector<Tracked> tracked_;  // as in the plan
  std::unique_ptr<Session> session_;
};

struct TorchDataParallel::Hook final : torch::autograd::PostAccumulateGradHook {
  Hook(TorchDataParallel& owner_in, std::size_t i_in) : owner(owner_in), i(i_in) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override { owner.ready(i); }
  TorchDataParallel& owner;
  std::size_t i;
};

inline TorchDataParallel::TorchDataParallel(torch::nn::Module& module,
                                            Communicator& communicator,
                                            const TorchOptions& options) {
  std::vector<TensorSpec> specs;
  const auto parameters = module.named_parameters();
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const torch::Tensor& parameter = parameters[i].value();
    if (parameter.requires_grad() && parameter.numel() > 0) {
      const std::string& name = parameters[i].key();
      specs.push_back({name, dtype_of(parameter, name), parameter.sizes().vec()});
      tracked_.push_back({parameter, {}});
    }
  }
  if (options.broadcast) {
    for (const auto& parameter : parameters) {
      broadcast(parameter.value(), parameter.key(), communicator);
    }
    for (const auto& buffer : module.named_buffers()) {
      broadcast(buffer.value(), buffer.key(), communicator);
    }
  }
  session_ = std::make_unique<Session>(
      communicator, uniform_plan(std::move(specs), options.bucket_cap), options.session);
  for (std::size_t i = 0; i < tracked_.size(); ++i) {
    Tracked& tracked = tracked_[i];
    tracked.view = torch::from_blob(session_->gradient(i).data,
                                    tracked.parameter.sizes(),
                                    torch::dtype(tracked.parameter.scalar_type()));
    tracked.view.zero_();
    tracked.parameter.mutable_grad() = tracked.view;
    torch::autograd::impl::set_post_acc_grad_hooks(tracked.parameter,
                                                   std::make_unique<Hook>(*this, i));
  }
}

inline TorchDataParallel::~TorchDataParallel() {
  for (const Tracked& tracked : tracked_) {
    torch::autograd::impl::set_post_acc_grad_hooks(tracked.parameter, nullptr);
    // The memory of the views goes with the Session.
    torch::Tensor& gradient = tracked.parameter.mutable_grad();
    if (gradient.defined() && gradient.data_ptr() == tracked.view.data_ptr()) {
      gradient = tracked.view.clone();
    }
  }
}

inline void TorchDataParallel::ready(std::size_t i) {
  const Tracked& tracked = tracked_[i];
  torch::Tensor& gradient = tracked.parameter.mutable_grad();
  if (!gradient.defined()) {
    gradient = tracked.view.zero_();  // a function's backward gave none: zeros, to the other ranks
  } else if (gradient.data_ptr() != tracked.view.data_ptr()) {
    const at::NoGradGuard no_grad;
    gradient = tracked.view.copy_(gradient);  // made anew, as after zero_grad(true)
  }
  session_->ready(i);
}

inline DType TorchDataParallel::dtype_of(const torch::Tensor& tensor, const std::string& name) {
  if (!tensor.device().is_cpu()) {
    throw Error(ErrorCode::kUnavailable,
                {"TorchDataParallel reaches host memory only",
                 "tensor '" + name + "'",
                 tensor.device().str(),
                 "cpu",
                 "Move the module to the CPU."});
  }
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::kF32;
    case at::kDouble:
      return DType::kF64;
    case at::kHalf:
      return DType::kF16;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kInt:
      return DType::kI32;
    case at::kLong:
      return DType::kI64;
    default:
      throw Error(ErrorCode::kInvalidArgument,
                  {"a tensor has a type that cannot be sent",
                   "tensor '" + name + "'",
                   at::toString(tensor.scalar_type()),
                   "float, double, half, bfloat16, int or long",
                   "Convert it, or pass TorchOptions{.broadcast = false} if it is a buffer."});
  }
}

inline void TorchDataParallel::broadcast(const torch::Tensor& tensor,
                                         const std::string& name,
                                         Communicator& communicator) {
  if (!tensor.defined() || tensor.numel() == 0) {
    return;
  }
  const at::NoGradGuard no_grad;
  const torch::Tensor dense = tensor.detach().contiguous();
  BufferView view;
  view.data = static_cast<std::byte*>(dense.data_ptr());
  view.count = static_cast<std::size_t>(dense.numel());
  view.dtype = dtype_of(tensor, name);
  communicator.broadcast(view, 0).wait();
  if (!tensor.is_contiguous()) {
    tensor.detach().copy_(dense);
  }
}

}  // namespace stretto
