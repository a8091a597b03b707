// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

#include "stretto/comm/algorithm/algorithms.hpp"

namespace stretto::detail {
namespace {

// Phases one lane may use: the hierarchical algorithms need most.
constexpr std::uint32_t kLanePhases = 1U << 17;

// A piece of a call in the stage. Operations with parts keep their meaning piece by piece: the
// stage then holds an equal share of every rank's part, so that part r of the stage is from part r.
struct Pieces {
  bool by_part = false;
  std::size_t per_piece = 0;  // elements, of the whole or of each part
  std::size_t count = 0;      // pieces
};

Pieces cut(const Exchange& exchange, const Call& call, std::size_t stage_elements) {
  Pieces pieces;
  const auto ranks = static_cast<std::size_t>(exchange.size);
  pieces.by_part = call.kind == Collective::kReduceScatter || call.kind == Collective::kAllGather;
  std::size_t total = call.data.count;
  pieces.per_piece = stage_elements;
  if (pieces.by_part) {
    const Part first = part_of(call.data.count, exchange.size, 0);
    total = first.end - first.begin;  // no part is longer
    pieces.per_piece = std::max<std::size_t>(stage_elements / ranks / 16 * 16, 16);
  }
  pieces.count = (total + pieces.per_piece - 1) / pieces.per_piece;
  return pieces;
}

void copy_share(const Exchange& exchange,
                const Call& call,
                const Pieces& pieces,
                std::size_t index,
                const BufferView& stage,
                int rank,
                bool in) {
  const Part part = part_of(call.data.count, exchange.size, rank);
  const std::size_t begin = std::min(part.begin + index * pieces.per_piece, part.end);
  const std::size_t end = std::min(begin + pieces.per_piece, part.end);
  const std::size_t element = size_of(call.data.dtype);
  std::byte* const staged_at =
      stage.data + static_cast<std::size_t>(rank) * pieces.per_piece * element;
  std::byte* const home = call.data.data + begin * element;
  std::memcpy(in ? staged_at : home, in ? home : staged_at, (end - begin) * element);
}

Task run_piece(Exchange& exchange,
               const Call& call,
               const Pieces& pieces,
               std::size_t index,
               BufferView stage) {
  Call inner = call;
  if (pieces.by_part) {
    inner.data = stage.slice(0, pieces.per_piece * static_cast<std::size_t>(exchange.size));
    for (int rank = 0; rank < exchange.size; ++rank) {
      if (call.kind == Collective::kReduceScatter || rank == exchange.rank) {
        copy_share(exchange, call, pieces, index, stage, rank, true);
      }
    }
    co_await carry_out(exchange, inner);
    for (int rank = 0; rank < exchange.size; ++rank) {
      if (call.kind == Collective::kAllGather || rank == exchange.rank) {
        copy_share(exchange, call, pieces, index, stage, rank, false);
      }
    }
    co_return;
  }
  const std::size_t begin = index * pieces.per_piece;
  const std::size_t end = std::min(begin + pieces.per_piece, call.data.count);
  const BufferView home = call.data.slice(begin, end);
  inner.data = stage.slice(0, end - begin);
  if (call.kind != Collective::kRecv) {
    std::memcpy(inner.data.data, home.data, home.size_bytes());
  }
  co_await carry_out(exchange, inner);
  if (call.kind != Collective::kSend) {
    std::memcpy(home.data, inner.data.data, home.size_bytes());
  }
}

// Every second piece. Owns the exchange its inner algorithms see: phases must not meet those of the
// other lane.
Task run_lane(Exchange& outer,
              const Call& call,
              const Pieces& pieces,
              std::size_t lane,
              BufferView stage,
              Group& finished) {
  Exchange exchange = outer;
  std::exception_ptr failure;
  try {
    for (std::size_t index = lane; index < pieces.count; index += 2) {
      exchange.phase = outer.phase + static_cast<std::uint32_t>(lane) * kLanePhases;
      co_await run_piece(exchange, call, pieces, index, stage);
      co_await exchange.breathe();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  finished.arrived(
      exchange.now);  // also after a failure, or the other lane's end would be waited for in vain
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace

Task staged(Exchange& exchange, const Call& call, BufferView stage) {
  const std::size_t half = stage.count / 2;
  const Pieces pieces = cut(exchange, call, half);
  if (pieces.count == 1) {  // nothing to overlap
    co_await run_piece(exchange, call, pieces, 0, stage.slice(0, half));
    co_return;
  }
  Group finished(exchange.resumer);
  finished.expect();
  finished.expect();
  const std::array<Task, 2> lanes = {
      run_lane(exchange, call, pieces, 0, stage.slice(0, half), finished),
      run_lane(exchange, call, pieces, 1, stage.slice(half, 2 * half), finished)};
  for (const Task& lane : lanes) {
    lane.handle().resume();
  }
  co_await finished;
  for (const Task& lane : lanes) {
    lane.rethrow();
  }
  exchange.advance(finished);
}

}  // namespace stretto::detail
