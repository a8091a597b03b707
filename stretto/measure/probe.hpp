// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/measure/fit.hpp"
#include "stretto/measure/sampling.hpp"

namespace stretto {

struct ProbeOptions {
  /// Members of each level's groups, innermost first, as in Machine; their product is the number of
  /// ranks. {ranks}: one level.
  std::vector<int> group_sizes;
  Bytes least{8};                         ///< First message; each next is four times as large,
  Bytes most{4 << 20};                    ///< up to this,
  Seconds longest{0.05};                  ///< or until one takes as long as this.
  Progress progress = Progress::kCaller;  ///< As in MeasureOptions,
  bool one_clock = false;                 ///< and this.
  int warmup = 3;
  StopRule stop{20, 200, 0.02, Seconds(0.4)};
  std::function<void(std::size_t done, std::size_t all)> on_progress;  ///< In levels.
};

/// One level's links.
struct LevelProbe {
  int level = 0;    ///< Index into group_sizes.
  int sharing = 1;  ///< Ranks that share one link: those inside one member of the level.
  std::vector<CurvePoint> points;  ///< Bytes through one link in one direction; p10 of the times.
  std::vector<Spread> spreads;     ///< Of the same.
  LineFit line;
  std::vector<FitSegment> segments;
};

/// @throws Error kInvalidArgument if groups of these sizes do not hold the ranks, as probe_levels()
///         would.
void check_group_sizes(std::span<const int> group_sizes, int ranks);

/// Collective. Level by level, every rank sends a message to the rank with its own place in the
/// next member of its group, and receives one from the member before, all at once: so each link
/// carries the messages of all ranks that share it, and nothing crosses a higher level. The line
/// through size and time is the level's latency and bandwidth, free of what a collective does with
/// them.
///
/// The time of a size is the tenth percentile of its samples: a link's speed is what it does when
/// nobody disturbs the ranks. Levels with one member have no links and are left out.
/// @throws Error kInvalidArgument: group sizes whose product is not the number of ranks.
[[nodiscard]] std::vector<LevelProbe> probe_levels(Communicator& communicator,
                                                   const ProbeOptions& options);

/// What was measured as a machine, basis kMeasured. `names` are of the levels, by
/// LevelProbe::level; missing ones are made up. No probes: one rank.
[[nodiscard]] Machine measured_machine(std::string name,
                                       std::string source,
                                       std::span<const LevelProbe> probes,
                                       std::span<const int> group_sizes,
                                       std::span<const std::string> names,
                                       std::vector<CollectiveCurve> curves);

}  // namespace stretto
