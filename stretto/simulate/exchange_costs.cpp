// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "stretto/simulate/collective_cost.hpp"
#include "stretto/simulate/simulate.hpp"

namespace stretto {

const CodecCost* ExchangeCosts::codec(const CodecSpec& codec) const noexcept {
  const auto found = std::find_if(
      codecs.begin(), codecs.end(), [&](const CodecCost& cost) { return cost.codec() == codec; });
  return found == codecs.end() ? nullptr : &*found;
}

namespace {

/// The levels [begin, end) of it alone, outer links as they are: shared by what lies inside.
Machine levels_of(const Machine& machine, std::size_t begin, std::size_t end) {
  Machine part = machine;
  part.curves.clear();  // of all ranks
  part.levels.assign(machine.levels.begin() + static_cast<std::ptrdiff_t>(begin),
                     machine.levels.begin() + static_cast<std::ptrdiff_t>(end));
  return part;
}

/// Codecs in buckets of one algorithm. What has an exchange of its own goes directly from each to
/// each; under kHierarchical between nodes, and dense inside them.
std::vector<CodecCost> codec_costs_on(const Machine& machine,
                                      Algorithm algorithm,
                                      Bytes most,
                                      const ExchangeTime& ridden) {
  const int ranks = machine.ranks();
  if (ranks < 2) {
    return codec_costs(machine.codecs, {}, {}, ranks);
  }
  std::size_t first = 0;  // the innermost level with several ranks
  while (machine.levels[first].group_size < 2) {
    ++first;
  }
  const Machine node = levels_of(machine, 0, first + 1);
  const bool nodes = algorithm == Algorithm::kHierarchical && node.ranks() < ranks;
  const Machine between = nodes ? levels_of(machine, first + 1, machine.levels.size()) : machine;
  std::optional<CodecCost::Inside> inside;
  if (nodes) {
    inside = {exchange_time(node, Collective::kReduceScatter, Algorithm::kRing, most),
              exchange_time(node, Collective::kAllGather, Algorithm::kRing, most),
              node.ranks()};
  }
  const Bytes all(most.count() * between.ranks());
  const ExchangeTime reduced =
      exchange_time(between, Collective::kAllReduce, Algorithm::kDirect, most);
  const ExchangeTime gathered =
      exchange_time(between, Collective::kAllGather, Algorithm::kDirect, all);
  std::vector<CodecCost> costs;
  for (const CodecRate& rate : machine.codecs) {
    const CodecExchange exchange = exchange_of(rate.codec);
    const bool own = exchange == CodecExchange::kTwoShot || exchange == CodecExchange::kGather;
    if (own || !nodes) {
      costs.emplace_back(rate, reduced, gathered, ranks, inside);
    } else {
      costs.emplace_back(rate, ridden, gathered, ranks);
    }
  }
  return costs;
}

}  // namespace

ExchangeCosts exchange_costs(const Machine& machine, Algorithm algorithm, Bytes most) {
  ExchangeCosts costs;
  costs.ranks = machine.ranks();
  costs.compute_slowdown = machine.compute_slowdown;
  if (costs.ranks > 1) {
    costs.all_reduce = exchange_time(machine, Collective::kAllReduce, algorithm, most);
    // An algorithm of all-reduce need not be one of its halves.
    const auto half = [&](Collective collective) {
      const bool both = algorithm == Algorithm::kDirect || algorithm == Algorithm::kRing ||
                        algorithm == Algorithm::kHierarchical;
      return exchange_time(machine, collective, both ? algorithm : Algorithm::kAuto, most);
    };
    costs.reduce_scatter = half(Collective::kReduceScatter);
    costs.all_gather = half(Collective::kAllGather);
  }
  if (!machine.codecs.empty()) {
    costs.codecs = codec_costs_on(machine, algorithm, most, costs.all_reduce);
  }
  return costs;
}

ExchangeCosts scaled(ExchangeCosts costs, double latency, double seconds_per_byte) {
  for (ExchangeTime* time : {&costs.all_reduce, &costs.reduce_scatter, &costs.all_gather}) {
    *time = time->scaled(latency, seconds_per_byte);
  }
  for (CodecCost& cost : costs.codecs) {
    cost = cost.scaled(latency, seconds_per_byte);
  }
  return costs;
}

Simulation simulate(const StepProfile& profile,
                    const Machine& machine,
                    const Plan& plan,
                    const SimulateOptions& options) {
  // One algorithm for the whole plan is the usual case, and what the buckets say counts.
  Algorithm algorithm = plan.buckets.empty() ? Algorithm::kAuto : plan.buckets.front().algorithm;
  for (const Bucket& bucket : plan.buckets) {
    algorithm = bucket.algorithm == algorithm ? algorithm : Algorithm::kAuto;
  }
  return simulate(profile, exchange_costs(machine, algorithm, plan.bytes()), plan, options);
}

}  // namespace stretto
