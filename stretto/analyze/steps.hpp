// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "stretto/analyze/activity.hpp"
#include "stretto/base/intervals.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/data/timeline.hpp"

/// A Timeline cut into steps and ranks. Private to analyze/: not installed.
namespace stretto::detail {

/// One rank's part of a step. Records are those of the Timeline, which must outlive this; what
/// Activities already holds (device compute and copies, and what the host did beside a device) is
/// left out.
struct RankStep {
  std::uint32_t rank = 0;
  Interval window;  ///< The rank's kStep record.
  std::vector<const Record*> records;

  /// The part of a record inside the step.
  [[nodiscard]] Interval clip(const Record& record) const noexcept;
  /// From the step's begin, never outside of the step.
  [[nodiscard]] std::int64_t since_begin_ns(std::int64_t at_ns) const noexcept;
};

struct Step {
  std::uint32_t number = 0;
  std::vector<RankStep> ranks;
};

/// The steps of which every rank in the Timeline has a kStep record, in order.
/// @throws Error kInvalidArgument if there is none.
[[nodiscard]] std::vector<Step> whole_steps(const Timeline& timeline, const Activities& activities);

/// When a tensor's gradient was complete on the last rank, from each rank's own begin of the step:
/// median over steps.
struct TensorReady {
  double ready_ns = 0.0;
  std::int64_t bytes = 0;
};
/// By name id, of all kReady records.
[[nodiscard]] std::map<std::uint32_t, TensorReady> ready_times(const std::vector<Step>& steps);

/// Forward time per name, mean over ranks, median over steps, in order of first appearance.
[[nodiscard]] std::vector<LayerTime> forward_layers(const Timeline& timeline,
                                                    const std::vector<Step>& steps);

}  // namespace stretto::detail
