// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/device_steps.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "stretto/analyze/activity.hpp"
#include "stretto/analyze/steps.hpp"
#include "stretto/base/intervals.hpp"

namespace stretto {
namespace {

using Device = std::pair<std::uint32_t, std::uint32_t>;  // rank, device

/// What Activities has not: it is needed for no other number.
struct Rest {
  std::vector<Interval> collectives;  // by begin
  std::int64_t longest_ns = 0;        // of them
  IntervalSet exposed_copies;
};

bool is_counted(const Record& record, const detail::Activities& activities) {
  return record.lane != Lane::kHost || !activities.has_device(record.rank);
}

std::map<Device, Rest> rest_of(const Timeline& timeline, const detail::Activities& activities) {
  std::map<Device, Rest> rest;  // of every device that did anything
  std::map<Device, std::vector<Interval>> copies;
  for (const Record& record : timeline.records) {
    const bool communicates = record.kind == RecordKind::kCommunication;
    if ((!communicates && !is_compute(record.kind) && record.kind != RecordKind::kCopy) ||
        !is_counted(record, activities)) {
      continue;
    }
    const Device device{record.rank, record.lane == Lane::kHost ? kNoId : record.device};
    Rest& of = rest[device];
    if (communicates) {
      of.collectives.push_back({record.begin_ns, record.end_ns});
      of.longest_ns = std::max(of.longest_ns, record.end_ns - record.begin_ns);
    } else if (record.kind == RecordKind::kCopy) {
      copies[device].push_back({record.begin_ns, record.end_ns});
    }
  }
  for (auto& [device, of] : rest) {
    std::sort(of.collectives.begin(),
              of.collectives.end(),
              [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
  }
  for (auto& [device, pieces] : copies) {
    const detail::Activity* activity = activities.find(device.first, device.second);
    IntervalSet set(std::move(pieces));
    rest[device].exposed_copies =
        activity == nullptr ? std::move(set)
                            : subtract(set, unite(activity->compute, activity->communication));
  }
  return rest;
}

/// What of each lies in the window, added up.
std::int64_t sum_within(const Rest& rest, Interval window) {
  const auto first = std::lower_bound(
      rest.collectives.begin(),
      rest.collectives.end(),
      window.begin_ns - rest.longest_ns,
      [](const Interval& piece, std::int64_t begin_ns) { return piece.begin_ns < begin_ns; });
  std::int64_t sum_ns = 0;
  for (auto piece = first; piece != rest.collectives.end() && piece->begin_ns < window.end_ns;
       ++piece) {
    sum_ns += std::max<std::int64_t>(
        0, std::min(piece->end_ns, window.end_ns) - std::max(piece->begin_ns, window.begin_ns));
  }
  return sum_ns;
}

std::int64_t collectives_of(const detail::RankStep& rank, std::uint32_t device) {
  return std::count_if(rank.records.begin(), rank.records.end(), [&](const Record* record) {
    return record->kind == RecordKind::kCommunication &&
           (record->lane == Lane::kHost ? kNoId : record->device) == device;
  });
}

}  // namespace

std::vector<DeviceStep> device_steps(const Timeline& timeline) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> names;  // step, rank
  for (const Record& record : timeline.records) {
    if (record.kind == RecordKind::kStep) {
      names.try_emplace({record.step, record.rank}, record.name);
    }
  }
  std::vector<DeviceStep> list;
  if (names.empty()) {
    return list;
  }
  const detail::Activities activities(timeline);
  const detail::Activity only_copies;
  const std::map<Device, Rest> rest = rest_of(timeline, activities);
  for (const detail::Step& step : detail::whole_steps(timeline, activities)) {
    for (const detail::RankStep& rank : step.ranks) {
      const Interval window = rank.window;
      for (auto at = rest.lower_bound({rank.rank, 0});
           at != rest.end() && at->first.first == rank.rank;
           ++at) {
        const std::uint32_t device = at->first.second;
        const Rest& of = at->second;
        const detail::Activity* const found = activities.find(rank.rank, device);
        const detail::Activity& activity = found == nullptr ? only_copies : *found;
        DeviceStep row;
        row.rank = rank.rank;
        row.step = step.number;
        const std::uint32_t name = names[{step.number, rank.rank}];
        row.name = name < timeline.names.size() ? timeline.names[name] : std::string();
        row.device = device;
        row.begin_ns = window.begin_ns;
        row.length_ns = window.end_ns - window.begin_ns;
        row.compute_ns = activity.compute.measure_within_ns(window);
        row.communication_ns = activity.communication.measure_within_ns(window);
        row.communication_sum_ns = sum_within(of, window);
        row.exposed_ns = activity.exposed.measure_within_ns(window);
        row.hidden_ns = row.communication_ns - row.exposed_ns;
        row.exposed_copies_ns = of.exposed_copies.measure_within_ns(window);
        row.idle_ns = row.length_ns - row.compute_ns - row.exposed_ns - row.exposed_copies_ns;
        row.collectives = collectives_of(rank, device);
        list.push_back(std::move(row));
      }
    }
  }
  return list;
}

}  // namespace stretto
