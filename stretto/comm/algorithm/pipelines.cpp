// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <bit>

#include "stretto/comm/algorithm/algorithms.hpp"
#include "stretto/comm/algorithm/flow.hpp"

namespace stretto::detail {
namespace {

int segments_for(const BufferView& data) {
  return pipeline_segments(Bytes(static_cast<std::int64_t>(data.size_bytes())));
}

// One member's place in a binary tree over 1..members: in order, so that every odd number is a
// leaf.
struct Place {
  int parent = 0;  // 0: none
  std::vector<int> children;
};

Place place_of(int member, int members) {
  Place place;
  int low = 1;
  int high = members;
  while (true) {
    // The largest power of two of them on the left of the root and itself: a full tree.
    const auto root_of = [](int from, int to) {
      return from - 1 + static_cast<int>(std::bit_floor(static_cast<unsigned>(to - from + 1)));
    };
    const int root = root_of(low, high);
    if (member == root) {
      if (low < root) {
        place.children.push_back(root_of(low, root - 1));
      }
      if (root < high) {
        place.children.push_back(root_of(root + 1, high));
      }
      return place;
    }
    place.parent = root;
    (member < root ? high : low) = member < root ? root - 1 : root + 1;
  }
}

// The place of a rank in tree 0 or 1 over `members` ranks from `first` on. Tree 1 is tree 0 with
// everybody one further: who has children in one is a leaf of the other.
Place rank_place(const Exchange& exchange, int first, int members, int tree) {
  const int size = exchange.size;
  const int mine = (exchange.rank - first + size) % size;  // from 0
  Place place = place_of((mine + tree) % members + 1, members);
  const auto rank_of = [&](int member) {
    return ((member - 1 + members - tree) % members + first) % size;
  };
  place.parent = place.parent == 0 ? -1 : rank_of(place.parent);
  for (int& child : place.children) {
    child = rank_of(child);
  }
  return place;
}

}  // namespace

Task all_reduce_chain(Exchange& exchange, BufferView data, ReduceOp op) {
  // Sums go up the ranks, results down.
  std::vector<int> children;
  if (exchange.rank > 0) {
    children.push_back(exchange.rank - 1);
  }
  const int parent = exchange.rank + 1 < exchange.size ? exchange.rank + 1 : -1;
  std::deque<Flow> flow;
  flow.emplace_back(exchange, data, op, parent, std::move(children), segments_for(data), true);
  co_await run_flows(exchange, flow);
}

Task broadcast_chain(Exchange& exchange, BufferView data, int root) {
  const int size = exchange.size;
  const int member = (exchange.rank - root + size) % size;
  std::vector<int> children;
  if (member + 1 < size) {
    children.push_back((exchange.rank + 1) % size);
  }
  const int parent = member == 0 ? -1 : (exchange.rank + size - 1) % size;
  std::deque<Flow> flow;
  flow.emplace_back(
      exchange, data, ReduceOp::kSum, parent, std::move(children), segments_for(data), false);
  co_await run_flows(exchange, flow);
}

Task all_reduce_double_tree(Exchange& exchange, BufferView data, ReduceOp op) {
  std::deque<Flow> flows;
  for (int tree = 0; tree < 2; ++tree) {
    Place place = rank_place(exchange, 0, exchange.size, tree);
    flows.emplace_back(exchange,
                       slice(data, part_of(data.count, 2, tree)),
                       op,
                       place.parent,
                       std::move(place.children),
                       segments_for(data),
                       true);
  }
  co_await run_flows(exchange, flows);
}

Task broadcast_double_tree(Exchange& exchange, BufferView data, int root) {
  const int size = exchange.size;
  std::deque<Flow> flows;
  for (int tree = 0; tree < 2; ++tree) {
    Place place;
    if (exchange.rank == root) {
      // Whoever is on top of the tree of all others is its only child.
      place.parent = -1;
      for (int other = 0; other < size; ++other) {
        Exchange as_other = exchange;
        as_other.rank = other;
        if (other != root && rank_place(as_other, (root + 1) % size, size - 1, tree).parent < 0) {
          place.children.push_back(other);
        }
      }
    } else {
      place = rank_place(exchange, (root + 1) % size, size - 1, tree);
      place.parent = place.parent < 0 ? root : place.parent;
    }
    flows.emplace_back(exchange,
                       slice(data, part_of(data.count, 2, tree)),
                       ReduceOp::kSum,
                       place.parent,
                       std::move(place.children),
                       segments_for(data),
                       false);
  }
  co_await run_flows(exchange, flows);
}

}  // namespace stretto::detail
