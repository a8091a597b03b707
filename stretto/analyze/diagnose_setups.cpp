// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "stretto/analyze/diagnose.hpp"
#include "stretto/analyze/matching.hpp"
#include "stretto/base/text.hpp"

namespace stretto::detail {
namespace {

using Ranks = std::set<std::uint32_t>;

/// `0-3, 8`.
std::string list_of(const Ranks& ranks) {
  std::string text;
  for (auto rank = ranks.begin(); rank != ranks.end();) {
    const std::uint32_t first = *rank;
    std::uint32_t last = first;
    for (++rank; rank != ranks.end() && *rank == last + 1; ++rank) {
      last = *rank;
    }
    text += (text.empty() ? "" : ", ") + std::to_string(first) +
            (last > first ? "-" + std::to_string(last) : "");
  }
  return text;
}

/// Of one library, the ranks of each version.
void look_at_versions(const Timeline& timeline, std::vector<Diagnosis>& found) {
  std::map<std::string, std::map<std::string, Ranks>> libraries;
  for (const RankSetup& setup : timeline.setups) {
    for (const auto& [library, version] : setup.versions) {
      libraries[library][version].insert(setup.rank);
    }
  }
  std::string evidence;
  for (const auto& [library, versions] : libraries) {
    if (versions.size() < 2) {
      continue;
    }
    evidence += (evidence.empty() ? "" : "; ") + library;
    for (const auto& [version, ranks] : versions) {
      evidence += fmt::format("{} {} on {} {}",
                              version == versions.begin()->first ? "" : ",",
                              version,
                              ranks.size() == 1 ? "rank" : "ranks",
                              list_of(ranks));
    }
  }
  if (!evidence.empty()) {
    found.push_back({"versions",
                     Diagnosis::Weight::kCause,
                     "Ranks run different versions of libraries or drivers",
                     evidence,
                     "any difference",
                     "Collectives go at the pace of the slowest rank, and versions choose their "
                     "algorithms differently: run the same image and driver everywhere"});
  }
}

struct Traffic {
  Ranks ranks;
  std::uint32_t size = 0;
  std::int64_t bytes = 0;
};

/// The group that carries most should not leave a host if it fits on one.
void look_at_rank_order(const Timeline& timeline, std::vector<Diagnosis>& found) {
  std::map<std::uint32_t, std::string_view> host_of;
  std::map<std::string_view, std::size_t> ranks_on;
  for (const RankSetup& setup : timeline.setups) {
    if (!setup.host.empty() && host_of.emplace(setup.rank, setup.host).second) {
      ++ranks_on[setup.host];
    }
  }
  if (ranks_on.size() < 2) {
    return;
  }
  std::size_t on_one = 0;
  for (const auto& [host, count] : ranks_on) {
    on_one = std::max(on_one, count);
  }
  using GroupId = std::pair<std::uint32_t, std::uint32_t>;  // names of group and members
  std::map<GroupId, Traffic> groups;
  for (const Record* record : counted_collectives(timeline)) {
    if (record->call != kNoId && host_of.contains(record->rank)) {
      const CollectiveCall& call = timeline.calls[record->call];
      Traffic& group = groups[{call.group, call.members}];
      group.ranks.insert(record->rank);
      group.size = std::max(group.size, call.group_size);
      group.bytes += record->bytes;
    }
  }
  std::map<std::uint32_t, const std::pair<const GroupId, Traffic>*> busiest;  // of each rank
  for (const auto& group : groups) {
    for (const std::uint32_t rank : group.second.ranks) {
      const auto*& most = busiest[rank];
      if (most == nullptr || group.second.bytes > most->second.bytes) {
        most = &group;
      }
    }
  }
  std::size_t spread = 0;
  const std::pair<const GroupId, Traffic>* example = nullptr;
  for (const auto& [rank, group] : busiest) {
    const Traffic& traffic = group->second;
    std::set<std::string_view> hosts;
    for (const std::uint32_t member : traffic.ranks) {
      hosts.insert(host_of.at(member));
    }
    if (hosts.size() > 1 && std::max<std::size_t>(traffic.size, traffic.ranks.size()) <= on_one) {
      ++spread;
      example = example == nullptr || traffic.bytes > example->second.bytes ? group : example;
    }
  }
  if (example == nullptr || 2 * spread <= busiest.size()) {
    return;
  }
  const Traffic& traffic = example->second;
  std::string places;
  for (const std::uint32_t rank : traffic.ranks) {
    places +=
        fmt::format("{}rank {} on {}", places.empty() ? "" : ", ", rank, quote(host_of.at(rank)));
  }
  found.push_back(
      {"rank_order",
       Diagnosis::Weight::kCause,
       "The process groups that carry most are spread over hosts, though each fits on one",
       fmt::format("{}, with {} of a rank: {}; up to {} ranks share a host",
                   example->first.first == kNoId
                       ? std::string("one without a name")
                       : "group " + quote(timeline.names[example->first.first]),
                   format(Bytes(traffic.bytes / static_cast<std::int64_t>(traffic.ranks.size()))),
                   places,
                   on_one),
       "so it is for the busiest group of more than half of the ranks",
       "Number the ranks so that members of these groups are neighbours on a host: the innermost "
       "dimension of the device mesh, or the launcher's order of hosts"});
}

}  // namespace

std::vector<Diagnosis> diagnose_setups(const Timeline& timeline) {
  std::vector<Diagnosis> found;
  look_at_versions(timeline, found);
  look_at_rank_order(timeline, found);
  return found;
}

}  // namespace stretto::detail
