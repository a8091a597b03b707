// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"

namespace stretto {

/// An edge of the ring 0 -> 1 -> ... -> P-1 -> 0 and the level of the machine it crosses.
struct RingEdge {
  int from = 0;
  int to = 0;
  int level = 0;
};

/// What a ring costs whose ranks are anywhere on the machine.
struct RingOrder {
  std::vector<RingEdge> edges;  ///< One for each rank; none for one rank.
  std::vector<int> crossings;  ///< Edges by level; an outer level includes none of the inner ones'.
  int most_on_a_link = 0;      ///< Edges that leave by the link that sets the pace,
  int pace_level = -1;         ///< and that link's level.
  Seconds all_reduce{};        ///< By the ring.
};

/// Rank r at place `place_of_rank[r]`, places numbered as the machine's ranks (innermost first).
/// Every step each link carries one P-th of the tensor for every edge that leaves by it, and the
/// slowest sets the pace; a part meets all latencies around the ring but the least, twice. For
/// ranks in order this is collective_time() of the ring.
///
/// Ranks in order of places are the best a ring can do: every group must be left at least once, and
/// they leave each exactly once, on every level.
/// @throws Error kInvalidArgument: not an order of all the machine's places.
[[nodiscard]] RingOrder ring_order(const Machine& machine,
                                   std::span<const int> place_of_rank,
                                   Bytes size);
/// As above, with the ranks in order.
[[nodiscard]] RingOrder best_ring_order(const Machine& machine, Bytes size);

}  // namespace stretto
