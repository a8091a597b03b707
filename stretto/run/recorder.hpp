// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/timeline.hpp"

namespace stretto {

/// Now, on the clock that all records of one host share (CLOCK_MONOTONIC).
[[nodiscard]] Nanoseconds monotonic_now() noexcept;

/// Time 0 of a run's records.
struct RunOrigin {
  Nanoseconds monotonic{};
  std::int64_t unix_ns = 0;
};
[[nodiscard]] RunOrigin origin_now() noexcept;

/// Collects one rank's Timeline while it runs: the last `max_steps` steps, older ones are dropped
/// and counted. Any thread may add; adding is a lock and a store.
class Recorder {
 public:
  Recorder(int rank, int world_size, std::size_t max_steps, RunOrigin origin);

  /// Opens step `number`; records added from now on belong to it.
  void begin_step(std::uint32_t number, Nanoseconds at);
  /// Closes the open step and adds its kStep record.
  void end_step(Nanoseconds at);

  [[nodiscard]] std::uint32_t name_id(std::string_view name);
  /// Fills in rank and step; times are absolute monotonic nanoseconds here.
  void add(Record record);
  void add(std::span<const Record> records);
  /// To step `number`, open or closed; nothing if it is not kept.
  void add(std::uint32_t number, std::span<const Record> records);
  /// For compute: `recorder.add(RecordKind::kForward, "layer 3", begin, end)`.
  void add(RecordKind kind, std::string_view name, Nanoseconds begin, Nanoseconds end);

  /// A copy of what is recorded, closed steps only, times relative to the first call of the
  /// constructor.
  [[nodiscard]] Timeline timeline() const;
  /// Forgets all steps: call after warm-up.
  void clear();

 private:
  struct Step {
    std::uint32_t number = 0;
    std::vector<Record> records;
  };
  void add_to(Step& step, std::span<const Record> records) const;
  std::uint32_t name_index(std::string_view name);  // under the lock

  mutable std::mutex mutex_;
  std::uint32_t rank_;
  std::uint32_t world_size_;
  std::size_t max_steps_;
  RunOrigin origin_;
  std::vector<std::string> names_;
  std::map<std::string, std::uint32_t, std::less<>> name_ids_;
  std::vector<Step> steps_;  // a ring once it is full
  std::size_t oldest_ = 0;
  bool open_ = false;
  Step current_;
  std::uint32_t steps_total_ = 0;
  Nanoseconds step_begin_{};
};

/// Records the time from its construction to its destruction.
class RecordScope {
 public:
  RecordScope(Recorder& recorder, RecordKind kind, std::string_view name)
      : recorder_(recorder), kind_(kind), name_(name), begin_(monotonic_now()) {}
  ~RecordScope() { recorder_.add(kind_, name_, begin_, monotonic_now()); }
  RecordScope(const RecordScope&) = delete;
  RecordScope& operator=(const RecordScope&) = delete;

 private:
  Recorder& recorder_;
  RecordKind kind_;
  std::string_view name_;
  Nanoseconds begin_;
};

}  // namespace stretto
