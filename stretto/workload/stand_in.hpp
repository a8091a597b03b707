// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stretto/base/units.hpp"
#include "stretto/workload/replay.hpp"

namespace stretto {

/// Takes the time that compute would take. Not thread-safe; one per rank, on the thread it works.
class StandIn {
 public:
  /// Busy arithmetic is calibrated here: call it on all ranks at once.
  explicit StandIn(ComputeMode mode);
  ~StandIn();
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  /// Now is time 0 of a step's compute.
  void begin_step() noexcept;
  /// Computes from where it is to time `at` of the step. Waiting keeps to the clock, so that a late
  /// wake-up shortens the next wait; arithmetic does what there is to do.
  void advance_to(Seconds at) noexcept;
  /// Compute stood still for this long: times of the step are that much later.
  void pause(Nanoseconds duration) noexcept { origin_ += duration; }
  /// Computes for this long, from now.
  void spend(Seconds duration) noexcept;

 private:
  void work(Seconds duration) noexcept;

  ComputeMode mode_;
  int timer_slack_before_ns_ = 0;
  double rounds_per_s_ = 0.0;
  double state_ = 1.0;  ///< Of the arithmetic, so that it cannot be optimised away.
  Nanoseconds origin_{};
  Seconds position_{};
};

}  // namespace stretto
