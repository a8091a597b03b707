// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "stretto/comm/algorithm/algorithms.hpp"

namespace stretto::detail {
namespace {

// A binomial tree with `root` on top: members are counted from it. The parent of member m is m
// without its lowest set bit; its children are m + 1, m + 2, m + 4, ... below that bit.
struct Tree {
  Tree(const Exchange& exchange, int on_top)
      : size(exchange.size), root(on_top), mine((exchange.rank - on_top + size) % size) {}

  int size;
  int root;
  int mine;

  [[nodiscard]] int rank_of(int member) const noexcept { return (member + root) % size; }
  // Above the children: the lowest set bit, of the root the power of two that holds all.
  [[nodiscard]] int top() const noexcept {
    int bit = 1;
    while (bit < size && (mine & bit) == 0) {
      bit *= 2;
    }
    return bit;
  }
  [[nodiscard]] int parent() const noexcept { return rank_of(mine & (mine - 1)); }
  [[nodiscard]] bool has_child(int bit) const noexcept { return mine + bit < size; }
  [[nodiscard]] int child(int bit) const noexcept { return rank_of(mine + bit); }
  // The parts of the members [first, first + count), as far as there are any: one range, or two
  // where ranks begin again at 0.
  [[nodiscard]] std::vector<Part> parts(const BufferView& data, int first, int count) const {
    std::vector<Part> ranges;
    for (int member = first; member < std::min(first + count, size); ++member) {
      const Part part = part_of(data.count, size, rank_of(member));
      if (length(part) == 0) {
        continue;
      }
      if (!ranges.empty() && ranges.back().end == part.begin) {
        ranges.back().end = part.end;
      } else {
        ranges.push_back(part);
      }
    }
    return ranges;
  }
};

}  // namespace

Task reduce_binomial(Exchange& exchange, BufferView data, ReduceOp op, int root) {
  const Tree tree(exchange, root);
  if (data.count == 0) {
    co_return;
  }
  for (int bit = 1; bit < tree.top(); bit *= 2) {
    if (tree.has_child(bit)) {
      co_await receive_and_combine(exchange, tree.child(bit), 0, data, hop_of(op));
    }
  }
  if (tree.mine != 0) {
    co_await send_to(exchange, data, tree.parent());
  } else {
    finish_mean(exchange, data, op);
  }
}

Task broadcast_binomial(Exchange& exchange, BufferView data, int root) {
  const Tree tree(exchange, root);
  if (data.count == 0) {
    co_return;
  }
  if (tree.mine != 0) {
    co_await receive_into(exchange, tree.parent(), 0, data);
  }
  Group sent(exchange.resumer);
  PeerArray<Message> out(32);
  std::size_t sending = 0;
  for (int bit = tree.top() / 2; bit >= 1; bit /= 2) {  // the largest subtree first
    if (tree.has_child(bit)) {
      exchange.send(out[sending++], sent, tree.child(bit), 0, data);
    }
  }
  co_await sent;
}

Task all_reduce_binomial(Exchange& exchange, BufferView data, ReduceOp op) {
  co_await reduce_binomial(exchange, data, op, 0);
  co_await broadcast_binomial(exchange, data, 0);
}

Task gather_binomial(Exchange& exchange, BufferView data, int root) {
  const Tree tree(exchange, root);
  for (int bit = 1; bit < tree.top(); bit *= 2) {
    for (const Part& part : tree.parts(data, tree.mine + bit, bit)) {
      co_await receive_into(exchange, tree.child(bit), 0, slice(data, part));
    }
  }
  if (tree.mine != 0) {
    for (const Part& part : tree.parts(data, tree.mine, tree.top())) {
      co_await send_to(exchange, slice(data, part), tree.parent());
    }
  }
}

Task scatter_binomial(Exchange& exchange, BufferView data, int root) {
  const Tree tree(exchange, root);
  if (tree.mine != 0) {
    for (const Part& part : tree.parts(data, tree.mine, tree.top())) {
      co_await receive_into(exchange, tree.parent(), 0, slice(data, part));
    }
  }
  Group sent(exchange.resumer);
  PeerArray<Message> out(64);
  std::size_t sending = 0;
  for (int bit = tree.top() / 2; bit >= 1; bit /= 2) {
    for (const Part& part : tree.parts(data, tree.mine + bit, bit)) {
      exchange.send(out[sending++], sent, tree.child(bit), 0, slice(data, part));
    }
  }
  co_await sent;
}

}  // namespace stretto::detail
