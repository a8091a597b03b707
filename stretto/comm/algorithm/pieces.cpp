// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/algorithm/pieces.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

#include "stretto/comm/kernel/reduce.hpp"

namespace stretto::detail {
namespace {

Task count_down(Exchange& lane, Task& task, Group& finished) {
  std::exception_ptr failure;
  try {
    co_await std::move(task);
  } catch (...) {
    failure = std::current_exception();
  }
  // Also after a failure, or the end of the other lanes would be waited for in vain.
  finished.arrived(lane.now);
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace

void finish_mean(const Exchange& exchange, const BufferView& data, ReduceOp op) {
  if (op == ReduceOp::kMean && data.count != 0) {
    const int ranks = exchange.divisor != 0 ? exchange.divisor : exchange.size;
    divide(data.dtype, data.data, 0, data.count, static_cast<std::size_t>(ranks));
  }
}

void append_segments(const Exchange& exchange,
                     DType dtype,
                     Part part,
                     std::vector<Part>& segments) {
  const std::size_t most = std::max<std::size_t>(
      exchange.transport.segment_bytes() / size_of(dtype) / 16 * 16, std::size_t{16});
  for (std::size_t at = part.begin; at < part.end;) {
    const std::size_t end = part.end - at > most ? at + most : part.end;
    segments.push_back({at, end});
    at = end;
  }
}

Task reduce_pieces(Exchange& exchange,
                   DType dtype,
                   ReduceOp op,
                   std::span<const std::byte* const> inputs,
                   std::span<std::byte* const> outputs,
                   Part range) {
  const std::size_t piece = kPieceBytes / size_of(dtype);
  for (std::size_t at = range.begin; at < range.end; at += piece) {
    if (at != range.begin) {
      co_await exchange.breathe();
    }
    reduce(dtype, op, inputs, outputs, at, std::min(at + piece, range.end));
  }
}

Task copy_pieces(Exchange& exchange, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to == from) {
    co_return;
  }
  for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
    if (at != 0) {
      co_await exchange.breathe();
    }
    std::memcpy(to + at, from + at, std::min(kPieceBytes, bytes - at));
  }
}

Task take(Exchange& exchange, Incoming& in, BufferView data) {
  co_await in.readable;
  co_await copy_pieces(exchange, data.data, in.message.data, data.size_bytes());
  co_await in.arrived;
  exchange.advance(in.arrived);
  exchange.transport.release(in.message);
}

Task combine(Exchange& exchange, Incoming& in, BufferView data, ReduceOp hop) {
  co_await in.readable;
  const std::array<const std::byte*, 2> inputs = {in.message.data, data.data};
  const std::array<std::byte*, 1> outputs = {data.data};
  co_await reduce_pieces(exchange, data.dtype, hop, inputs, outputs, {0, data.count});
  co_await in.arrived;
  exchange.advance(in.arrived);
  exchange.transport.release(in.message);
}

Task receive_into(Exchange& exchange, int from, std::uint32_t phase, BufferView data) {
  if (data.count != 0) {
    Incoming in(exchange);
    in.expect(exchange, from, phase, data, data.data);
    co_await take(exchange, in, data);
  }
}

Task receive_and_combine(
    Exchange& exchange, int from, std::uint32_t phase, BufferView data, ReduceOp hop) {
  if (data.count != 0) {
    Incoming in(exchange);
    in.expect(exchange, from, phase, data);
    co_await combine(exchange, in, data, hop);
  }
}

Task together(Exchange& exchange, std::span<Exchange> lanes, std::span<Task> tasks) {
  Group finished(exchange.resumer);
  std::vector<Task> counted;
  counted.reserve(tasks.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    finished.expect();
    counted.push_back(count_down(lanes[i], tasks[i], finished));
  }
  for (const Task& task : counted) {
    task.handle().resume();
  }
  co_await finished;
  for (const Task& task : counted) {
    task.rethrow();
  }
  exchange.advance(finished);
}

}  // namespace stretto::detail
