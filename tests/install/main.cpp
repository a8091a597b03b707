// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <vector>

#include "stretto/comm/connect.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/run/session.hpp"

int main() {
  using namespace stretto::literals;
  const auto comm = stretto::connect();  // alone, or by stretto run, torchrun, mpirun, srun
  // In backward order.
  const std::vector<stretto::TensorSpec> tensors = {{.name = "fc2.weight", .shape = {10, 512}},
                                                    {.name = "fc1.weight", .shape = {512, 784}}};
  stretto::Session session(*comm, stretto::uniform_plan(tensors, 1_MiB));
  for (int step = 0; step < 10; ++step) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {  // backward: here every gradient is 1
      std::ranges::fill(stretto::as_span<float>(session.gradient(i)), 1.0F);
      session.ready(i);  // travels from now on, while the next one is computed
    }
    session.finish();  // all have arrived, averaged over the ranks
  }
}
