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
/// lg P (a + nb + nc). For P not a power of two, folded onto Q = 2^floor(lg P): lg Q (a + nb + nc)
/// + 2a + 3nb + nc: ranks without a place add theirs to a neighbour first, whose link the first
/// round's message may take before, and get the sum back.
[[nodiscard]] CostLine recursive_doubling_all_reduce(int ranks, LinkCost link);
/// Rabenseifner: recursive halving, then doubling, among Q = 2^floor(lg P) ranks:
/// 2 lg Q a + 2(Q-1)/Q nb + (Q-1)/Q nc, for P not a power of two + 2a + 2nb + (Q-1)/Q nb + nc (as
/// above).
[[nodiscard]] CostLine halving_doubling_all_reduce(int ranks, LinkCost link);
/// Binomial reduce to one rank and binomial broadcast: 2 floor(lg P) a + ceil(lg P)(2nb + nc).
[[nodiscard]] CostLine binomial_tree_all_reduce(int ranks, LinkCost link);
/// Along the chain of ranks and back, in s = pipeline_segments(n) segments at the same time:
/// 2(P-1)a + (P-2+s)(2nb/s + nc/s); two ranks send in one direction each: 2a + (1+s)nb/s + nc. At
/// most: what comes back after the last segment has left, over high latencies, does not meet it. A
/// latency
/// is paid once per rank: segments are on their way one behind the other (as in LogGP, Alexandrov
/// et al. 1995, doi:10.1145/215399.215427); where each waits for the one before it, it is
/// (P-2+s)2a.
[[nodiscard]] Seconds pipelined_chain_all_reduce(int ranks, Bytes size, LinkCost link);
/// Up and down two trees of height h = floor(lg P) that each carry half, in s segments:
/// 2ha + (2 + (2h-3)/s)nb + (1+h/s)nc; the links of two and three ranks carry n and 3n/2, not 2n.
/// What flows up and what flows down meet: emulated, it takes 1.2 times as long on 8 ranks and 1.3
/// on 16. Sanders, Speck and Traeff 2009, "Two-tree algorithms for full bandwidth broadcast,
/// reduction and scan", doi:10.1016/j.parco.2009.09.001.
[[nodiscard]] Seconds double_binary_tree_all_reduce(int ranks, Bytes size, LinkCost link);
/// The switch adds: 2a + nb/efficiency; each rank sends n once and receives n once, which beats the
/// end-point bound 2(P-1)/P n. NCCL reckons with an efficiency of 0.85 (Hopper), 0.74 (Blackwell).
[[nodiscard]] CostLine in_switch_all_reduce(int ranks, LinkCost link, double efficiency);

/// a + (P-1)/P n(b + c).
[[nodiscard]] CostLine direct_reduce_scatter(int ranks, LinkCost link);
/// (P-1)a + (P-1)/P n(b + c). The same for pairwise exchange.
[[nodiscard]] CostLine ring_reduce_scatter(int ranks, LinkCost link);
/// lg P a + (P-1)/P n(b + c). For P = Q + e not a power of two, folded onto Q as above, e of the Q
/// have two parts, and one is sent back: at most (lg Q + 2)a + (2 + h - 1/P)nb + (1 + h)nc, with
/// what a member receives, h = (Q-1 + sum over k = 1..lg Q of ceil(e/2^k))/P.
[[nodiscard]] CostLine recursive_halving_reduce_scatter(int ranks, LinkCost link);

/// a + (P-1)/P nb.
[[nodiscard]] CostLine direct_all_gather(int ranks, LinkCost link);
/// (P-1)a + (P-1)/P nb.
[[nodiscard]] CostLine ring_all_gather(int ranks, LinkCost link);
/// ceil(lg P) a + (P-1)/P nb: recursive doubling for powers of two, Bruck's for any P.
[[nodiscard]] CostLine bruck_all_gather(int ranks, LinkCost link);

/// The root sends all to everybody at once: a + (P-1)nb.
[[nodiscard]] CostLine direct_broadcast(int ranks, LinkCost link);
/// floor(lg P) a + ceil(lg P) nb.
[[nodiscard]] CostLine binomial_broadcast(int ranks, LinkCost link);
/// Binomial scatter, then ring all_gather (van de Geijn): (floor(lg P) + P-1)a + 2(P-1)/P nb.
[[nodiscard]] CostLine ring_broadcast(int ranks, LinkCost link);
/// (P-1)a + (P-2+s) nb/s.
[[nodiscard]] Seconds pipelined_chain_broadcast(int ranks, Bytes size, LinkCost link);
/// The root feeds two trees of all others: h = 1 + floor(lg(P-1)): ha + (h-1+s) nb/s.
[[nodiscard]] Seconds double_binary_tree_broadcast(int ranks, Bytes size, LinkCost link);

/// The mirror images: as the broadcasts, and adding: + (P-1)nc; ceil(lg P)nc; (P-1)/P nc.
[[nodiscard]] CostLine direct_reduce(int ranks, LinkCost link);
[[nodiscard]] CostLine binomial_reduce(int ranks, LinkCost link);
[[nodiscard]] CostLine ring_reduce(int ranks, LinkCost link);

/// All parts at once: a + (P-1)/P nb.
[[nodiscard]] CostLine direct_all_to_all(int ranks, LinkCost link);
/// P-1 rounds with another partner each: (P-1)a + (P-1)/P nb.
[[nodiscard]] CostLine pairwise_all_to_all(int ranks, LinkCost link);
/// How many of 1 .. ranks-1 have the bit `distance` set, a power of two below `ranks`: the parts
/// that a round of Bruck's all-to-all moves.
[[nodiscard]] double bruck_parts(std::int64_t ranks, std::int64_t distance);
/// Rounds k = 0 .. ceil(lg P) - 1 of a + b n/P times the numbers below P that have bit k: lg P (a +
/// nb/2) for a power of two. Bruck et al. 1997, doi:10.1109/71.642949.
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
/// `servers` of the ranks are servers too, as Stretto's communicators run it: a server takes and
/// sends the P-1 others' shares: 2a + 2(P-1)/S nb + (P-1)/S nc.
[[nodiscard]] CostLine shared_parameter_servers(int ranks, int servers, LinkCost link);
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

/// What runs through a pipeline in s = pipeline_segments(n) segments.
struct Pipeline {
  Seconds fill{};                      ///< Latencies until the first segment is through.
  double hops_seconds_per_byte = 0.0;  ///< Of the segment in which the last link still has no work.
  double seconds_per_byte = 0.0;       ///< Of the slowest link, of everything.
};
/// fill + n (per byte + hops' per byte / s).
[[nodiscard]] Seconds pipeline_time(const Pipeline& pipeline, Bytes size);

}  // namespace cost
}  // namespace stretto
