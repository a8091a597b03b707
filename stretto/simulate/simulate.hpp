// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/simulate/codec_cost.hpp"
#include "stretto/simulate/exchange_time.hpp"

namespace stretto {

/// What a rank keeps of what all ranks hold together (ZeRO, Rajbhandari et al. 2020,
/// arXiv:1910.02054, section 5).
enum class Sharding : std::uint8_t {
  kNone,
  kOptimizer,   ///< ZeRO-1: gradients are reduce-scattered, each rank updates its part, parameters
                ///< are all-gathered after it.
  kGradients,   ///< ZeRO-2: the same traffic; each rank keeps its part of the gradients only.
  kParameters,  ///< ZeRO-3, FSDP: parameters are all-gathered before each use, forward and
                ///< backward.
};

struct SimulateOptions {
  Schedule schedule = Schedule::kOverlap;
  Sharding sharding = Sharding::kNone;
  /// Exchanges under way at once: bucket b goes on stream b modulo this; 0: each on its own. The
  /// wire carries one at a time whatever this is; what streams overlap is latency.
  int streams = 1;
  Bytes segment{};     ///< After so many a more urgent bucket may overtake; 0: never.
  int accumulate = 1;  ///< Forward and backward passes per step; only the last one communicates.
  /// With kParameters: how many buckets ahead of their use all-gathers are launched. With kPriority
  /// and sharding: how many layers ahead of their use parameters are updated.
  int prefetch = 1;
  /// The optimizer's time is spent bucket by bucket, by bytes, as each becomes available; else, or
  /// if the profile says `optimizer_after_exchanges`, in one piece after the last (PyTorch).
  bool optimizer_per_bucket = true;
  /// What each rank's compute takes, relative to the profile. Empty: all 1. Ranks that are equal
  /// are simulated once.
  std::vector<double> compute_factor;
  /// How many ranks the Timeline may show: all if that is enough, else one of each speed; of equal
  /// ones always one. 0: no Timeline is made.
  std::size_t recorded_ranks = 64;
};

/// Whether the optimizer follows on each bucket: unless options or profile say that it comes last.
[[nodiscard]] inline bool optimizer_follows(const StepProfile& profile,
                                            const SimulateOptions& options) noexcept {
  return options.optimizer_per_bucket && !profile.optimizer_after_exchanges;
}

/// What exchanges cost, with what happens beside them.
struct ExchangeCosts {
  ExchangeTime all_reduce;
  ExchangeTime reduce_scatter;
  ExchangeTime all_gather;
  int ranks = 1;
  double compute_slowdown = 1.0;
  std::vector<CodecCost> codecs;  ///< What buckets with these codecs take instead of all_reduce.

  /// Null for one that has no price here.
  [[nodiscard]] const CodecCost* codec(const CodecSpec& codec) const noexcept;
};

/// The costs of `machine` for messages of up to `most` bytes, its codecs included.
/// @throws Error as exchange_time().
[[nodiscard]] ExchangeCosts exchange_costs(const Machine& machine, Algorithm algorithm, Bytes most);

/// As they would be with latencies and times per byte multiplied by these; what codecs compute
/// stays.
[[nodiscard]] ExchangeCosts scaled(ExchangeCosts costs, double latency, double seconds_per_byte);

struct Simulation {
  /// Of the step, one record per thing, as a run would give; with kPriority of the two before it
  /// too, whose exchanges reach into it.
  Timeline timeline;
  /// Of a step in steady state: from its begin to the begin of the next. With kSerial and kOverlap
  /// every step is alike and this is its length.
  Seconds step{};
  Seconds communication_end{};  ///< Last exchange, from the step's begin.
  /// False when steps of kPriority did not come to repeat: `step` is then the mean of the last
  /// ones.
  bool steady = true;
  std::int64_t events = 0;
};

/// Predicts steps of `profile` whose gradients travel as `plan` says.
///
/// Compute runs in the profile's order. A bucket is released when the last of its tensors is ready
/// on the slowest rank, begins when its stream and the wire are free, and ends its cost later; the
/// optimizer's part of it comes then. Compute takes `compute_slowdown` times as long while an
/// exchange is under way. With kPriority the next step's forward pass begins at once, and waits for
/// a layer's parameters where it uses them; steps are simulated until they repeat.
///
/// @throws Error kInvalidArgument when plan and profile do not fit or an option is not possible;
///         kUnavailable for a codec that `costs` has no price for, and with sharding.
[[nodiscard]] Simulation simulate(const StepProfile& profile,
                                  const ExchangeCosts& costs,
                                  const Plan& plan,
                                  const SimulateOptions& options = {});

/// As above, with the costs of the plan's bucket algorithms on `machine`.
[[nodiscard]] Simulation simulate(const StepProfile& profile,
                                  const Machine& machine,
                                  const Plan& plan,
                                  const SimulateOptions& options = {});

}  // namespace stretto
