// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/data/machine.hpp"

namespace stretto {
namespace {

constexpr int kDefaultFlatRanks = 8;
/// What TCP leaves of an Ethernet line: 1448 bytes of each 1538 (MTU 1500, IPv4, timestamps,
/// preamble and gap).
constexpr double kTcpShare = 1448.0 / 1538.0;

/// xN nodes of `gpus`, or a flat network (no name inside) of xN ranks.
struct Preset {
  std::string_view name;
  std::string_view inside_name;
  int gpus;
  double inside_latency_us;
  double inside_gb_per_s;
  double in_switch_efficiency;
  std::string_view network_name;
  double network_latency_us;
  double network_gb_per_s;  ///< Of a node, or of a rank of a flat network.
  std::string_view source;
};

// NCCL's figures: github.com/NVIDIA/nccl at 5067397c, src/graph/topo.h (bandwidth of a link) and
// src/graph/tuning.cc (latency of one step of a ring, protocol Simple). Lower than the data sheets
// (A100: 12 x 25 GB/s, H100: 18 x 25, B200: 18 x 50), and nearer to the bus bandwidths rings are
// measured at (A100: 235, H200: 367 GB/s).
// clang-format off
constexpr std::array<Preset, 12> kPresets{{
    {"dgx-a100", "nvlink", 8, 3.4, 12 * 20.0, 0.0, "network", 14.0, 8 * 25.0,
     "NVLink: 12 links of 20 GB/s, 3.4 us a step (NCCL's constants); network: 8 cards of 200 "
     "Gbit/s (DGX A100 data sheet), 14 us a step (NCCL's constants)"},
    {"dgx-h100", "nvlink", 8, 3.4, 18 * 20.6, 0.73, "network", 14.0, 8 * 50.0,
     "NVLink: 18 links of 20.6 GB/s, 3.4 us a step (NCCL's constants); in-switch reduction: 272 of "
     "370.8 GB/s (NCCL's model: 40 GB/s x 0.85 x 7/8 x 2 on 8 channels, x 8/14; measured on H200: "
     "276); network: 8 cards of 400 Gbit/s (DGX H100 data sheet), 14 us a step (NCCL's constants)"},
    {"dgx-h200", "nvlink", 8, 3.4, 18 * 20.6, 0.73, "network", 14.0, 8 * 50.0,
     "as dgx-h100 (DGX H200 data sheet: the same links and cards)"},
    {"dgx-b200", "nvlink", 8, 3.4, 18 * 40.1, 0.65, "network", 14.0, 8 * 50.0,
     "NVLink: 18 links of 40.1 GB/s, 3.4 us a step (NCCL's constants); in-switch reduction: 474 of "
     "721.8 GB/s (NCCL's model: 80 GB/s x 0.74 x 7/8 x 2 on 8 channels, x 8/14; measured: 483); "
     "network: 8 cards of 400 Gbit/s (DGX B200 data sheet), 14 us a step (NCCL's constants)"},
    {"v100-pcie", "pcie", 8, 5.7, 12.0, 0.0, "network", 14.0, 12.5,
     "PCIe 3.0 x16: 12 GB/s, 5.7 us a step (NCCL's constants), all GPUs below one switch assumed; "
     "network: one card of 100 Gbit/s assumed, 14 us a step (NCCL's constants)"},
    {"ascend-910b", "hccs", 8, 5.0, 7 * 28.0, 0.0, "network", 14.0, 8 * 25.0,
     "assumed, not verified: HCCS full mesh of 7 links of 56 GB/s both ways, 8 cards of 200 "
     "Gbit/s; latencies of the order of NCCL's"},
    {"1gbe", "", 1, 0, 0, 0.0, "ethernet", 50.0, 0.125 * kTcpShare,
     "line rate, 1448 of 1538 bytes payload (TCP, MTU 1500); 50 us assumed"},
    {"10gbe", "", 1, 0, 0, 0.0, "ethernet", 30.0, 1.25 * kTcpShare,
     "line rate, 1448 of 1538 bytes payload (TCP, MTU 1500); 30 us assumed"},
    {"25gbe", "", 1, 0, 0, 0.0, "ethernet", 20.0, 3.125 * kTcpShare,
     "line rate, 1448 of 1538 bytes payload (TCP, MTU 1500); 20 us assumed"},
    {"100gbe", "", 1, 0, 0, 0.0, "ethernet", 14.0, 12.0,
     "12 GB/s for 100 Gbit/s and 14 us a step (NCCL's constants; RoCE)"},
    {"ib-hdr", "", 1, 0, 0, 0.0, "infiniband", 14.0, 25.0,
     "data rate 200 Gbit/s; 14 us a step (NCCL's constants)"},
    {"ib-ndr", "", 1, 0, 0, 0.0, "infiniband", 14.0, 50.0,
     "data rate 400 Gbit/s; 14 us a step (NCCL's constants)"},
}};
// clang-format on

std::vector<std::string_view> known_names() {
  std::vector<std::string_view> names;
  names.reserve(kPresets.size());
  for (const Preset& preset : kPresets) {
    names.push_back(preset.name);
  }
  return names;
}

const Preset* find_preset(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (preset.name == name) {
      return &preset;
    }
  }
  return nullptr;
}

/// `NAMExCOUNT`; a count of 0: none given.
struct Parts {
  std::string_view name;
  int count = 0;
};

Parts split_count(std::string_view text) {
  const std::size_t x = text.rfind('x');
  if (x == std::string_view::npos || x + 1 == text.size() ||
      text.find_first_not_of("0123456789", x + 1) != std::string_view::npos) {
    return {text, 0};
  }
  const std::string_view name = text.substr(0, x);
  const Preset* preset = find_preset(name);
  const int most = std::numeric_limits<int>::max() / (preset == nullptr ? 1 : preset->gpus);
  int count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + x + 1, end, count);
  if (preset != nullptr && (error != std::errc() || stop != end || count < 1 || count > most)) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the count of a machine preset is wrong",
                 "machine " + quote(text),
                 quote(text.substr(x + 1)),
                 "a whole number from 1 to " + std::to_string(most),
                 ""});
  }
  return {name, count};
}

