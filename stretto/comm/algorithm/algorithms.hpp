// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stretto/comm/algorithm/pieces.hpp"

/// Collectives as coroutines over Transport. Each reads like its paper, and has a price under the
/// same name in simulate/ (docs/costs.md); `data` must be lendable if the call lends(). P ranks, n
/// bytes, latency a, seconds per byte b, on links that carry one message at a time in each
/// direction. Among any number of ranks, for any size, also below the number of ranks.
///
/// Of a mean, sums travel and the division comes at the end. All ranks get the same bits: a sum is
/// made in one place and copied, or made of the same operands in the same order.
namespace stretto::detail {

/// Every rank sends everything to every other and combines all in rank order: one message latency,
/// (P-1) n bytes out. Only for n that the transport copies when it is sent (eager_bytes()), and
/// that is small: two copies of a few KiB take longer than the second latency of the one below.
Task all_reduce_small(Exchange& exchange, BufferView data, ReduceOp op);

/// In place on memory that all ranks have mapped: every rank combines its part of all ranks'
/// buffers in rank order and writes the result into all of them. No byte is moved twice.
Task all_reduce_in_place(Exchange& exchange, BufferView data, ReduceOp op);

/// Reduce-scatter by direct exchange, then all-gather by direct exchange: 2 a + 2 (P-1)/P n b.
/// Parts are combined in rank order, so the result does not depend on how a tensor was cut.
Task all_reduce_direct(Exchange& exchange, BufferView data, ReduceOp op, Parts parts);
Task reduce_scatter_direct(Exchange& exchange, BufferView data, ReduceOp op, Parts parts);
Task all_gather_direct(Exchange& exchange, BufferView data, Parts parts);
/// All to the root, in rank order: a + (P-1) n b on its link.
Task reduce_direct(Exchange& exchange, BufferView data, ReduceOp op, int root);
/// The root sends to every other rank: a + (P-1) n b on the root's link.
Task broadcast_direct(Exchange& exchange, BufferView data, int root);
/// The first `servers` ranks serve a share each: all push it there, and pull the sum. In rank
/// order, like direct. 2 a + 2 (P-1)/S n b on a server's link. M. Li et al., "Scaling Distributed
/// Machine Learning with the Parameter Server", OSDI 2014.
Task all_reduce_parameter_server(Exchange& exchange, BufferView data, ReduceOp op, int servers);

/// Around the ring 0 -> 1 -> ... -> P-1 -> 0: 2 (P-1) a + 2 (P-1)/P n b.
/// P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
/// workstations", J. Parallel Distrib. Comput. 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002.
Task all_reduce_ring(Exchange& exchange, BufferView data, ReduceOp op);
Task reduce_scatter_ring(Exchange& exchange, BufferView data, ReduceOp op, Parts parts);
Task all_gather_ring(Exchange& exchange, BufferView data, Parts parts);
/// A scatter down a binomial tree and an all-gather around the ring (R. van de Geijn, "On Global
/// Combine Operations", J. Parallel Distrib. Comput. 22(2), 1994); a reduction the other way round:
/// (floor(lg P) + P-1) a + 2 (P-1)/P n b.
Task reduce_ring(Exchange& exchange, BufferView data, ReduceOp op, int root);
Task broadcast_ring(Exchange& exchange, BufferView data, int root);

// Trees and hypercubes: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of Collective
// Communication Operations in MPICH", Int. J. High Perform. Comput. Appl. 19(1), 2005,
// doi:10.1177/1094342005051521.

/// Everything with the rank at distance 1, 2, 4, ...: lg P (a + n b); P not a power of two is
/// folded onto Q = 2^floor(lg P): lg Q (a + n b) + 2 a + 3 n b at most. Takes n bytes of memory for
/// the time it runs.
Task all_reduce_recursive_doubling(Exchange& exchange, BufferView data, ReduceOp op);
/// Rabenseifner: half, a quarter, ... with the rank at distance 1, 2, ..., and back again:
/// 2 lg Q a + 2 (Q-1)/Q n b among Q ranks; folded + 2 a + 2 n b + (Q-1)/Q n b at most.
Task all_reduce_halving_doubling(Exchange& exchange, BufferView data, ReduceOp op);
Task reduce_scatter_halving(Exchange& exchange, BufferView data, ReduceOp op);
Task all_gather_doubling(Exchange& exchange, BufferView data);
/// floor(lg P) a + ceil(lg P) n b each way.
Task all_reduce_binomial(Exchange& exchange, BufferView data, ReduceOp op);
Task reduce_binomial(Exchange& exchange, BufferView data, ReduceOp op, int root);
Task broadcast_binomial(Exchange& exchange, BufferView data, int root);
/// Every rank's own part to the root, or from it.
Task gather_binomial(Exchange& exchange, BufferView data, int root);
Task scatter_binomial(Exchange& exchange, BufferView data, int root);
/// ceil(lg P) a + (P-1)/P n b for any P. J. Bruck et al., "Efficient Algorithms for All-to-All
/// Communications in Multiport Message-Passing Systems", IEEE Trans. Parallel Distrib. Syst. 8(11),
/// 1997, doi:10.1109/71.642949; parts keep their places, so nothing is rotated at the end.
Task all_gather_bruck(Exchange& exchange, BufferView data);

/// Through the chain of ranks and back, in pipeline_segments(n) segments s at the same time:
/// 2 (P-1) a + 2 (P-2+s)/s n b.
Task all_reduce_chain(Exchange& exchange, BufferView data, ReduceOp op);
/// (P-1) a + (P-2+s)/s n b.
Task broadcast_chain(Exchange& exchange, BufferView data, int root);
/// Two binary trees that carry half each, so that who has children in one has none in the other:
/// P. Sanders, J. Speck and J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast,
/// reduction and scan", Parallel Comput. 35(12), 2009, doi:10.1016/j.parco.2009.09.001.
Task all_reduce_double_tree(Exchange& exchange, BufferView data, ReduceOp op);
Task broadcast_double_tree(Exchange& exchange, BufferView data, int root);

/// Over the levels of Exchange::groups, by rings: reduce-scatter in the group, all-reduce of what
/// is left over the levels above, all-gather in the group. Groups may differ in size: the tensor is
/// cut into as many shares as the largest has members, and in a smaller one some ranks have
/// several.
Task all_reduce_hierarchical(Exchange& exchange, BufferView data, ReduceOp op);
/// The same for level_chunks(n) chunks at the same time, so that one is inside while another is
/// between.
Task all_reduce_hierarchical_pipelined(Exchange& exchange, BufferView data, ReduceOp op);
/// All of a group's sum to its first rank, which alone goes on: the seeds' captain, for comparison.
Task all_reduce_leader(Exchange& exchange, BufferView data, ReduceOp op);

/// out[r] goes to rank r, in[r] comes from it; in and out do not overlap. Blocks may differ in size
/// and be empty, but sender and receiver must agree. All at once: a + (P-1)/P n b.
Task all_to_all_direct(Exchange& exchange,
                       std::span<const BufferView> out,
                       std::span<const BufferView> in);
/// In P-1 rounds, each with another partner: (P-1) a + (P-1)/P n b.
Task all_to_all_pairwise(Exchange& exchange,
                         std::span<const BufferView> out,
                         std::span<const BufferView> in);
/// ceil(lg P) (a + n/2 b); blocks of one size only. Bruck et al. as above. Takes 3 n bytes.
Task all_to_all_bruck(Exchange& exchange,
                      std::span<const BufferView> out,
                      std::span<const BufferView> in);

Task send_to(Exchange& exchange, BufferView data, int to);
Task receive_from(Exchange& exchange, BufferView data, int from);

/// Any of the above on memory that cannot be lent: piece by piece through `stage`, memory that can,
/// two pieces at a time so that copying one overlaps with moving the other.
Task staged(Exchange& exchange, const Call& call, BufferView stage);

/// Whether some message of the call is lent, and so its memory must be lendable: else the transport
/// copies all when it sends.
[[nodiscard]] bool lends(const Exchange& exchange, const Call& call) noexcept;

/// The task that carries out a checked call on memory that is lendable where it must be.
Task carry_out(Exchange& exchange, const Call& call);

}  // namespace stretto::detail
