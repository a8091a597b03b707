// SPDX-License-Identifier: Apache-2.0
#include "stretto/topology/nccl_xml.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <pugixml.hpp>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"

// Format facts: src/graph/xml.cc of NVIDIA/nccl. <system version> holds <cpu numaid> (one for each
// NUMA node with devices), these hold <pci busid class link_speed link_width>, nested as bridges
// are, and at the leaves <gpu dev sm rank> with <nvlink target count>, or <nic> with <net name dev
// speed> in Mbit/s.
namespace stretto {
namespace {

[[noreturn]] void fail(std::string_view where,
                       std::string message,
                       std::string found,
                       std::string expected,
                       std::string help = {}) {
  throw Error(ErrorCode::kParse,
              {std::move(message),
               std::string(where),
               std::move(found),
               std::move(expected),
               std::move(help)});
}

/// Number of an attribute; `otherwise` if there is none or it is no number.
double number(const pugi::xml_node& node, const char* name, double otherwise) {
  const std::string_view text = node.attribute(name).value();
  double value = 0.0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  (void)stop;  // "16.0 GT/s PCIe" has more behind it
  return error == std::errc() && value >= 0.0 && value < 1e15 ? value : otherwise;
}

int whole(const pugi::xml_node& node, const char* name, int otherwise) {
  const double value = number(node, name, otherwise);
  return value <= 1e6 ? static_cast<int>(value) : otherwise;
}

// github.com/NVIDIA/nccl at 5067397c, src/graph/topo.h: GB/s of one NVLink, and of a PCI lane by
// its rate; tuning.cc: latency of one step of a ring (protocol Simple) over NVLink, PCI, network.
double nvlink_gb_per_s(int sm) {
  struct Generation {
    int from_sm;
    double gb_per_s;
  };
  constexpr std::array kGenerations = {Generation{100, 40.1},
                                       Generation{90, 20.6},
                                       Generation{86, 12.0},
                                       Generation{70, 20.0},
                                       Generation{60, 18.0}};
  for (const Generation& generation : kGenerations) {
    if (sm >= generation.from_sm) {
      return generation.gb_per_s;
    }
  }
  return 18.0;
}
constexpr Seconds kNvlinkLatency{3.4e-6};
constexpr Seconds kPciLatency{5.7e-6};
constexpr Seconds kNetworkLatency{14e-6};
constexpr double kPciGbPerSPerGtLane = 0.09375;  // 12 GB/s for 16 lanes of 8 GT/s

double pci_gb_per_s(const pugi::xml_node& pci) {
  const double rate = number(pci, "link_speed", 0.0);
  const double lanes = number(pci, "link_width", 0.0);
  const double found = rate * lanes * kPciGbPerSPerGtLane;
  return found > 0.0 ? found : std::numeric_limits<double>::infinity();
}

class Reader {
 public:
  Reader(std::string_view where, Topology& topology)
      : where_(where), topology_(topology), host_(topology.hosts.emplace_back()) {}

  void read(const pugi::xml_node& system) {
    int socket = 0;
    for (const pugi::xml_node& cpu : system.children("cpu")) {
      const int numa = whole(cpu, "numaid", socket);
      host_.name = host_.name.empty() ? cpu.attribute("host_hash").value() : host_.name;
      below(cpu, socket, numa, std::numeric_limits<double>::infinity(), 0);
      ++socket;
    }
    if (host_.places.empty()) {
      fail(where_, "there is no GPU in the topology", "none", "<gpu> below <cpu> and <pci>");
    }
    host_.name = host_.name.empty() ? "host" : "host " + host_.name;
    std::stable_sort(host_.places.begin(), host_.places.end(), [](const Place& a, const Place& b) {
      return std::pair(a.socket, a.index) < std::pair(b.socket, b.index);
    });
    topology_.inside = {nvlink_everywhere_ ? kNvlinkLatency : kPciLatency,
                        BytesPerSecond(slowest_gb_per_s_ * 1e9)};
    double network = 0.0;
    for (const NetworkPort& port : host_.networks) {
      network += port.bandwidth.value();
    }
    topology_.network = {kNetworkLatency, BytesPerSecond(network)};
  }

