// SPDX-License-Identifier: Apache-2.0
// What ShmTransport does on an emulated machine: messages are readable at once, and arrive when the
// links say.
#include <algorithm>
#include <ctime>

#include "stretto/comm/shm/shm_transport.hpp"

namespace stretto::detail {
namespace {

// A message handed to the algorithm later than this after its emulated arrival counts as late.
constexpr ModelTime kLateNs = 2'000'000;
// How far ahead of its time a message is handed over, so that a host that is late by less makes
// nothing late: what follows from it is computed in model time, and the operation ends at its own.
// No further than the links look ahead, so that urgent messages overtake as they would.
constexpr ModelTime kAheadNs = EmulatedLinks::kLookahead;

ModelTime monotonic_ns() {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  return static_cast<ModelTime>(at.tv_sec) * 1'000'000'000 + at.tv_nsec;
}

}  // namespace

void ShmTransport::arrive_emulated(const Arriving& what) {
  Peer& other = peer(what.peer);
  for (Message** at = &other.readable; *at != nullptr; at = &(*at)->next) {
    Message& message = **at;
    if (message.token == what.token) {
      *at = message.next;
      message.time = what.time;
      message.group->arrived(what.time);
      return;
    }
  }
  for (Arrival& arrival : other.unexpected) {
    if (arrival.token == what.token) {
      arrival.arrived = true;
      arrival.time = what.time;
      on_unexpected();
      return;
    }
  }
}

void ShmTransport::became_busy() {
  if (links_) {
    busy_since_ = monotonic_ns();
  }
}

bool ShmTransport::deliver_emulated() {
  bool any = false;
  const ModelTime now = monotonic_ns();
  links_->advance(now, [&](Message& message, EmulatedLinks::Passage passage) {
    any = true;
    const auto begin = static_cast<std::uint64_t>(passage.begin);
    post(message.peer,
         {PacketKind::kArrive,
          0,
          message.bytes,
          {message.token, begin, passage.end},
          nullptr,
          0,
          passage.end + least_latency_ - kAheadNs / 2});
  });
  // In order of their end on the wire, whichever sender was quicker to tell us.
  while (!on_the_wire_.empty() && on_the_wire_.top().time + least_latency_ <= now + kAheadNs) {
    Arriving arrival = on_the_wire_.top();
    on_the_wire_.pop();
    arrival.time = links_->arrival(arrival.peer, arrival.bytes, {arrival.begin, arrival.time});
    arriving_.push(arrival);
  }
  while (!arriving_.empty() && arriving_.top().time <= now + kAheadNs) {
    any = true;
    const Arriving arrival = arriving_.top();
    arriving_.pop();
    count_lag(arrival.time, now);
    arrive_emulated(arrival);
  }
  return any;
}

void ShmTransport::noticed(ModelTime at) noexcept {
  count_lag(at, monotonic_ns());
}

void ShmTransport::count_lag(ModelTime at, ModelTime now) noexcept {
  // What came while this rank had nothing in flight is not late: nobody was waiting for it.
  const ModelTime lag = now - std::max(at, busy_since_);
  emulated_messages_.fetch_add(1, std::memory_order_relaxed);
  if (lag > kLateNs) {
    emulated_late_.fetch_add(1, std::memory_order_relaxed);
  }
  if (lag > emulated_worst_lag_ns_.load(std::memory_order_relaxed)) {
    emulated_worst_lag_ns_.store(lag, std::memory_order_relaxed);
  }
}

Nanoseconds ShmTransport::least_time(std::uint64_t bytes) const noexcept {
  // Twice over the slowest link for every rank there is: no algorithm sends more.
  const auto ranks = static_cast<std::int64_t>(peers_.size());
  return Nanoseconds(slowest_ns_per_kib_ * static_cast<std::int64_t>(bytes / 1024 + 1) * 2 * ranks);
}

ModelTime ShmTransport::next_event() const noexcept {
  if (!links_) {
    return 0;
  }
  ModelTime next = links_->next_event();
  const auto consider = [&next](ModelTime at) { next = next == 0 ? at : std::min(next, at); };
  if (!on_the_wire_.empty()) {
    consider(on_the_wire_.top().time + least_latency_ - kAheadNs / 2);
  }
  if (!arriving_.empty()) {
    consider(arriving_.top().time - kAheadNs / 2);
  }
  return next;
}

EmulationStatistics ShmTransport::emulation_statistics() const noexcept {
  return {emulated_messages_.load(std::memory_order_relaxed),
          emulated_late_.load(std::memory_order_relaxed),
          Nanoseconds(emulated_worst_lag_ns_.load(std::memory_order_relaxed))};
}

}  // namespace stretto::detail
