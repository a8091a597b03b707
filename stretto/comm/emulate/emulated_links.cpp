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

ModelTime whole(double ns) {
  return static_cast<ModelTime>(std::llround(ns));
}

}  // namespace

EmulatedLinks::EmulatedLinks(const Machine& machine,
                             int rank,
                             std::vector<SharedLink> shared,
                             std::vector<int> places)
    : machine_(machine), rank_(rank), places_(std::move(places)), links_(machine.levels.size()) {
  for (std::size_t level = 0; level < links_.size(); ++level) {
    Link& link = links_[level];
    link.ns_per_byte = 1e9 / machine.levels[level].bandwidth.value();
    link.latency = whole(machine.levels[level].latency.count() * 1e9);
    link.segment_bytes = std::max(kSegmentBytes, kSegmentNs / link.ns_per_byte);
    if (level < shared.size()) {
      link.egress = LinkSide(shared[level].egress);
      link.ingress = LinkSide(shared[level].ingress);
    }
  }
}

EmulatedLinks::Link& EmulatedLinks::link_to(int peer) {
  const auto place = [this](int rank) {
    return places_.empty() ? rank : places_[static_cast<std::size_t>(rank)];
  };
  return links_[static_cast<std::size_t>(machine_.level_between(place(rank_), place(peer)))];
}

void EmulatedLinks::submit(Message& message) {
  Link& link = link_to(message.peer);
  link.queue.push_back({&message, static_cast<double>(message.bytes), next_order_++});
}

void EmulatedLinks::advance(ModelTime now, const std::function<void(Message&, Passage)>& depart) {
  const auto horizon = static_cast<double>(now + kLookahead);
  for (Link& link : links_) {
    fill_gaps(link, depart);
    while (!link.queue.empty()) {
      const double begin = std::max(link.egress.end(), earliest(link));
      if (begin > horizon) {
        break;
      }
      auto next = std::min_element(
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
      // Of that operation's, the one whose turn it is.
      for (auto other = link.queue.begin(); other != link.queue.end(); ++other) {
        const bool same = slot_of(other->message->address) == slot_of(next->message->address) &&
                          other->message->priority == next->message->priority &&
                          static_cast<double>(other->message->time) <= begin;
        if (same && other->message->turn < next->message->turn) {
          next = other;
        }
      }
      const double sending = std::min(next->bytes_left, link.segment_bytes);
      const double ns = sending * link.ns_per_byte;
      const double end = link.egress.with([&](auto& busy) { return busy.take(begin, ns); });
      if (next->begin < 0) {
        next->begin = end - ns;
      }
      next->bytes_left -= sending;
      if (next->bytes_left <= 0) {
        Message& message = *next->message;
        const Passage passage{whole(next->begin), whole(end)};
        link.queue.erase(next);
        depart(message, passage);
      }
    }
  }
}

// What would have gone out already, had this rank looked in time.
void EmulatedLinks::fill_gaps(Link& link, const std::function<void(Message&, Passage)>& depart) {
  for (std::size_t i = 0; i < link.queue.size();) {
    Waiting& waiting = link.queue[i];
    const auto ready = static_cast<double>(waiting.message->time);
    double over = 0;
    const double filled = link.egress.with([&](auto& busy) {
      return ready < busy.end() ? busy.fill(ready, waiting.bytes_left * link.ns_per_byte, over) : 0;
    });
    if (filled > 0) {
      if (waiting.begin < 0) {
        waiting.begin = std::max(ready, over - filled);
      }
      waiting.bytes_left -= filled / link.ns_per_byte;
      if (waiting.bytes_left * link.ns_per_byte <= 1.0) {  // what is left comes from rounding
        Message& message = *waiting.message;
        const Passage passage{whole(waiting.begin), whole(over)};
        link.queue.erase(link.queue.begin() + static_cast<std::ptrdiff_t>(i));
        depart(message, passage);
        continue;
      }
    }
    ++i;
  }
}

double EmulatedLinks::earliest(const Link& link) noexcept {
  auto earliest = static_cast<double>(link.queue.front().message->time);
  for (const Waiting& waiting : link.queue) {
    earliest = std::min(earliest, static_cast<double>(waiting.message->time));
  }
  return earliest;
}

ModelTime EmulatedLinks::next_event() noexcept {
  ModelTime next = 0;
  for (Link& link : links_) {
    if (link.queue.empty()) {
      continue;
    }
    // Half the lookahead before the segment begins: early enough to be late.
    const ModelTime at =
        whole(std::max(link.egress.end(), earliest(link)) - static_cast<double>(kLookahead) / 2);
    next = next == 0 ? at : std::min(next, at);
  }
  return next;
}

ModelTime EmulatedLinks::arrival(int sender, std::uint64_t bytes, Passage passage) {
  Link& link = link_to(sender);
  const double ns = static_cast<double>(bytes) * link.ns_per_byte;
  // A message that was overtaken on its way out left room for others on the way in too.
  const double taken = link.ingress.with(
      [&](auto& busy) { return busy.take(static_cast<double>(passage.begin), ns); });
  return std::max(passage.end, whole(taken)) + link.latency;
}

}  // namespace stretto::detail
