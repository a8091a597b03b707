// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stretto/topology/topology.hpp"

namespace stretto {

/// Reads what NCCL writes with NCCL_TOPO_DUMP_FILE (`<system version="1">`): one host, its GPUs by
/// socket, its network ports. A GPU's link is all its NVLinks at NCCL's rate for its generation, or
/// without NVLink its slowest PCI link on the way to the processor; latencies are NCCL's constants
/// for one step of a ring. GPUs below one processor entry are one socket.
/// @throws Error kParse: no such XML, a version this does not know, no GPU; with the place.
[[nodiscard]] Topology topology_from_nccl_xml(std::string_view text, std::string_view where);

}  // namespace stretto
