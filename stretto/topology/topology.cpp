// SPDX-License-Identifier: Apache-2.0
#include "stretto/topology/topology.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

[[noreturn]] void refuse(const Topology& topology,
                         std::string message,
                         std::string found,
                         std::string expected,
                         std::string help = {}) {
  throw Error(
      ErrorCode::kInvalidArgument,
      {std::move(message), topology.name, std::move(found), std::move(expected), std::move(help)});
}

/// Places on each socket that has some, in order.
std::vector<int> socket_sizes(const Host& host) {
  std::vector<int> sizes;
  int last = -1;
  for (const Place& place : host.places) {
    if (sizes.empty() || place.socket != last) {
      sizes.push_back(0);
      last = place.socket;
    }
    ++sizes.back();
  }
  return sizes;
}

bool all_same(std::span<const int> values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

void add_level(Machine& machine, std::string name, int members, const LinkFigures& figures) {
  if (members > 1) {
    machine.levels.push_back({std::move(name), members, figures.latency, figures.bandwidth});
  }
}

}  // namespace

int Topology::places() const noexcept {
  int count = 0;
  for (const Host& host : hosts) {
    count += static_cast<int>(host.places.size());
  }
  return count;
}

std::vector<int> Topology::place_of_rank() const {
  std::vector<int> place(static_cast<std::size_t>(places()));
  for (std::size_t p = 0; p < place.size(); ++p) {
    const std::size_t rank = rank_at.empty() ? p : static_cast<std::size_t>(rank_at[p]);
    place[rank] = static_cast<int>(p);
  }
  return place;
}

int Topology::host_of(int place) const noexcept {
  int host = 0;
  for (const Host& one : hosts) {
    const int count = static_cast<int>(one.places.size());
    if (place < count) {
      return host;
    }
    place -= count;
    ++host;
  }
  return -1;
}

void check(const Topology& topology) {
  const int places = topology.places();
  if (places < 1) {
    refuse(topology, "the topology has no place for a rank", "none", "one or more");
  }
  if (topology.rank_at.empty()) {
    return;
  }
  std::vector<int> sorted = topology.rank_at;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int>(i)) {
      refuse(topology,
             "the ranks at the places are no order of all ranks",
             i > 0 && sorted[i] == sorted[i - 1]
                 ? fmt::format("rank {} twice", sorted[i])
                 : fmt::format("rank {} where {} is missing", sorted[i], i),
             fmt::format("each of 0 to {} once", places - 1));
    }
  }
  if (static_cast<int>(sorted.size()) != places) {
    refuse(topology,
           "the ranks are not as many as the places",
           fmt::format("{} ranks", sorted.size()),
           fmt::format("{} places", places));
  }
}

Machine machine_of(const Topology& topology) {
  check(topology);
  std::vector<int> per_host;
  std::vector<int> per_socket;
  std::vector<int> sockets;
  for (const Host& host : topology.hosts) {
    const std::vector<int> sizes = socket_sizes(host);
    per_host.push_back(static_cast<int>(host.places.size()));
    sockets.push_back(static_cast<int>(sizes.size()));
    per_socket.insert(per_socket.end(), sizes.begin(), sizes.end());
  }
  if (!all_same(per_host)) {
    const auto [least, most] = std::minmax_element(per_host.begin(), per_host.end());
    refuse(topology,
           "the hosts are not alike, so they are no level of a machine",
           fmt::format("from {} to {} places", *least, *most),
           "as many places on each host");
  }
  Machine machine;
  machine.name = topology.name;
  machine.source = topology.source;
  if (topology.socket && all_same(per_socket) && all_same(sockets)) {
    add_level(machine, "socket", per_socket.front(), topology.inside);
    add_level(machine, "host", sockets.front(), *topology.socket);
  } else {
    add_level(machine, "host", per_host.front(), topology.inside);
  }
  add_level(machine, "network", static_cast<int>(topology.hosts.size()), topology.network);
  if (machine.levels.empty()) {
    machine.levels.push_back({"host", 1, topology.inside.latency, topology.inside.bandwidth});
  }
  for (const Level& level : machine.levels) {
    if (!(level.bandwidth > BytesPerSecond(0))) {
      refuse(topology,
             "a link of the topology has no bandwidth",
             level.name,
             "a bandwidth above zero",
             "Give it in the file");
    }
  }
  return machine;
}

std::string draw(const Topology& topology, bool with_ranks) {
  std::string text = topology.name + "\n";
  std::size_t place = 0;
  for (std::size_t h = 0; h < topology.hosts.size(); ++h) {
    const Host& host = topology.hosts[h];
    const bool last_host = h + 1 == topology.hosts.size();
    std::string networks;
    for (const NetworkPort& port : host.networks) {
      networks += fmt::format("{}{}", networks.empty() ? "  " : ", ", port.name);
      if (port.bandwidth > BytesPerSecond(0)) {
        networks += " " + format(port.bandwidth);
      }
    }
    text += fmt::format("{} {}{}\n", last_host ? "└─" : "├─", host.name, networks);
    const std::string indent = last_host ? "   " : "│  ";
    for (std::size_t i = 0; i < host.places.size();) {
      const int socket = host.places[i].socket;
      std::size_t end = i;
      while (end < host.places.size() && host.places[end].socket == socket) {
        ++end;
      }
      const bool last_socket = end == host.places.size();
      text += fmt::format("{}{} socket {}\n", indent, last_socket ? "└─" : "├─", socket);
      for (; i < end; ++i, ++place) {
        const int rank =
            topology.rank_at.empty() ? static_cast<int>(place) : topology.rank_at[place];
        text += fmt::format("{}{}  {} {}{}\n",
                            indent,
                            last_socket ? " " : "│",
                            i + 1 == end ? "└─" : "├─",
                            with_ranks ? fmt::format("rank {:<3} ", rank) : std::string(),
                            host.places[i].device);
      }
    }
  }
  return text;
}

}  // namespace stretto
