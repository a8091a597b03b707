// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/run/codec_watch.hpp"
#include "stretto/run/session.hpp"
#include "stretto/workload/train.hpp"

namespace stretto {

/// What stands in for the compute of a profile.
enum class ComputeMode : std::uint8_t {
  kWait,  ///< Sleeping until the profile's times: a GPU at work does not use the CPU.
  kBusy,  ///< A fixed amount of arithmetic, which takes the profile's times while all ranks
          ///< compute and nothing else runs: on a CPU, communication costs compute time.
};

struct ReplayOptions {
  /// Cuts the profile's tensors.
  Plan plan;
  /// `op` is taken as kMean.
  SessionOptions session;
  std::uint32_t steps = 20;        ///< Recorded ones,
  std::uint32_t warmup = 3;        ///< after these.
  std::optional<Seconds> compute;  ///< Stretches all times so that compute_end becomes this.
  ComputeMode mode = ComputeMode::kWait;
  /// Looks whether the plan's codecs pay, all the time.
  std::optional<CodecWatchOptions> watch_codecs{};
  OnProgress on_progress;
};

struct ReplayResult {
  Timeline timeline;  ///< All ranks'; on rank 0 only.
  std::uint64_t plan_hash = 0;
  /// Reduced elements compared with the right result, all ranks; none where codecs lose bits.
  std::int64_t values_checked = 0;
  Session::Compression compression;         ///< This rank's, of the recorded steps.
  std::vector<CodecSwitch> codec_switches;  ///< On rank 0.
};

/// Runs steps of a profile: real ranks and real gradient bytes, with somebody else's compute times.
///
/// Every byte of the gradients is written once before the first step, the only copy of them there
/// is. In each step a sample of elements (the ends of each tensor and one in every 64 Ki) is set to
/// a value of its rank and step and looked at after the reduction, together with a neighbour that
/// was not set; a real backward pass would write the rest too, which two cores could not do for
/// eight GPUs. The optimizer's time is spent bucket by bucket, by bytes.
///
/// Collective: equal arguments on every rank.
/// @throws Error kInvalidArgument when plan and profile do not fit or a tensor is not of a floating
///         type; kMismatch when a reduced value is wrong; kBackend as EmulationCheck; and as
///         Session.
[[nodiscard]] ReplayResult replay(Communicator& communicator,
                                  const StepProfile& profile,
                                  const ReplayOptions& options);

}  // namespace stretto
