// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/level_cost.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace stretto::detail {
namespace {

using Levels = std::span<const CostLevel>;
/// A flat formula.
using Formula = CostLine (*)(int ranks, LinkCost link);

double rank_count(Levels levels) {
  return levels.back().inside * levels.back().members;
}

int floor_lg(int members) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(members))) - 1;
}

double reduction(Levels levels) {
  return levels.front().whole.reduce_seconds_per_byte;
}

Seconds highest_latency(Levels levels) {
  Seconds most{};
  for (const CostLevel& level : levels) {
    most = std::max(most, level.whole.latency);
  }
  return most;
}

/// Largest over the levels of a number of bytes (per byte of tensor) on each level's links.
template <typename Load>
double slowest(Levels levels, Load load) {
  double most = 0.0;
  for (const CostLevel& level : levels) {
    most = std::max(most, load(level) * level.whole.seconds_per_byte);
  }
  return most;
}

CostLine& operator+=(CostLine& sum, const CostLine& part) {
  sum.latency += part.latency;
  sum.seconds_per_byte += part.seconds_per_byte;
  return sum;
}

/// Level by level, every rank with the 1/inside of the tensor that the levels inside left it.
CostLine on_parts(Levels levels, Formula formula) {
  CostLine sum;
  for (const CostLevel& level : levels) {
    CostLine part = formula(level.members, level.share);
    part.seconds_per_byte /= level.inside;
    sum += part;
  }
  return sum;
}

/// Level by level, every rank with the whole tensor.
CostLine on_wholes(Levels levels, Formula formula) {
  CostLine sum;
  for (const CostLevel& level : levels) {
    sum += formula(level.members, level.share);
  }
  return sum;
}

/// Level by level, one rank of each member for all of them.
CostLine by_one(Levels levels, Formula formula) {
  CostLine sum;
  for (const CostLevel& level : levels) {
    sum += formula(level.members, level.whole);
  }
  return sum;
}

/// Latencies along the edges of the ring 0, 1, .. P-1, 0, each crossed once.
Seconds once_around(Levels levels) {
  Seconds sum{};
  const double ranks = rank_count(levels);
  for (const CostLevel& level : levels) {
    const bool outermost = &level == &levels.back();
    const double edges =
        ranks / level.inside - (outermost ? 0.0 : ranks / level.inside / level.members);
    sum += edges * level.whole.latency;
  }
  return sum;
}

Seconds lowest_latency(Levels levels) {
  Seconds least = levels.front().whole.latency;
  for (const CostLevel& level : levels) {
    least = std::min(least, level.whole.latency);
  }
  return least;
}

/// `phases` of P-1 steps around the ring; `added` of the tensor is added at each rank. Every step
/// loads each link of the ring with 1/P: the slowest sets the pace, while a part that goes around
/// meets all latencies but one per phase.
CostLine flat_ring(Levels levels, int phases, double added) {
  const double ranks = rank_count(levels);
  const double pace = slowest(levels, [](const CostLevel&) { return 1.0; });
  return {phases * (once_around(levels) - lowest_latency(levels)),
          phases * (ranks - 1) / ranks * pace + added * reduction(levels),
          Algorithm::kAuto};
}

/// Everybody sends 1/P to everybody at once: the link of a member carries what its ranks send to
/// the other members.
CostLine flat_direct(Levels levels, int phases, double added) {
  const double ranks = rank_count(levels);
  const double load = slowest(levels, [ranks](const CostLevel& level) {
    return level.inside * level.inside * (level.members - 1) / ranks;
  });
  return {phases * highest_latency(levels),
          phases * load + added * reduction(levels),
          Algorithm::kAuto};
}

/// One rank and all others exchange the whole tensor at once.
CostLine one_with_all(Levels levels, int phases, double added) {
  const double load =
      slowest(levels, [](const CostLevel& level) { return level.inside * (level.members - 1); });
  return {phases * highest_latency(levels),
          phases * load + added * reduction(levels),
          Algorithm::kAuto};
}

CostLine scatter_and_ring(Levels levels, double added) {
  CostLine sum = flat_ring(levels, 1, added);
  const double ranks = rank_count(levels);
  for (const CostLevel& level : levels) {
    sum.latency += floor_lg(level.members) * level.whole.latency;
    sum.seconds_per_byte +=
        level.inside * (level.members - 1) / ranks * level.whole.seconds_per_byte;
  }
  return sum;
}

