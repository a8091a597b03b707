// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "stretto/comm/communicator.hpp"
#include "stretto/comm/message.hpp"
#include "stretto/comm/task.hpp"
#include "stretto/comm/transport.hpp"

namespace stretto::detail {

/// What an algorithm sees of the operation it carries out. Lives as long as its task.
struct Exchange {
  Transport& transport;
  Group::Resumer& resumer;
  int rank = 0;
  int size = 1;
  std::uint32_t slot = 0;
  OperationCode what = 0;
  int priority = 0;
  /// Model time up to which everything has happened that the next message depends on.
  ModelTime now = 0;
  /// Of the messages sent from now on (Message::turn).
  std::uint32_t turn = 0;
  /// First phase this algorithm may use; one that runs several inner ones at the same time gives
  /// each its own range. One after the other they may share it: messages between two ranks with one
  /// address match in order.
  std::uint32_t phase = 0;
  /// Which ranks are near each other: (*groups)[l][r] is rank r's group on level l, innermost
  /// first. Null or empty: all are equally far.
  const RankGroups* groups = nullptr;
  /// What a mean divides by: the ranks of the whole operation, where this is a part of one.
  int divisor = 0;
  /// The ranks this runs among, of which `rank` and `size` speak, as the transport numbers them.
  /// Null: all.
  const int* members = nullptr;

  [[nodiscard]] int world_rank(int member) const noexcept {
    return members == nullptr ? member : members[member];
  }
  /// The same operation among some of its ranks. `of` must outlive what it returns.
  [[nodiscard]] Exchange among(std::span<const int> of, int mine) const noexcept {
    Exchange part = *this;
    part.members = of.data();
    part.size = static_cast<int>(of.size());
    part.rank = mine;
    return part;
  }

  void send(
      Message& message, Group& group, int to, std::uint32_t at_phase, const BufferView& data) {
    send(message, group, to, at_phase, data.data, data.size_bytes());
  }
  void send(Message& message,
            Group& group,
            int to,
            std::uint32_t at_phase,
            std::byte* data,
            std::size_t bytes) {
    message.peer = world_rank(to);
    message.address = make_address(slot, phase + at_phase);
    message.data = data;
    message.bytes = bytes;
    message.what = what;
    message.priority = priority;
    message.turn = turn;
    message.time = now;
    message.group = &group;
    group.expect();
    transport.send(message);
  }
  void receive(Message& message,
               Group& group,
               int from,
               std::uint32_t at_phase,
               std::size_t bytes,
               Group* readable = nullptr,
               std::byte* into = nullptr) {
    message.peer = world_rank(from);
    message.address = make_address(slot, phase + at_phase);
    message.bytes = bytes;
    message.into = into;
    message.what = what;
    message.priority = priority;
    message.group = &group;
    group.expect();
    message.readable = readable;
    if (readable != nullptr) {
      readable->expect();
    }
    transport.receive(message);
  }
  /// Everything up to the group's latest arrival is now behind us.
  void advance(const Group& group) noexcept {
    if (group.latest() > now) {
      now = group.latest();
    }
  }

  /// Work that the emulated machine does as well as its host: what is sent from now on leaves that
  /// much later there.
  void spend(Nanoseconds processor_time) noexcept {
    if (now != 0) {
      now += processor_time.count();
    }
  }

  /// `co_await exchange.breathe()`: lets more urgent operations go first. Between pieces of at most
  /// kPieceBytes of work.
  [[nodiscard]] auto breathe() noexcept {
    struct Breath {
      Group::Resumer& resumer;
      [[nodiscard]] static bool await_ready() noexcept { return false; }
      void await_suspend(std::coroutine_handle<> handle) { resumer.resume_later(handle); }
      void await_resume() const noexcept {}
    };
    return Breath{resumer};
  }
};
inline constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

/// As many as there are peers, known at construction. Few ranks need no memory of their own, and
/// none is constructed that is not used: most jobs on one host have two ranks.
template <typename T>
class PeerArray {
 public:
  explicit PeerArray(std::size_t count)
      : count_(count),
        data_(count <= kInline ? reinterpret_cast<T*>(inlined_.data())
                               : std::allocator<T>().allocate(count)) {
    std::uninitialized_default_construct_n(data_, count_);
  }
  ~PeerArray() {
    std::destroy_n(data_, count_);
    if (count_ > kInline) {
      std::allocator<T>().deallocate(data_, count_);
    }
  }
  PeerArray(const PeerArray&) = delete;
  PeerArray& operator=(const PeerArray&) = delete;
  T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::span<T> span() noexcept { return {data_, count_}; }

 private:
  // With more, a coroutine's frame is too long for malloc's quick lists of up to 1 KiB.
  static constexpr std::size_t kInline = 2;
  std::size_t count_;
  alignas(T) std::array<std::byte, kInline * sizeof(T)> inlined_;
  T* data_;
};

}  // namespace stretto::detail
