// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>

#include "stretto/comm/algorithm/algorithms.hpp"
#include "stretto/comm/kernel/reduce.hpp"

namespace stretto::detail {
namespace {

// Part number `index`, counted around the ring, also below zero.
BufferView part(const Exchange& exchange, const BufferView& data, int index) {
  const int rank = ((index % exchange.size) + exchange.size) % exchange.size;
  const Part range = part_of(data.count, exchange.size, rank);
  return data.slice(range.begin, range.end);
}
int next(const Exchange& exchange) {
  return (exchange.rank + 1) % exchange.size;
}
int previous(const Exchange& exchange) {
  return (exchange.rank + exchange.size - 1) % exchange.size;
}

}  // namespace

Task reduce_scatter_ring(Exchange& exchange, BufferView data, ReduceOp op) {
  const int steps = exchange.size - 1;
  // Sums travel; the division of a mean comes at the end, on the part this rank keeps.
  const ReduceOp hop = op == ReduceOp::kMean ? ReduceOp::kSum : op;
  Group sent(exchange.resumer);
  Group arrived(exchange.resumer);
  Group readable(exchange.resumer);
  PeerArray<Message> out(static_cast<std::size_t>(steps));
  for (int step = 0; step < steps; ++step) {
    const auto phase = static_cast<std::uint32_t>(step);
    const BufferView sending = part(exchange, data, exchange.rank - step - 1);
    const BufferView keeping = part(exchange, data, exchange.rank - step - 2);
    if (sending.count != 0) {
      exchange.send(out[phase], sent, next(exchange), phase, sending);
    }
    if (keeping.count == 0) {
      continue;
    }
    Message in;
    exchange.receive(in, arrived, previous(exchange), phase, keeping.size_bytes(), &readable);
    co_await readable;
    const std::array<const std::byte*, 2> inputs = {in.data, keeping.data};
    std::byte* const output = keeping.data;
    const std::size_t piece = kPieceBytes / size_of(data.dtype);
    for (std::size_t at = 0; at < keeping.count; at += piece) {
      if (at != 0) {
        co_await exchange.breathe();
      }
      reduce(data.dtype, hop, inputs, {&output, 1}, at, std::min(at + piece, keeping.count));
    }
    co_await arrived;
    exchange.advance(arrived);
    exchange.transport.release(in);
  }
  if (op == ReduceOp::kMean) {
    const BufferView mine = part(exchange, data, exchange.rank);
    divide(data.dtype, mine.data, 0, mine.count, static_cast<std::size_t>(exchange.size));
  }
  co_await sent;
}

Task all_gather_ring(Exchange& exchange, BufferView data) {
  const int steps = exchange.size - 1;
  Group sent(exchange.resumer);
  Group arrived(exchange.resumer);
  Group readable(exchange.resumer);
  PeerArray<Message> out(static_cast<std::size_t>(steps));
  for (int step = 0; step < steps; ++step) {
    const auto phase = static_cast<std::uint32_t>(step);
    const BufferView sending = part(exchange, data, exchange.rank - step);
    const BufferView keeping = part(exchange, data, exchange.rank - step - 1);
    if (sending.count != 0) {
      exchange.send(out[phase], sent, next(exchange), phase, sending);
    }
    if (keeping.count == 0) {
      continue;
    }
    Message in;
    exchange.receive(in, arrived, previous(exchange), phase, keeping.size_bytes(), &readable);
    co_await readable;
    for (std::size_t at = 0; at < keeping.size_bytes(); at += kPieceBytes) {
      if (at != 0) {
        co_await exchange.breathe();
      }
      std::memcpy(
          keeping.data + at, in.data + at, std::min(kPieceBytes, keeping.size_bytes() - at));
    }
    co_await arrived;
    exchange.advance(arrived);
    exchange.transport.release(in);
  }
  co_await sent;
}

Task all_reduce_ring(Exchange& exchange, BufferView data, ReduceOp op) {
  co_await reduce_scatter_ring(exchange, data, op);
  exchange.phase += static_cast<std::uint32_t>(exchange.size);
  co_await all_gather_ring(exchange, data);
}

}  // namespace stretto::detail
