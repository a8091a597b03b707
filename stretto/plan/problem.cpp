// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/problem.hpp"

#include <algorithm>

namespace stretto::detail {
namespace {

bool one_dtype(const StepProfile& profile) {
  return std::all_of(profile.tensors.begin(), profile.tensors.end(), [&](const ProfileTensor& t) {
    return t.dtype == profile.tensors.front().dtype;
  });
}

}  // namespace

double slowest(const SimulateOptions& options) {
  return options.compute_factor.empty()
             ? 1.0
             : *std::max_element(options.compute_factor.begin(), options.compute_factor.end());
}

Problem problem_of(const StepProfile& profile, const SimulateOptions& options) {
  // All wait for the slowest rank, and only the last of several passes communicates.
  const double factor = slowest(options);
  const Seconds before = (options.accumulate - 1) * factor * profile.backward_end;
  Problem problem;
  problem.gradients.reserve(profile.tensors.size());
  const bool serial = options.schedule == Schedule::kSerial;
  for (const ProfileTensor& tensor : profile.tensors) {
    const Seconds ready = before + factor * (serial ? profile.backward_end : tensor.ready);
    problem.gradients.push_back({ready, tensor.bytes()});
    problem.total += tensor.bytes();
  }
  problem.compute_end = before + factor * profile.backward_end;
  problem.update = factor * (profile.compute_end - profile.backward_end);
  return problem;
}

bool is_exact(const StepProfile& profile,
              const ExchangeCosts& costs,
              const SimulateOptions& options) {
  return options.schedule != Schedule::kPriority && options.sharding == Sharding::kNone &&
         options.streams == 1 && costs.compute_slowdown == 1.0 && one_dtype(profile) &&
         (!options.optimizer_per_bucket || profile.compute_end <= profile.backward_end ||
          profile.tensors.size() <= kMostTensorsToBisect);
}

const ExchangeTime& gradient_cost(const ExchangeCosts& costs, const SimulateOptions& options) {
  return options.sharding == Sharding::kNone ? costs.all_reduce : costs.reduce_scatter;
}

}  // namespace stretto::detail
