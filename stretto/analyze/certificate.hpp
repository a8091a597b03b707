// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "stretto/analyze/collectives.hpp"
#include "stretto/base/units.hpp"
#include "stretto/data/summary.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/plan/planner.hpp"
#include "stretto/plan/settings.hpp"

namespace stretto {

/// What other buckets would give, of a recorded data-parallel step whose gradients travel by
/// all_reduce; or, where parameters are gathered and gradients scattered, what it would give to ask
/// for parameters earlier. All of it is the planner's model of the step, on one stream, the
/// optimizer after the last exchange; what the model does not know (late ranks, late launches,
/// jitter) stays.
struct Certificate {
  bool sharded = false;     ///< Of the second kind: no buckets are changed.
  Seconds exposed_now{};    ///< As recorded;
  Seconds exposed_model{};  ///< and as the model has it with the recorded buckets.
  Seconds exposed_best{};   ///< With the best buckets,
  Seconds exposed_bound{};  ///< and the least that any buckets could, whatever is assumed of them.
  /// What other buckets save: exposed_model - exposed_best, never more than is exposed now.
  Seconds recoverable{};
  Settings settings;        ///< For PyTorch's DistributedDataParallel, or FSDP2.
  std::string assumptions;  ///< For people.
};

/// The costs of exchanges fitted to a recording; reduce_scatter and all_gather are taken as half of
/// an all_reduce.
[[nodiscard]] ExchangeCosts costs_of(const FittedExchange& fitted, int ranks);

/// The step of a trace for planning: as step_profile_of_trace(), with each bucket but the first in
/// `pieces` equal parts that become ready evenly between the ready time of the bucket before and
/// its own. Where in that time they really do, a trace does not say; assumptions says what was
/// taken.
/// @throws Error as step_profile_of_trace().
[[nodiscard]] StepProfile planning_profile_of_trace(const Timeline& timeline,
                                                    double slowdown = 1.0,
                                                    int pieces = 8);

/// Absent where the recording does not say enough, or costs a step much longer than it was: no
/// marked steps, no costs, no exchange of known size, gradients that travel in both ways. Of
/// a step of all_reduces it takes what planning_profile_of_trace() does.
[[nodiscard]] std::optional<Certificate> certify(const Timeline& timeline,
                                                 const Summary& summary,
                                                 const ExchangeCosts& costs);

}  // namespace stretto
