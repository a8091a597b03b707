// SPDX-License-Identifier: Apache-2.0
#include "doctor_report.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "stretto/base/error.hpp"
#include "stretto/report/report.hpp"
#include "version.hpp"

namespace stretto::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kShownEdges = 8;

std::string ring_text(const Diagnosis& diagnosis) {
  const int ranks = diagnosis.topology.places();
  if (!diagnosis.has_ranks) {
    return "no ranks: start this with -n RANKS, under mpirun or torchrun, or give --topology\n";
  }
  if (ranks < 2) {
    return "one rank: there is no ring\n";
  }
  const auto crossing = static_cast<int>(diagnosis.crossing.size());
  std::string text =
      fmt::format("ring of {} ranks: {} of {} edges cross hosts", ranks, crossing, ranks);
  text += crossing > diagnosis.fewest_crossing
              ? fmt::format(", {} would do\n", diagnosis.fewest_crossing)
              : ", the fewest there can be\n";
  for (std::size_t i = 0; i < std::min(kShownEdges, diagnosis.crossing.size()); ++i) {
    const HostEdge& edge = diagnosis.crossing[i];
    text += fmt::format("  {} -> {}: {} to {}\n", edge.from, edge.to, edge.from_host, edge.to_host);
  }
  if (diagnosis.crossing.size() > kShownEdges) {
    text +=
        fmt::format("  and {} more (--json has all)\n", diagnosis.crossing.size() - kShownEdges);
  }
  if (!diagnosis.now) {
    return text + fmt::format("what that costs is not known: {}\n", diagnosis.no_machine);
  }
  const Seconds now = diagnosis.now->all_reduce;
  const Seconds best = diagnosis.best->all_reduce;
  text += fmt::format(
      "all_reduce of {} by a ring in this order: {} ({})\n",
      format(diagnosis.size),
      format(now),
      diagnosis.machine->basis == Basis::kMeasured ? "links measured" : "links assumed");
  if (now > best * 1.001) {
    text += fmt::format(
        "  ranks ordered by place: {}, {:.1f} times as quick; one link of level {} "
        "carries {} edges now\n",
        format(best),
        now / best,
        diagnosis.machine->levels[static_cast<std::size_t>(diagnosis.now->pace_level)].name,
        diagnosis.now->most_on_a_link);
  } else {
    text += "  no order of ranks is quicker\n";
  }
  return text;
}

std::string interfaces_text(const Diagnosis& diagnosis) {
  std::string text = "interfaces:";
  for (const Interface& interface : diagnosis.interfaces) {
    text += fmt::format(" {}{}{}",
                        interface.name,
                        interface.megabits_per_s > 0
                            ? fmt::format(" ({:g} Gbit/s)", interface.megabits_per_s / 1000)
                            : std::string(),
                        interface.up ? "" : " (down)");
  }
  for (const std::string& adapter : diagnosis.adapters) {
    text += " " + adapter + " (RDMA)";
  }
  return text + "\n";
}

std::string variables_text(const Diagnosis& diagnosis) {
  if (diagnosis.variables.empty()) {
    return "variables: no NCCL_ or STRETTO_ variable is set (--all lists those there are)\n";
  }
  std::string text = "variables:\n";
  for (const Variable& variable : diagnosis.variables) {
    text += fmt::format("  {}{}  [{}]  {}\n",
                        variable.name,
                        variable.source == "default" ? "" : "=" + variable.value,
                        variable.source,
                        variable.known ? variable.effect : "not in this program's table");
  }
  return text;
}

ordered_json topology_json(const Diagnosis& diagnosis) {
  ordered_json hosts = ordered_json::array();
  std::size_t at = 0;
  for (const Host& host : diagnosis.topology.hosts) {
    ordered_json places = ordered_json::array();
    for (const Place& place : host.places) {
      ordered_json json{{"device", place.device},
                        {"index", place.index},
                        {"socket", place.socket},
                        {"numa", place.numa}};
      if (diagnosis.has_ranks) {
        const std::vector<int>& ranks = diagnosis.topology.rank_at;
        json["rank"] = ranks.empty() ? static_cast<int>(at) : ranks[at];
      } else {
        json["rank"] = nullptr;
      }
      if (place.bandwidth > BytesPerSecond(0)) {
        json["bandwidth_bytes_per_s"] = place.bandwidth.value();
      }
      places.push_back(std::move(json));
      ++at;
    }
    ordered_json networks = ordered_json::array();
    for (const NetworkPort& port : host.networks) {
      networks.push_back({{"name", port.name},
                          {"numa", port.numa},
                          {"bandwidth_bytes_per_s", port.bandwidth.value()}});
    }
    hosts.push_back(
        {{"name", host.name}, {"places", std::move(places)}, {"networks", std::move(networks)}});
  }
  return {{"name", diagnosis.topology.name},
          {"source", diagnosis.topology.source},
          {"hosts", std::move(hosts)}};
}

