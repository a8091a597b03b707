// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/simulate/transformer.hpp"

namespace stretto {

/// Micro-batches through a pipeline whose stages may be uneven. A chunk is what one stage runs at a
/// time; chunk c of the model is on stage c % stages, so there are stages x virtual_stages of them
/// (virtual stages > 1 with the interleaved schedule only).
struct PipelineWork {
  PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward;
  int stages = 1;
  int micro_batches = 1;
  std::vector<Seconds> forward;   ///< Per chunk, in model order, of one micro-batch.
  std::vector<Seconds> backward;  ///< As many.
  Seconds send{};  ///< From a stage to the next, of one micro-batch; also of its gradient back.
};

struct PipelineOp {
  int stage = 0;
  int chunk = 0;
  int micro_batch = 0;
  bool backward = false;
  Seconds begin{};
  Seconds end{};
};

/// What each stage does and when, by stage and time.
struct PipelineRun {
  std::vector<PipelineOp> ops;
  Seconds end{};
  /// Idle time of the stage that idles least, over its work: (p-1)/m for even stages without send
  /// times under GPipe and 1F1B (Huang et al. 2019, arXiv:1811.06965; Narayanan et al. 2019,
  /// PipeDream), (p-1)/(v m) interleaved (Narayanan et al. 2021, arXiv:2104.04473).
  double bubble = 0.0;
};

/// Discrete simulation: every stage runs its operations in the order of the schedule, each as soon
/// as its input has arrived. GPipe runs backward passes in the order of the forward ones; 1F1B
/// warms up with p - 1 - stage forward passes; interleaved as Megatron-LM does, micro-batches in
/// groups of p. A send takes time on the way and none of its sender's.
/// @throws Error kInvalidArgument: chunks that do not fit the stages, unequal numbers of them,
/// negative times, or micro-batches that the interleaved schedule cannot group.
[[nodiscard]] PipelineRun simulate_pipeline(const PipelineWork& work);

/// No schedule ends earlier: for every stage, all its work, after the shortest way to it through
/// the stages before and before the shortest way back:
/// max_i [ m (f_i + b_i) + sum_{j<i} (f_j + b_j + 2 send) ], where f_i, b_i on the left are of all
/// chunks of stage i and on the right of the first chunk of stage j.
[[nodiscard]] Seconds pipeline_bound(const PipelineWork& work);

}  // namespace stretto
