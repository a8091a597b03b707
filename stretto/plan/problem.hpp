// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/plan/bound.hpp"
#include "stretto/simulate/simulate.hpp"

/// What the files of the planner share. Private: not installed.
namespace stretto::detail {

/// The step as bucketing.hpp looks at it.
struct Problem {
  std::vector<ReadyBytes> gradients;
  Seconds compute_end{};          ///< Backward is over.
  Seconds update{};               ///< The optimizer, on all bytes.
  bool optimizer_follows = true;  ///< Each bucket; else it comes in one piece after the last.
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

/// With more tensors than this buckets_before_update() takes too long: the optimizer then counts as
/// one piece, and the cut is not proven.
[[nodiscard]] std::size_t most_tensors_to_bisect(const ExchangeTime& cost);

/// Sizes from `least` to `total`, `per_factor_of_two` in each octave.
[[nodiscard]] std::vector<Bytes> sizes_between(Bytes least, Bytes total, int per_factor_of_two);

/// Evaluates plans of one profile, as the caller's options ask.
class Evaluator {
 public:
  Evaluator(const StepProfile& profile, const ExchangeCosts& costs, SimulateOptions options);
  /// What simulate() says, but for rounding. On one stream whose buckets go in order, all alike and
  /// without slow-down, that is a sum of maxima: a tenth of the time or less.
  [[nodiscard]] Seconds step(const Plan& plan) const;
  [[nodiscard]] Seconds step(const Plan& plan, Schedule schedule) const;
  /// To the last digit.
  [[nodiscard]] Seconds simulated_step(const Plan& plan) const;

 private:
  [[nodiscard]] std::optional<Seconds> step_in_order(const Plan& plan) const;

  const StepProfile& profile_;
  const ExchangeCosts& costs_;
  SimulateOptions options_;
  Problem problem_;
  std::vector<std::int64_t> ends_;  ///< Elements up to each tensor; empty: step_in_order() cannot.
};

/// The bounds that hold for this kind of schedule.
[[nodiscard]] std::vector<Bound> bounds_of(const StepProfile& profile,
                                           const Problem& problem,
                                           const ExchangeCosts& costs,
                                           const SimulateOptions& options);

}  // namespace stretto::detail
