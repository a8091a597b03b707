// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/simulate/exchange_time.hpp"

namespace stretto {

/// Equal links between the ranks of one flat group, for the formulas: alpha, beta and gamma of
/// Hockney's model. Full duplex; a rank sends and receives at the same time.
struct LinkCost {
  Seconds latency{};                   ///< alpha: of one message, however small.
  double seconds_per_byte = 0.0;       ///< beta: 1 / bandwidth of one rank and direction.
  double reduce_seconds_per_byte = 0;  ///< gamma: adding one byte to another; 0 hides it.
};

/// The flat formulas, one function per operation and algorithm: a line `latency + n * per byte`
/// where the time is affine in the size, else the time of one size.
///
/// Symbols: P ranks; n bytes of the whole tensor (of reduce_scatter and all_gather too: the full,
/// unsharded size; of all_to_all: what one rank sends in all, its own part included); a = latency,
/// b = seconds per byte, c = reduction's seconds per byte; lg = log2. All lines hold for n > 0, and
/// are zero for one rank. Unless said otherwise the source is Thakur, Rabenseifner and Gropp 2005,
/// "Optimization of Collective Communication Operations in MPICH", doi:10.1177/1094342005051521.
///
/// Limits: no contention but what the algorithm itself causes, no protocol switches, no start-up
/// cost of a kernel; see docs/costs.md.
namespace cost {

/// Every rank sends its parts to all others at once, adds its own, and sends that to all at once:
/// 2a + 2(P-1)/P nb + (P-1)/P nc. Stretto's own `direct`; switches must carry P flows into one
/// port.
[[nodiscard]] CostLine direct_all_reduce(int ranks, LinkCost link);
/// 2(P-1)a + 2(P-1)/P nb + (P-1)/P nc. The bandwidth term is the least of any end-point algorithm
/// (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002).
[[nodiscard]] CostLine ring_all_reduce(int ranks, LinkCost link);
/// ceil(lg P)(a + nb + nc), for P not a power of two + a + nb: the ranks above the power of two add
/// theirs to a partner first (that round is the one more in the ceil) and get the sum back.
[[nodiscard]] CostLine recursive_doubling_all_reduce(int ranks, LinkCost link);
/// Rabenseifner: recursive halving, then doubling, among Q = 2^floor(lg P) ranks:
/// 2 lg Q a + 2(Q-1)/Q nb + (Q-1)/Q nc, for P not a power of two + 2a + 2nb + nc at most (as
/// above).
[[nodiscard]] CostLine halving_doubling_all_reduce(int ranks, LinkCost link);
/// Binomial reduce to one rank and binomial broadcast: ceil(lg P)(2a + 2nb + nc).
[[nodiscard]] CostLine binomial_tree_all_reduce(int ranks, LinkCost link);
/// Reduce along a chain in s segments and broadcast back: (P-2+s)(2a + 2nb/s + nc/s), with the
/// whole s >= 1 that makes it least, near sqrt((P-2)n(2b+c) / (2a)), at most one segment a byte.
[[nodiscard]] Seconds pipelined_chain_all_reduce(int ranks, Bytes size, LinkCost link);
/// Reduce, then broadcast, over two trees that each carry half in s chunks:
/// (2h + 2s)(2a + nb/s + nc/(2s)), h = ceil(lg P), the best whole s near sqrt(h n(2b+c) / (4a)).
/// An upper bound: the two could overlap. Sanders, Speck and Traeff 2009, "Two-tree algorithms for
/// full bandwidth broadcast, reduction and scan", doi:10.1016/j.parco.2009.09.001.
[[nodiscard]] Seconds double_binary_tree_all_reduce(int ranks, Bytes size, LinkCost link);
/// The switch adds: 2a + nb/efficiency; each rank sends n once and receives n once, which beats the
/// end-point bound 2(P-1)/P n. NCCL reckons with an efficiency of 0.85 (Hopper), 0.74 (Blackwell).
[[nodiscard]] CostLine in_switch_all_reduce(int ranks, LinkCost link, double efficiency);

/// a + (P-1)/P n(b + c).
[[nodiscard]] CostLine direct_reduce_scatter(int ranks, LinkCost link);
/// (P-1)a + (P-1)/P n(b + c). The same for pairwise exchange.
[[nodiscard]] CostLine ring_reduce_scatter(int ranks, LinkCost link);
/// floor(lg P) a + (P-1)/P n(b + c); for P not a power of two + 2a + n(b + c) + nb/P at most:
/// folded onto a power of two as above, and one part sent back.
[[nodiscard]] CostLine recursive_halving_reduce_scatter(int ranks, LinkCost link);

/// a + (P-1)/P nb.
[[nodiscard]] CostLine direct_all_gather(int ranks, LinkCost link);
/// (P-1)a + (P-1)/P nb.
[[nodiscard]] CostLine ring_all_gather(int ranks, LinkCost link);
/// ceil(lg P) a + (P-1)/P nb: recursive doubling for powers of two, Bruck's for any P.
[[nodiscard]] CostLine bruck_all_gather(int ranks, LinkCost link);

/// The root sends all to everybody at once: a + (P-1)nb.
[[nodiscard]] CostLine direct_broadcast(int ranks, LinkCost link);
/// ceil(lg P)(a + nb).
[[nodiscard]] CostLine binomial_broadcast(int ranks, LinkCost link);
/// Binomial scatter, then ring all_gather (van de Geijn): (ceil(lg P) + P-1)a + 2(P-1)/P nb.
[[nodiscard]] CostLine ring_broadcast(int ranks, LinkCost link);
/// (P-2+s)(a + nb/s), best s as in pipelined_chain_all_reduce.
[[nodiscard]] Seconds pipelined_chain_broadcast(int ranks, Bytes size, LinkCost link);
/// (2h + 2s)(a + nb/(2s)), best s as in double_binary_tree_all_reduce.
[[nodiscard]] Seconds double_binary_tree_broadcast(int ranks, Bytes size, LinkCost link);

/// The mirror images: as the broadcasts, and adding: + (P-1)nc; ceil(lg P)nc; (P-1)/P nc.
[[nodiscard]] CostLine direct_reduce(int ranks, LinkCost link);
[[nodiscard]] CostLine binomial_reduce(int ranks, LinkCost link);
[[nodiscard]] CostLine ring_reduce(int ranks, LinkCost link);

/// All parts at once: a + (P-1)/P nb.
[[nodiscard]] CostLine direct_all_to_all(int ranks, LinkCost link);
/// P-1 rounds with another partner each: (P-1)a + (P-1)/P nb.
[[nodiscard]] CostLine pairwise_all_to_all(int ranks, LinkCost link);
/// ceil(lg P)(a + nb/2). Bruck et al. 1997, doi:10.1109/71.642949.
[[nodiscard]] CostLine bruck_all_to_all(int ranks, LinkCost link);
/// sent[s][d] bytes go from rank s to rank d: pairwise rounds, each as long as its longest message:
/// sum over r = 1..P-1 of a + b max_s sent[s][(s+r) mod P].
/// @throws Error kInvalidArgument: not square, or a negative number of bytes.
[[nodiscard]] Seconds pairwise_all_to_all(std::span<const std::vector<Bytes>> sent, LinkCost link);
/// The least bandwidth allows for that matrix: b times the largest row or column sum without the
/// diagonal. Attained, latencies aside, by preemptive open-shop scheduling (Gonzalez and Sahni
/// 1976, doi:10.1145/321978.321985).
/// @throws Error as above.
[[nodiscard]] Seconds least_all_to_all(std::span<const std::vector<Bytes>> sent, LinkCost link);

/// a + nb; above `rendezvous_above` (none: never) a round trip 2a comes first.
[[nodiscard]] Seconds point_to_point(Bytes size,
                                     LinkCost link,
                                     std::optional<Bytes> rendezvous_above = {});

/// All push to one server, which adds, and all pull: 2a + 2Wnb + Wnc, W workers that are not the
/// server: P with a server of its own, P-1 when it is one of the workers.
[[nodiscard]] CostLine one_parameter_server(int pushing_workers, LinkCost link);
/// `servers` that share the tensor evenly, beside the workers, full duplex, push and pull in a
/// pipeline: 2a + max(nb, Wnb_s / S) + Wnc/S, b_s of a server's link. Jiang et al. 2020 (BytePS),
/// OSDI.
[[nodiscard]] CostLine parameter_servers(int workers,
                                         int servers,
                                         LinkCost link,
                                         double server_seconds_per_byte);
/// Every worker serves its P-th: the time of direct_all_reduce.
[[nodiscard]] CostLine sharded_parameter_server(int workers, LinkCost link);

/// PowerSGD (Vogels et al. 2019, arXiv:1905.13727) of a rows x columns gradient: two all_reduces,
/// one after the other, of rank * rows and rank * columns elements. Communication only; the compute
/// is O(rank rows columns + rank^2 rows) operations.
[[nodiscard]] Seconds power_sgd(std::int64_t rows,
                                std::int64_t columns,
                                int rank,
                                int bytes_per_element,
                                const ExchangeTime& all_reduce);
/// Each rank keeps `kept` elements and gathers all others': all_gather of P kept (value + index)
/// bytes. It grows with P, unlike an all_reduce.
[[nodiscard]] Seconds top_k(
    int ranks, std::int64_t kept, int value_bytes, int index_bytes, const ExchangeTime& all_gather);
/// Two shots: all_to_all of the quantised tensor, add, quantise again, all_gather. `wire` is its
/// size in the wire format, scales included; quantising itself is not in it.
[[nodiscard]] Seconds quantised_two_shot(Bytes wire,
                                         const ExchangeTime& all_to_all,
                                         const ExchangeTime& all_gather);

/// What runs through a pipeline in s segments takes fill + s step + (hops + s)/s n b.
struct Pipeline {
  Seconds fill{};                 ///< Latencies until the first segment is through.
  Seconds step{};                 ///< Latency of each segment.
  double hops = 0.0;              ///< Steps before the last link has work.
  double seconds_per_byte = 0.0;  ///< b: of the slowest link.
};
/// At the best whole number of segments, from 1 to one per byte.
[[nodiscard]] Seconds best_pipeline(const Pipeline& pipeline, Bytes size);

}  // namespace cost
}  // namespace stretto
