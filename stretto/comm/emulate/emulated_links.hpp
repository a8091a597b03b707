// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "stretto/comm/communicator.hpp"
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
  /// When a group's shared link falls free, in memory all its ranks map. Null on the innermost
  /// level.
  struct SharedLink {
    std::atomic<ModelTime>* egress_free = nullptr;
    std::atomic<ModelTime>* ingress_free = nullptr;
  };

  /// `shared[l]` is for the group this rank belongs to on level l.
  EmulatedLinks(const Machine& machine, int rank, std::vector<SharedLink> shared);

  /// Offers a message to its link, from Message::time on.
  void submit(Message& message);
  /// Moves the links on to `now` and a little beyond; calls `depart` for every message whose last
  /// segment is on its way, with the moment its last byte reaches the other side's incoming link.
  void advance(ModelTime now, const std::function<void(Message&, ModelTime)>& depart);
  /// When advance() will next have something to do; 0 = never.
  [[nodiscard]] ModelTime next_event() const noexcept;

  /// When a message of `bytes` from `sender` whose last byte reached the incoming link at `at` has
  /// arrived. Ask in order of `at`.
  [[nodiscard]] ModelTime arrival(int sender, std::uint64_t bytes, ModelTime at);

 private:
  struct Waiting {
    Message* message;
    double bytes_left;
    std::uint64_t order;
  };
  struct Link {
    double ns_per_byte = 0;
    ModelTime latency = 0;
    double segment_bytes = 0;
    double egress_free =
        0;  // model time; a double, so that fractions of a nanosecond do not add up
    double ingress_free = 0;
    std::vector<Waiting> queue;
    SharedLink shared;
  };

  Machine machine_;
  int rank_;
  std::vector<Link> links_;
  std::uint64_t next_order_ = 0;
};

}  // namespace stretto::detail
