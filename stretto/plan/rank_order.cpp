// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/rank_order.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

void check(const Machine& machine, std::span<const int> place_of_rank) {
  std::vector<int> sorted(place_of_rank.begin(), place_of_rank.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> all(static_cast<std::size_t>(machine.ranks()));
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the ranks are no order of the machine's places",
                 machine.name,
                 std::to_string(place_of_rank.size()) + " places",
                 "each of 0 to " + std::to_string(machine.ranks() - 1) + " once",
                 ""});
  }
}

/// Edges that leave each member of each level by its link.
std::vector<std::vector<int>> edges_by_link(const Machine& machine,
                                            std::span<const RingEdge> edges,
                                            std::span<const int> place_of_rank) {
  std::vector<std::vector<int>> leaving;
  std::vector<int> inside;
  int ranks_inside = 1;
  for (const Level& level : machine.levels) {
    leaving.emplace_back(static_cast<std::size_t>(machine.ranks() / ranks_inside), 0);
    inside.push_back(ranks_inside);
    ranks_inside *= level.group_size;
  }
  for (const RingEdge& edge : edges) {
    const auto level = static_cast<std::size_t>(edge.level);
    const int member = place_of_rank[static_cast<std::size_t>(edge.from)] / inside[level];
    ++leaving[level][static_cast<std::size_t>(member)];
  }
  return leaving;
}

}  // namespace

RingOrder ring_order(const Machine& machine, std::span<const int> place_of_rank, Bytes size) {
  check(machine, place_of_rank);
  RingOrder order;
  order.crossings.assign(machine.levels.size(), 0);
  const int ranks = machine.ranks();
  if (ranks < 2) {
    return order;
  }
  Seconds around{};
  Seconds least = Seconds::max();
  for (int rank = 0; rank < ranks; ++rank) {
    const int next = (rank + 1) % ranks;
    const int level = machine.level_between(place_of_rank[static_cast<std::size_t>(rank)],
                                            place_of_rank[static_cast<std::size_t>(next)]);
    order.edges.push_back({rank, next, level});
    ++order.crossings[static_cast<std::size_t>(level)];
    const Seconds latency = machine.levels[static_cast<std::size_t>(level)].latency;
    around += latency;
    least = std::min(least, latency);
  }
  const auto leaving = edges_by_link(machine, order.edges, place_of_rank);
  double pace = 0.0;
  for (std::size_t level = 0; level < leaving.size(); ++level) {
    const int most = *std::max_element(leaving[level].begin(), leaving[level].end());
    const double per_byte = most / machine.levels[level].bandwidth.value();
    if (per_byte > pace) {
      pace = per_byte;
      order.most_on_a_link = most;
      order.pace_level = static_cast<int>(level);
    }
  }
  const double part = static_cast<double>(size.count()) * (ranks - 1) / ranks;
  const double reduction = machine.reduction.value();
  const Seconds adding(reduction > 0.0 ? part / reduction : 0.0);
  order.all_reduce =
      size > Bytes(0) ? 2 * (around - least) + Seconds(2 * part * pace) + adding : Seconds(0);
  return order;
}

RingOrder best_ring_order(const Machine& machine, Bytes size) {
  std::vector<int> places(static_cast<std::size_t>(machine.ranks()));
  std::iota(places.begin(), places.end(), 0);
  return ring_order(machine, places, size);
}

}  // namespace stretto
