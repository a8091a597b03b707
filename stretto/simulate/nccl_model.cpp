// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/nccl_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/simulate/level_cost.hpp"

namespace stretto {
namespace {

// Every constant of the model. Source of all: github.com/NVIDIA/nccl at 5067397c (2026-06),
// src/graph/tuning.cc. Latencies in microseconds, bandwidths in GB/s.
// Rows: volta, ampere, hopper, blackwell. Columns: 1, 2, more nodes.
using ByNodes = std::array<double, 3>;
using ByArchitecture = std::array<ByNodes, 4>;
// Columns: LL, LL128, Simple.
using ByProtocol = std::array<double, 3>;
// Rows: in the order of NcclAlgorithm.
using ByAlgorithm = std::array<ByProtocol, 6>;

constexpr ByAlgorithm kBaseLatency{{{6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}, {}, {}, {}, {}}};
constexpr ByAlgorithm kNvlinkLatency{
    {{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}, {0, 0, 3.7}, {0, 0, 2.8}, {0, 0, 25}, {0, 0, 25}}};
constexpr ByAlgorithm kPciLatency{
    {{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}, {0, 0, 3.7}, {0, 0, 2.8}, {}, {}}};
constexpr ByAlgorithm kNetworkLatency{
    {{5.0, 8.5, 14.0}, {2.7, 4.0, 14.0}, {0, 0, 31}, {0, 0, 30}, {0, 0, 18}, {0, 0, 20.9}}};
/// On one node by GPU; on several by processor: row 0 Intel, row 1 AMD.
constexpr ByArchitecture kMostLL{
    {{39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {141.0, 45.0, 35.0}, {282.0, 90.0, 70.0}}};
// The most that one channel carries.
constexpr ByArchitecture kMostRingLL128{
    {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 36.7}, {40.0, 40.0, 40.0}}};
constexpr ByArchitecture kMostTreeLL128{
    {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}}};
constexpr ByArchitecture kMostTree{
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}}};
constexpr ByArchitecture kMostNvlsTree{
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {0.0, 57.7, 45.5}, {0.0, 96.0, 80.0}}};
constexpr std::array<double, 4> kNvlsEfficiency{0.0, 0.0, 0.85, 0.74};
/// What trees reach of their bandwidth at 64 B, 128 B, and so on in powers of two.
constexpr std::array<std::array<double, 24>, 3> kTreeCorrection{
    {{1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5,
      0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0},
     {1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6,
      0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0},
     {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5,
      0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9}}};
constexpr double kNetworkOverheadIntel = 1.0;
constexpr double kNetworkOverheadAmd = 2.0;
/// Latency of Ring/Simple between nodes above 64 bytes per channel and rank.
constexpr double kRingPlateau = 1.4;
constexpr double kRingPlateauVolta = 1.9;
constexpr double kPlateauBytes = 64.0;

// src/graph/topo.h: of one NVLink and direction.
constexpr std::array<double, 4> kNvlink{20.0, 20.0, 20.6, 40.1};
// src/graph/search.cc: speeds tried for a channel, inside a node and where cards are used.
constexpr std::array kIntra{40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0};
constexpr std::array kIntraHopper{60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0};
constexpr std::array kIntraBlackwell{
    90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0};
constexpr std::array kInter{48.0,
                            30.0,
                            28.0,
                            24.0,
                            20.0,
                            18.0,
                            15.0,
                            12.0,
                            10.0,
                            9.0,
                            7.0,
                            6.0,
                            5.0,
                            4.0,
                            3.0,
                            2.4,
                            1.2,
                            0.24,
                            0.12};
constexpr std::array kInterHopper{48.0,
                                  45.0,
                                  42.0,
                                  40.0,
                                  30.0,
                                  24.0,
                                  22.0,
                                  20.0,
                                  17.5,
                                  15.0,
                                  12.0,
                                  6.0,
                                  3.0,
                                  2.4,
                                  1.2,
                                  0.24,
                                  0.12};
