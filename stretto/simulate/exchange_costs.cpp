// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stretto/simulate/collective_cost.hpp"
#include "stretto/simulate/simulate.hpp"

namespace stretto {

const CodecCost* ExchangeCosts::codec(const CodecSpec& codec) const noexcept {
  const auto found = std::find_if(
      codecs.begin(), codecs.end(), [&](const CodecCost& cost) { return cost.codec() == codec; });
  return found == codecs.end() ? nullptr : &*found;
}

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
    // What ranks encoded goes directly from each to each.
    ExchangeTime reduced;
    ExchangeTime gathered;
    if (costs.ranks > 1) {
      const Bytes all(most.count() * costs.ranks);
      reduced = exchange_time(machine, Collective::kAllReduce, Algorithm::kDirect, most);
      gathered = exchange_time(machine, Collective::kAllGather, Algorithm::kDirect, all);
    }
    costs.codecs = codec_costs(machine.codecs, reduced, gathered, costs.ranks);
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
