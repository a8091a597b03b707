// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/stand_in.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <ctime>

#include <sys/prctl.h>

#include "stretto/run/recorder.hpp"

namespace stretto {
namespace {

void sleep_until(Nanoseconds deadline) noexcept {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(deadline);
  timespec at = {};
  at.tv_sec = whole.count();
  at.tv_nsec = (deadline - whole).count();
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) != 0) {
    // Interrupted by a signal.
  }
}

/// Rounds of eight dependent chains, long enough that the call costs nothing beside them.
double arithmetic(double state, std::int64_t rounds) noexcept {
  std::array<double, 8> chains{};
  chains.fill(state);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (double& value : chains) {
      value = value * 0.999 + 0.001;
    }
  }
  return *std::max_element(chains.begin(), chains.end());
}

Nanoseconds to_nanoseconds(Seconds time) noexcept {
  return Nanoseconds(std::llround(time.count() * 1e9));
}

}  // namespace

StandIn::StandIn(ComputeMode mode) : mode_(mode) {
  if (mode_ == ComputeMode::kWait) {
    // The kernel may wake a thread up to its slack late, by default 50 us: as much as a message's
    // latency.
    timer_slack_before_ns_ = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    return;
  }
  constexpr auto kCalibration = std::chrono::milliseconds(100);
  constexpr std::int64_t kRounds = 10000;
  std::int64_t rounds = 0;
  const Nanoseconds begin = monotonic_now();
  Nanoseconds now = begin;
  while (now - begin < kCalibration) {
    state_ = arithmetic(state_, kRounds);
    rounds += kRounds;
    now = monotonic_now();
  }
  rounds_per_s_ = static_cast<double>(rounds) / Seconds(now - begin).count();
}

StandIn::~StandIn() {
  if (mode_ == ComputeMode::kWait) {
    prctl(PR_SET_TIMERSLACK, timer_slack_before_ns_, 0, 0, 0);
  }
}

void StandIn::begin_step() noexcept {
  origin_ = monotonic_now();
  position_ = Seconds(0);
}

void StandIn::advance_to(Seconds at) noexcept {
  if (at <= position_) {
    return;
  }
  if (mode_ == ComputeMode::kBusy) {
    work(at - position_);
  } else if (const Nanoseconds deadline = origin_ + to_nanoseconds(at);
             deadline > monotonic_now()) {
    sleep_until(deadline);
  }
  position_ = at;
}

void StandIn::spend(Seconds duration) noexcept {
  if (mode_ == ComputeMode::kBusy) {
    work(duration);
  } else if (duration > Seconds(0)) {
    sleep_until(monotonic_now() + to_nanoseconds(duration));
  }
}

void StandIn::work(Seconds duration) noexcept {
  state_ = arithmetic(state_, std::llround(duration.count() * rounds_per_s_));
}

}  // namespace stretto