constexpr std::array kInterBlackwell{96.0,
                                     48.0,
                                     45.1,
                                     42.0,
                                     40.0,
                                     30.0,
                                     24.0,
                                     22.0,
                                     20.0,
                                     17.5,
                                     15.0,
                                     12.0,
                                     6.0,
                                     3.0,
                                     2.4,
                                     1.2,
                                     0.24,
                                     0.12};

std::span<const double> speeds(GpuArchitecture architecture, bool with_network) {
  switch (architecture) {
    case GpuArchitecture::kHopper:
      return with_network ? std::span<const double>(kInterHopper) : kIntraHopper;
    case GpuArchitecture::kBlackwell:
      return with_network ? std::span<const double>(kInterBlackwell) : kIntraBlackwell;
    default:
      return with_network ? std::span<const double>(kInter) : kIntra;
  }
}
constexpr int kMostChannels = 32;
constexpr int kMostNvlsHeads = 32;

constexpr double kGB = 1e9;
constexpr double kMicrosecond = 1e-6;

std::size_t row(GpuArchitecture architecture) {
  return static_cast<std::size_t>(architecture);
}

struct Channels {
  int count = 0;
  double speed = 0.0;
};

/// Most of `links` in channels, and of the cards if there are any.
Channels search_channels(const NcclHardware& hardware, double links, bool with_network) {
  const double card = hardware.network_card.value() / kGB;
  Channels best;
  double highest = 0.0;
  for (const double speed : speeds(hardware.architecture, with_network)) {
    double count = std::min<double>(kMostChannels, std::floor(links / speed));
    if (with_network) {
      count = std::min(count, hardware.network_cards * std::floor(card / speed));
    }
    if (count < 1) {
      continue;
    }
    highest = std::max(highest, speed);
    if (speed < 0.49 * highest) {
      break;
    }
    if (count * speed > best.count * best.speed) {
      best = {static_cast<int>(count), speed};
    }
  }
  return best;
}

void find_rings(NcclSystem& system, const NcclHardware& hardware, double links) {
  const bool with_network = system.nodes > 1;
  const Channels found = search_channels(hardware, links, with_network);
  double inter = found.speed;
  double intra = found.speed;
  if (with_network) {
    // Inside the node the same channels may be quicker.
    for (const double speed : speeds(hardware.architecture, true)) {
      if (speed * found.count <= links) {
        intra = std::max(intra, speed);
        break;
      }
    }
  }
  const bool newer = hardware.architecture > GpuArchitecture::kAmpere;
  const bool split = intra >= 25 && !(newer && intra < 50 && found.count > 4);
  const int parts = split && 2 * found.count <= kMostChannels ? 2 : 1;
  system.channels = parts * found.count;
  system.channel_intra = BytesPerSecond(intra / parts * kGB);
  system.channel_inter = BytesPerSecond(with_network ? inter / parts * kGB : 0.0);
}

void find_nvls(NcclSystem& system, const NcclHardware& hardware, double links) {
  if (!hardware.switches_add || system.gpus_per_node < 2) {
    return;
  }
  system.nvls_channels = std::min(kMostNvlsHeads, system.gpus_per_node);
  for (const double speed : speeds(hardware.architecture, system.nodes > 1)) {
    if (speed * (system.nvls_channels + 1) <= links) {
      system.nvls_channel_intra = BytesPerSecond(speed * kGB);
      return;
    }
  }
  system.nvls_channels = 0;
}

/// What the formulas are about.
struct Call {
  const NcclSystem& system;
  Collective collective;
  double bytes;
  double ranks;
  double steps;        ///< Of a ring,
  double inter_steps;  ///< and how many of them between nodes.
  std::size_t column;  ///< Of ByNodes.
};

double most_of(const ByArchitecture& table, const Call& call) {
  return table[row(call.system.architecture)][call.column];
}

double most_ll(const Call& call) {
  const std::size_t by_processor = call.system.amd_cpu ? 1 : 0;
  return kMostLL[call.column == 0 ? row(call.system.architecture) : by_processor][call.column];
}

/// GB/s through all channels of a ring or tree.
double bus(const Call& call) {
  const NcclSystem& system = call.system;
  const BytesPerSecond channel = system.nodes <= 2 ? system.channel_intra : system.channel_inter;
  return system.channels * channel.value() / kGB;
}

