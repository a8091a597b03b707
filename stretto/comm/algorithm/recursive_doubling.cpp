// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <vector>

#include "stretto/comm/algorithm/algorithms.hpp"
#include "stretto/comm/algorithm/fold.hpp"

namespace stretto::detail {
namespace {

// data = data + theirs on both sides of a pair, in the same order of ranks: the same bits on both.
Task trade_sums(
    Exchange& exchange, int partner, BufferView data, ReduceOp hop, std::byte* scratch) {
  Group sent(exchange.resumer);
  Message out;
  exchange.send(out, sent, partner, 0, data);
  Incoming in(exchange);
  in.expect(exchange, partner, 0, data, scratch);
  co_await in.readable;
  // The partner may read `data` until it is returned, and so may we its: one of both must be moved.
  const std::byte* theirs = in.message.data;
  if (scratch != nullptr) {
    co_await copy_pieces(exchange, scratch, theirs, data.size_bytes());
    theirs = scratch;
    co_await in.arrived;
    exchange.transport.release(in.message);
  }
  co_await sent;
  std::array<const std::byte*, 2> inputs = {data.data, theirs};
  if (partner < exchange.rank) {
    inputs = {theirs, data.data};
  }
  const std::array<std::byte*, 1> outputs = {data.data};
  co_await reduce_pieces(exchange, data.dtype, hop, inputs, outputs, {0, data.count});
  if (scratch == nullptr) {
    co_await in.arrived;
    exchange.transport.release(in.message);
  }
  exchange.advance(in.arrived);
}

}  // namespace

Task all_reduce_recursive_doubling(Exchange& exchange, BufferView data, ReduceOp op) {
  const Fold fold(exchange);
  const ReduceOp hop = hop_of(op);
  if (data.count == 0) {
    co_return;
  }
  if (fold.idle()) {
    co_await send_to(exchange, data, fold.neighbour());
    co_await receive_into(exchange, fold.neighbour(), 0, data);
    co_return;
  }
  if (fold.has_neighbour()) {
    co_await receive_and_combine(exchange, fold.neighbour(), 0, data, hop);
  }
  // Up to eager_bytes() a message is a copy already.
  std::vector<std::byte> scratch;
  if (data.size_bytes() > exchange.transport.eager_bytes()) {
    scratch.resize(data.size_bytes());
  }
  for (int bit = 1; bit < fold.members(); bit *= 2) {
    co_await trade_sums(exchange,
                        fold.rank_of(fold.id() ^ bit),
                        data,
                        hop,
                        scratch.empty() ? nullptr : scratch.data());
  }
  finish_mean(exchange, data, op);
  if (fold.has_neighbour()) {
    co_await send_to(exchange, data, fold.neighbour());
  }
}

}  // namespace stretto::detail
