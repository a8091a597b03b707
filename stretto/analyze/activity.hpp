// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "stretto/base/intervals.hpp"
#include "stretto/data/timeline.hpp"

/// When each device computed and communicated. Private to analyze/: not installed.
namespace stretto::detail {

/// One device over the whole recording; all its streams together.
struct Activity {
  std::uint32_t device = kNoId;
  IntervalSet compute;
  IntervalSet communication;
  IntervalSet exposed;  ///< communication minus compute
};

/// Of every rank. A rank without device records is one device that does what its host does.
class Activities {
 public:
  explicit Activities(const Timeline& timeline);

  /// One per device of the rank; empty for a rank that did nothing.
  [[nodiscard]] const std::vector<Activity>& of(std::uint32_t rank) const;
  /// Whether the rank has device records, so that host ones do not count.
  [[nodiscard]] bool has_device(std::uint32_t rank) const;

  /// Null if that device of the rank did nothing.
  [[nodiscard]] const Activity* find(std::uint32_t rank, std::uint32_t device) const;

  /// The part inside of a window, mean over the rank's devices.
  [[nodiscard]] std::int64_t within_ns(std::uint32_t rank,
                                       IntervalSet Activity::*part,
                                       Interval window) const;

 private:
  struct Rank {
    bool device = false;
    std::vector<Activity> devices;  // by number
  };
  std::map<std::uint32_t, Rank> ranks_;
};

}  // namespace stretto::detail
