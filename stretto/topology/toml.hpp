// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stretto/topology/topology.hpp"

namespace stretto {

/// A cluster in ten lines of TOML, for those who have neither NCCL's file nor the machine at hand:
///
///     name = "rack 7"
///     hosts = ["a", "b", "c", "d"]                    # or a number
///     devices = 8                                     # on each host
///     sockets = 2                                     # default 1
///     inside = { bandwidth = "450GB/s", latency = "3us" }
///     socket = { bandwidth = "40GB/s", latency = "1us" }   # optional: of one socket, shared
///     network = { bandwidth = "50GB/s", latency = "10us" } # of one host, shared
///     ranks = [[0, 1, 2, 3, 4, 5, 6, 7], ...]         # optional: at each device of each host
///
/// @throws Error kParse with line and column, the nearest key for an unknown one.
[[nodiscard]] Topology topology_from_toml(std::string_view text, std::string_view where);

}  // namespace stretto
