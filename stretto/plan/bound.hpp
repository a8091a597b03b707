// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/exchange_time.hpp"

namespace stretto {

/// `bytes` of gradients become ready at `ready`, from the start of the step.
struct ReadyBytes {
  Seconds ready{};
  Bytes bytes{};
};

/// The affine cost of one dense exchange on a machine, as small as any end-point algorithm can make
/// it. For one level of P ranks: one message latency, and 2(P-1)/P * n/B (Patarasuk and Yuan 2009,
/// doi:10.1016/j.jpdc.2008.09.002). With several levels the slowest cut counts: the K groups at a
/// level must send 2(K-1) * n in all, over their own links and those of the levels outside, or K *
/// n where the switches of one of these add; the latency is the outermost level's. Zero for one
/// rank. Derived in docs/bounds.md.
struct ExchangeCost {
  Seconds latency{};
  double seconds_per_byte = 0.0;
};
[[nodiscard]] ExchangeCost least_exchange_cost(const Machine& machine);

/// No bucketing, order, splitting or number of channels can end the communication of one iteration
/// earlier:  max( compute_end, max_k [ r_k + latency + beta * sum_{i >= k} n_i ] )  over gradients
/// sorted by ready time (release-bandwidth bound; reference in docs/bounds.md). Assumes that every
/// gradient is exchanged whole in this iteration by end-point algorithms.
[[nodiscard]] Seconds in_iteration_bound(std::span<const ReadyBytes> gradients,
                                         Seconds compute_end,
                                         ExchangeCost cost);

/// Lines that the time of any number of exchanges is not below, on one wire: latency once, and the
/// bytes. On one stream those of cost.lower_lines(); on several a latency may pass while another
/// exchange has the wire, so of some lines only the least latency and the least time per byte
/// count. (All of a curve is wire to the simulator.)
[[nodiscard]] std::vector<CostLine> exchange_floor(const ExchangeTime& cost,
                                                   Bytes total,
                                                   int streams);

/// The least end of communication:  max_k [ r_k + least time of what is not ready before r_k ],
/// over these lines. 0 with nothing to exchange. With the lines of one stream it is never above the
/// end that earliest_buckets() reaches.
[[nodiscard]] Seconds release_bound(std::span<const ReadyBytes> gradients,
                                    std::span<const CostLine> floor);

/// A step no schedule of a kind can be quicker than, and what that rests on.
struct Bound {
  std::string name;
  Seconds step{};
  std::string assumption;
};

/// The bounds of one iteration: compute, and release-bandwidth for these lines.
[[nodiscard]] std::vector<Bound> in_iteration_bounds(std::span<const ReadyBytes> gradients,
                                                     Seconds compute_end,
                                                     std::span<const CostLine> floor);

/// A gradient of a step in steady state whose communication may reach into the next forward pass.
struct GradientUse {
  Seconds ready{};   ///< From the end of the forward pass.
  Seconds before{};  ///< Forward pass that is left when the parameters are first read, that layer
                     ///< included.
  Bytes bytes{};
};

/// The bounds of such a step. `compute` is all of its compute.
/// - wire: it carries all bytes once per step;
/// - cycle: from the end of one forward pass to the end of the next lie, for each gradient, its
/// ready
///   time, one exchange, and the forward pass from its first use on;
/// - delivery: the same for all at once on one wire that may be interrupted (one machine, release
///   dates and delivery times: Horn 1974, doi:10.1002/nav.3800210113).
[[nodiscard]] std::vector<Bound> cross_iteration_bounds(std::span<const GradientUse> gradients,
                                                        Seconds compute,
                                                        std::span<const CostLine> floor);

}  // namespace stretto
