// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <map>

#include "stretto/comm/algorithm/algorithms.hpp"

namespace stretto::detail {
namespace {

// The members of an exchange, sorted into their groups on one level.
struct Groups {
  std::vector<std::vector<int>> members;  // as the transport numbers them, in order
  std::size_t mine = 0;                   // the group this rank is in,
  int place = 0;                          // and its place there
  int largest = 0;
};

Groups groups_on(const Exchange& exchange, std::size_t level) {
  const std::vector<int>& group_of = (*exchange.groups)[level];
  std::map<int, std::vector<int>> by_number;
  for (int member = 0; member < exchange.size; ++member) {
    const int rank = exchange.world_rank(member);
    by_number[group_of[static_cast<std::size_t>(rank)]].push_back(rank);
  }
  Groups groups;
  const int me = exchange.world_rank(exchange.rank);
  for (auto& [number, members] : by_number) {
    const auto place = std::find(members.begin(), members.end(), me);
    if (place != members.end()) {
      groups.mine = groups.members.size();
      groups.place = static_cast<int>(place - members.begin());
    }
    groups.largest = std::max(groups.largest, static_cast<int>(members.size()));
    groups.members.push_back(std::move(members));
  }
  return groups;
}

bool is_top(const Exchange& exchange, std::size_t level) {
  return exchange.groups == nullptr || level >= exchange.groups->size();
}

// Groups may differ in size. The tensor is cut into as many shares as the largest has members;
// smaller ones give some members several in a row. So share s has one owner in every group.
int owner_of(int share, int shares, std::size_t members) {
  return static_cast<int>(static_cast<std::int64_t>(share) * static_cast<std::int64_t>(members) /
                          shares);
}

constexpr std::uint32_t kPhases = 1U << 16;  // of one hierarchical exchange

// `phases`: how many this part may use. Every share of it gets some of its own.
Task reduce_over_levels(
    Exchange& exchange, BufferView data, ReduceOp op, std::size_t level, std::uint32_t phases) {
  if (is_top(exchange, level)) {
    co_await all_reduce_ring(exchange, data, op);
    co_return;
  }
  const Groups groups = groups_on(exchange, level);
  const std::vector<int>& group = groups.members[groups.mine];
  const int shares = groups.largest;
  std::vector<Part> parts(group.size());
  std::vector<int> mine;  // shares
  for (int share = 0; share < shares; ++share) {
    const int owner = owner_of(share, shares, group.size());
    const Part range = part_of(data.count, shares, share);
    Part& part = parts[static_cast<std::size_t>(owner)];
    part = length(part) == 0 ? range : Part{part.begin, range.end};
    if (owner == groups.place) {
      mine.push_back(share);
    }
  }
  Exchange inside = exchange.among(group, groups.place);
  co_await reduce_scatter_ring(inside, data, hop_of(op), Parts(parts, data));

  std::vector<std::vector<int>> owners(mine.size());
  std::vector<Exchange> lanes;
  std::vector<Task> tasks;
  lanes.reserve(mine.size());
  const std::uint32_t each = phases / static_cast<std::uint32_t>(shares + 1);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    for (const std::vector<int>& members : groups.members) {
      owners[i].push_back(
          members[static_cast<std::size_t>(owner_of(mine[i], shares, members.size()))]);
    }
    lanes.push_back(inside.among(owners[i], static_cast<int>(groups.mine)));
    lanes.back().phase += each * static_cast<std::uint32_t>(mine[i] + 1);
    tasks.push_back(reduce_over_levels(
        lanes.back(), slice(data, part_of(data.count, shares, mine[i])), op, level + 1, each));
  }
  co_await together(inside, lanes, tasks);
  co_await all_gather_ring(inside, data, Parts(parts, data));
  exchange.now = inside.now;
}

Task lead_over_levels(Exchange& exchange, BufferView data, ReduceOp op, std::size_t level) {
  if (is_top(exchange, level)) {
    co_await all_reduce_ring(exchange, data, op);
    co_return;
  }
  const Groups groups = groups_on(exchange, level);
  Exchange inside = exchange.among(groups.members[groups.mine], groups.place);
  co_await reduce_ring(inside, data, hop_of(op), 0);
  if (groups.place == 0) {
    std::vector<int> leaders;
    for (const std::vector<int>& members : groups.members) {
      leaders.push_back(members.front());
    }
    Exchange between = inside.among(leaders, static_cast<int>(groups.mine));
    co_await lead_over_levels(between, data, op, level + 1);
    inside.now = between.now;
  }
  co_await broadcast_ring(inside, data, 0);
  exchange.now = inside.now;
}

}  // namespace

Task all_reduce_hierarchical(Exchange& exchange, BufferView data, ReduceOp op) {
  return reduce_over_levels(exchange, data, op, 0, kPhases);
}

Task all_reduce_hierarchical_pipelined(Exchange& exchange, BufferView data, ReduceOp op) {
  const int chunks = level_chunks(Bytes(static_cast<std::int64_t>(data.size_bytes())));
  std::vector<Exchange> lanes;
  std::vector<Task> tasks;
  lanes.reserve(static_cast<std::size_t>(chunks));
  const std::uint32_t each = kPhases / static_cast<std::uint32_t>(chunks);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    lanes.push_back(exchange);
    lanes.back().phase += each * static_cast<std::uint32_t>(chunk);
    // One after the other into the links, or all would be inside first and then all between.
    lanes.back().turn = static_cast<std::uint32_t>(chunk);
    tasks.push_back(reduce_over_levels(
        lanes.back(), slice(data, part_of(data.count, chunks, chunk)), op, 0, each));
  }
  co_await together(exchange, lanes, tasks);
}

Task all_reduce_leader(Exchange& exchange, BufferView data, ReduceOp op) {
  return lead_over_levels(exchange, data, op, 0);
}

}  // namespace stretto::detail