Level level(std::string_view name, int size, double latency_us, double gb_per_s) {
  return {std::string(name), size, Seconds(latency_us * 1e-6), BytesPerSecond(gb_per_s * 1e9), 0.0};
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  names.reserve(kPresets.size());
  for (const Preset& preset : kPresets) {
    names.emplace_back(preset.name);
  }
  return names;
}

Machine machine_from_preset(std::string_view name) {
  const Parts parts = split_count(name);
  const Preset* preset = find_preset(parts.name);
  if (preset == nullptr) {
    const std::vector<std::string_view> names = known_names();
    throw Error(ErrorCode::kInvalidArgument,
                {"there is no such machine preset",
                 {},
                 quote(name),
                 "a preset, or RANKS@BANDWIDTH,LATENCY such as 4@5Gbit/s,50us",
                 suggest(parts.name, names) + "; dgx-h100x4 is 4 nodes, 10gbex16 is 16 ranks"});
  }
  Machine machine;
  machine.name = name;
  machine.basis = Basis::kAssumed;
  machine.source = preset->source;
  const bool nodes = !preset->inside_name.empty();
  if (nodes) {
    machine.levels.push_back(level(
        preset->inside_name, preset->gpus, preset->inside_latency_us, preset->inside_gb_per_s));
    machine.levels.back().in_switch_efficiency = preset->in_switch_efficiency;
  }
  const int fallback = nodes ? 1 : kDefaultFlatRanks;
  const int count = parts.count == 0 ? fallback : parts.count;
  // Of one node too: so that the machine can be given more ranks.
  machine.levels.push_back(
      level(preset->network_name, count, preset->network_latency_us, preset->network_gb_per_s));
  return machine;
}

Machine machine_from_text(std::string_view text) {
  // A spec has an '@'; numbers alone are one that lacks it.
  const bool spec = text.find('@') != std::string_view::npos ||
                    text.find_first_not_of("0123456789x") == std::string_view::npos;
  return spec ? machine_from_spec(text) : machine_from_preset(text);
}

}  // namespace stretto