 private:
  void below(const pugi::xml_node& node, int socket, int numa, double path_gb_per_s, int depth) {
    constexpr int kMostBridges = 64;
    if (depth > kMostBridges) {
      fail(where_,
           "the PCI bridges are nested too deep",
           fmt::format("more than {}", kMostBridges),
           fmt::format("at most {}", kMostBridges));
    }
    for (const pugi::xml_node& child : node.children()) {
      const std::string_view name = child.name();
      if (name == "pci") {
        below(child, socket, numa, std::min(path_gb_per_s, pci_gb_per_s(child)), depth + 1);
      } else if (name == "gpu") {
        add_gpu(node, child, socket, numa, path_gb_per_s);
      } else if (name == "nic") {
        below(child, socket, numa, path_gb_per_s, depth + 1);
      } else if (name == "net") {
        host_.networks.push_back({quote_free(child.attribute("name").value()),
                                  numa,
                                  BytesPerSecond(number(child, "speed", 0.0) * 1e6 / 8)});
      }
    }
  }

  void add_gpu(const pugi::xml_node& pci,
               const pugi::xml_node& gpu,
               int socket,
               int numa,
               double path_gb_per_s) {
    const int index = whole(gpu, "dev", static_cast<int>(host_.places.size()));
    double links = 0.0;
    for (const pugi::xml_node& link : gpu.children("nvlink")) {
      links += number(link, "count", 1.0);
    }
    const double nvlink = std::min(links, 1000.0) * nvlink_gb_per_s(whole(gpu, "sm", 0));
    nvlink_everywhere_ = nvlink_everywhere_ && nvlink > 0.0;
    // Without a speed on the way NCCL takes 16 lanes of PCI 3.0.
    const double pci_path = path_gb_per_s < 1e9 ? path_gb_per_s : 12.0;
    const double gb_per_s = nvlink > 0.0 ? nvlink : pci_path;
    slowest_gb_per_s_ = std::min(slowest_gb_per_s_, gb_per_s);
    host_.places.push_back(
        {fmt::format("GPU {}, {}", index, quote_free(pci.attribute("busid").value())),
         index,
         socket,
         numa,
         BytesPerSecond(gb_per_s * 1e9)});
  }

  /// As it may be printed.
  static std::string quote_free(const char* text) {
    const std::string quoted = quote(text);
    return quoted.substr(1, quoted.size() - 2);
  }

  std::string_view where_;
  Topology& topology_;
  Host& host_;
  bool nvlink_everywhere_ = true;
  double slowest_gb_per_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace

Topology topology_from_nccl_xml(std::string_view text, std::string_view where) {
  pugi::xml_document document;
  const pugi::xml_parse_result result = document.load_buffer(text.data(), text.size());
  if (!result) {
    fail(fmt::format("{} at byte {}", where, result.offset),
         "the topology is no XML",
         result.description(),
         "what NCCL writes with NCCL_TOPO_DUMP_FILE");
  }
  const pugi::xml_node system = document.child("system");
  if (!system) {
    fail(where,
         "this XML is no topology of NCCL",
         !document.first_child().empty() ? "<" + quote(document.first_child().name()) + ">"
                                         : "nothing",
         "<system version=\"1\">");
  }
  if (const std::string_view version = system.attribute("version").value(); version != "1") {
    fail(where, "the topology has another version", quote(version), "1");
  }
  Topology topology;
  topology.name = std::string(where);
  topology.source = fmt::format(
      "{}: NCCL's topology file; rates of NVLink and PCI and all latencies are NCCL's constants",
      where);
  Reader(where, topology).read(system);
  return topology;
}

}  // namespace stretto
