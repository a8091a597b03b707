// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/all_to_all.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace stretto::detail {
namespace {

/// Bytes in and out of one rank; absent if the trace does not say. Split sizes would say no more:
/// they sum to the counts, and long lists of them are cut off.
struct Traffic {
  std::int64_t sent = 0;
  std::optional<std::int64_t> received;
  [[nodiscard]] std::int64_t larger() const { return std::max(sent, received.value_or(0)); }
};

std::optional<Traffic> traffic_of(const Timeline& timeline, const Record& record) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48U;  // of one call; more is no count
  if (record.collective != Collective::kAllToAll || record.call == kNoId) {
    return std::nullopt;
  }
  const CollectiveCall& call = timeline.calls[record.call];
  if (call.element_bytes == 0 || std::max(call.in_elements, call.out_elements) < 0 ||
      std::max(call.in_elements, call.out_elements) > kMost / call.element_bytes) {
    return std::nullopt;
  }
  return Traffic{
      std::max<std::int64_t>(0, call.in_elements) * call.element_bytes,
      call.out_elements < 0 ? std::nullopt : std::optional(call.out_elements * call.element_bytes)};
}

/// Of matched calls whose size every rank knows.
std::optional<double> per_call(const Timeline& timeline, const Matching& matching) {
  double most = 0.0;
  double mean = 0.0;
  for (const MatchedCall& call : matching.calls) {
    std::int64_t largest = 0;
    double sum = 0.0;
    bool known = true;
    for (const Record* record : call.records) {
      const auto traffic = traffic_of(timeline, *record);
      known = known && traffic;
      if (traffic) {
        largest = std::max(largest, traffic->larger());
        sum += static_cast<double>(traffic->larger());
      }
    }
    if (known) {
      most += static_cast<double>(largest);
      mean += sum / static_cast<double>(call.records.size());
    }
  }
  return mean > 0.0 ? std::optional(most / mean) : std::nullopt;
}

}  // namespace

std::optional<AllToAllBalance> all_to_all_balance(const Timeline& timeline,
                                                  const Matching& matching) {
  std::map<std::uint32_t, AllToAllRank> ranks;
  for (const Record* record : counted_collectives(timeline)) {
    const auto traffic = traffic_of(timeline, *record);
    if (!traffic) {
      continue;
    }
    AllToAllRank& rank = ranks[record->rank];
    // Of all its calls, or it would be less than it was.
    if (rank.calls == 0) {
      rank.received = Bytes(0);
    }
    if (!traffic->received) {
      rank.received = std::nullopt;
    } else if (rank.received) {
      *rank.received += Bytes(*traffic->received);
    }
    rank.rank = record->rank;
    ++rank.calls;
    rank.sent += Bytes(traffic->sent);
    rank.bytes += Bytes(traffic->larger());
    rank.total += Seconds(static_cast<double>(record->end_ns - record->begin_ns) / 1e9);
  }
  AllToAllBalance balance;
  double sum = 0.0;
  for (const auto& [number, rank] : ranks) {
    balance.ranks.push_back(rank);
    sum += static_cast<double>(rank.bytes.count());
  }
  if (balance.ranks.size() < 2 || sum <= 0.0) {
    return std::nullopt;
  }
  std::stable_sort(balance.ranks.begin(),
                   balance.ranks.end(),
                   [](const AllToAllRank& a, const AllToAllRank& b) { return a.bytes > b.bytes; });
  balance.max_over_mean = static_cast<double>(balance.ranks.front().bytes.count()) /
                          (sum / static_cast<double>(balance.ranks.size()));
  balance.max_over_mean_per_call = per_call(timeline, matching);
  return balance;
}

}  // namespace stretto::detail
