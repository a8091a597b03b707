// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/plan/bound.hpp"
#include "stretto/simulate/simulate.hpp"

namespace stretto {

/// One bucket of a plan as the simulator sees it travel, times from the step's begin.
struct PlannedBucket {
  Bytes bytes{};
  std::size_t tensors = 0;       ///< Of which it holds all or a part.
  std::size_t first_tensor = 0;  ///< In ready order.
  std::size_t last_tensor = 0;
  Seconds ready{};
  Seconds begin{};
  Seconds end{};
  Algorithm algorithm = Algorithm::kAuto;  ///< The cheapest for its size, where costs are lines.
};

/// Another way to cut the same gradients, for comparison.
struct Alternative {
  std::string name;
  Plan plan;
  Schedule schedule = Schedule::kOverlap;
  Seconds step{};
};

/// What becomes of the plan when an input is not what it was taken for.
struct Sensitivity {
  std::string what;     ///< compute time, bandwidth, latency
  double factor = 1.0;  ///< It is so many times what it was taken for.
  Seconds step{};       ///< Of this plan then,
  Seconds best_step{};  ///< and of the one that would have been made.
};

struct PlanResult {
  Plan plan;
  Seconds step{};     ///< Predicted, in steady state.
  Seconds compute{};  ///< The same with free communication; step - compute is exposed.
  /// The least step of any cut at bounds of tensors for these costs. exact: proven so, by
  /// bucketing.hpp; else the least found (several dtypes, streams, sharding, priority, slow-down,
  /// or cut tensors that let the optimizer begin earlier).
  Seconds optimum{};
  bool optimum_is_exact = false;
  Seconds bound{};  ///< The largest of `bounds`: no schedule of this kind is quicker.
  std::vector<Bound> bounds;
  std::vector<PlannedBucket> buckets;
  std::vector<Alternative> alternatives;
  std::vector<Sensitivity> sensitivity;

  [[nodiscard]] Seconds exposed() const { return step - compute; }
  [[nodiscard]] double bound_gap_ratio() const { return step / bound - 1.0; }
  [[nodiscard]] double optimum_gap_ratio() const { return step / optimum - 1.0; }
};

/// The best buckets for a step and what exchanges cost.
///
/// With SimulateOptions as they are by default, the cut is optimal for this cost. Where the
/// optimizer takes no time or runs in one piece, many cuts are; of those that end equally early it
/// is that with the fewest buckets or that with the earliest prefixes, whichever loses less when
/// compute, latency or bandwidth are 20 % off. In the other cases (see PlanResult::optimum) it is
/// the best of these, of PyTorch's rule with its default and its best cap, of uniform caps and of
/// single tensors, by simulation.
/// @throws Error kInvalidArgument: nothing to plan (no gradients), and as simulate().
[[nodiscard]] PlanResult plan(const StepProfile& profile,
                              const ExchangeCosts& costs,
                              const SimulateOptions& options = {});

/// One row of a sweep over bucket sizes.
struct SweepPoint {
  Bytes cap{};
  std::size_t buckets = 0;
  Seconds step{};
};

/// Steps with uniform buckets of a cap, tensors split or not, for caps from `least` to the whole
/// model, `per_factor_of_two` in each octave.
[[nodiscard]] std::vector<SweepPoint> sweep_caps(const StepProfile& profile,
                                                 const ExchangeCosts& costs,
                                                 const SimulateOptions& options,
                                                 bool split,
                                                 Bytes least,
                                                 int per_factor_of_two);

/// Where a sweep of this model begins: 64 KiB, or a 16384th of a model that is larger than 1 GiB.
[[nodiscard]] Bytes least_cap_to_sweep(const StepProfile& profile);

/// The best cap for PyTorch's DistributedDataParallel, which takes one number and splits no tensor.
struct BestCap {
  Bytes cap{};        ///< Of the caps that give this plan, the roundest number of MiB.
  Bytes first_cap{};  ///< Of the first bucket: the same, or PyTorch's 1 MiB.
  Plan plan;
  Seconds step{};
};
/// Every cap that makes a difference is tried up to 256 tensors, up to 1024 sizes in geometric
/// order for more. `own_first`: the first bucket keeps its cap of 1 MiB (PyTorch before its pull
/// request 121640, or with no cap given).
[[nodiscard]] BestCap best_ddp_cap(const StepProfile& profile,
                                   const ExchangeCosts& costs,
                                   const SimulateOptions& options,
                                   bool own_first);

/// Times multiplied by `factor`; sizes as they are.
[[nodiscard]] StepProfile scaled(const StepProfile& profile, double factor);

}  // namespace stretto
