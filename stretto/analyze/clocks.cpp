// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/clocks.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "stretto/analyze/collectives.hpp"
#include "stretto/analyze/matching.hpp"
#include "stretto/base/statistics.hpp"

namespace stretto {
namespace {

Seconds from_ns(double ns) {
  return Seconds(ns / 1e9);
}

/// How much later `rank` ends the same collectives than another by its clock.
struct Difference {
  std::uint32_t rank = 0;
  double offset_ns = 0.0;
  double residual_ns = 0.0;
  std::size_t collectives = 0;
};

/// Of each rank to all with which it has collectives.
std::map<std::uint32_t, std::vector<Difference>> clock_differences(const Timeline& timeline) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<double>> differences_ns;
  for (const detail::MatchedCall& call : detail::match_collectives(timeline).calls) {
    const Record* first = call.records.front();
    for (const Record* record : call.records) {
      if (record->rank != first->rank) {
        differences_ns[{first->rank, record->rank}].push_back(
            static_cast<double>(record->end_ns - first->end_ns));
      }
    }
  }
  std::map<std::uint32_t, std::vector<Difference>> differences;
  for (const auto& [pair, values] : differences_ns) {
    const double offset_ns = median(values);
    std::vector<double> deviations;
    deviations.reserve(values.size());
    for (const double value : values) {
      deviations.push_back(std::abs(value - offset_ns));
    }
    const double residual_ns = median(std::move(deviations));
    differences[pair.first].push_back({pair.second, offset_ns, residual_ns, values.size()});
    differences[pair.second].push_back({pair.first, -offset_ns, residual_ns, values.size()});
  }
  return differences;
}

/// Where the timeline has a clock of the rank already (of a live run), its shift is added to that.
void set_clock(Timeline& timeline, const RankClock& clock) {
  for (RankClock& known : timeline.clocks) {
    if (known.rank == clock.rank) {
      known.offset_ns += clock.offset_ns;
      known.residual_ns = clock.residual_ns;
      return;
    }
  }
  timeline.clocks.push_back(clock);
}

}  // namespace

// Ranks of other groups are compared over those that share one with them, fewest steps first.
std::vector<ClockDifference> compare_clocks(const Timeline& timeline) {
  const auto differences = clock_differences(timeline);
  std::vector<ClockDifference> clocks;
  std::map<std::uint32_t, Difference> reached;  // against the first rank of those that are linked
  for (const auto& [root, unused] : differences) {
    if (reached.contains(root)) {
      continue;
    }
    reached[root] = {root, 0.0, 0.0, 0};
    std::vector<std::uint32_t> queue = {root};
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const Difference here = reached[queue[i]];
      for (const Difference& next : differences.at(queue[i])) {
        if (!reached.contains(next.rank)) {
          reached[next.rank] = {next.rank,
                                here.offset_ns + next.offset_ns,
                                here.residual_ns + next.residual_ns,
                                next.collectives};
          queue.push_back(next.rank);
        }
      }
    }
    std::sort(queue.begin(), queue.end());
    for (const std::uint32_t rank : queue) {
      const Difference& found = reached[rank];
      if (rank != root) {
        clocks.push_back({rank,
                          root,
                          from_ns(found.offset_ns),
                          from_ns(found.residual_ns),
                          static_cast<std::int64_t>(found.collectives)});
      }
    }
  }
  return clocks;
}

std::vector<std::string> align_clocks(Timeline& timeline) {
  constexpr Seconds kLeast(100e-6);
  std::vector<std::string> notes;
  std::unordered_map<std::uint32_t, std::int64_t> shift_ns;
  std::optional<std::uint32_t> root;
  for (const ClockDifference& found : compare_clocks(timeline)) {
    if (root && *root != found.against) {
      notes.push_back("rank " + std::to_string(found.against) +
                      " has no collective with the ranks before it that are here: its clock is "
                      "not compared with theirs");
    }
    root = found.against;
    const auto ns = [](Seconds time) { return std::llround(time.count() * 1e9); };
    RankClock clock{found.rank, 0, ns(found.residual)};
    const Seconds distance(std::abs(found.later.count()));
    if (distance > std::max(kLeast, 3.0 * found.residual)) {
      clock.offset_ns = -ns(found.later);
      shift_ns[found.rank] = clock.offset_ns;
      notes.push_back("rank " + std::to_string(found.rank) + " ends the same collectives " +
                      format(distance) + (found.later > Seconds(0) ? " later" : " earlier") +
                      " than rank " + std::to_string(found.against) +
                      " by its clock: shifted (from " + std::to_string(found.collectives) +
                      " collectives, residual " + format(found.residual) + ")");
    }
    set_clock(timeline, clock);
  }
  if (!shift_ns.empty()) {
    for (Record& record : timeline.records) {
      if (const auto shift = shift_ns.find(record.rank); shift != shift_ns.end()) {
        record.begin_ns += shift->second;
        record.end_ns += shift->second;
      }
    }
  }
  return notes;
}

}  // namespace stretto
