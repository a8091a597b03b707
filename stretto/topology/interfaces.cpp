// SPDX-License-Identifier: Apache-2.0
#include "stretto/topology/interfaces.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>
#include <tuple>

#include <fmt/format.h>

namespace stretto {
namespace {

namespace fs = std::filesystem;

/// First line of a small file; empty if there is none.
std::string line_of(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

int number_of(const fs::path& path, int otherwise) {
  const std::string line = line_of(path);
  int value = 0;
  const char* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data(), end, value);
  return error == std::errc() && stop == end && !line.empty() ? value : otherwise;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator it(directory, failed), end; !failed && it != end;
       it.increment(failed)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// NUMA node of each core, by the nodes' directories below the core's own.
int numa_of_core(const fs::path& core) {
  for (const std::string& name : names_in(core)) {
    if (name.starts_with("node")) {
      return std::atoi(name.c_str() + 4);  // NOLINT(cert-err34-c): the kernel's own name
    }
  }
  return 0;
}

std::vector<Place> cores_of(const fs::path& root) {
  std::vector<Place> places;
  const fs::path cores = root / "sys/devices/system/cpu";
  for (const std::string& name : names_in(cores)) {
    int index = 0;
    const char* const end = name.data() + name.size();
    if (!name.starts_with("cpu") || name.size() == 3 ||
        std::from_chars(name.data() + 3, end, index).ptr != end) {
      continue;
    }
    const fs::path topology = cores / name / "topology";
    if (!fs::exists(topology)) {
      continue;  // offline
    }
    places.push_back({fmt::format("core {}", index),
                      index,
                      std::max(0, number_of(topology / "physical_package_id", 0)),
                      numa_of_core(cores / name),
                      {}});
  }
  return places;
}

/// NVIDIA's display and 3D controllers, in the order of their bus, as CUDA numbers them with
/// CUDA_DEVICE_ORDER=PCI_BUS_ID.
std::vector<Place> gpus_of(const fs::path& root, const std::vector<Place>& cores) {
  std::vector<Place> places;
  const fs::path devices = root / "sys/bus/pci/devices";
  for (const std::string& bus : names_in(devices)) {
    const std::string kind = line_of(devices / bus / "class");
    if (line_of(devices / bus / "vendor") != "0x10de" || !kind.starts_with("0x03")) {
      continue;
    }
    const int numa = std::max(0, number_of(devices / bus / "numa_node", 0));
    const auto core = std::find_if(
        cores.begin(), cores.end(), [numa](const Place& one) { return one.numa == numa; });
    const int index = static_cast<int>(places.size());
    places.push_back({fmt::format("GPU {}, {}", index, bus),
                      index,
                      core == cores.end() ? 0 : core->socket,
                      numa,
                      {}});
  }
  return places;
}

}  // namespace

std::vector<Interface> network_interfaces(const fs::path& root) {
  std::vector<Interface> interfaces;
  const fs::path net = root / "sys/class/net";
  for (const std::string& name : names_in(net)) {
    const std::string state = line_of(net / name / "operstate");
    // The loopback device and many virtual ones say "unknown" and work.
    interfaces.push_back({name,
                          state == "up" || state == "unknown",
                          std::max(0, number_of(net / name / "speed", 0)) * 1.0,
                          number_of(net / name / "device/numa_node", -1)});
  }
  return interfaces;
}

std::vector<std::string> rdma_adapters(const fs::path& root) {
  return names_in(root / "sys/class/infiniband");
}

std::vector<std::string> matching_interfaces(std::string_view list,
                                             std::span<const std::string> names) {
  const bool others = list.starts_with('^');
  list.remove_prefix(others ? 1 : 0);
  const bool exact = list.starts_with('=');
  list.remove_prefix(exact ? 1 : 0);
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string_view word = list.substr(begin, end - begin);
    word = word.substr(0, word.find(':'));
    if (!word.empty()) {
      words.push_back(word);
    }
    begin = end + 1;
  }
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const bool listed = std::any_of(words.begin(), words.end(), [&](std::string_view word) {
      return exact ? name == word : name.starts_with(word);
    });
    if (words.empty() || listed != others) {
      found.push_back(name);
    }
  }
  return found;
}

Host local_host(const fs::path& root) {
  Host host;
  host.name = line_of(root / "proc/sys/kernel/hostname");
  host.name = host.name.empty() ? "this host" : host.name;
  const std::vector<Place> cores = cores_of(root);
  host.places = gpus_of(root, cores);
  if (host.places.empty()) {
    host.places = cores;
  }
  std::sort(host.places.begin(), host.places.end(), [](const Place& a, const Place& b) {
    return std::tuple(a.socket, a.numa, a.index) < std::tuple(b.socket, b.numa, b.index);
  });
  for (const Interface& interface : network_interfaces(root)) {
    if (interface.up && interface.name != "lo") {
      host.networks.push_back(
          {interface.name, interface.numa, BytesPerSecond(interface.megabits_per_s * 1e6 / 8)});
    }
  }
  return host;
}

}  // namespace stretto