/// A chain in rank order, `directions` times; 2: there and back, adding on one way. A member in the
/// middle of its group then sends both ways over its link; with two members none does.
cost::Pipeline chain(Levels levels, int directions) {
  const double added = directions - 1;
  const double ranks = rank_count(levels);
  // Without the wrap-around edge, which crosses the outermost level.
  const Seconds along = once_around(levels) - levels.back().whole.latency;
  double edges = 0.0;
  for (const CostLevel& level : levels) {
    edges +=
        ranks / level.inside / level.members * (level.members - 1) * level.whole.seconds_per_byte;
  }
  const double pace = slowest(levels, [directions](const CostLevel& level) {
    return level.members == 2 ? 1.0 : static_cast<double>(directions);
  });
  return {directions * along,
          directions * edges - pace + (ranks - 2) * added * reduction(levels),
          pace + added * reduction(levels)};
}

/// Two trees, built level by level. 1 direction: a broadcast, whose root feeds trees of all others.
cost::Pipeline double_tree(Levels levels, int directions) {
  const double ranks = rank_count(levels);
  const double added = (directions - 1) * reduction(levels);
  const bool flat = levels.size() == 1;
  Seconds fill{};
  double height = 0.0;
  for (const CostLevel& level : levels) {
    const int members = level.members - (flat && directions == 1 ? 1 : 0);
    const int levels_of_tree = floor_lg(members);
    fill += levels_of_tree * level.whole.latency;
    height += levels_of_tree;
  }
  const double pace = slowest(levels, [](const CostLevel&) { return 1.0; });
  const double load = directions == 2 ? std::min(ranks / 2, 2.0) : 1.0;
  const Seconds feed = directions == 1 ? highest_latency(levels) : Seconds(0);
  const double hops = directions == 2 ? std::max(2 * height - 1 - load, 0.0) : height;
  return {directions * fill + feed, hops * pace + height * added, load * pace + added};
}

/// Rings on the levels, switches where they add; chunks keep all levels busy at the same time.
LevelCost pipelined_levels(Levels levels, Formula formula, bool in_switch) {
  CostLine sum;
  double widest = 0.0;
  double all = 0.0;
  double adding = 0.0;
  for (const CostLevel& level : levels) {
    LinkCost link = level.share;
    link.reduce_seconds_per_byte = 0.0;
    const bool adds = in_switch && level.in_switch_efficiency > 0.0;
    const CostLine moves =
        adds ? cost::in_switch_all_reduce(level.members, link, level.in_switch_efficiency)
             : formula(level.members, link);
    const CostLine with_adding = adds ? moves : formula(level.members, level.share);
    sum.latency += moves.latency;
    widest = std::max(widest, moves.seconds_per_byte / level.inside);
    all += moves.seconds_per_byte / level.inside;
    adding += (with_adding.seconds_per_byte - moves.seconds_per_byte) / level.inside;
  }
  sum.seconds_per_byte = widest + adding;
  return {sum, {}, in_switch ? 0.0 : all - widest};
}

CostLine leader(Levels levels) {
  const Levels inner = levels.first(levels.size() - 1);
  CostLine sum = on_wholes(inner, cost::ring_reduce);
  sum += on_wholes(inner, cost::ring_broadcast);
  sum += cost::ring_all_reduce(levels.back().members, levels.back().share);
  return sum;
}

/// Rounds with the ranks 1, 2, 4.. further on, and as many parts: the far ones carry most.
CostLine bruck_all_gather(Levels levels) {
  CostLine sum;
  const auto ranks = static_cast<std::int64_t>(rank_count(levels));
  for (std::int64_t distance = 1; distance < ranks; distance *= 2) {
    sum.latency += highest_latency(levels);
    sum.seconds_per_byte += static_cast<double>(std::min(distance, ranks - distance)) /
                            static_cast<double>(ranks) *
                            slowest(levels, [distance](const CostLevel& level) {
                              return std::min(static_cast<double>(distance), level.inside);
                            });
  }
  return sum;
}

/// Rounds with the ranks 1, 2, 4.. further on; each part goes in the rounds of its distance's bits.
CostLine bruck_all_to_all(Levels levels) {
  CostLine sum;
  const auto ranks = static_cast<std::int64_t>(rank_count(levels));
  for (std::int64_t distance = 1; distance < ranks; distance *= 2) {
    sum.latency += highest_latency(levels);
    sum.seconds_per_byte += cost::bruck_parts(ranks, distance) / static_cast<double>(ranks) *
                            slowest(levels, [distance](const CostLevel& level) {
                              return std::min(static_cast<double>(distance), level.inside);
                            });
  }
  return sum;
}

