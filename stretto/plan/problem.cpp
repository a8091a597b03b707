// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/problem.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

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
  problem.optimizer_follows = optimizer_follows(profile, options);
  problem.update = factor * (profile.compute_end - profile.backward_end);
  return problem;
}

bool is_exact(const StepProfile& profile,
              const ExchangeCosts& costs,
              const SimulateOptions& options) {
  return options.schedule != Schedule::kPriority && options.sharding == Sharding::kNone &&
         options.streams == 1 && costs.compute_slowdown == 1.0 && one_dtype(profile) &&
         (!optimizer_follows(profile, options) || profile.compute_end <= profile.backward_end ||
          profile.tensors.size() <= most_tensors_to_bisect(costs.all_reduce));
}

const ExchangeTime& gradient_cost(const ExchangeCosts& costs, const SimulateOptions& options) {
  return options.sharding == Sharding::kNone ? costs.all_reduce : costs.reduce_scatter;
}

std::size_t most_tensors_to_bisect(const ExchangeTime& cost) {
  constexpr std::size_t kOfLines = 16384;
  constexpr std::size_t kOfACurve = 1024;
  return cost.lines().empty() ? kOfACurve : kOfLines;
}

std::vector<Bytes> sizes_between(Bytes least, Bytes total, int per_factor_of_two) {
  std::vector<Bytes> sizes;
  for (int k = 0;; ++k) {
    const double factor = std::pow(2.0, static_cast<double>(k) / per_factor_of_two);
    const Bytes size(static_cast<std::int64_t>(static_cast<double>(least.count()) * factor));
    sizes.push_back(std::max(Bytes(1), std::min(size, total)));
    if (size >= total) {
      return sizes;
    }
  }
}

Evaluator::Evaluator(const StepProfile& profile,
                     const ExchangeCosts& costs,
                     SimulateOptions options)
    : profile_(profile), costs_(costs), options_(std::move(options)) {
  options_.recorded_ranks = 0;
  if (options_.schedule == Schedule::kPriority || options_.sharding != Sharding::kNone ||
      options_.streams != 1 || costs.compute_slowdown != 1.0 || !one_dtype(profile)) {
    return;
  }
  problem_ = problem_of(profile, options_);
  std::int64_t elements = 0;
  for (const ProfileTensor& tensor : profile.tensors) {
    ends_.push_back(elements += tensor.elements());
  }
}

std::optional<Seconds> Evaluator::step_in_order(const Plan& plan) const {
  if (ends_.empty() || plan.buckets.empty() || plan.tensors.size() != ends_.size()) {
    return std::nullopt;
  }
  const double update_s_per_byte =
      problem_.update.count() / std::max(1.0, static_cast<double>(problem_.total.count()));
  Seconds channel{};
  Seconds updated = problem_.compute_end;
  std::int64_t covered = 0;
  std::size_t tensor = 0;
  for (const Bucket& bucket : plan.buckets) {
    if (bucket.begin != covered || bucket.end <= covered || bucket.end > ends_.back() ||
        bucket.priority != plan.buckets.front().priority || bucket.codec.lossy()) {
      return std::nullopt;
    }
    covered = bucket.end;
    while (ends_[tensor] < covered) {
      ++tensor;
    }
    const Bytes bytes = bucket.bytes();
    channel = std::max(channel, problem_.gradients[tensor].ready) + costs_.all_reduce(bytes);
    updated = std::max(updated, channel) +
              Seconds(update_s_per_byte * static_cast<double>(bytes.count()));
  }
  if (covered != ends_.back()) {
    return std::nullopt;
  }
  return problem_.optimizer_follows ? updated
                                    : std::max(problem_.compute_end, channel) + problem_.update;
}

Seconds Evaluator::step(const Plan& plan) const {
  if (const auto step = step_in_order(plan)) {
    return *step;
  }
  return simulated_step(plan);
}

Seconds Evaluator::simulated_step(const Plan& plan) const {
  return simulate(profile_, costs_, plan, options_).step;
}

Seconds Evaluator::step(const Plan& plan, Schedule schedule) const {
  if (schedule == options_.schedule) {
    return step(plan);
  }
  SimulateOptions options = options_;
  options.schedule = schedule;
  return simulate(profile_, costs_, plan, options).step;
}

}  // namespace stretto::detail
