// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/replanner.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "stretto/base/error.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/run/text_exchange.hpp"

namespace stretto {

Replanner::Replanner(Communicator& communicator,
                     Session& session,
                     Decide decide,
                     ReplannerOptions options)
    : communicator_(communicator),
      session_(session),
      decide_(std::move(decide)),
      options_(std::move(options)) {
  if (options_.window == 0 || !(options_.drift >= 0.0) || !decide_) {
    throw Error(ErrorCode::kInvalidArgument,
                {"a Replanner looks after some steps, and asks somebody",
                 "ReplannerOptions",
                 "window " + std::to_string(options_.window) + ", drift " +
                     std::to_string(options_.drift) + (decide_ ? "" : ", nobody to ask"),
                 "a window of 1 or more, a drift of 0 or more, a function",
                 ""});
  }
  if (!options_.now) {
    options_.now = [] { return Seconds(std::chrono::steady_clock::now().time_since_epoch()); };
  }
  last_ = options_.now();
}

std::optional<Plan> Replanner::look() {
  const StepStats stats{steps_, Seconds(median(window_)), options_.expected};
  if (stats.expected <= Seconds(0)) {
    options_.expected = stats.step;
    return std::nullopt;
  }
  if (std::abs(stats.step / stats.expected - 1.0) <= options_.drift) {
    return std::nullopt;
  }
  std::optional<ExpectedPlan> better = decide_(stats);
  if (!better || better->expected > stats.step * (1.0 - options_.least_gain)) {
    options_.expected = stats.step;  // so it is now, and nobody knows better
    return std::nullopt;
  }
  options_.expected = better->expected;
  return std::move(better->plan);
}

bool Replanner::step_finished() {
  const Seconds now = options_.now();
  window_.push_back((now - last_).count());
  ++steps_;
  bool changed = false;
  if (window_.size() == options_.window) {
    std::string text;
    std::exception_ptr failure;
    if (communicator_.rank() == 0) {
      try {
        if (const std::optional<Plan> plan = look()) {
          text = to_json(*plan);
        }
      } catch (...) {
        failure = std::current_exception();
      }
    }
    text = broadcast_text(communicator_, text, 0);
    if (failure) {
      std::rethrow_exception(failure);
    }
    if (!text.empty()) {
      session_.replan(plan_from_json(text, "rank 0's plan"));
      changed = true;
    }
    window_.clear();
  }
  // What the look took is of no step.
  last_ = options_.now();
  return changed;
}

}  // namespace stretto
