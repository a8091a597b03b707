// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/bucket_matching.hpp"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace stretto::detail {
namespace {

/// Rank and device.
using Place = std::pair<std::uint32_t, std::uint32_t>;
/// Groups of one name with other members are others.
using Group = std::pair<std::uint32_t, std::uint32_t>;
constexpr Group kNoGroup{kNoId, kNoId};

struct Call {
  std::size_t record = 0;
  Collective collective = Collective::kNone;
  Group group = kNoGroup;
  std::int64_t sequence = -1;
};

struct Key {
  Collective collective = Collective::kNone;
  Group group = kNoGroup;
  std::int64_t sequence = -1;
  std::uint32_t place = 0;  // among those that are equal but for it
  auto operator<=>(const Key&) const = default;
};

/// One step: what each place calls, in order.
using Calls = std::map<Place, std::vector<Call>>;

std::map<std::uint32_t, Calls> calls_by_step(const Timeline& timeline) {
  std::map<std::uint32_t, Calls> steps;
  for (std::size_t i = 0; i < timeline.records.size(); ++i) {
    const Record& record = timeline.records[i];
    const bool imported = record.device != kNoId || record.lane == Lane::kHost;
    if (record.kind != RecordKind::kCommunication || record.bucket == kNoId || !imported ||
        record.step == kNoId) {
      continue;
    }
    Call call{i, record.collective, kNoGroup, -1};
    if (record.call != kNoId && timeline.calls[record.call].group != kNoId) {
      const CollectiveCall& said = timeline.calls[record.call];
      call.group = {said.group, said.members};
      call.sequence = said.sequence;
    }
    steps[record.step][{record.rank, record.device}].push_back(call);
  }
  for (auto& [step, places] : steps) {
    for (auto& [place, calls] : places) {
      std::sort(calls.begin(), calls.end(), [&](const Call& a, const Call& b) {
        const Record& left = timeline.records[a.record];
        const Record& right = timeline.records[b.record];
        return std::pair(left.begin_ns, left.end_ns) < std::pair(right.begin_ns, right.end_ns);
      });
    }
  }
  return steps;
}

using Groups = std::set<Group>;

Groups groups_of(const std::vector<Call>& calls) {
  Groups groups;
  for (const Call& call : calls) {
    groups.insert(call.group);
  }
  return groups;
}

/// Whether equal positions are equal calls, as far as the trace tells. Groups that only one of the
/// two is in (of tensor or pipeline parallelism) stand for each other.
bool agree(const std::vector<Call>& a, const std::vector<Call>& b) {
  if (a.size() != b.size()) {
    return false;
  }
  const Groups of_a = groups_of(a);
  const Groups of_b = groups_of(b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].collective != b[i].collective) {
      return false;
    }
    if (a[i].group != b[i].group) {
      if (of_b.contains(a[i].group) || of_a.contains(b[i].group)) {
        return false;
      }
    } else if (a[i].sequence >= 0 && b[i].sequence >= 0 && a[i].sequence != b[i].sequence) {
      return false;
    }
  }
  return true;
}

struct Numbering {
  std::map<std::size_t, std::uint32_t> buckets;  // by record
  std::size_t unmatched = 0;
};

Numbering number(const Calls& places) {
  std::map<Group, std::size_t> members;  // places that are in it
  for (const auto& [place, calls] : places) {
    for (const Group& group : groups_of(calls)) {
      ++members[group];
    }
  }
  std::map<Key, std::uint32_t> numbers;
  std::map<Key, std::size_t> found;
  Numbering result;
  for (const auto& [place, calls] : places) {
    std::map<Key, std::uint32_t> next;
    for (const Call& call : calls) {
      Key key{call.collective, kNoGroup, -1, 0};
      if (members[call.group] > 1) {
        key.group = call.group;
        key.sequence = call.sequence;
      }
      key.place = next[key]++;
      const auto [entry, added] =
          numbers.try_emplace(key, static_cast<std::uint32_t>(numbers.size()));
      result.buckets[call.record] = entry->second;
      ++found[key];
    }
  }
  for (const auto& [key, times] : found) {
    const std::size_t all = key.group == kNoGroup ? places.size() : members[key.group];
    result.unmatched += times < all ? 1U : 0U;
  }
  return result;
}

/// Old numbers to new ones, of all records of a bucket.
void renumber(Timeline& timeline, const std::map<std::size_t, std::uint32_t>& buckets) {
  struct Bucket {
    std::uint32_t step, rank, device, number;
    auto operator<=>(const Bucket&) const = default;
  };
  const auto bucket_of = [](const Record& record) {
    return Bucket{record.step, record.rank, record.device, record.bucket};
  };
  std::map<Bucket, std::uint32_t> renamed;
  for (const auto& [record, number] : buckets) {
    renamed[bucket_of(timeline.records[record])] = number;
  }
  for (Record& record : timeline.records) {
    if (record.bucket == kNoId) {
      continue;
    }
    if (const auto found = renamed.find(bucket_of(record)); found != renamed.end()) {
      record.bucket = found->second;
    }
  }
}

}  // namespace

std::vector<std::string> match_buckets(Timeline& timeline) {
  std::map<std::size_t, std::uint32_t> buckets;
  std::size_t steps = 0;
  std::size_t unmatched = 0;
  for (const auto& [step, places] : calls_by_step(timeline)) {
    const std::vector<Call>& first = places.begin()->second;
    const bool same = std::all_of(places.begin(), places.end(), [&](const auto& place) {
      return agree(first, place.second);
    });
    if (!same) {
      Numbering numbering = number(places);
      buckets.merge(numbering.buckets);
      unmatched += numbering.unmatched;
      ++steps;
    }
  }
  if (steps == 0) {
    return {};
  }
  renumber(timeline, buckets);
  return {
      "the collectives of " + std::to_string(steps) + (steps == 1 ? " step" : " steps") +
      " are not the same on all ranks: buckets are matched by process group and sequence there; " +
      std::to_string(unmatched) + " are not on all ranks of their group"};
}

}  // namespace stretto::detail
