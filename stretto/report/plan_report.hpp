// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stretto/data/step_profile.hpp"
#include "stretto/plan/planner.hpp"

namespace stretto {

/// The answer in one line: the step, what of it is exposed, how little any schedule could take.
[[nodiscard]] std::string verdict(const PlanResult& result);

/// Verdict, comparison with what others do, bounds with what they assume, the buckets, and how all
/// of it holds when an input is off.
[[nodiscard]] std::string text_plan(const PlanResult& result);

/// A mark on a sweep: a rule of thumb.
struct SweepMark {
  std::string name;
  Bytes cap{};
};
/// Step over bucket size: a table of marked caps with their distance to the best, and a plot.
[[nodiscard]] std::string text_sweep(const PlanResult& result,
                                     const std::vector<SweepPoint>& points,
                                     const std::vector<SweepMark>& marks,
                                     int columns);

/// A JSON object: predicted_step_s, optimum_s, bound_s, the gaps, buckets, alternatives, bounds,
/// sensitivity.
[[nodiscard]] std::string to_json(const PlanResult& result);

}  // namespace stretto
