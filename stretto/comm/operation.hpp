// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "stretto/base/error.hpp"
#include "stretto/comm/work.hpp"

namespace stretto::detail {

/// What a Work refers to. Written by whoever completes the operation, read by any thread.
struct WorkState {
  /// Blocks until a state is over.
  class Waiter {
   public:
    virtual void wait_for(WorkState& state) = 0;

    Waiter() = default;
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    virtual ~Waiter() = default;
  };

  enum Phase : std::uint32_t { kPending, kDone, kFailed };

  std::atomic<std::uint32_t> phase{kPending};
  std::optional<Error> error;  ///< Written before phase becomes kFailed.
  WorkTimes times;             ///< Written before phase leaves kPending.
  Waiter* waiter = nullptr;    ///< Null: block on `phase` alone.

  [[nodiscard]] bool over() const noexcept {
    return phase.load(std::memory_order_acquire) != kPending;
  }
  void complete() noexcept {
    phase.store(kDone, std::memory_order_release);
    phase.notify_all();
  }
  void fail(const Error& reason) {
    error.emplace(reason);
    phase.store(kFailed, std::memory_order_release);
    phase.notify_all();
  }
};

}  // namespace stretto::detail
