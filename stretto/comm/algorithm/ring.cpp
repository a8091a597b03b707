// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <vector>

#include "stretto/comm/algorithm/algorithms.hpp"

namespace stretto::detail {
namespace {

int next(const Exchange& exchange) {
  return (exchange.rank + 1) % exchange.size;
}
int previous(const Exchange& exchange) {
  return (exchange.rank + exchange.size - 1) % exchange.size;
}

// The segments of parts first, first - 1, ..., `steps` of them: the order in which they go around.
std::vector<Part> segments_of(
    const Exchange& exchange, DType dtype, const Parts& parts, int first, int steps) {
  std::vector<Part> segments;
  for (int step = 0; step < steps; ++step) {
    append_segments(exchange, dtype, parts.of(first - step), segments);
  }
  return segments;
}

// What a member does with every segment that comes around: combine it with its own, or keep it;
// then pass it on, except the last part.
Task go_around(Exchange& exchange, BufferView data, Parts parts, int first, const ReduceOp* hop) {
  const int steps = exchange.size - 1;
  if (steps == 0) {
    co_return;
  }
  const std::vector<Part> begin = segments_of(exchange, data.dtype, parts, first, 1);
  const std::vector<Part> come = segments_of(exchange, data.dtype, parts, first - 1, steps);
  // Of those that come, the first so many are passed on.
  const std::size_t pass = segments_of(exchange, data.dtype, parts, first - 1, steps - 1).size();
  Group sent(exchange.resumer);
  PeerArray<Message> out(begin.size() + pass);
  std::size_t sending = 0;
  for (const Part& segment : begin) {
    exchange.send(out[sending++], sent, next(exchange), 0, slice(data, segment));
  }
  // The next segment is asked for before this one is worked on.
  std::array<Incoming, 2> in = {Incoming(exchange), Incoming(exchange)};
  const auto expect = [&](std::size_t i) {
    const BufferView to = slice(data, come[i]);
    in[i % 2].expect(exchange, previous(exchange), 0, to, hop == nullptr ? to.data : nullptr);
  };
  if (!come.empty()) {
    expect(0);
  }
  for (std::size_t i = 0; i < come.size(); ++i) {
    if (i + 1 < come.size()) {
      expect(i + 1);
    }
    const BufferView segment = slice(data, come[i]);
    if (hop != nullptr) {
      co_await combine(exchange, in[i % 2], segment, *hop);
    } else {
      co_await take(exchange, in[i % 2], segment);
    }
    if (i < pass) {
      exchange.send(out[sending++], sent, next(exchange), 0, segment);
    }
  }
  co_await sent;
}

}  // namespace

Task reduce_scatter_ring(Exchange& exchange, BufferView data, ReduceOp op, Parts parts) {
  const ReduceOp hop = hop_of(op);
  co_await go_around(exchange, data, parts, exchange.rank - 1, &hop);
  finish_mean(exchange, slice(data, parts.of(exchange.rank)), op);
}

Task all_gather_ring(Exchange& exchange, BufferView data, Parts parts) {
  return go_around(exchange, data, parts, exchange.rank, nullptr);
}

Task all_reduce_ring(Exchange& exchange, BufferView data, ReduceOp op) {
  const Parts parts(exchange, data);
  co_await reduce_scatter_ring(exchange, data, op, parts);
  co_await all_gather_ring(exchange, data, parts);
}

Task reduce_ring(Exchange& exchange, BufferView data, ReduceOp op, int root) {
  co_await reduce_scatter_ring(exchange, data, op, Parts(exchange, data));
  co_await gather_binomial(exchange, data, root);
}

Task broadcast_ring(Exchange& exchange, BufferView data, int root) {
  co_await scatter_binomial(exchange, data, root);
  co_await all_gather_ring(exchange, data, Parts(exchange, data));
}

}  // namespace stretto::detail
