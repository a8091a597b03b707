// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/topology/topology.hpp"

namespace stretto {

/// A network interface of this host as /sys/class/net has it.
struct Interface {
  std::string name;
  bool up = false;
  double megabits_per_s = 0.0;  ///< 0: it does not say.
  int numa = -1;
};
/// By name. `root`: another / than the system's, for tests.
[[nodiscard]] std::vector<Interface> network_interfaces(const std::filesystem::path& root = "/");
/// Names of InfiniBand and RoCE adapters.
[[nodiscard]] std::vector<std::string> rdma_adapters(const std::filesystem::path& root = "/");

/// Those of `names` that a list in the syntax of NCCL_SOCKET_IFNAME takes: prefixes with commas
/// between; `=` before the list wants names exactly; `^` before it takes all others. What follows a
/// colon (the port in NCCL_IB_HCA) is not looked at. A list without a word takes everything.
[[nodiscard]] std::vector<std::string> matching_interfaces(std::string_view list,
                                                           std::span<const std::string> names);

/// This host by /sys: sockets and NUMA nodes; GPUs as places, else cores. Links have no figures:
/// the system does not know any.
[[nodiscard]] Host local_host(const std::filesystem::path& root = "/");

}  // namespace stretto