/// GB/s of what crosses between the nodes, at most.
double network(const Call& call) {
  const NcclSystem& system = call.system;
  return system.nodes > 1 ? system.channels * system.channel_inter.value() / kGB
                          : std::numeric_limits<double>::infinity();
}

// Algorithm bandwidths, GB/s; 0 where NCCL does not do it.

double ring_bandwidth(const Call& call, NcclProtocol protocol) {
  double bandwidth = std::min(bus(call), network(call));
  if (protocol == NcclProtocol::kLL) {
    bandwidth = std::min(most_ll(call), 0.5 * bandwidth);
  } else if (protocol == NcclProtocol::kLL128) {
    bandwidth = std::min(0.92 * bandwidth, call.system.channels * most_of(kMostRingLL128, call));
  }
  return bandwidth * call.ranks / call.steps;
}

double tree_bandwidth(const Call& call, NcclProtocol protocol) {
  if (call.collective != Collective::kAllReduce) {
    return 0.0;
  }
  double bandwidth = std::min(0.92 * bus(call), call.system.channels * most_of(kMostTree, call));
  if (protocol == NcclProtocol::kLL) {
    bandwidth = std::min(bandwidth / 3.8, most_ll(call));
  } else if (protocol == NcclProtocol::kLL128) {
    const double used = call.system.nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0;
    bandwidth = std::min(bandwidth * used, call.system.channels * most_of(kMostTreeLL128, call));
  }
  const double size_class = std::max(0.0, std::floor(std::log2(std::max(1.0, call.bytes / 64))));
  if (size_class < 24) {
    bandwidth *=
        kTreeCorrection[static_cast<std::size_t>(protocol)][static_cast<std::size_t>(size_class)];
  }
  return std::min(0.5 * bandwidth, network(call));
}

double collnet_bandwidth(const Call& call, NcclAlgorithm algorithm) {
  if (!call.system.network_adds || call.system.nodes < 2 ||
      call.collective != Collective::kAllReduce) {
    return 0.0;
  }
  double bandwidth = call.system.channels * call.system.channel_intra.value() / kGB;
  if (algorithm == NcclAlgorithm::kCollNetDirect) {
    double factor = static_cast<double>(call.system.gpus_per_node) / call.system.channels;
    factor -= (factor - 1) / 2;
    bandwidth /= factor;
    bandwidth *= call.system.architecture >= GpuArchitecture::kHopper ? 0.85 : 1.0;
  }
  return 0.5 * bandwidth;
}

double nvls_bandwidth(const Call& call, NcclAlgorithm algorithm) {
  const NcclSystem& system = call.system;
  const bool tree = algorithm == NcclAlgorithm::kNvlsTree;
  const bool all_reduce = call.collective == Collective::kAllReduce;
  const bool allowed = tree ? system.nodes > 1 && all_reduce
                            : system.nodes == 1 || (system.network_adds && all_reduce);
  if (system.nvls_channels < 2 || !allowed) {
    return 0.0;
  }
  const double channels = system.nvls_channels;
  // All channels but one move data; all_reduce sends and receives at the same time.
  double channel = system.nvls_channel_intra.value() / kGB *
                   kNvlsEfficiency[row(system.architecture)] * (channels - 1) / channels;
  channel *= all_reduce ? 2.0 : (system.gpus_per_node - 1.0) / system.gpus_per_node;
  if (system.nodes > 1) {
    channel = std::min(channel, (system.nodes == 2 ? 2.0 : 1.0) * network(call) / channels);
  }
  if (tree) {
    channel = std::min(channel, most_of(kMostNvlsTree, call));
  }
  return channel * channels * call.ranks / call.steps;
}

double bandwidth(const Call& call, NcclAlgorithm algorithm, NcclProtocol protocol) {
  if (algorithm == NcclAlgorithm::kRing) {
    return ring_bandwidth(call, protocol);
  }
  if (algorithm == NcclAlgorithm::kTree) {
    return tree_bandwidth(call, protocol);
  }
  if (protocol != NcclProtocol::kSimple) {
    return 0.0;
  }
  const bool nvls = algorithm == NcclAlgorithm::kNvls || algorithm == NcclAlgorithm::kNvlsTree;
  return nvls ? nvls_bandwidth(call, algorithm) : collnet_bandwidth(call, algorithm);
}

