// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/machine.hpp"

/// The time model by which NCCL itself chooses algorithm and protocol of a collective, from its
/// published constants (github.com/NVIDIA/nccl, src/graph/tuning.cc and src/graph/search.cc at
/// 5067397c): time = latency + bytes / bandwidth, least over algorithm x protocol. What it leaves
/// out, and how far it is from measurements: docs/costs.md.
namespace stretto {

enum class GpuArchitecture : std::uint8_t { kVolta, kAmpere, kHopper, kBlackwell };

enum class NcclAlgorithm : std::uint8_t {
  kTree,  ///< A chain in each node, double binary trees between nodes.
  kRing,
  kCollNetDirect,  ///< The network's switches add (SHARP).
  kCollNetChain,
  kNvls,      ///< NVSwitches add; between nodes with SHARP.
  kNvlsTree,  ///< NVSwitches add, trees between nodes.
};
[[nodiscard]] std::string_view to_string(NcclAlgorithm algorithm) noexcept;

/// With a flag for every 4 bytes, for every 120, or with none and a fence: ever more latency and
/// bandwidth.
enum class NcclProtocol : std::uint8_t { kLL, kLL128, kSimple };
[[nodiscard]] std::string_view to_string(NcclProtocol protocol) noexcept;

/// What NCCL's search found on a machine: so many channels of such bandwidth. nccl_system() derives
/// it from link counts; NCCL_DEBUG_SUBSYS=GRAPH prints the real one.
struct NcclSystem {
  std::string name;
  GpuArchitecture architecture = GpuArchitecture::kHopper;
  int nodes = 1;
  int gpus_per_node = 8;
  bool nvlink = true;  ///< Else PCI inside the nodes.
  bool amd_cpu = false;
  int channels = 1;                     ///< Of rings and trees.
  BytesPerSecond channel_intra{};       ///< One channel's bandwidth inside a node,
  BytesPerSecond channel_inter{};       ///< and between nodes.
  int nvls_channels = 0;                ///< 0: no NVSwitches that add.
  BytesPerSecond nvls_channel_intra{};  ///< One such channel's, inside a node.
  bool network_adds = false;            ///< SHARP between the nodes.
  /// Protocol Simple alone (NCCL_PROTO=simple), as where a network may deliver a message's bytes
  /// out of order: a flag beside the data would then say nothing. AWS's plugin sets it on P4d and
  /// P4de.
  bool simple_only = false;
  /// What the network's plugin announces that a message between nodes takes more; NCCL counts it
  /// once per message, twice with Simple.
  Seconds network_latency{};
  /// Of a call, before anything is sent, which NCCL does not model: launch, framework. Add it to
  /// compare with what a benchmark measures on a given host.
  Seconds overhead{};
};

/// Links of one GPU and cards of one node.
struct NcclHardware {
  GpuArchitecture architecture = GpuArchitecture::kHopper;
  int nvlinks = 0;            ///< Per GPU.
  bool switches_add = false;  ///< NVLink SHARP.
  int network_cards = 0;      ///< Per node.
  BytesPerSecond network_card{};
};

/// Runs the gist of NCCL's search, for GPUs behind NVSwitches (or a regular mesh of links): of the
/// speeds it tries for a channel (not below half the highest that fits), the one whose channels use
/// most of a GPU's NVLinks, and of the cards between nodes; then each channel is split in two where
/// NCCL does that. A channel of an adding switch takes its speed once from each GPU's links and
/// twice from its head's.
/// @throws Error kInvalidArgument: no links, or several nodes without cards.
[[nodiscard]] NcclSystem nccl_system(const NcclHardware& hardware, int nodes, int gpus_per_node);

/// By name: `v100` (6 NVLinks, 4 cards of 100 Gbit/s a node), `a100` (12; 8 of 200), `h100` and
/// `h200` (18, 8 of 400, adding switches), `b200` (18; as h100). DGX data sheets.
/// @throws Error kInvalidArgument with the known names.
[[nodiscard]] NcclSystem nccl_system(std::string_view gpu, int nodes, int gpus_per_node = 8);

struct NcclPrediction {
  NcclAlgorithm algorithm = NcclAlgorithm::kRing;
  NcclProtocol protocol = NcclProtocol::kSimple;
  Seconds time{};
};

/// all_reduce, reduce_scatter or all_gather of `size` bytes (the whole tensor). One departure from
/// NCCL: for two nodes it reckons with the links inside them; here no algorithm is quicker than
/// the cards between them carry its bytes. Zero bytes and one rank take no time.
/// @throws Error kInvalidArgument: a collective that is not modelled.
[[nodiscard]] NcclPrediction predict_nccl(const NcclSystem& system,
                                          Collective collective,
                                          Bytes size);
/// All that NCCL would consider, quickest first.
[[nodiscard]] std::vector<NcclPrediction> nccl_choices(const NcclSystem& system,
                                                       Collective collective,
                                                       Bytes size);

/// predict_nccl() at 8 sizes per factor of 2 from 1 byte to `most`, for an ExchangeTime.
/// @throws Error as predict_nccl.
[[nodiscard]] std::vector<CurvePoint> nccl_curve(const NcclSystem& system,
                                                 Collective collective,
                                                 Bytes most);

}  // namespace stretto
