// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/comm/communicator.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/run/codec_watch.hpp"
#include "stretto/run/session.hpp"
#include "stretto/workload/dataset.hpp"
#include "stretto/workload/optimizer.hpp"

namespace stretto {

struct StepProgress {
  std::uint32_t step = 0;   ///< Steps done,
  std::uint32_t steps = 0;  ///< of so many, warm-up included.
  double loss = 0.0;        ///< Of this rank's last batch; 0 where nothing is learned.
};
using OnProgress = std::function<void(const StepProgress&)>;

struct TrainOptions {
  std::vector<std::size_t> widths = {784, 512, 512, 10};
  /// Cuts mlp_tensors(widths).
  Plan plan;
  /// `op` is taken as kMean.
  SessionOptions session;
  std::size_t batch = 64;       ///< Per rank.
  std::uint32_t steps = 0;      ///< Recorded ones, after the warm-up. 0 = as `epochs` says.
  std::uint32_t epochs = 1;     ///< Warm-up included. A last batch that is not full is left out.
  std::uint32_t warmup = 5;     ///< First steps, not recorded.
  float learning_rate = 0.05F;  ///< Of one rank; see learning_rate_at().
  OptimizerOptions optimizer;
  double clip_norm = 0.0;  ///< Gradients are scaled down to this norm over all of them. 0 = never.
  std::uint64_t seed = 1;
  /// Looks whether the plan's codecs pay, all the time.
  std::optional<CodecWatchOptions> watch_codecs{};
  OnProgress on_progress;
};

struct TrainResult {
  Timeline timeline;               ///< All ranks'; on rank 0 only.
  double loss = 0.0;               ///< Of the last step, mean over ranks.
  double accuracy = 0;             ///< Part of the test images that is classified right.
  std::uint64_t weights_hash = 0;  ///< xxh64 over the raw fp32 weights in the plan's order.
  std::uint64_t plan_hash = 0;
  std::uint32_t steps = 0;                  ///< Warm-up included.
  Session::Compression compression;         ///< This rank's, of the recorded steps.
  std::vector<CodecSwitch> codec_switches;  ///< On rank 0.
  std::size_t optimizer_bytes = 0;          ///< This rank's optimizer state.
  std::string_view kernels;                 ///< Which compilation of the arithmetic ran.
};

/// Linear scaling with gradual warm-up (Goyal et al. 2017, arXiv:1706.02677): `base` x ranks,
/// because the global batch is ranks times as large, reached in a straight line from `base` over
/// the first tenth of the steps; then down to 0 in another straight line.
[[nodiscard]] float learning_rate_at(std::uint32_t step,
                                     std::uint32_t steps,
                                     float base,
                                     int ranks) noexcept;

/// Trains a network on all ranks of `communicator`, data-parallel, on the calling thread.
///
/// Each epoch has its own order of the images, the same on all ranks; rank r takes the r-th of
/// every P. So ranks x batch images make one step whatever P is. With Schedule::kOverlap gradients
/// travel while backward computes the next ones and weights are updated bucket by bucket as they
/// arrive; with kPriority they go on travelling under the next forward pass, which waits for a
/// layer's weights where it uses them. Clipping needs all gradients before the first update:
/// kOverlap then updates after the last has come, kPriority after the reductions. Recorded are
/// input, forward and backward of each layer, and the optimizer of each bucket.
///
/// Collective: equal arguments on every rank.
/// @throws Error kInvalidArgument when network, data and batch do not fit, or a sharded optimizer
/// is to
///         clip under another schedule than kPriority, or a codec's momentum is not the
///         optimizer's; kMismatch when ranks end
///         with different weights; kBackend as EmulationCheck; and as Session.
[[nodiscard]] TrainResult train(Communicator& communicator,
                                const Dataset& dataset,
                                const TrainOptions& options);

}  // namespace stretto