/// Microseconds.
double latency(const Call& call, NcclAlgorithm algorithm, NcclProtocol protocol) {
  const NcclSystem& system = call.system;
  const auto a = static_cast<std::size_t>(algorithm);
  const auto p = static_cast<std::size_t>(protocol);
  const bool simple = protocol == NcclProtocol::kSimple;
  const double base = kBaseLatency[a][p];
  const double intra = (system.nvlink ? kNvlinkLatency : kPciLatency)[a][p];
  const double inter =
      kNetworkLatency[a][p] + (simple ? 2 : 1) * system.network_latency.count() / kMicrosecond;
  const double in_node = system.gpus_per_node - 1.0;
  const double tree_height = std::floor(std::log2(system.nodes));
  switch (algorithm) {
    case NcclAlgorithm::kTree:
      return base + 2 * (in_node * intra + tree_height * inter);
    case NcclAlgorithm::kRing: {
      const double post = system.amd_cpu ? kNetworkOverheadAmd : kNetworkOverheadIntel;
      const double overhead = system.nodes > 1 ? post * (simple ? 3 : 1) : 0.0;
      const double sum = base + (call.steps - call.inter_steps) * std::max(intra, overhead) +
                         call.inter_steps * inter;
      const bool plateau = simple && system.nodes > 1 &&
                           call.collective == Collective::kAllReduce &&
                           call.bytes / (system.channels * call.ranks) >= kPlateauBytes;
      const bool volta = system.architecture == GpuArchitecture::kVolta;
      return sum * (plateau ? (volta ? kRingPlateauVolta : kRingPlateau) : 1.0);
    }
    case NcclAlgorithm::kCollNetDirect:
      return 2 * (std::min(1.0, in_node) * intra + 0.4 * in_node) + inter;
    case NcclAlgorithm::kCollNetChain:
      return 2 * in_node * intra + inter;
    case NcclAlgorithm::kNvls:
      return intra + (system.nodes > 1 ? inter : 0.0);
    case NcclAlgorithm::kNvlsTree:
      return intra + 2 * tree_height * inter;
  }
  return base;
}

}  // namespace

