// SPDX-License-Identifier: Apache-2.0
// Dense inside the node, encoded between nodes.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stretto/comm/algorithm/algorithms.hpp"
#include "stretto/compress/exchanges.hpp"

namespace stretto {
namespace {

/// The ranks of this rank's node, and those with its place in all nodes; in both in the same order
/// on all ranks. Empty if all ranks are equally far, or nodes have not equally many.
struct Node {
  std::vector<int> ranks;
  int place = 0;
  std::vector<int> across;
  int mine = 0;
};

Node node_of(const detail::Exchange& exchange) {
  if (exchange.groups == nullptr || exchange.groups->empty()) {
    return {};
  }
  std::map<int, std::vector<int>> nodes;
  for (int rank = 0; rank < exchange.size; ++rank) {
    nodes[exchange.groups->front()[static_cast<std::size_t>(rank)]].push_back(rank);
  }
  Node node;
  const int mine = exchange.groups->front()[static_cast<std::size_t>(exchange.rank)];
  const std::vector<int>& ranks = nodes[mine];
  const auto place = static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), exchange.rank) -
                                              ranks.begin());
  for (const auto& [number, others] : nodes) {
    if (others.size() != ranks.size()) {
      return {};
    }
    if (number == mine) {
      node.mine = static_cast<int>(node.across.size());
    }
    node.across.push_back(others[place]);
  }
  node.ranks = ranks;
  node.place = static_cast<int>(place);
  return node;
}

}  // namespace

detail::Task CompressedBucket::over_nodes(detail::Exchange& exchange) {
  const Node node = node_of(exchange);
  if (node.ranks.size() < 2 || node.across.size() < 2) {
    co_await exchange_among(exchange);
    co_return;
  }
  const Input whole = input_;
  const std::size_t count = whole.data.count;
  const auto members = static_cast<int>(node.ranks.size());
  std::vector<Part> shares;
  shares.reserve(node.ranks.size());
  for (int place = 0; place < members; ++place) {
    shares.push_back(part_of(count, members, place));
  }
  const Part mine = shares[static_cast<std::size_t>(node.place)];
  // Where a velocity is kept, what was to be sent must not become a part of it.
  const bool apart = strays_ > 0 && input_.velocity != nullptr && input_.own != nullptr;
  std::unique_ptr<Arena> strays;
  if (apart) {
    strays = exchange.transport.allocate(Bytes(static_cast<std::int64_t>(whole.data.size_bytes())));
    std::memset(strays->bytes().data(), 0, whole.data.size_bytes());
    take_strays(reinterpret_cast<float*>(strays->bytes().data()), mine.begin, mine.end);
  } else {
    take_strays(reinterpret_cast<float*>(whole.data.data), mine.begin, mine.end);
  }

  // What is not memory that can be lent takes a copy along.
  BufferView data = whole.data;
  std::unique_ptr<Arena> copy;
  if (!exchange.transport.can_lend(data.data, data.size_bytes())) {
    copy = exchange.transport.allocate(Bytes(static_cast<std::int64_t>(data.size_bytes())));
    data.data = copy->bytes().data();
    co_await detail::copy_pieces(exchange, data.data, whole.data.data, data.size_bytes());
  }
  const detail::Parts parts(shares, data);
  detail::Exchange inside = exchange.among(node.ranks, node.place);
  co_await detail::reduce_scatter_ring(inside, data, ReduceOp::kSum, parts);
  if (apart) {
    BufferView sums = whole.data;
    sums.data = strays->bytes().data();
    const detail::Parts parts_of_strays(shares, sums);
    co_await detail::reduce_scatter_ring(inside, sums, ReduceOp::kSum, parts_of_strays);
    input_.strays = reinterpret_cast<const float*>(sums.data) + mine.begin;
  }

  const std::size_t length = mine.end - mine.begin;
  input_.data = data.slice(mine.begin, mine.end);
  const auto narrow = [&](auto*& values) { values += values == nullptr ? 0 : mine.begin; };
  narrow(input_.own);
  narrow(input_.next_own);
  narrow(input_.of_sums);
  narrow(input_.next_of_sums);
  narrow(input_.velocity);
  narrow(input_.next_velocity);
  input_.key = detail::mix_key(input_.key + mine.begin);
  if (length != 0) {  // the same on all that have this place
    detail::Exchange between = inside.among(node.across, node.mine);
    co_await exchange_among(between);
    inside.now = between.now;
  }
  input_ = whole;

  co_await detail::all_gather_ring(inside, data, parts);
  // Of each share its owners know whether it was finite; of all of them, this rank only now.
  const auto* const values = reinterpret_cast<const float*>(data.data);
  finite_ = std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
  const std::size_t others = count - length;
  counters_.sent_bytes += static_cast<std::int64_t>(2 * others * sizeof(float));
  if (copy) {
    co_await detail::copy_pieces(exchange, whole.data.data, data.data, data.size_bytes());
  }
  exchange.now = inside.now;
}

detail::Task CompressedBucket::exchange_among(detail::Exchange& /*exchange*/) {
  throw Error(ErrorCode::kUnavailable,
              {"this codec has no exchange among some of the ranks",
               "codec " + to_string(codec_),
               "hierarchical",
               "direct",
               ""});
}

// Other buckets, or an exchange among all ranks, have left this rank something to send of elements
// that it does not encode any more.
void CompressedBucket::take_strays(float* to, std::size_t begin, std::size_t end) noexcept {
  if (strays_ == 0 || input_.own == nullptr) {
    return;
  }
  const auto clear = [](float* next) {
    if (*next != 0.0F) {  // most pages are never written
      *next = 0.0F;
    }
  };
  // A velocity that ends here would have gone on so far.
  const auto still_to_come = static_cast<float>(codec_.momentum / (1.0 - codec_.momentum));
  for (const Part part : {Part{0, begin}, Part{end, input_.data.count}}) {
    for (std::size_t i = part.begin; i < part.end; ++i) {
      to[i] += input_.own[i] + input_.of_sums[i];
      clear(&input_.next_own[i]);
      clear(&input_.next_of_sums[i]);
      if (input_.velocity != nullptr) {
        to[i] += still_to_come * input_.velocity[i];
        clear(&input_.next_velocity[i]);
      }
    }
  }
}

}  // namespace stretto
