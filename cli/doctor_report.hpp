// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stretto/plan/rank_order.hpp"
#include "stretto/topology/interfaces.hpp"
#include "stretto/topology/topology.hpp"
#include "variables.hpp"

namespace stretto::cli {

/// An edge of the ring between two hosts.
struct HostEdge {
  int from = 0;
  int to = 0;
  std::string from_host;
  std::string to_host;
};

/// All that `stretto doctor` found.
struct Diagnosis {
  Topology topology;
  bool has_ranks = false;  ///< Else the places are there, and nobody on them.
  std::vector<HostEdge> crossing;
  int fewest_crossing = 0;  ///< In the best order.
  /// What the links cost, where that is known.
  std::optional<Machine> machine;
  std::string no_machine;  ///< Why not, else.
  std::optional<RingOrder> now;
  std::optional<RingOrder> best;
  Bytes size{};
  std::vector<Interface> interfaces;
  std::vector<std::string> adapters;
  std::vector<Variable> variables;
  std::vector<std::string> warnings;
  std::string next;  ///< A command.
};

/// Crossing edges, machine and ring; topology, has_ranks and size are there. `figures`: links to
/// reckon with instead of the topology's own.
void diagnose_ring(Diagnosis& diagnosis, const std::optional<Machine>& figures);
/// What is odd about a host's devices, one sentence each.
[[nodiscard]] std::vector<std::string> odd_paths(const Topology& topology);

[[nodiscard]] std::string doctor_text(const Diagnosis& diagnosis);
/// Schema `stretto.doctor/1`.
[[nodiscard]] std::string doctor_json(const Diagnosis& diagnosis);

}  // namespace stretto::cli
