// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <thread>
#include <unordered_map>
#include <vector>

#include "stretto/comm/communicator.hpp"
#include "stretto/comm/operation.hpp"
#include "stretto/comm/stages.hpp"
#include "stretto/comm/transport.hpp"

namespace stretto::detail {

/// Runs the operations of one communicator as coroutines over its transport.
///
/// One thread of its own makes progress while nobody waits; a caller in Work::wait() takes over, so
/// that short operations cost no thread switch. Whoever drives holds `mutex_`; all of the transport
/// and every coroutine is behind it. Started operations reach the driver through a lock-free inbox.
/// With nothing in flight the thread sleeps without a time-out.
class Engine final : private WorkState::Waiter {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    Nanoseconds timeout{};
    bool emulated = false;
    RankGroups groups;
  };

  Engine(std::unique_ptr<Transport> transport, Options options);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] Work start(const Call& call);
  [[nodiscard]] Transport& transport() noexcept { return *transport_; }
  /// Fails everything in flight and to come.
  void abort(const Error& reason, std::uint32_t step, std::uint32_t bucket) noexcept;
  [[nodiscard]] EmulationStatistics emulation_statistics() const;

 private:
  struct Operation;
  struct Ready {  // a coroutine that can go on
    int priority;
    std::uint64_t sequence;
    std::uint64_t order;
    Operation* operation;
    std::coroutine_handle<> handle;
    bool operator<(const Ready& other) const;
  };
  struct Held {  // emulated machines: done here, but not over there yet
    ModelTime until;
    Operation* operation;
    bool operator<(const Held& other) const noexcept { return until > other.until; }
  };
  struct Stream {
    std::vector<Operation*> running;
    ModelTime last_end = 0;
  };

  void wait_for(WorkState& state) override;
  void run(const std::stop_token& stop);
  bool poll();
  bool drain_inbox();
  [[nodiscard]] bool key_in_use(std::uint64_t key) const;
  bool admissible(const Operation& operation);
  bool admit_waiting();
  void begin(Operation& operation);
  void finish(Operation& operation);
  bool resume_ready();
  bool release_held();
  void retire(Operation& operation);
  void check_deadlines();
  void count_in_flight() noexcept;
  [[nodiscard]] bool busy_with_backlog() const noexcept;
  /// Something is in flight or on its way out.
  [[nodiscard]] bool busy() const noexcept;
  void fail_all(const Error& reason) noexcept;
  void fail_job(const std::exception& reason) noexcept;
  /// Runs `function`; a failure in it becomes the failure of everything. Entered with every poll,
  /// so it makes no Error, which owns strings, before there is one.
  template <typename Function>
  bool guarded(Function&& function) noexcept {
    if (failure_) {
      return false;
    }
    try {
      function();
      return true;
    } catch (const std::exception& error) {
      fail_job(error);
      return false;
    }
  }
  [[nodiscard]] static Nanoseconds now();

  std::unique_ptr<Transport> transport_;
  Options options_;

  std::atomic<Operation*> inbox_{nullptr};  // newest first
  std::atomic<bool> background_posted_{false};
  std::atomic<int> callers_{0};    // threads in wait_for that drive or want to
  std::atomic<int> in_flight_{0};  // operations taken from the inbox and not over
  std::atomic<bool> failed_{false};
  std::atomic<std::uint32_t> next_slot_{0};

  std::mutex mutex_;
  std::vector<std::shared_ptr<Operation>> active_;  // all in flight, the waiting ones too
  std::vector<Operation*> waiting_;                 // not begun yet, in order of start
  std::vector<Ready> ready_;                        // a heap
  std::priority_queue<Held> held_;                  // the earliest first
  std::unordered_map<std::uint32_t, Stream> streams_;
  static constexpr std::size_t kKeyBuckets = 1024;
  std::array<std::uint32_t, kKeyBuckets> keys_in_use_{};  // operations begun, by key modulo
  Stages stages_;
  bool admit_ = false;  // something changed that may let a waiting one begin
  std::uint64_t next_sequence_ = 0;
  std::uint64_t next_ready_ = 0;
  std::optional<Error> failure_;

  std::jthread thread_;  // last: joins before the rest is gone
};

}  // namespace stretto::detail
