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
/// level must send 2(K-1) * n in all, over their own links and those of the levels outside; the
/// latency is the outermost level's. Zero for one rank. Derived in docs/bounds.md.
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

/// The same for one stream whose exchanges cost `cost`: the least end of communication by
/// max_k [ r_k + least time of what is not ready before r_k ], over the cost's lower lines. 0 with
/// nothing to exchange. Never above the end that earliest_buckets() reaches.
[[nodiscard]] Seconds release_bound(std::span<const ReadyBytes> gradients,
                                    const ExchangeTime& cost);

/// A step no schedule of a kind can be quicker than, and what that rests on.
struct Bound {
  std::string name;
  Seconds step{};
  std::string assumption;
};

/// The bounds of one iteration: compute, and release-bandwidth for these costs. Gradients in ready
/// order.
[[nodiscard]] std::vector<Bound> in_iteration_bounds(std::span<const ReadyBytes> gradients,
                                                     Seconds compute_end,
                                                     const ExchangeTime& cost);

/// The bounds of a step in steady state when communication may reach into the next forward pass.
/// Layers in forward order, each with its forward and backward time and the bytes of its gradients;
/// `after_gradients` is compute that follows the last gradient, the optimizer for one.
/// - resource: the wire carries all bytes once per step;
/// - cycle, for each layer i: between two uses of its parameters lie the forward pass from it on,
///   the backward pass down to it and one exchange: sum over j >= i of (f_j + b_j), and T(n_i);
/// - delivery: in the window from the first gradient to the next use of each layer, what is ready
///   from some moment on and needed by some moment must fit (one machine, release dates and
///   delivery times: Horn 1974, doi:10.1002/nav.3800210113; the least maximum over subsets).
struct LayerStep {
  Seconds forward{};
  Seconds backward{};
  Bytes bytes{};
};
[[nodiscard]] std::vector<Bound> cross_iteration_bounds(std::span<const LayerStep> layers,
                                                        Seconds after_gradients,
                                                        const ExchangeTime& cost);

}  // namespace stretto
