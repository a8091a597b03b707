// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/timeline.hpp"

namespace stretto {

/// How far a rank's clock is from another's: matched collectives end at the same moment everywhere,
/// but for microseconds.
struct ClockDifference {
  std::uint32_t rank = 0;
  std::uint32_t against = 0;  ///< The first of the ranks that are linked by collectives.
  Seconds later{};            ///< Median of how much later it ends the same collectives.
  Seconds residual{};         ///< Median distance from that median: how well it is known.
  std::int64_t collectives = 0;
};

/// Of all ranks that have a collective with another but the first of each linked set, as the
/// timeline's times are: after align_clocks() that is what is left. Empty for one rank.
[[nodiscard]] std::vector<ClockDifference> compare_clocks(const Timeline& timeline);

}  // namespace stretto
