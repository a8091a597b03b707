// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/emulate/emulated_links.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace stretto::detail {
namespace {

// A segment is at least this long, so that a slow host is not woken more than a thousand times a
// second per link; urgent messages wait for at most one.
constexpr double kSegmentNs = 1e6;
constexpr double kSegmentBytes = 256.0 * 1024;
// How far ahead of the clock a segment is put on the link: the host may wake up that late. A
// message becoming ready within it cannot overtake that segment any more.
constexpr double kLookaheadNs = 300e3;

ModelTime whole(double ns) {
  return static_cast<ModelTime>(std::llround(ns));
}

}  // namespace

EmulatedLinks::EmulatedLinks(const Machine& machine, int rank, std::vector<SharedLink> shared)
    : machine_(machine), rank_(rank), links_(machine.levels.size()) {
  for (std::size_t level = 0; level < links_.size(); ++level) {
    Link& link = links_[level];
    link.ns_per_byte = 1e9 / machine.levels[level].bandwidth.value();
    link.latency = whole(machine.levels[level].latency.count() * 1e9);
    link.segment_bytes = std::max(kSegmentBytes, kSegmentNs / link.ns_per_byte);
    if (level < shared.size()) {
      link.shared = shared[level];
    }
  }
}

void EmulatedLinks::submit(Message& message) {
  Link& link = links_[static_cast<std::size_t>(machine_.level_between(rank_, message.peer))];
  link.queue.push_back({&message, static_cast<double>(message.bytes), next_order_++});
}

void EmulatedLinks::advance(ModelTime now, const std::function<void(Message&, ModelTime)>& depart) {
  const double horizon = static_cast<double>(now) + kLookaheadNs;
  for (Link& link : links_) {
    while (!link.queue.empty()) {
      double free = link.egress_free;
      if (link.shared.egress_free != nullptr) {
        free = static_cast<double>(link.shared.egress_free->load(std::memory_order_relaxed));
      }
      auto earliest = static_cast<double>(link.queue.front().message->time);
      for (const Waiting& waiting : link.queue) {
        earliest = std::min(earliest, static_cast<double>(waiting.message->time));
      }
      const double begin = std::max(free, earliest);
      if (begin > horizon) {
        break;
      }
      const auto next = std::min_element(
          link.queue.begin(), link.queue.end(), [begin](const Waiting& a, const Waiting& b) {
            const bool a_waits = static_cast<double>(a.message->time) <= begin;
            const bool b_waits = static_cast<double>(b.message->time) <= begin;
            if (a_waits != b_waits) {
              return a_waits;
            }
            return a.message->priority != b.message->priority
                       ? a.message->priority > b.message->priority
                       : a.order < b.order;
          });
      const double sending = std::min(next->bytes_left, link.segment_bytes);
      const double end = begin + sending * link.ns_per_byte;
      if (link.shared.egress_free != nullptr) {
        auto expected = static_cast<ModelTime>(free);
        if (!link.shared.egress_free->compare_exchange_strong(
                expected, whole(end), std::memory_order_relaxed)) {
          continue;  // another rank of the group took the link first
        }
      }
      link.egress_free = end;
      next->bytes_left -= sending;
      if (next->bytes_left <= 0) {
        Message& message = *next->message;
        link.queue.erase(next);
        depart(message, whole(end));
      }
    }
  }
}

ModelTime EmulatedLinks::next_event() const noexcept {
  ModelTime next = 0;
  for (const Link& link : links_) {
    if (link.queue.empty()) {
      continue;
    }
    double free = link.egress_free;
    if (link.shared.egress_free != nullptr) {
      free = static_cast<double>(link.shared.egress_free->load(std::memory_order_relaxed));
    }
    auto earliest = static_cast<double>(link.queue.front().message->time);
    for (const Waiting& waiting : link.queue) {
      earliest = std::min(earliest, static_cast<double>(waiting.message->time));
    }
    // Half the lookahead before the segment begins: early enough to be late.
    const ModelTime at = whole(std::max(free, earliest) - kLookaheadNs / 2);
    next = next == 0 ? at : std::min(next, at);
  }
  return next;
}

ModelTime EmulatedLinks::arrival(int sender, std::uint64_t bytes, ModelTime at) {
  Link& link = links_[static_cast<std::size_t>(machine_.level_between(rank_, sender))];
  const double taking = static_cast<double>(bytes) * link.ns_per_byte;
  double end = 0;
  if (link.shared.ingress_free != nullptr) {
    ModelTime free = link.shared.ingress_free->load(std::memory_order_relaxed);
    do {
      end = std::max(static_cast<double>(at), static_cast<double>(free) + taking);
    } while (!link.shared.ingress_free->compare_exchange_weak(
        free, whole(end), std::memory_order_relaxed));
  } else {
    end = std::max(static_cast<double>(at), link.ingress_free + taking);
    link.ingress_free = end;
  }
  return whole(end) + link.latency;
}

}  // namespace stretto::detail
