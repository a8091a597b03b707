// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stretto/comm/communicator.hpp"
#include "stretto/comm/emulate/busy_time.hpp"
#include "stretto/comm/message.hpp"
#include "stretto/data/machine.hpp"

namespace stretto::detail {

/// The links of one rank on an emulated machine: decides when each message would arrive there.
///
/// Every rank has an outgoing and an incoming link per level of the machine; on levels above the
/// innermost they belong to its group and are shared with the other ranks in it. A link carries one
/// segment at a time at the level's bandwidth; then it takes the most urgent message waiting (the
/// earliest among equals), so an urgent message overtakes at segment boundaries. A message arrives
/// one latency after its last byte has left and the incoming link was free for it.
///
/// All in model time. The host may look late; what it computes then is what it would have computed
/// in time, because a message carries the moment it depends on (Message::time). Nothing here waits
/// or burns CPU: the owner asks next_event() when to come back.
class EmulatedLinks {
 public:
  /// How far ahead of the clock things are done, in ns: the host may wake up that late. A message
  /// that becomes ready within it cannot overtake a segment that is on the link by then.
  static constexpr ModelTime kLookahead = 300'000;

  /// A group's link, in memory all its ranks map. Null on the innermost level.
  struct SharedLink {
    SharedBusyTime* egress = nullptr;
    SharedBusyTime* ingress = nullptr;
  };
  /// When a message was on the wire: its first byte left and its last byte reached the other side's
  /// incoming link.
  struct Passage {
    ModelTime begin = 0;
    ModelTime end = 0;
  };

  /// `shared[l]` is for the group this rank belongs to on level l. Rank r is at place
  /// `places[r]`; empty: at place r.
  EmulatedLinks(const Machine& machine,
                int rank,
                std::vector<SharedLink> shared,
                std::vector<int> places = {});

  /// Offers a message to its link, from Message::time on.
  void submit(Message& message);
  /// Moves the links on to `now` and a little beyond; calls `depart` for every message whose last
  /// segment is on its way.
  void advance(ModelTime now, const std::function<void(Message&, Passage)>& depart);
  /// When advance() will next have something to do; 0 = never.
  [[nodiscard]] ModelTime next_event() noexcept;

  /// When a message of `bytes` from `sender` has arrived. Ask in order of Passage::end, as far as
  /// they are known.
  [[nodiscard]] ModelTime arrival(int sender, std::uint64_t bytes, Passage passage);

 private:
  struct Waiting {
    Message* message;
    double bytes_left;
    std::uint64_t order;
    double begin = -1;  // when its first byte left
  };
  struct Link {
    double ns_per_byte = 0;
    ModelTime latency = 0;
    double segment_bytes = 0;
    LinkSide egress;
    LinkSide ingress;
    std::vector<Waiting> queue;
  };

  [[nodiscard]] Link& link_to(int peer);
  static void fill_gaps(Link& link, const std::function<void(Message&, Passage)>& depart);
  [[nodiscard]] static double earliest(const Link& link) noexcept;

  Machine machine_;
  int rank_;
  std::vector<int> places_;
  std::vector<Link> links_;
  std::uint64_t next_order_ = 0;
};

}  // namespace stretto::detail
