// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "stretto/data/timeline.hpp"

namespace stretto::testing {

/// Writes a Timeline as a run does. Times in ms from the step's begin.
class TimelineBuilder {
 public:
  explicit TimelineBuilder(std::uint32_t world_size) {
    timeline_.source = "run";
    timeline_.world_size = world_size;
  }

  /// All that follows belongs to this step of this rank, which begins at `at_ms`.
  TimelineBuilder& step(std::uint32_t step, std::uint32_t rank, double at_ms, double length_ms) {
    step_ = step;
    rank_ = rank;
    at_ms_ = at_ms;
    return add(RecordKind::kStep, Lane::kStep, "step", 0, length_ms);
  }
  TimelineBuilder& compute(RecordKind kind, std::string_view name, double begin, double end) {
    return add(kind, Lane::kCompute, name, begin, end);
  }
  TimelineBuilder& ready(std::string_view tensor,
                         std::int64_t bytes,
                         std::uint32_t link,
                         double at) {
    add(RecordKind::kReady, Lane::kCompute, tensor, at, at);
    last().bytes = bytes;
    last().link = link;
    return *this;
  }
  /// A bucket's launch and its all-reduce; its link is its number.
  TimelineBuilder& bucket(
      std::uint32_t bucket, std::int64_t bytes, double launched, double begin, double end) {
    for (const RecordKind kind : {RecordKind::kLaunched, RecordKind::kCommunication}) {
      const bool instant = kind == RecordKind::kLaunched;
      add(kind,
          Lane::kCommunication,
          "bucket",
          instant ? launched : begin,
          instant ? launched : end);
      last().bytes = bytes;
      last().bucket = bucket;
      last().link = bucket;
      last().sequence = bucket;
      last().collective = Collective::kAllReduce;
    }
    return *this;
  }

  /// What a codec did within a bucket's exchange: `encode int8`.
  TimelineBuilder& codec(std::uint32_t bucket, std::string_view name, double begin, double end) {
    add(RecordKind::kAnnotation, Lane::kCommunication, name, begin, end);
    last().bucket = bucket;
    return *this;
  }

  [[nodiscard]] const Timeline& timeline() const { return timeline_; }

 private:
  TimelineBuilder& add(
      RecordKind kind, Lane lane, std::string_view name, double begin, double end) {
    Record record;
    record.kind = kind;
    record.lane = lane;
    record.name = timeline_.name_id(name);
    record.begin_ns = ns(begin);
    record.end_ns = ns(end);
    record.rank = rank_;
    record.step = step_;
    timeline_.records.push_back(record);
    return *this;
  }
  Record& last() { return timeline_.records.back(); }
  [[nodiscard]] std::int64_t ns(double ms) const {
    return static_cast<std::int64_t>((at_ms_ + ms) * 1e6);
  }

  Timeline timeline_;
  std::uint32_t step_ = 0;
  std::uint32_t rank_ = 0;
  double at_ms_ = 0.0;
};

}  // namespace stretto::testing
