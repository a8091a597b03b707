// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "stretto/base/error.hpp"
#include "stretto/base/units.hpp"

namespace stretto {

namespace detail {
struct WorkState;
}

/// When an operation really happened, on CLOCK_MONOTONIC of this host.
struct WorkTimes {
  Nanoseconds launched{};  ///< Handed to the communicator.
  Nanoseconds started{};   ///< Its first message was offered to a link.
  Nanoseconds ended{};     ///< Result usable.
  /// On an emulated machine, when the last message came that it depended on here: `ended` without
  /// the host's being late. A rank that only sends depends on none. On real machines zero.
  Nanoseconds emulated_end{};
};

/// An operation that was started. A cheap handle: copies refer to the same operation.
///
/// Failures after the start are thrown by wait() and nowhere else, on every call. Dropping all
/// handles does not cancel the operation: its buffers must live on until it is over.
class Work {
 public:
  Work() = default;  ///< Refers to nothing; done() is true.
  explicit Work(std::shared_ptr<detail::WorkState> state) : state_(std::move(state)) {}

  /// True once the result can be used or the operation has failed. Never blocks.
  [[nodiscard]] bool done() const noexcept;

  /// Returns when the result can be used. May make progress itself, so that a small message does
  /// not pay for a thread switch. Any thread, any number of times.
  /// @throws Error kPeerLost, kTimeout, kMismatch, kBackend, kNeverReady: the communicator cannot
  /// be
  ///         used any more, the buffer's contents are unspecified.
  void wait() const;

  /// The failure, if it is over and failed.
  [[nodiscard]] std::optional<Error> error() const;
  /// Valid once done(); all zero for Progress::kCaller, where reading the clock would cost too
  /// much.
  [[nodiscard]] WorkTimes times() const noexcept;

 private:
  std::shared_ptr<detail::WorkState> state_;
};

}  // namespace stretto
