// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/collective_cost.hpp"
#include "stretto/simulate/simulate.hpp"

namespace stretto {

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
  return costs;
}

ExchangeCosts scaled(ExchangeCosts costs, double latency, double seconds_per_byte) {
  for (ExchangeTime* time : {&costs.all_reduce, &costs.reduce_scatter, &costs.all_gather}) {
    *time = time->scaled(latency, seconds_per_byte);
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
