// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/recorder.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace stretto {

Nanoseconds monotonic_now() noexcept {
  return std::chrono::duration_cast<Nanoseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
}

RunOrigin origin_now() noexcept {
  return {
      monotonic_now(),
      std::chrono::duration_cast<Nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count()};
}

Recorder::Recorder(int rank, int world_size, std::size_t max_steps, RunOrigin origin)
    : rank_(static_cast<std::uint32_t>(rank)),
      world_size_(static_cast<std::uint32_t>(world_size)),
      max_steps_(max_steps),
      origin_(origin) {}

void Recorder::begin_step(std::uint32_t number, Nanoseconds at) {
  const std::scoped_lock lock(mutex_);
  current_.number = number;
  current_.records.clear();
  step_begin_ = at;
  open_ = true;
}

void Recorder::end_step(Nanoseconds at) {
  const std::scoped_lock lock(mutex_);
  if (!open_) {
    return;
  }
  open_ = false;
  ++steps_total_;
  if (max_steps_ == 0) {
    return;
  }
  Record step;
  step.kind = RecordKind::kStep;
  step.lane = Lane::kStep;
  step.begin_ns = step_begin_.count();
  step.end_ns = at.count();
  step.rank = rank_;
  step.step = current_.number;
  step.name = name_index("step");
  current_.records.push_back(step);
  if (steps_.size() < max_steps_) {
    steps_.push_back(std::move(current_));
    current_ = {};
  } else {
    // The oldest gives up its place, and its memory.
    std::swap(steps_[oldest_], current_);
    oldest_ = (oldest_ + 1) % max_steps_;
  }
}

std::uint32_t Recorder::name_index(std::string_view name) {
  const auto found = name_ids_.find(name);
  if (found != name_ids_.end()) {
    return found->second;
  }
  const auto id = static_cast<std::uint32_t>(names_.size());
  names_.emplace_back(name);
  name_ids_.emplace(std::string(name), id);
  return id;
}

std::uint32_t Recorder::name_id(std::string_view name) {
  const std::scoped_lock lock(mutex_);
  return name_index(name);
}

void Recorder::add(Record record) {
  add(std::span<const Record>(&record, 1));
}

void Recorder::add(std::span<const Record> records) {
  const std::scoped_lock lock(mutex_);
  if (!open_ || max_steps_ == 0) {
    return;
  }
  add_to(current_, records);
}

void Recorder::add(std::uint32_t number, std::span<const Record> records) {
  const std::scoped_lock lock(mutex_);
  if (max_steps_ == 0) {
    return;
  }
  if (open_ && current_.number == number) {
    add_to(current_, records);
    return;
  }
  const auto step = std::find_if(
      steps_.begin(), steps_.end(), [number](const Step& each) { return each.number == number; });
  if (step != steps_.end()) {
    add_to(*step, records);
  }
}

void Recorder::add_to(Step& step, std::span<const Record> records) const {
  for (Record record : records) {
    record.rank = rank_;
    record.step = step.number;
    step.records.push_back(record);
  }
}

void Recorder::add(RecordKind kind, std::string_view name, Nanoseconds begin, Nanoseconds end) {
  Record record;
  record.kind = kind;
  record.begin_ns = begin.count();
  record.end_ns = end.count();
  record.name = name_id(name);
  add(record);
}

Timeline Recorder::timeline() const {
  const std::scoped_lock lock(mutex_);
  Timeline timeline;
  timeline.source = "run";
  timeline.origin_unix_ns = origin_.unix_ns;
  timeline.world_size = world_size_;
  timeline.steps_total = steps_total_;
  timeline.steps_recorded = static_cast<std::uint32_t>(steps_.size());
  timeline.clocks.push_back({rank_, 0, 0});
  timeline.names = names_;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    for (Record record : steps_[(oldest_ + i) % steps_.size()].records) {
      record.begin_ns -= origin_.monotonic.count();
      record.end_ns -= origin_.monotonic.count();
      timeline.records.push_back(record);
    }
  }
  return timeline;
}

void Recorder::clear() {
  const std::scoped_lock lock(mutex_);
  steps_.clear();
  oldest_ = 0;
  steps_total_ = 0;
}

}  // namespace stretto
