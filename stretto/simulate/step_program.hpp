// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "stretto/data/collective.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/simulate/event_engine.hpp"
#include "stretto/simulate/simulate.hpp"

/// A step of data-parallel training as the event engine runs it. Private: not installed.
namespace stretto::detail {

/// What a task of the program is, for people.
struct StepTask {
  RecordKind kind = RecordKind::kCompute;
  const std::string* name = nullptr;  ///< Of a layer or tensor of the profile, or a constant.
  std::size_t step = 0;
  std::size_t tensors_begin = 0;  ///< Tensors whose gradients are ready when it ends.
  std::size_t tensors_end = 0;
};

/// What an exchange of the program is.
struct StepExchange {
  Collective collective = Collective::kAllReduce;
  std::uint32_t bucket = 0;
  std::size_t step = 0;
};

struct StepProgram {
  Program program;
  std::vector<StepTask> tasks;          ///< Beside program.tasks.
  std::vector<StepExchange> exchanges;  ///< Beside program.exchanges.
  std::vector<std::uint32_t> first_task_of_step;
  std::vector<std::uint32_t> bucket_of_tensor;  ///< The last that holds some of it; kNoId: none.
  /// The exchange that reduces a bucket in a step.
  [[nodiscard]] std::size_t gradient_exchange(std::size_t step, std::size_t bucket) const {
    return gradients_of_step[step] + bucket;
  }
  std::vector<std::size_t> gradients_of_step;  ///< The first of each step; one per bucket.
};

/// `steps` steps after each other. Refers to names inside `profile`, which must outlive it.
[[nodiscard]] StepProgram step_program(const StepProfile& profile,
                                       const ExchangeCosts& costs,
                                       const Plan& plan,
                                       const SimulateOptions& options,
                                       std::size_t steps);

}  // namespace stretto::detail
