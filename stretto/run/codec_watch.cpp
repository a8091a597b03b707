// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/codec_watch.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "stretto/base/error.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/run/text_exchange.hpp"

namespace stretto {
namespace {

/// Intervals between trials stop growing here.
constexpr std::uint32_t kMostPatience = 64;

bool has_codecs(const Plan& plan) {
  return std::any_of(plan.buckets.begin(), plan.buckets.end(), [](const Bucket& bucket) {
    return bucket.codec.lossy();
  });
}

}  // namespace

CodecWatch::CodecWatch(Communicator& communicator, Session& session, CodecWatchOptions options)
    : communicator_(communicator),
      session_(session),
      options_(std::move(options)),
      with_(session.plan()),
      without_(session.plan()),
      off_step_(options_.exact_step) {
  if (options_.window == 0 || options_.trial_window == 0 || options_.trial_every == 0 ||
      !(options_.least_gain >= 0.0 && options_.least_gain < 1.0)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"steps with and without codecs cannot be compared like this",
         "CodecWatchOptions",
         "windows of " + std::to_string(options_.window) + " and " +
             std::to_string(options_.trial_window) + ", every " +
             std::to_string(options_.trial_every) + ", gain " + std::to_string(options_.least_gain),
         "windows of 1 or more, a gain from 0 to below 1",
         ""});
  }
  for (Bucket& bucket : without_.buckets) {
    bucket.codec = {};
  }
  if (!options_.now) {
    options_.now = [] { return Seconds(std::chrono::steady_clock::now().time_since_epoch()); };
  }
  last_ = options_.now();
}

bool CodecWatch::other_is_better() const {
  return on_ ? off_step_ < on_step_
             : on_step_ <= off_step_ * (1.0 - options_.least_gain) && on_step_ < off_step_;
}

bool CodecWatch::wants_trial(Seconds step) {
  (on_ ? on_step_ : off_step_) = step;
  ++looks_;
  // However rare trials by routine have become: those were in vain because nothing changed.
  const bool both_known = on_step_ > Seconds(0) && off_step_ > Seconds(0);
  called_for_ = both_known && looks_ >= doubt_ && other_is_better();
  return called_for_ || looks_ >= options_.trial_every * patience_;
}

/// Whether the state that was tried is what is run from now on.
bool CodecWatch::judge(Seconds step) {
  (on_ ? off_step_ : on_step_) = step;
  const bool changes = other_is_better();
  switches_.push_back({session_.step(), on_ != changes, changes, on_step_, off_step_});
  if (changes) {
    patience_ = 1;
    doubt_ = 1;
  } else if (called_for_) {
    doubt_ = std::min(2 * doubt_, options_.trial_every);
  } else {
    patience_ = std::min(2 * patience_, kMostPatience);
  }
  looks_ = 0;
  return changes;
}

void CodecWatch::install(bool codecs) {
  session_.replan(codecs ? with_ : without_);
}

void CodecWatch::step_finished() {
  if (!has_codecs(with_)) {
    return;
  }
  steps_.push_back((options_.now() - last_).count());
  const std::size_t due = trying_ ? std::size_t{options_.trial_window} + 1 : options_.window;
  if (steps_.size() == due) {
    std::string text;
    if (communicator_.rank() == 0) {
      if (trying_) {
        steps_.erase(steps_.begin());  // it sent what was owed, or began with new memory
        text = judge(Seconds(median(steps_))) ? "change" : "back";
      } else {
        text = wants_trial(Seconds(median(steps_))) ? "try" : "go on";
      }
    }
    text = broadcast_text(communicator_, text, 0);
    if (text == "try") {
      install(!on_);
      trying_ = true;
    } else if (text == "back") {
      install(on_);
      trying_ = false;
    } else if (text == "change") {
      on_ = !on_;
      trying_ = false;
    }
    steps_.clear();
  }
  // What the look took is of no step.
  last_ = options_.now();
}

}  // namespace stretto
