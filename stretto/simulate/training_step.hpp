// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/simulate/device.hpp"
#include "stretto/simulate/pipeline.hpp"
#include "stretto/simulate/transformer.hpp"

namespace stretto {

/// One training step of a transformer, as a layout makes it.
struct TrainingStep {
  Seconds step{};
  PipelineRun pipeline;
  std::vector<Seconds> reduced;  ///< Per stage: when its gradients were reduced.
  Seconds optimizer{};           ///< Of the slowest stage; begins when all gradients are reduced,
                                 ///< for their norm is of them all.
  PassTime tensor_exchanges;     ///< Per layer and micro-batch, part of the pipeline's times.
  PassTime expert_exchanges;     ///< The same of all_to_all.
  MemoryPerRank memory;
};

/// Compute by layer_time(), head_time() and embedding_time(), collectives by collective_time() of
/// each group's view of the machine (all groups of a kind work at once), passes by
/// simulate_pipeline(). Per layer and micro-batch, none of it beside compute:
///   - tensor parallel: 2 all_reduce of bshq forward, 2 backward, and those of what is recomputed;
///     with sequence parallelism reduce_scatter + all_gather in their place, reckoned as one
///     all_reduce: the same bytes;
///   - experts: 2 all_to_all forward, 2 backward, each rank sending bs*topk*hq / tensor (tensor
///     ranks share tokens), times the imbalance.
/// Between stages bshq / tensor: Megatron-LM scatters what all tensor ranks hold.
/// Then each stage reduces its 16 bit gradients: all_reduce, or reduce_scatter and all_gather of
/// the weights under ZeRO, the same bytes; after the last backward pass, or with overlap_gradients
/// beside it (one layer's worth is left at least). ZeRO 3 also gathers the weights for each forward
/// and backward pass and reduces gradients after each, beside the compute of that pass.
/// The layout may use the first ranks of a larger machine.
/// @throws Error kInvalidArgument: check_layout(), or groups that group_view() cannot cut out.
[[nodiscard]] TrainingStep simulate_training(const TransformerShape& shape,
                                             const Layout& layout,
                                             const DeviceModel& device,
                                             const Machine& machine);

/// The same, of the first rank of each stage, as a Timeline of one step: passes as compute and,
/// after it, the exchanges within the stage; sends, gradient reduction, optimizer. `sequence` of a
/// pass is its micro-batch, of other communication the order of launch.
[[nodiscard]] Timeline training_timeline(const TransformerShape& shape,
                                         const Layout& layout,
                                         const TrainingStep& step);

}  // namespace stretto
