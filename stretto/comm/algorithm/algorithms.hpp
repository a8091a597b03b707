// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stretto/comm/exchange.hpp"

/// Collectives as coroutines over Transport. Each reads like its paper; `data` must be lendable if
/// the call lends(). P ranks, n bytes, latency a, seconds per byte b, on links that
/// carry one message at a time in each direction.
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
Task all_reduce_direct(Exchange& exchange, BufferView data, ReduceOp op);
Task reduce_scatter_direct(Exchange& exchange, BufferView data, ReduceOp op);
Task all_gather_direct(Exchange& exchange, BufferView data);

/// Around the ring 0 -> 1 -> ... -> P-1 -> 0: 2 (P-1) a + 2 (P-1)/P n b.
/// P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
/// workstations", J. Parallel Distrib. Comput. 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002.
Task all_reduce_ring(Exchange& exchange, BufferView data, ReduceOp op);
Task reduce_scatter_ring(Exchange& exchange, BufferView data, ReduceOp op);
Task all_gather_ring(Exchange& exchange, BufferView data);

/// The root sends to every other rank: a + (P-1) n b on the root's link.
Task broadcast_direct(Exchange& exchange, BufferView data, int root);

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
