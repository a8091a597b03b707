// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "stretto/base/error.hpp"
#include "stretto/base/units.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/comm/message.hpp"

namespace stretto::detail {

/// Of an abort that belongs to no step or bucket.
inline constexpr std::uint32_t kNoStep = 0xffffffffU;

/// How long a driver polls in vain before it gives up its core.
struct Patience {
  Nanoseconds caller{};      ///< Who waits, and has nothing better to do.
  Nanoseconds background{};  ///< The engine's thread, which takes time from compute.
  int polls = 64;            ///< Between two looks at the clock; few where a poll takes longer.
};

/// Moves addressed messages between the ranks of one job. What algorithms stand on and backends
/// implement.
///
/// A message is *lent*: the sender's bytes stay untouched until the receiver has called release(),
/// which completes the send. So a transport whose ranks share memory moves no bytes at all.
/// Only one thread is inside at a time (the engine sees to it), except in has_input(), sleep() and
/// wake().
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  /// True when lent bytes are the peer's own memory, and may be written by the receiver too: the
  /// basis of in-place algorithms. Emulated machines say no.
  [[nodiscard]] virtual bool in_place() const noexcept = 0;
  /// Messages up to this size are copied at once, unless they say `lend`: their send completes
  /// without the receiver.
  [[nodiscard]] virtual std::size_t eager_bytes() const noexcept = 0;
  /// True when `data` can be lent. Other memory must be staged.
  [[nodiscard]] virtual bool can_lend(const std::byte* data, std::size_t bytes) const noexcept = 0;
  /// Memory that can be lent, for staging.
  [[nodiscard]] virtual std::unique_ptr<Arena> allocate(Bytes size) = 0;

  /// Messages above this are worth cutting, so that work on one piece happens while the next is on
  /// the wire. The same on every rank. Shared memory has no wire, and on an emulated machine the
  /// work takes no time.
  [[nodiscard]] virtual std::size_t segment_bytes() const noexcept {
    return std::numeric_limits<std::size_t>::max();
  }

  /// Both complete by message.group->arrived(). What goes wrong in them is thrown by the next
  /// poll().
  virtual void send(Message& message) = 0;
  virtual void receive(Message& message) = 0;
  /// The receiver is done with message.data.
  virtual void release(Message& message) = 0;
  /// True while messages wait for room on their way out: poll() must go on, whatever else is over.
  /// Any thread.
  [[nodiscard]] virtual bool has_backlog() const noexcept { return false; }

  /// Operations are in flight from now on; before, nobody polled.
  virtual void became_busy() {}
  /// Makes progress; true if anything happened.
  /// @throws Error kMismatch, kPeerLost (a peer's abort included).
  virtual bool poll() = 0;
  /// Looks for dead peers and aborts; costs system calls, so the engine calls it a few dozen times
  /// a second. @throws Error as poll().
  virtual void check_peers() = 0;
  /// How long `bytes` in flight may take by themselves: added to time-outs. Emulated links are
  /// slow.
  [[nodiscard]] virtual Nanoseconds least_time(std::uint64_t /*bytes*/) const noexcept {
    return {};
  }
  /// Emulated machines: an operation that was over at `at` is completed now.
  virtual void noticed(ModelTime /*at*/) noexcept {}
  /// When poll() will next have something to do by itself (an emulated arrival); 0 = not before
  /// input.
  [[nodiscard]] virtual ModelTime next_event() const noexcept { return 0; }

  /// Called when a message arrived before its receive.
  std::function<void()> on_unexpected;
  /// When bytes last moved, if the transport knows: nothing times out as long as they do.
  [[nodiscard]] virtual Nanoseconds last_movement() const noexcept { return {}; }

  /// True if such a message for `slot` is waiting.
  [[nodiscard]] virtual bool has_unexpected(std::uint32_t slot) const noexcept = 0;

  [[nodiscard]] virtual Patience patience() const noexcept {
    return {std::chrono::microseconds(50), std::chrono::microseconds(2)};
  }
  /// How often poll() wants to be called while nothing is in flight; 0: not at all.
  [[nodiscard]] virtual Nanoseconds idle_interval() const noexcept { return {}; }

  /// Blocks the calling thread until input arrives, wake() is called or `until` (monotonic; 0 = for
  /// ever) has passed. With `from_peers` false only wake() ends it. `cancel` is asked once more
  /// after peers have been told to wake this rank.
  virtual void sleep(bool from_peers, ModelTime until, const std::function<bool()>& cancel) = 0;
  /// Ends sleep(). Any thread. A system call only if the rank sleeps.
  virtual void wake() noexcept = 0;

  /// The ranks from which messages are outstanding, for people: `rank 1, 3`.
  [[nodiscard]] virtual std::string waiting_for() const = 0;

  /// True once some rank has aborted the job. Quick.
  [[nodiscard]] virtual bool aborted() const noexcept = 0;
  /// Tells all ranks, present and to come, that the job is over. Any thread.
  virtual void abort(ErrorCode code, std::uint32_t step, std::uint32_t bucket) noexcept = 0;
  /// Before abort(): what peers are to read as the reason. A transport without room for words tells
  /// the code alone.
  virtual void explain(const ErrorDetail& /*reason*/) noexcept {}
  /// After an abort, before the memory of messages in flight goes: from now on nothing reads or
  /// writes it, and nothing else is called.
  virtual void withdraw() noexcept {}

  [[nodiscard]] virtual EmulationStatistics emulation_statistics() const noexcept { return {}; }
};

}  // namespace stretto::detail
