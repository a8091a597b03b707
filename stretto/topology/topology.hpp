// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"

namespace stretto {

/// Where one rank runs: a device of its host, or a share of its cores.
struct Place {
  std::string device;  ///< For people: `GPU 3, 0000:c7:00.0`, `core 5`.
  int index = 0;       ///< Number on its host, as CUDA or the system counts.
  int socket = 0;
  int numa = 0;
  BytesPerSecond bandwidth{};  ///< Of its own link; 0: not known.
};

/// A network interface of a host.
struct NetworkPort {
  std::string name;
  int numa = -1;               ///< -1: not known.
  BytesPerSecond bandwidth{};  ///< Per direction; 0: not known.
};

struct Host {
  std::string name;
  std::vector<Place> places;  ///< Near each other in order: by socket, NUMA node, number.
  std::vector<NetworkPort> networks;
};

/// Latency of one message and bandwidth in each direction.
struct LinkFigures {
  Seconds latency{};
  BytesPerSecond bandwidth{};
};

/// Hosts, what is in them, and which rank is where.
struct Topology {
  std::string name;
  std::string source;  ///< For people: where all this comes from.
  std::vector<Host> hosts;
  LinkFigures inside;                 ///< Of one place, within a socket (a host, without `socket`).
  std::optional<LinkFigures> socket;  ///< Of one socket, shared by its places; if that matters.
  LinkFigures network;                ///< Of one host, shared by its places.
  /// The rank at each place, hosts one after the other; empty: in order.
  std::vector<int> rank_at;

  [[nodiscard]] int places() const noexcept;
  /// Index over all hosts' places of where each rank is.
  [[nodiscard]] std::vector<int> place_of_rank() const;
  /// Host of a place.
  [[nodiscard]] int host_of(int place) const noexcept;
};

/// @throws Error kInvalidArgument: no place at all, or a rank_at that is no order of all places.
void check(const Topology& topology);

/// As levels, innermost first: places of a socket, sockets, hosts; levels of one member are left
/// out. Ranks of the machine are places. Basis kAssumed.
/// @throws Error kInvalidArgument as check(), or when hosts or sockets are unlike: a Machine has
/// levels with the same number everywhere.
[[nodiscard]] Machine machine_of(const Topology& topology);

/// Hosts, sockets and places as a tree of text, with the rank at each place if there are ranks.
[[nodiscard]] std::string draw(const Topology& topology, bool with_ranks = true);

}  // namespace stretto
