// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace stretto::detail {

/// Nanoseconds on CLOCK_MONOTONIC. On an emulated machine, the moment something happens on that
/// machine; the host may notice later. 0 = no statement.
using ModelTime = std::int64_t;

/// Where a message belongs: the operation's slot and the algorithm's phase. Messages of one sender
/// to one receiver with one address arrive in the order they were sent.
using Address = std::uint64_t;
[[nodiscard]] constexpr Address make_address(std::uint32_t slot, std::uint32_t phase) noexcept {
  return (static_cast<Address>(slot) << 32) | phase;
}
[[nodiscard]] constexpr std::uint32_t slot_of(Address address) noexcept {
  return static_cast<std::uint32_t>(address >> 32);
}

/// What a message is part of, so that ranks that disagree find out: collective, type and operation.
/// One of another kind is kMismatch where it meets its receive, like one of another size.
using OperationCode = std::uint8_t;

/// Several messages that a coroutine waits for together. `co_await group` returns when none is
/// outstanding; it may be used again after that.
class Group {
 public:
  /// Hands a coroutine that may go on to whoever runs them.
  class Resumer {
   public:
    virtual void resume_later(std::coroutine_handle<> handle) = 0;

    /// The latest arrival in any group of this operation, what it sent included: not over before.
    ModelTime latest = 0;

    Resumer() = default;
    Resumer(const Resumer&) = delete;
    Resumer& operator=(const Resumer&) = delete;
    virtual ~Resumer() = default;
  };

  explicit Group(Resumer& resumer) : resumer_(resumer) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() = default;

  void expect() noexcept { ++outstanding_; }
  void arrived(ModelTime at) {
    if (at > latest_) {
      latest_ = at;
    }
    if (at > resumer_.latest) {
      resumer_.latest = at;
    }
    if (--outstanding_ == 0 && waiter_) {
      const auto handle = waiter_;
      waiter_ = nullptr;
      resumer_.resume_later(handle);
    }
  }
  /// The latest arrival so far.
  [[nodiscard]] ModelTime latest() const noexcept { return latest_; }

  [[nodiscard]] bool await_ready() const noexcept { return outstanding_ == 0; }
  void await_suspend(std::coroutine_handle<> handle) noexcept { waiter_ = handle; }
  void await_resume() const noexcept {}

 private:
  Resumer& resumer_;
  std::size_t outstanding_ = 0;
  ModelTime latest_ = 0;
  std::coroutine_handle<> waiter_;
};

/// The payload of a very small message: what fits into one cache line beside its address.
using InlineBytes = std::array<std::byte, 40>;

/// One message being sent or received. Lives in a coroutine's frame and must stay where it is until
/// its group no longer waits for it.
struct Message {
  int peer = -1;
  Address address = 0;
  std::byte* data =
      nullptr;            ///< Sending: the bytes. Receiving: set on arrival, readable until
                          ///< Transport::release(); where the sender's memory is mapped, in place.
  std::size_t bytes = 0;  ///< Receiving: what is expected; another size is kMismatch.
  OperationCode what = 0;
  int priority = 0;
  std::uint32_t turn = 0;  ///< Sending: of one operation the lowest first, where messages queue.
  bool lend = false;       ///< Sending: not to be copied, however short.
  ModelTime time = 0;      ///< Sending: not before. Received: when it arrived.
  Group* group = nullptr;
  /// Receiving, optional: told when `data` can be read, which on an emulated machine is long before
  /// the message arrives there. What an algorithm does with the bytes until then costs no model
  /// time.
  Group* readable = nullptr;
  /// Receiving, optional: `bytes` of memory where the payload is wanted. A transport that must copy
  /// it somewhere anyway puts it there, and `data` is `into`; one that lends does not.
  std::byte* into = nullptr;

  // The transport's own.
  Message* next = nullptr;
  std::uint64_t token = 0;         ///< Of the sender's message, to be returned by release().
  std::vector<std::byte> owned;    ///< Memory to free on release.
  alignas(8) InlineBytes inlined;  ///< Very small payloads need no memory of their own.
};

}  // namespace stretto::detail
