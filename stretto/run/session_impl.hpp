// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "stretto/run/session.hpp"

namespace stretto {

inline constexpr std::uint32_t kNothing = 0xffffffffU;

/// What a Session holds. Private to run/: not installed. Its functions stand by subject in
/// session.cpp (the plan is installed), session_checks.cpp and session_step.cpp.
struct Session::Impl {
  // What codecs have not sent of a bucket that has no codec any more travels with its next
  // gradients.
  enum class Debt : std::uint8_t {
    kNone,
    kOwed,
    kPaid,  // in the last finished step, which may be undone
  };
  // A bucket of the installed plan, and how far it is in its step.
  struct BucketState {
    BufferView view;
    std::vector<TensorRange> ranges;
    int tensors = 0;              // that overlap it
    std::atomic<int> pending{0};  // of these, not ready yet
    std::atomic<bool> launched{false};
    Work reduced;    // valid once launched; this rank's part is reduced
    Work available;  // all of it; the same operation unless the bucket travels in halves
    bool halves = false;
    BufferView parameters;           // with shard_optimizer
    std::vector<TensorRange> owned;  // this rank's part of `ranges`
    bool updated = false;            // with shard_optimizer: its callback has run, the gather begun
    bool taken = false;              // waited for, and its callback has run
    int urgency = 0;                 // the higher, the sooner the next forward pass reads it
    std::unique_ptr<CompressedBucket> compressed;  // null without codec
    std::uint32_t sequence = 0;                    // order of launch in the step
    Debt debt = Debt::kNone;
  };

  Impl(Communicator& communicator, Plan plan, const SessionOptions& options);

  // session.cpp
  RunOrigin common_origin();
  void install();
  [[nodiscard]] BufferView tensor_in(
      const std::array<std::unique_ptr<Arena>, std::size(kAllDTypes)>& of, std::size_t i) const;
  void open_step();
  [[nodiscard]] std::uint32_t mark() const noexcept { return step + 1; }
  [[nodiscard]] bool step_is_open() const;
  void make_residuals();
  /// Of the open step, in the count of codecs, which goes on where an older job has ended.
  [[nodiscard]] std::uint32_t codec_step() const noexcept { return codec_steps_before + step; }

  // session_momentum.cpp
  /// Elements of the arena of f32 whose codec has this momentum.
  struct Momentum {
    std::size_t begin = 0;
    std::size_t end = 0;
    double momentum = 0.0;
  };
  /// Of the installed plan.
  [[nodiscard]] std::vector<Momentum> momenta() const;
  /// Residuals, settled, were made by codecs with these, and are the installed plan's now.
  void convert_momentum(const std::vector<Momentum>& before);

  // session_state.cpp
  void check_between_steps(const char* what) const;
  /// The step whose buckets these are.
  [[nodiscard]] std::uint32_t travelling() const noexcept {
    return unsettled.load(std::memory_order_relaxed) ? step - 1 : step;
  }

  // session_checks.cpp
  void check_types(const Plan& checked) const;
  void check_sharding(const Plan& checked) const;
  void check_codec(const Bucket& bucket, std::size_t b) const;
  static std::string describe(const SessionOptions& options);
  [[nodiscard]] bool in_halves(const Bucket& bucket) const;
  [[nodiscard]] std::string here(std::uint32_t b) const;
  [[noreturn]] void stop_job(ErrorCode code, ErrorDetail detail, std::uint32_t b);
  void check_whole() const;
  void check_ready();
  void check_norm() const;

  // session_step.cpp
  void ready(std::size_t i) noexcept;
  void bucket_ready(std::uint32_t b) noexcept;
  void launch(std::uint32_t b) noexcept;
  [[nodiscard]] CallOptions call_options(std::uint32_t b) const;
  void finish();
  void close_step();
  void await(std::uint32_t b, const Work& work);
  void record_wait(std::uint32_t b, Nanoseconds begin);
  void take(std::uint32_t b);
  void update(std::uint32_t b);
  void update_reduced();
  void update_others_until(std::uint32_t b);
  [[nodiscard]] bool has_arrived(const BucketState& bucket) const;
  void take_all(std::vector<std::uint32_t> order);
  void take_for(std::size_t i);
  void drain();
  void settle_if_taken();
  void settle();
  double gradient_norm();
  void verify(std::uint32_t b);
  void pay(std::uint32_t b) noexcept;
  void find_debts();
  void commit_residuals();
  void call_back(std::uint32_t b, const std::vector<TensorRange>& ranges);
  void record();

  Communicator& communicator;
  SessionOptions options;
  Plan plan;
  std::array<std::unique_ptr<Arena>, std::size(kAllDTypes)> arenas;
  std::array<std::unique_ptr<Arena>, std::size(kAllDTypes)> parameters;  // with shard_optimizer
  std::vector<std::int64_t> offsets;
  std::optional<Residuals> residuals;  // of the arena of fp32; from the first codec on

  CodecCounters earlier_counters;  // of plans before, since reset_recording()

  // Of the installed plan.
  std::deque<BucketState> buckets;  // a deque: its elements do not move
  std::vector<std::vector<std::uint32_t>> tensor_buckets;
  std::vector<std::uint32_t> bucket_names;
  std::vector<std::uint32_t> by_urgency;  // buckets, the most urgent first

  // Of the open step; under kPriority the buckets are the last one's until all are taken.
  std::uint32_t step = 0;
  std::uint32_t next_in_order = 0;
  std::uint32_t verified = kNothing;
  std::uint32_t wait_name = 0;
  std::uint32_t codec_steps_before = 0;  // of an older job, modulo 2^32: see codec_step()
  std::atomic<bool> unsettled{false};    // they are the last one's
  bool broken = false;
  bool can_undo = false;                                 // the last finished step's residuals
  bool encodes = true;                                   // in the step whose buckets these are
  bool encoded = false;                                  // in the last finished step
  bool wrote_residuals = false;                          // likewise; it may be debts only
  std::vector<std::atomic<std::uint32_t>> tensor_marks;  // step + 1 once ready in it
  std::vector<std::int64_t> ready_at;
  std::atomic<std::size_t> ready_buckets{0};
  std::atomic<std::uint32_t> launches{0};
  std::atomic<int> holds{0};
  std::atomic<std::uint32_t> ready_twice{kNothing};
  std::atomic<std::uint32_t> ready_early{kNothing};
  std::atomic<std::uint32_t> awaited{kNothing};
  std::mutex order_mutex;
  std::mutex launch_failure_mutex;
  std::optional<Error> launch_failure;
  std::unique_ptr<Arena> verify_copy;

  BucketCallback on_bucket;
  std::optional<Recorder> recorder;
  std::vector<std::uint32_t> tensor_names;
};

}  // namespace stretto
