// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stretto/data/machine.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/data/summary.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/plan/bound.hpp"

namespace stretto {

struct AnalyzeOptions {
  std::int64_t samples_per_step = 0;   ///< All ranks together; 0 = unknown.
  std::optional<Machine> machine{};    ///< For the bound;
  std::optional<ExchangeCost> cost{};  ///< or, without a machine, what an exchange costs.
  /// The bound leaves idle time that no communication runs in as it is (a device that waits for its
  /// host): the step minus what is exposed is then what the bound cannot go below, not compute.
  bool keep_idle = false;
  std::optional<Seconds> one_rank_step{};  ///< For the scaling efficiency, from a 1-rank run.
};

/// The numbers of a Timeline. Definitions stand at Summary's fields. Per rank and step, inside the
/// step's own interval: compute = union of compute records, communication = union of kCommunication
/// records, exposed = communication minus compute.
/// The bound is that of one iteration, or of cross_iteration_bounds() where a run or a simulation
/// has exchanges that reach into the next step (Schedule::kPriority). Times "from the start of the
/// step" are from each rank's own, so that clocks need not agree.
/// @throws Error kInvalidArgument when there is no whole step in it, or the machine has another
///         number of ranks than the job had.
[[nodiscard]] Summary analyze(const Timeline& timeline, const AnalyzeOptions& options = {});

/// One step of one rank.
struct StepNumbers {
  std::uint32_t rank = 0;
  std::uint32_t step = 0;
  std::string name;  ///< Of its kStep record.
  Seconds begin{};   ///< From the timeline's origin.
  Seconds length{};
  Seconds compute{};
  Seconds communication{};
  Seconds exposed{};
  std::int64_t launches = 0;
};
/// All steps that every rank recorded whole, by step, then rank. Empty if there is none.
[[nodiscard]] std::vector<StepNumbers> step_numbers(const Timeline& timeline);

/// What the same steps do without communication: ready times of tensors as recorded (median over
/// steps, latest rank), kMeasured. `shape` names the tensors, with their sizes, and the model. The
/// result has them in the order they became ready. Waiting is left out: the optimizer follows
/// backward at once.
/// @throws Error kInvalidArgument when there is no whole step, or a tensor without a kReady record.
[[nodiscard]] StepProfile step_profile(const Timeline& timeline, const StepProfile& shape);

}  // namespace stretto
