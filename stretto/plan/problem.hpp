// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/plan/bound.hpp"
#include "stretto/simulate/simulate.hpp"

/// What the files of the planner share. Private: not installed.
namespace stretto::detail {

/// The step as bucketing.hpp looks at it.
struct Problem {
  std::vector<ReadyBytes> gradients;
  Seconds compute_end{};  ///< Backward is over.
  Seconds update{};       ///< The optimizer, on all bytes.
  Bytes total{};
};
[[nodiscard]] Problem problem_of(const StepProfile& profile, const SimulateOptions& options);

/// Compute of the rank that all wait for, relative to the profile.
[[nodiscard]] double slowest(const SimulateOptions& options);

/// Whether the least end of communication on one stream is the whole question.
[[nodiscard]] bool is_exact(const StepProfile& profile,
                            const ExchangeCosts& costs,
                            const SimulateOptions& options);

/// Of the exchange that reduces gradients.
[[nodiscard]] const ExchangeTime& gradient_cost(const ExchangeCosts& costs,
                                                const SimulateOptions& options);

/// More tries of buckets_before_update() than this take too long: the optimizer then counts as one
/// piece, and the cut is not proven.
inline constexpr std::size_t kMostTensorsToBisect = 1024;

/// Evaluates plans of one profile, as the caller's options ask.
class Evaluator {
 public:
  Evaluator(const StepProfile& profile, const ExchangeCosts& costs, SimulateOptions options)
      : profile_(profile), costs_(costs), options_(std::move(options)) {
    options_.recorded_ranks = 0;
  }
  [[nodiscard]] Seconds step(const Plan& plan) const {
    return simulate(profile_, costs_, plan, options_).step;
  }
  [[nodiscard]] Seconds step(const Plan& plan, Schedule schedule) const {
    SimulateOptions options = options_;
    options.schedule = schedule;
    return simulate(profile_, costs_, plan, options).step;
  }

 private:
  const StepProfile& profile_;
  const ExchangeCosts& costs_;
  SimulateOptions options_;
};

/// The bounds that hold for this kind of schedule.
[[nodiscard]] std::vector<Bound> bounds_of(const StepProfile& profile,
                                           const Problem& problem,
                                           const ExchangeCosts& costs,
                                           const SimulateOptions& options);

}  // namespace stretto::detail
