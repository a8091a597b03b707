// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stretto/comm/exchange.hpp"

/// What the algorithms have in common: work in pieces, messages in segments, several lanes at once.
namespace stretto::detail {

/// Which elements of a tensor belong to which member: part_of(), unless others are given.
struct Parts {
  std::size_t count = 0;
  int members = 1;
  const Part* given = nullptr;  ///< One per member, in order and without gaps.

  Parts(const Exchange& exchange, const BufferView& data)
      : count(data.count), members(exchange.size) {}
  Parts(std::span<const Part> parts, const BufferView& data)
      : count(data.count), members(static_cast<int>(parts.size())), given(parts.data()) {}

  /// Counted around the ring: -1 is the last member.
  [[nodiscard]] Part of(int member) const noexcept {
    const int index = ((member % members) + members) % members;
    return given != nullptr ? given[index] : part_of(count, members, index);
  }
};
[[nodiscard]] inline BufferView slice(const BufferView& data, Part part) noexcept {
  return data.slice(part.begin, part.end);
}
[[nodiscard]] inline std::size_t length(Part part) noexcept {
  return part.end - part.begin;
}

/// Sums travel: the division of a mean comes once, at the end.
[[nodiscard]] inline ReduceOp hop_of(ReduceOp op) noexcept {
  return op == ReduceOp::kMean ? ReduceOp::kSum : op;
}
/// That division, where the sum is complete. Nothing for other operations.
void finish_mean(const Exchange& exchange, const BufferView& data, ReduceOp op);

/// `part` cut into the segments that are worth sending one by one (Transport::segment_bytes()),
/// appended to `segments`.
void append_segments(const Exchange& exchange, DType dtype, Part part, std::vector<Part>& segments);

/// Combines elements of `range` as reduce() does, with a breath between pieces.
Task reduce_pieces(Exchange& exchange,
                   DType dtype,
                   ReduceOp op,
                   std::span<const std::byte* const> inputs,
                   std::span<std::byte* const> outputs,
                   Part range);
/// Copies likewise; nothing where the bytes are there already.
Task copy_pieces(Exchange& exchange, std::byte* to, const std::byte* from, std::size_t bytes);

/// A message on its way here.
struct Incoming {
  explicit Incoming(Exchange& exchange) : arrived(exchange.resumer), readable(exchange.resumer) {}

  Message message;
  Group arrived;
  Group readable;

  void expect(Exchange& exchange,
              int from,
              std::uint32_t phase,
              const BufferView& data,
              std::byte* into = nullptr) {
    exchange.receive(message, arrived, from, phase, data.size_bytes(), &readable, into);
  }
};

/// Ends an expected message with its bytes in `data`.
Task take(Exchange& exchange, Incoming& in, BufferView data);
/// Ends an expected message with `data` combined with it, its bytes first.
Task combine(Exchange& exchange, Incoming& in, BufferView data, ReduceOp hop);

/// Both in one. An empty `data` is no message.
Task receive_into(Exchange& exchange, int from, std::uint32_t phase, BufferView data);
Task receive_and_combine(
    Exchange& exchange, int from, std::uint32_t phase, BufferView data, ReduceOp hop);

/// Runs tasks[i], which works on lanes[i], all at the same time; over when all are, and then
/// `exchange` is as late as the latest. Lanes need different phases.
Task together(Exchange& exchange, std::span<Exchange> lanes, std::span<Task> tasks);

}  // namespace stretto::detail
