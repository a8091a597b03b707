// SPDX-License-Identifier: Apache-2.0
// Data-parallel training with LibTorch: stretto run -n 2 -- ./train
// Every rank also trains a model alone on the data of all ranks; both must come out alike.
#include <cstdint>
#include <cstdio>
#include <string>

#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "stretto/comm/connect.hpp"
#include "stretto/torch.hpp"

namespace {

struct Net : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(32, 128));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(128, 8));
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
};

torch::Tensor batch(int step, int rank) {
  torch::manual_seed(1000 * static_cast<std::uint64_t>(step) + static_cast<std::uint64_t>(rank));
  return torch::randn({16, 32});
}

torch::Tensor loss(Net& net, int step, int rank) {
  return net.forward(batch(step, rank)).square().mean();
}

}  // namespace

int main() {
  try {
    const auto communicator = stretto::connect();
    const int rank = communicator->rank();
    const int size = communicator->size();
    torch::manual_seed(1);
    Net alone;
    torch::manual_seed(1 + static_cast<std::uint64_t>(rank));  // rank 0's weights will count
    Net net;
    stretto::TorchOptions options;
    options.bucket_cap = stretto::Bytes(4096);
    stretto::TorchDataParallel parallel(net, *communicator, options);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    torch::optim::SGD optimizer_alone(alone.parameters(), 0.1);
    torch::Tensor mine;
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
      mine = loss(net, step, rank);
      mine.backward();    // gradients travel meanwhile
      parallel.finish();  // and are the mean over all ranks
      optimizer.step();

      optimizer_alone.zero_grad();
      for (int r = 0; r < size; ++r) {
        (loss(alone, step, r) / size).backward();
      }
      optimizer_alone.step();
    }
    for (const auto& parameter : net.named_parameters()) {
      if (!torch::allclose(parameter.value(), alone.named_parameters()[parameter.key()])) {
        std::fprintf(stderr, "rank %d: '%s' differs\n", rank, parameter.key().c_str());
        return 1;
      }
    }
    std::printf(
        "rank %d of %d: loss %.4f, the weights of one process\n", rank, size, mine.item<double>());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train: %s\n", error.what());
    return 1;
  }
}
