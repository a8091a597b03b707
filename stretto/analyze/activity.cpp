// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/activity.hpp"

#include <algorithm>
#include <utility>

namespace stretto::detail {

Activities::Activities(const Timeline& timeline) {
  struct Pieces {
    std::vector<Interval> compute;
    std::vector<Interval> communication;
  };
  std::map<std::uint32_t, std::map<std::uint32_t, Pieces>> device;  // rank, device
  std::map<std::uint32_t, Pieces> host;
  for (const Record& record : timeline.records) {
    const bool communicates = record.kind == RecordKind::kCommunication;
    if (!communicates && !is_compute(record.kind)) {
      if (record.kind == RecordKind::kStep) {
        (void)host[record.rank];  // a rank that only has steps is a rank
      }
      continue;
    }
    Pieces& pieces =
        record.lane == Lane::kHost ? host[record.rank] : device[record.rank][record.device];
    (communicates ? pieces.communication : pieces.compute)
        .push_back({record.begin_ns, record.end_ns});
  }
  const auto activity_of = [](Pieces& pieces) {
    Activity activity;
    activity.compute = IntervalSet(std::move(pieces.compute));
    activity.communication = IntervalSet(std::move(pieces.communication));
    activity.exposed = subtract(activity.communication, activity.compute);
    return activity;
  };
  for (auto& [rank, devices] : device) {
    ranks_[rank].device = true;
    for (auto& [number, pieces] : devices) {
      ranks_[rank].devices.push_back(activity_of(pieces));
      ranks_[rank].devices.back().device = number;
    }
  }
  for (auto& [rank, pieces] : host) {
    if (!ranks_[rank].device) {
      ranks_[rank].devices.push_back(activity_of(pieces));
    }
  }
}

const std::vector<Activity>& Activities::of(std::uint32_t rank) const {
  static const std::vector<Activity> kNone;
  const auto found = ranks_.find(rank);
  return found == ranks_.end() ? kNone : found->second.devices;
}

const Activity* Activities::find(std::uint32_t rank, std::uint32_t device) const {
  const std::vector<Activity>& devices = of(rank);
  const auto found = std::lower_bound(
      devices.begin(), devices.end(), device, [](const Activity& activity, std::uint32_t number) {
        return activity.device < number;
      });
  return found == devices.end() || found->device != device ? nullptr : &*found;
}

bool Activities::has_device(std::uint32_t rank) const {
  const auto found = ranks_.find(rank);
  return found != ranks_.end() && found->second.device;
}

std::int64_t Activities::within_ns(std::uint32_t rank,
                                   IntervalSet Activity::*part,
                                   Interval window) const {
  const std::vector<Activity>& devices = of(rank);
  std::int64_t sum = 0;
  for (const Activity& device : devices) {
    sum += (device.*part).measure_within_ns(window);
  }
  return devices.empty() ? 0 : sum / static_cast<std::int64_t>(devices.size());
}

}  // namespace stretto::detail