/// P-1 rounds with one partner each: `inside (members - 1)` of them on a level, where all ranks of
/// a member then share its link.
CostLine pairwise_all_to_all(Levels levels) {
  CostLine sum;
  for (const CostLevel& level : levels) {
    const double partners = level.inside * (level.members - 1);
    sum.latency += partners * level.share.latency;
    sum.seconds_per_byte += partners / rank_count(levels) * level.share.seconds_per_byte;
  }
  return sum;
}

bool powers_of_two(Levels levels) {
  return std::all_of(levels.begin(), levels.end(), [](const CostLevel& level) {
    return std::has_single_bit(static_cast<unsigned>(level.members));
  });
}

bool any_switch_adds(Levels levels) {
  return std::any_of(levels.begin(), levels.end(), [](const CostLevel& level) {
    return level.in_switch_efficiency > 0.0;
  });
}

std::optional<LevelCost> of_line(const CostLine& line) {
  return LevelCost{line, {}, 0.0};
}

std::optional<LevelCost> of_pipeline(const cost::Pipeline& pipeline) {
  return LevelCost{{}, pipeline, 0.0};
}

std::optional<LevelCost> all_reduce(Levels levels, Algorithm algorithm) {
  const double others = 1 - 1 / rank_count(levels);
  switch (algorithm) {
    case Algorithm::kDirect:
      return of_line(flat_direct(levels, 2, others));
    case Algorithm::kRing:
      return of_line(flat_ring(levels, 2, others));
    case Algorithm::kRecursiveDoubling:
      return of_line(on_wholes(levels, cost::recursive_doubling_all_reduce));
    case Algorithm::kHalvingDoubling:
      return of_line(on_parts(levels, cost::halving_doubling_all_reduce));
    case Algorithm::kBinomialTree:
      return of_line(by_one(levels, cost::binomial_tree_all_reduce));
    case Algorithm::kPipelinedChain:
      return of_pipeline(chain(levels, 2));
    case Algorithm::kDoubleBinaryTree:
      return of_pipeline(double_tree(levels, 2));
    case Algorithm::kInSwitch:
      return any_switch_adds(levels)
                 ? std::optional(pipelined_levels(levels, cost::ring_all_reduce, true))
                 : std::nullopt;
    case Algorithm::kHierarchical:
      return of_line(on_parts(levels, cost::ring_all_reduce));
    case Algorithm::kHierarchicalPipelined:
      return pipelined_levels(levels, cost::ring_all_reduce, false);
    case Algorithm::kLeader:
      return of_line(leader(levels));
    case Algorithm::kParameterServer:
      return of_line(one_with_all(levels, 2, rank_count(levels) - 1));
    default:
      return std::nullopt;
  }
}

std::optional<LevelCost> reduce_scatter(Levels levels, Algorithm algorithm) {
  const double others = 1 - 1 / rank_count(levels);
  switch (algorithm) {
    case Algorithm::kDirect:
      return of_line(flat_direct(levels, 1, others));
    case Algorithm::kRing:
      return of_line(flat_ring(levels, 1, others));
    case Algorithm::kHalvingDoubling:
      return of_line(on_parts(levels, cost::recursive_halving_reduce_scatter));
    case Algorithm::kHierarchical:
      return of_line(on_parts(levels, cost::ring_reduce_scatter));
    case Algorithm::kHierarchicalPipelined:
      return pipelined_levels(levels, cost::ring_reduce_scatter, false);
    default:
      return std::nullopt;
  }
}

std::optional<LevelCost> all_gather(Levels levels, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return of_line(flat_direct(levels, 1, 0));
    case Algorithm::kRing:
      return of_line(flat_ring(levels, 1, 0));
    case Algorithm::kRecursiveDoubling:
    case Algorithm::kHalvingDoubling:
      return powers_of_two(levels) ? of_line(on_parts(levels, cost::bruck_all_gather))
                                   : std::nullopt;
    case Algorithm::kBruck:
      return of_line(bruck_all_gather(levels));
    case Algorithm::kHierarchical:
      return of_line(on_parts(levels, cost::ring_all_gather));
    case Algorithm::kHierarchicalPipelined:
      return pipelined_levels(levels, cost::ring_all_gather, false);
    default:
      return std::nullopt;
  }
}

std::optional<LevelCost> broadcast(Levels levels, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return of_line(one_with_all(levels, 1, 0));
    case Algorithm::kRing:
      return of_line(scatter_and_ring(levels, 0));
    case Algorithm::kBinomialTree:
      return of_line(by_one(levels, cost::binomial_broadcast));
    case Algorithm::kPipelinedChain:
      return of_pipeline(chain(levels, 1));
    case Algorithm::kDoubleBinaryTree:
      return of_pipeline(double_tree(levels, 1));
    default:
      return std::nullopt;
  }
}

