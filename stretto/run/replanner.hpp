// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/run/session.hpp"

namespace stretto {

/// What the last steps of this rank took, for somebody who may know a better plan.
struct StepStats {
  std::uint32_t steps = 0;  ///< Finished since the Replanner began.
  Seconds step{};           ///< Median of the last window.
  Seconds expected{};       ///< What it should have been.
};

/// A plan and what a step should take with it.
struct ExpectedPlan {
  Plan plan;
  Seconds expected{};
};

struct ReplannerOptions {
  /// Of a step under the Session's plan, as predicted; 0: what the first window measures.
  Seconds expected{};
  std::uint32_t window = 20;  ///< Steps between two looks.
  double drift = 0.1;         ///< A look that differs by more than this fraction asks for a plan.
  /// A plan must be expected to gain this fraction of the measured step, or all stays as it is:
  /// to agree on another plan costs time too.
  double least_gain = 0.02;
  /// Monotonic time; empty: the steady clock.
  std::function<Seconds()> now;
};

/// Gives a Session another plan when its steps drift from what was expected. Rank 0 measures and
/// decides for all. Every rank has one, and outlives none of what it is given.
class Replanner {
 public:
  /// On rank 0 only. Nothing: no better plan is known.
  using Decide = std::function<std::optional<ExpectedPlan>(const StepStats& stats)>;

  Replanner(Communicator& communicator,
            Session& session,
            Decide decide,
            ReplannerOptions options = {});

  /// After finish(), on every rank. Collective in the last step of each window, where it drains a
  /// Session under Schedule::kPriority if there is a new plan.
  /// @return whether the plan is another one now.
  /// @throws Error as Session::replan(); on rank 0 also what `decide` throws, after the others have
  ///         been told that nothing changes.
  bool step_finished();

 private:
  [[nodiscard]] std::optional<Plan> look();

  Communicator& communicator_;
  Session& session_;
  Decide decide_;
  ReplannerOptions options_;
  std::uint32_t steps_ = 0;
  Seconds last_{};
  std::vector<double> window_;
};

}  // namespace stretto
