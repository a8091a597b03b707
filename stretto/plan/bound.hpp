// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"

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

}  // namespace stretto
