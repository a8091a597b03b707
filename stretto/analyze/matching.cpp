// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/matching.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <unordered_set>
#include <utility>

#include "stretto/base/statistics.hpp"
#include "stretto/base/text.hpp"

namespace stretto::detail {
namespace {

/// One rank's calls in a group, in order.
using Calls = std::vector<const Record*>;

/// What must agree for two records to be the same call.
bool same_call(const Record& a, const Record& b) {
  // Names of kernels may differ (protocols), sizes may (uneven all_to_all).
  return a.collective == b.collective;
}

struct Group {
  std::map<std::uint32_t, Calls> by_rank;
  bool sequenced = true;  // every call has a sequence number
};

std::string describe(const Timeline& timeline, std::uint32_t group) {
  return group == kNoId ? "collectives without a process group"
                        : "process group " + quote(timeline.names[group]);
}

/// -1 if only the order can tell.
std::int64_t sequence_of(const Timeline& timeline, const Record& record) {
  if (record.call != kNoId) {
    return timeline.calls[record.call].sequence;
  }
  // A live run may begin its buckets in another order on each rank, but knows them.
  const bool live = record.device == kNoId && record.lane != Lane::kHost;
  return live && record.bucket != kNoId
             ? static_cast<std::int64_t>((std::uint64_t{record.step} << 31U) ^ record.bucket)
             : -1;
}

/// Groups of one name with other members are others.
using GroupId = std::pair<std::uint32_t, std::uint32_t>;

GroupId group_of(const Timeline& timeline, const Record& record) {
  return record.call == kNoId
             ? GroupId{kNoId, kNoId}
             : GroupId{timeline.calls[record.call].group, timeline.calls[record.call].members};
}

void match_by_sequence(const Timeline& timeline,
                       std::uint32_t id,
                       Group& group,
                       Matching& matching) {
  std::int64_t unmatched = 0;
  std::map<std::int64_t, MatchedCall> calls;
  for (const auto& [rank, records] : group.by_rank) {
    for (const Record* record : records) {
      calls[sequence_of(timeline, *record)].records.push_back(record);
    }
  }
  for (auto& entry : calls) {
    MatchedCall& call = entry.second;  // no binding: clang 14 lets no lambda capture one
    // One rank's twice is not one call of two ranks.
    const bool twice =
        std::adjacent_find(
            call.records.begin(), call.records.end(), [](const Record* a, const Record* b) {
              return a->rank == b->rank;
            }) != call.records.end();
    const bool whole = !twice && call.records.size() == group.by_rank.size() &&
                       std::all_of(call.records.begin(), call.records.end(), [&](const Record* r) {
                         return same_call(*r, *call.records.front());
                       });
    if (whole) {
      matching.calls.push_back(std::move(call));
    } else {
      ++unmatched;
    }
  }
  if (unmatched > 0) {
    matching.unmatched += unmatched;
    matching.notes.push_back(std::to_string(unmatched) + " calls in " + describe(timeline, id) +
                             " are not on all of its ranks here, and were not matched");
  }
}

/// Whether calls that were matched by nothing but their order end together on all ranks, apart from
/// what a difference of clocks explains. Those of a collective do; sends and receives of a pipeline
/// are of other pairs on each rank.
bool end_together(const std::vector<MatchedCall>& calls) {
  constexpr double kNearNs = 50e3;
  constexpr double kShare = 0.1;  // of the duration
  const std::size_t ranks = calls.front().records.size();
  std::vector<double> spreads;
  std::vector<double> durations;
  for (std::size_t r = 1; r < ranks; ++r) {
    std::vector<double> differences;
    for (const MatchedCall& call : calls) {
      differences.push_back(static_cast<double>(call.records[r]->end_ns - call.records[0]->end_ns));
      durations.push_back(static_cast<double>(call.records[r]->end_ns - call.records[r]->begin_ns));
    }
    const double offset = median(differences);
    for (const double difference : differences) {
      spreads.push_back(std::abs(difference - offset));
    }
  }
  return median(std::move(spreads)) <= std::max(kNearNs, kShare * median(std::move(durations)));
}

bool is_point_to_point(const Record& record) {
  return record.collective == Collective::kSendRecv || record.collective == Collective::kSend ||
         record.collective == Collective::kRecv;
}

void match_by_order(const Timeline& timeline, std::uint32_t id, Group& group, Matching& matching) {
  const Calls& first = group.by_rank.begin()->second;
  for (const auto& [rank, calls] : group.by_rank) {
    std::size_t i = 0;
    while (i < std::min(calls.size(), first.size()) && same_call(*calls[i], *first[i])) {
      ++i;
    }
    if (i == first.size() && calls.size() == first.size()) {
      continue;
    }
    matching.unmatched += static_cast<std::int64_t>(first.size());
    matching.notes.push_back(
        "rank " + std::to_string(rank) + " has " + std::to_string(calls.size()) + " calls in " +
        describe(timeline, id) + ", rank " + std::to_string(group.by_rank.begin()->first) +
        " has " + std::to_string(first.size()) +
        (i < std::min(calls.size(), first.size())
             ? ", and call " + std::to_string(i + 1) + " is not the same collective"
             : "") +
        ": not matched, so that waiting for late ranks cannot be told from transfer there");
    return;
  }
  std::vector<MatchedCall> matched;
  for (std::size_t i = 0; i < first.size(); ++i) {
    MatchedCall call;
    for (const auto& [rank, calls] : group.by_rank) {
      call.records.push_back(calls[i]);
    }
    matched.push_back(std::move(call));
  }
  if (id == kNoId && group.by_rank.size() > 2 &&
      std::any_of(
          first.begin(), first.end(), [](const Record* r) { return is_point_to_point(*r); }) &&
      !end_together(matched)) {
    matching.unmatched += static_cast<std::int64_t>(first.size());
    matching.notes.push_back("the " + std::to_string(first.size()) + " sends and receives in " +
                             describe(timeline, id) +
                             " do not end together on all ranks: they are of different pairs, and "
                             "were not matched");
    return;
  }
  std::move(matched.begin(), matched.end(), std::back_inserter(matching.calls));
}

}  // namespace

std::int64_t MatchedCall::transfer_ns() const {
  std::int64_t shortest = records.front()->end_ns - records.front()->begin_ns;
  for (const Record* record : records) {
    shortest = std::min(shortest, record->end_ns - record->begin_ns);
  }
  return shortest;
}

std::vector<const Record*> counted_collectives(const Timeline& timeline) {
  std::unordered_set<std::uint32_t> device_ranks;
  for (const Record& record : timeline.records) {
    if (record.lane != Lane::kHost && record.kind != RecordKind::kStep) {
      device_ranks.insert(record.rank);
    }
  }
  std::vector<const Record*> records;
  for (const Record& record : timeline.records) {
    if (record.kind == RecordKind::kCommunication &&
        (record.lane != Lane::kHost || !device_ranks.contains(record.rank))) {
      records.push_back(&record);
    }
  }
  return records;
}

Matching match_collectives(const Timeline& timeline) {
  Matching matching;
  std::map<GroupId, Group> groups;
  for (const Record* record : counted_collectives(timeline)) {
    Group& group = groups[group_of(timeline, *record)];
    group.by_rank[record->rank].push_back(record);
    group.sequenced = group.sequenced && sequence_of(timeline, *record) >= 0;
  }
  for (auto& [id, group] : groups) {
    if (group.by_rank.size() < 2) {
      continue;  // of other ranks nothing is here
    }
    for (auto& [rank, calls] : group.by_rank) {
      std::stable_sort(calls.begin(), calls.end(), [](const Record* a, const Record* b) {
        return std::pair(a->begin_ns, a->end_ns) < std::pair(b->begin_ns, b->end_ns);
      });
    }
    if (group.sequenced) {
      match_by_sequence(timeline, id.first, group, matching);
    } else {
      match_by_order(timeline, id.first, group, matching);
    }
  }
  return matching;
}

}  // namespace stretto::detail
