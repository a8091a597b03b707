// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stretto/data/timeline.hpp"

namespace stretto {

/// One step of one device of a rank, inside of the rank's own window of the step, in exact
/// nanoseconds. What each number is: DeviceTotals. exposed + hidden = communication, and
/// compute + exposed + exposed copies + idle = length.
struct DeviceStep {
  std::uint32_t rank = 0;
  std::uint32_t step = 0;
  std::string name;           ///< Of its kStep record.
  std::uint32_t device = 0;   ///< kNoId: a live run, or the rows of a host.
  std::int64_t begin_ns = 0;  ///< From the timeline's origin.
  std::int64_t length_ns = 0;
  std::int64_t compute_ns = 0;
  std::int64_t communication_ns = 0;
  std::int64_t communication_sum_ns = 0;
  std::int64_t exposed_ns = 0;
  std::int64_t hidden_ns = 0;
  std::int64_t exposed_copies_ns = 0;
  std::int64_t idle_ns = 0;
  std::int64_t collectives = 0;  ///< That belong to the step, wherever they ended.
};

/// All steps that every rank recorded whole, by step, then rank, then device. Empty if there is
/// none.
[[nodiscard]] std::vector<DeviceStep> device_steps(const Timeline& timeline);

}  // namespace stretto