std::optional<LevelCost> reduce(Levels levels, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return of_line(one_with_all(levels, 1, rank_count(levels) - 1));
    case Algorithm::kRing:
      return of_line(scatter_and_ring(levels, 1 - 1 / rank_count(levels)));
    case Algorithm::kBinomialTree:
      return of_line(by_one(levels, cost::binomial_reduce));
    default:
      return std::nullopt;
  }
}

std::optional<LevelCost> all_to_all(Levels levels, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return of_line(flat_direct(levels, 1, 0));
    case Algorithm::kPairwise:
      return of_line(pairwise_all_to_all(levels));
    case Algorithm::kBruck:
      return of_line(bruck_all_to_all(levels));
    case Algorithm::kHierarchical:
      return of_line(on_wholes(levels, cost::pairwise_all_to_all));
    default:
      return std::nullopt;
  }
}

std::optional<LevelCost> message(Levels levels, Algorithm algorithm) {
  const LinkCost& link = levels.back().whole;
  return algorithm == Algorithm::kDirect
             ? of_line({link.latency, link.seconds_per_byte, Algorithm::kAuto})
             : std::nullopt;
}

std::optional<LevelCost> cost_of(Levels levels, Collective collective, Algorithm algorithm) {
  switch (collective) {
    case Collective::kAllReduce:
      return all_reduce(levels, algorithm);
    case Collective::kReduceScatter:
      return reduce_scatter(levels, algorithm);
    case Collective::kAllGather:
      return all_gather(levels, algorithm);
    case Collective::kBroadcast:
      return broadcast(levels, algorithm);
    case Collective::kReduce:
      return reduce(levels, algorithm);
    case Collective::kAllToAll:
      return all_to_all(levels, algorithm);
    case Collective::kSend:
    case Collective::kRecv:
    case Collective::kSendRecv:
      return message(levels, algorithm);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::vector<CostLevel> cost_levels(const Machine& machine) {
  const double reduction = machine.reduction.value();
  const double reduce_seconds_per_byte = reduction > 0.0 ? 1 / reduction : 0.0;
  std::vector<CostLevel> levels;
  double inside = 1.0;
  for (const Level& level : machine.levels) {
    if (level.group_size > 1) {
      const LinkCost whole{level.latency, 1 / level.bandwidth.value(), reduce_seconds_per_byte};
      LinkCost share = whole;
      share.seconds_per_byte *= inside;
      levels.push_back({level.group_size, inside, whole, share, level.in_switch_efficiency});
    }
    inside *= level.group_size;
  }
  return levels;
}

std::optional<LevelCost> level_cost(std::span<const CostLevel> levels,
                                    Collective collective,
                                    Algorithm algorithm) {
  if (levels.empty()) {
    // Nobody to talk to; ask about two ranks whether the algorithm would do.
    CostLevel pair;
    pair.members = 2;
    pair.in_switch_efficiency = 1.0;
    return cost_of(std::span(&pair, 1), collective, algorithm) ? of_line({}) : std::nullopt;
  }
  std::optional<LevelCost> cost = cost_of(levels, collective, algorithm);
  if (cost) {
    cost->line.algorithm = algorithm;
  }
  return cost;
}

std::vector<Algorithm> candidates(std::span<const CostLevel> levels, Collective collective) {
  std::vector<Algorithm> found;
  for (int a = 1; a <= static_cast<int>(kLastAlgorithm); ++a) {
    const auto algorithm = static_cast<Algorithm>(a);
    // On one level the hierarchical ones are the ring under another name, and the doubling half of
    // halving-doubling is recursive doubling.
    const bool needs_levels = algorithm == Algorithm::kHierarchical ||
                              algorithm == Algorithm::kHierarchicalPipelined ||
                              algorithm == Algorithm::kLeader;
    const bool again =
        (needs_levels && levels.size() < 2) ||
        (algorithm == Algorithm::kHalvingDoubling && collective == Collective::kAllGather);
    if (!again && level_cost(levels, collective, algorithm)) {
      found.push_back(algorithm);
    }
  }
  return found;
}

std::vector<Bytes> sample_sizes(Bytes most) {
  constexpr double kPerDoubling = 8.0;
  const Bytes last = std::max(Bytes(1), most);
  std::vector<Bytes> sizes;
  for (int i = 0;; ++i) {
    const Bytes size(std::llround(std::exp2(i / kPerDoubling)));
    if (size >= last) {
      break;
    }
    if (sizes.empty() || size > sizes.back()) {
      sizes.push_back(size);
    }
  }
  sizes.push_back(last);
  return sizes;
}

}  // namespace stretto::detail