ordered_json ring_json(const Diagnosis& diagnosis) {
  if (!diagnosis.has_ranks || diagnosis.topology.places() < 2) {
    return nullptr;
  }
  ordered_json crossing = ordered_json::array();
  for (const HostEdge& edge : diagnosis.crossing) {
    crossing.push_back({{"from", edge.from},
                        {"to", edge.to},
                        {"from_host", edge.from_host},
                        {"to_host", edge.to_host}});
  }
  const auto time = [](const std::optional<RingOrder>& order) {
    return order ? ordered_json(order->all_reduce.count()) : ordered_json(nullptr);
  };
  return {{"ranks", diagnosis.topology.places()},
          {"crossing_edges", diagnosis.crossing.size()},
          {"fewest_crossing_edges", diagnosis.fewest_crossing},
          {"size_bytes", diagnosis.size.count()},
          {"all_reduce_s", time(diagnosis.now)},
          {"best_all_reduce_s", time(diagnosis.best)},
          {"edges_across_hosts", std::move(crossing)}};
}

}  // namespace

void diagnose_ring(Diagnosis& diagnosis, const std::optional<Machine>& figures) {
  const Topology& topology = diagnosis.topology;
  if (!diagnosis.has_ranks) {
    return;
  }
  const std::vector<int> places = topology.place_of_rank();
  const std::size_t ranks = places.size();
  std::set<int> hosts;
  for (std::size_t rank = 0; rank < ranks && ranks > 1; ++rank) {
    const std::size_t next = (rank + 1) % ranks;
    const int from = topology.host_of(places[rank]);
    const int to = topology.host_of(places[next]);
    hosts.insert(from);
    if (from != to) {
      diagnosis.crossing.push_back({static_cast<int>(rank),
                                    static_cast<int>(next),
                                    topology.hosts[static_cast<std::size_t>(from)].name,
                                    topology.hosts[static_cast<std::size_t>(to)].name});
    }
  }
  diagnosis.fewest_crossing = hosts.size() > 1 ? static_cast<int>(hosts.size()) : 0;
  try {
    diagnosis.machine = figures ? *figures : machine_of(topology);
    diagnosis.now = ring_order(*diagnosis.machine, places, diagnosis.size);
    diagnosis.best = best_ring_order(*diagnosis.machine, diagnosis.size);
  } catch (const Error& error) {
    if (figures) {
      throw;
    }
    diagnosis.machine.reset();
    diagnosis.no_machine =
        error.detail().message + "; --machine M gives links, --topology FILE all of it";
  }
}

std::vector<std::string> odd_paths(const Topology& topology) {
  std::vector<std::string> sentences;
  for (const Host& host : topology.hosts) {
    BytesPerSecond most{};
    std::set<int> with_network;
    for (const Place& place : host.places) {
      most = std::max(most, place.bandwidth);
    }
    for (const NetworkPort& port : host.networks) {
      with_network.insert(port.numa);
    }
    for (const Place& place : host.places) {
      if (place.bandwidth > BytesPerSecond(0) && place.bandwidth.value() < 0.99 * most.value()) {
        sentences.push_back(
            fmt::format("{}, {}: its links give {}, those of others {}: lanes that did not come "
                        "up, or another slot",
                        host.name,
                        place.device,
                        format(place.bandwidth),
                        format(most)));
      }
      if (!with_network.empty() && !with_network.contains(-1) &&
          !with_network.contains(place.numa)) {
        sentences.push_back(fmt::format(
            "{}, {}: no network card on its NUMA node {}, so what it sends crosses sockets",
            host.name,
            place.device,
            place.numa));
      }
    }
  }
  return sentences;
}

std::string doctor_text(const Diagnosis& diagnosis) {
  std::string text = draw(diagnosis.topology, diagnosis.has_ranks) + "\n" + ring_text(diagnosis) +
                     "\n" + interfaces_text(diagnosis) + variables_text(diagnosis);
  for (const std::string& warning : diagnosis.warnings) {
    text += fmt::format("warning: {}\n", warning);
  }
  if (!diagnosis.next.empty()) {
    text += fmt::format("next: {}\n", diagnosis.next);
  }
  return text;
}

std::string doctor_json(const Diagnosis& diagnosis) {
  ordered_json interfaces = ordered_json::array();
  for (const Interface& interface : diagnosis.interfaces) {
    interfaces.push_back({{"name", interface.name},
                          {"up", interface.up},
                          {"bandwidth_bytes_per_s", interface.megabits_per_s * 1e6 / 8},
                          {"numa", interface.numa}});
  }
  ordered_json variables = ordered_json::array();
  for (const Variable& variable : diagnosis.variables) {
    variables.push_back(
        {{"name", variable.name},
         {"value",
          variable.source == "default" ? ordered_json(nullptr) : ordered_json(variable.value)},
         {"source", variable.source},
         {"effect", variable.known ? ordered_json(variable.effect) : ordered_json(nullptr)}});
  }
  const ordered_json document{{"schema", "stretto.doctor/1"},
                              {"version", kVersion},
                              {"topology", topology_json(diagnosis)},
                              {"ring", ring_json(diagnosis)},
                              {"machine",
                               diagnosis.machine ? ordered_json::parse(to_json(*diagnosis.machine))
                                                 : ordered_json(nullptr)},
                              {"interfaces", std::move(interfaces)},
                              {"rdma_adapters", diagnosis.adapters},
                              {"variables", std::move(variables)},
                              {"warnings", diagnosis.warnings}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace stretto::cli