std::string_view to_string(NcclAlgorithm algorithm) noexcept {
  constexpr std::array<std::string_view, 6> kNames{
      "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree"};
  const auto index = static_cast<std::size_t>(algorithm);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string_view to_string(NcclProtocol protocol) noexcept {
  constexpr std::array<std::string_view, 3> kNames{"LL", "LL128", "Simple"};
  const auto index = static_cast<std::size_t>(protocol);
  return index < kNames.size() ? kNames[index] : "unknown";
}

NcclSystem nccl_system(const NcclHardware& hardware, int nodes, int gpus_per_node) {
  const bool cards = hardware.network_cards > 0 && hardware.network_card.value() >= 0.12 * kGB;
  if (hardware.nvlinks < 1 || nodes < 1 || gpus_per_node < 1 || (nodes > 1 && !cards)) {
    throw Error(ErrorCode::kInvalidArgument,
                {"NCCL's model cannot be set up for this machine",
                 "NcclHardware",
                 std::to_string(hardware.nvlinks) + " NVLinks, " + std::to_string(nodes) +
                     " nodes of " + std::to_string(gpus_per_node) + " GPUs, " +
                     std::to_string(hardware.network_cards) + " network cards",
                 "at least one of each; cards (of 0.12 GB/s or more) for two nodes and more",
                 "Fill NcclSystem from what NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH prints"});
  }
  NcclSystem system;
  system.architecture = hardware.architecture;
  system.nodes = nodes;
  system.gpus_per_node = gpus_per_node;
  const double links = hardware.nvlinks * kNvlink[row(hardware.architecture)];
  find_rings(system, hardware, links);
  find_nvls(system, hardware, links);
  return system;
}

NcclSystem nccl_system(std::string_view gpu, int nodes, int gpus_per_node) {
  struct Known {
    std::string_view name;
    NcclHardware hardware;
  };
  // Data sheets of DGX-1V, DGX A100, DGX H100, DGX H200 and DGX B200.
  const std::array<Known, 5> known{
      {{"v100", {GpuArchitecture::kVolta, 6, false, 4, BytesPerSecond(12.5e9)}},
       {"a100", {GpuArchitecture::kAmpere, 12, false, 8, BytesPerSecond(25e9)}},
       {"h100", {GpuArchitecture::kHopper, 18, true, 8, BytesPerSecond(50e9)}},
       {"h200", {GpuArchitecture::kHopper, 18, true, 8, BytesPerSecond(50e9)}},
       {"b200", {GpuArchitecture::kBlackwell, 18, true, 8, BytesPerSecond(50e9)}}}};
  std::vector<std::string_view> names;
  for (const Known& one : known) {
    if (one.name == gpu) {
      NcclSystem system = nccl_system(one.hardware, nodes, gpus_per_node);
      system.name =
          std::to_string(nodes) + "x" + std::to_string(gpus_per_node) + " " + std::string(gpu);
      // DGX A100 has AMD processors, the others Intel's.
      system.amd_cpu = gpu == "a100";
      return system;
    }
    names.push_back(one.name);
  }
  throw Error(ErrorCode::kInvalidArgument,
              {"NCCL's model does not know this GPU",
               {},
               quote(gpu),
               "one of " + join(names),
               suggest(gpu, names)});
}

std::vector<NcclPrediction> nccl_choices(const NcclSystem& system,
                                         Collective collective,
                                         Bytes size) {
  const bool all_reduce = collective == Collective::kAllReduce;
  if (!all_reduce && collective != Collective::kReduceScatter &&
      collective != Collective::kAllGather) {
    throw Error(ErrorCode::kInvalidArgument,
                {"NCCL's model has no time for this collective",
                 system.name,
                 std::string(to_string(collective)),
                 "all_reduce, reduce_scatter or all_gather",
                 ""});
  }
  const double ranks = static_cast<double>(system.nodes) * system.gpus_per_node;
  if (size <= Bytes(0) || ranks <= 1) {
    return {NcclPrediction{}};
  }
  const double phases = all_reduce ? 2.0 : 1.0;
  const Call call{system,
                  collective,
                  static_cast<double>(size.count()),
                  ranks,
                  phases * (ranks - 1),
                  phases * (system.nodes - 1),
                  static_cast<std::size_t>(std::min(system.nodes, 3) - 1)};
  std::vector<NcclPrediction> choices;
  for (int a = 0; a <= static_cast<int>(NcclAlgorithm::kNvlsTree); ++a) {
    for (int p = 0; p <= static_cast<int>(NcclProtocol::kSimple); ++p) {
      const auto algorithm = static_cast<NcclAlgorithm>(a);
      const auto protocol = static_cast<NcclProtocol>(p);
      const bool barred = (protocol == NcclProtocol::kLL128 && !system.nvlink) ||
                          (protocol != NcclProtocol::kSimple && system.simple_only);
      const double rate = barred ? 0.0 : bandwidth(call, algorithm, protocol);
      if (rate > 0.0) {
        const double us = latency(call, algorithm, protocol) + call.bytes / (1000.0 * rate);
        choices.push_back({algorithm, protocol, Seconds(us * kMicrosecond) + system.overhead});
      }
    }
  }
  std::stable_sort(
      choices.begin(), choices.end(), [](const NcclPrediction& x, const NcclPrediction& y) {
        return x.time < y.time;
      });
  return choices;
}

NcclPrediction predict_nccl(const NcclSystem& system, Collective collective, Bytes size) {
  return nccl_choices(system, collective, size).front();
}

std::vector<CurvePoint> nccl_curve(const NcclSystem& system, Collective collective, Bytes most) {
  std::vector<CurvePoint> points;
  for (const Bytes size : detail::sample_sizes(most)) {
    points.push_back({size, predict_nccl(system, collective, size).time});
  }
  return points;
}

}  // namespace stretto
