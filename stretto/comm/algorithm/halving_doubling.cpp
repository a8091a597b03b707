// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <vector>

#include "stretto/comm/algorithm/algorithms.hpp"
#include "stretto/comm/algorithm/fold.hpp"

namespace stretto::detail {
namespace {

// Which elements each member of a fold ends up with.
class Shares {
 public:
  // As reduce_scatter and all_gather have them: a member's own part, and its idle neighbour's.
  static Shares of_ranks(const Exchange& exchange, const Fold& fold, const BufferView& data) {
    Shares shares;
    for (int id = 0; id < fold.members(); ++id) {
      const int rank = fold.rank_of(id);
      Part share = part_of(data.count, exchange.size, rank);
      if (id < fold.extra()) {
        share.end = part_of(data.count, exchange.size, rank + 1).end;
      }
      shares.parts_.push_back(share);
    }
    return shares;
  }
  // Equal ones, so ordered that what is sent at once lies side by side.
  static Shares equal(const Fold& fold, const BufferView& data) {
    Shares shares;
    for (int id = 0; id < fold.members(); ++id) {
      int mirrored = 0;
      for (int bit = 1; bit < fold.members(); bit *= 2) {
        mirrored = 2 * mirrored + ((id & bit) != 0 ? 1 : 0);
      }
      shares.parts_.push_back(part_of(data.count, fold.members(), mirrored));
    }
    return shares;
  }

  // Those of the members id, id + step, id + 2 step, ...; neighbours joined, empty ones left out.
  [[nodiscard]] std::vector<Part> every(int step, int id) const {
    std::vector<Part> parts;
    for (int i = id % step; i < static_cast<int>(parts_.size()); i += step) {
      const Part part = parts_[static_cast<std::size_t>(i)];
      if (length(part) != 0) {
        parts.push_back(part);
      }
    }
    std::sort(parts.begin(), parts.end(), [](Part a, Part b) { return a.begin < b.begin; });
    std::vector<Part> joined;
    for (const Part& part : parts) {
      if (!joined.empty() && joined.back().end == part.begin) {
        joined.back().end = part.end;
      } else {
        joined.push_back(part);
      }
    }
    return joined;
  }

 private:
  std::vector<Part> parts_;
};

// Sends `give` and takes `get`, which it combines with its own if `hop` is given.
Task trade(Exchange& exchange,
           int partner,
           BufferView data,
           std::vector<Part> give,
           std::vector<Part> get,
           const ReduceOp* hop) {
  Group sent(exchange.resumer);
  PeerArray<Message> out(give.size());
  for (std::size_t i = 0; i < give.size(); ++i) {
    exchange.send(out[i], sent, partner, 0, slice(data, give[i]));
  }
  std::deque<Incoming> in;
  for (const Part& part : get) {
    const BufferView to = slice(data, part);
    in.emplace_back(exchange);
    in.back().expect(exchange, partner, 0, to, hop == nullptr ? to.data : nullptr);
  }
  for (std::size_t i = 0; i < get.size(); ++i) {
    if (hop != nullptr) {
      co_await combine(exchange, in[i], slice(data, get[i]), *hop);
    } else {
      co_await take(exchange, in[i], slice(data, get[i]));
    }
  }
  co_await sent;
}

// Near partners first: what is left for the far ones is small.
Task halve(
    Exchange& exchange, const Fold& fold, BufferView data, const Shares& shares, ReduceOp hop) {
  for (int bit = 1; bit < fold.members(); bit *= 2) {
    const int partner = fold.id() ^ bit;
    co_await trade(exchange,
                   fold.rank_of(partner),
                   data,
                   shares.every(2 * bit, partner),
                   shares.every(2 * bit, fold.id()),
                   &hop);
  }
}

Task doubling(Exchange& exchange, const Fold& fold, BufferView data, const Shares& shares) {
  for (int bit = fold.members() / 2; bit >= 1; bit /= 2) {
    const int partner = fold.id() ^ bit;
    co_await trade(exchange,
                   fold.rank_of(partner),
                   data,
                   shares.every(2 * bit, fold.id()),
                   shares.every(2 * bit, partner),
                   nullptr);
  }
}

// All but `part`.
std::vector<Part> around(const BufferView& data, Part part) {
  std::vector<Part> parts;
  for (const Part& side : {Part{0, part.begin}, Part{part.end, data.count}}) {
    if (length(side) != 0) {
      parts.push_back(side);
    }
  }
  return parts;
}

}  // namespace

Task all_reduce_halving_doubling(Exchange& exchange, BufferView data, ReduceOp op) {
  const Fold fold(exchange);
  if (data.count == 0) {
    co_return;
  }
  if (fold.idle()) {
    co_await send_to(exchange, data, fold.neighbour());
    co_await receive_into(exchange, fold.neighbour(), 0, data);
    co_return;
  }
  const ReduceOp hop = hop_of(op);
  const Shares shares = Shares::equal(fold, data);
  if (fold.has_neighbour()) {
    co_await receive_and_combine(exchange, fold.neighbour(), 0, data, hop);
  }
  co_await halve(exchange, fold, data, shares, hop);
  for (const Part& own : shares.every(fold.members(), fold.id())) {
    finish_mean(exchange, slice(data, own), op);
  }
  co_await doubling(exchange, fold, data, shares);
  if (fold.has_neighbour()) {
    co_await send_to(exchange, data, fold.neighbour());
  }
}

Task reduce_scatter_halving(Exchange& exchange, BufferView data, ReduceOp op) {
  const Fold fold(exchange);
  if (data.count == 0) {
    co_return;
  }
  const BufferView mine = slice(data, part_of(data.count, exchange.size, exchange.rank));
  if (fold.idle()) {
    co_await send_to(exchange, data, fold.neighbour());
    co_await receive_into(exchange, fold.neighbour(), 0, mine);
    co_return;
  }
  const ReduceOp hop = hop_of(op);
  const Shares shares = Shares::of_ranks(exchange, fold, data);
  if (fold.has_neighbour()) {
    co_await receive_and_combine(exchange, fold.neighbour(), 0, data, hop);
  }
  co_await halve(exchange, fold, data, shares, hop);
  for (const Part& own : shares.every(fold.members(), fold.id())) {
    finish_mean(exchange, slice(data, own), op);
  }
  if (fold.has_neighbour()) {
    const Part theirs = part_of(data.count, exchange.size, fold.neighbour());
    if (length(theirs) != 0) {
      co_await send_to(exchange, slice(data, theirs), fold.neighbour());
    }
  }
}

Task all_gather_doubling(Exchange& exchange, BufferView data) {
  const Fold fold(exchange);
  const Part mine = part_of(data.count, exchange.size, exchange.rank);
  std::vector<Part> own;
  if (length(mine) != 0) {
    own.push_back(mine);
  }
  if (fold.idle()) {
    co_await trade(exchange, fold.neighbour(), data, own, around(data, mine), nullptr);
    co_return;
  }
  if (fold.has_neighbour()) {
    const Part theirs = part_of(data.count, exchange.size, fold.neighbour());
    co_await receive_into(exchange, fold.neighbour(), 0, slice(data, theirs));
  }
  co_await doubling(exchange, fold, data, Shares::of_ranks(exchange, fold, data));
  if (fold.has_neighbour()) {
    const Part theirs = part_of(data.count, exchange.size, fold.neighbour());
    co_await trade(exchange, fold.neighbour(), data, around(data, theirs), {}, nullptr);
  }
}

}  // namespace stretto::detail
