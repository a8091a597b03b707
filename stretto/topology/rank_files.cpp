// SPDX-License-Identifier: Apache-2.0
#include "stretto/topology/rank_files.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"

namespace stretto {
namespace {

constexpr std::array<std::string_view, 7> kNames = {
    "rank-map", "rankfile", "slurm", "torchrun", "cuda", "pytorchjob", "mpijob"};

/// A host and the place on it.
struct Seat {
  std::size_t host = 0;
  std::size_t slot = 0;
};

std::vector<Seat> seats_of(const Topology& topology, const std::vector<int>& place_of_rank) {
  std::vector<Seat> by_place;
  for (std::size_t h = 0; h < topology.hosts.size(); ++h) {
    for (std::size_t s = 0; s < topology.hosts[h].places.size(); ++s) {
      by_place.push_back({h, s});
    }
  }
  std::vector<Seat> seats;
  for (const int place : place_of_rank) {
    seats.push_back(by_place.at(static_cast<std::size_t>(place)));
  }
  return seats;
}

/// Hosts in the order of their ranks, if these are neighbours on every host.
std::vector<std::size_t> host_order(RankFile kind, const std::vector<Seat>& seats) {
  std::vector<std::size_t> hosts;
  for (const Seat& seat : seats) {
    if (!hosts.empty() && hosts.back() == seat.host) {
      continue;
    }
    if (std::find(hosts.begin(), hosts.end(), seat.host) != hosts.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"this launcher numbers ranks host by host, and the order does not",
                   std::string(to_string(kind)),
                   "ranks of one host apart",
                   "all ranks of a host next to each other",
                   "Use rankfile, slurm or rank-map"});
    }
    hosts.push_back(seat.host);
  }
  return hosts;
}

/// Device numbers of one host in the order of their ranks.
std::vector<int> devices_of(const Topology& topology,
                            const std::vector<Seat>& seats,
                            std::size_t host) {
  std::vector<int> devices;
  for (const Seat& seat : seats) {
    if (seat.host == host) {
      devices.push_back(topology.hosts[host].places[seat.slot].index);
    }
  }
  return devices;
}

std::string rank_map(const Topology& topology, const std::vector<int>& place_of_rank) {
  std::vector<int> rank_at(place_of_rank.size());
  for (std::size_t rank = 0; rank < place_of_rank.size(); ++rank) {
    rank_at.at(static_cast<std::size_t>(place_of_rank[rank])) = static_cast<int>(rank);
  }
  std::vector<int> map;
  for (const int place : topology.place_of_rank()) {
    map.push_back(rank_at[static_cast<std::size_t>(place)]);
  }
  return fmt::format("# the new rank of each process, by the rank it has now\n{}\n",
                     fmt::join(map, " "));
}

std::string rankfile(const Topology& topology, const std::vector<Seat>& seats) {
  std::string text = "# mpirun --rankfile FILE; slot is the core, by the device's number\n";
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    const Host& host = topology.hosts[seats[rank].host];
    text +=
        fmt::format("rank {}={} slot={}\n", rank, host.name, host.places[seats[rank].slot].index);
  }
  return text;
}

std::string slurm(const Topology& topology, const std::vector<Seat>& seats) {
  // Slurm sorts a --nodelist; only the file of an arbitrary distribution keeps its order.
  std::string text = "cat > hosts.txt <<'END'\n";
  for (const Seat& seat : seats) {
    text += topology.hosts[seat.host].name + "\n";
  }
  return text + fmt::format(
                    "END\nSLURM_HOSTFILE=hosts.txt srun --ntasks={} --distribution=arbitrary "
                    "PROGRAM\n",
                    seats.size());
}

std::string torchrun(const Topology& topology,
                     const std::vector<Seat>& seats,
                     const std::vector<std::size_t>& hosts) {
  std::string text =
      "# torchrun gives rank = node-rank x nproc-per-node + local rank: one line on each host\n";
  for (std::size_t node = 0; node < hosts.size(); ++node) {
    const std::vector<int> devices = devices_of(topology, seats, hosts[node]);
    text += fmt::format(
        "{}: CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={} torchrun --nnodes={} "
        "--node-rank={} --nproc-per-node={} --master-addr={} PROGRAM\n",
        topology.hosts[hosts[node]].name,
        fmt::join(devices, ","),
        hosts.size(),
        node,
        devices.size(),
        topology.hosts[hosts[0]].name);
  }
  return text;
}

std::string cuda(const Topology& topology, const std::vector<Seat>& seats) {
  std::string text = "# on each host, before its processes start\n";
  for (std::size_t host = 0; host < topology.hosts.size(); ++host) {
    text += fmt::format("{}: export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={}\n",
                        topology.hosts[host].name,
                        fmt::join(devices_of(topology, seats, host), ","));
  }
  return text;
}

/// Pods of one job on one host each, in the host's network, which is what keeps a rank's number
/// with its node.
std::string pod(std::string_view indent, std::size_t devices, std::string_view label) {
  return fmt::format(
      "{0}metadata:\n"
      "{0}  labels: {{ ring: {2} }}\n"
      "{0}spec:\n"
      "{0}  hostNetwork: true\n"
      "{0}  dnsPolicy: ClusterFirstWithHostNet\n"
      "{0}  affinity:\n"
      "{0}    podAntiAffinity:\n"
      "{0}      requiredDuringSchedulingIgnoredDuringExecution:\n"
      "{0}        - labelSelector: {{ matchLabels: {{ ring: {2} }} }}\n"
      "{0}          topologyKey: kubernetes.io/hostname\n"
      "{0}  containers:\n"
      "{0}    - name: {3}\n"
      "{0}      image: YOUR_IMAGE\n"
      "{0}      resources: {{ limits: {{ nvidia.com/gpu: {1} }} }}\n",
      indent,
      devices,
      label,
      label == "pytorch" ? "pytorch" : "worker");
}

std::string pytorch_job(const Topology& topology,
                        const std::vector<Seat>& seats,
                        const std::vector<std::size_t>& hosts) {
  const std::size_t devices = devices_of(topology, seats, hosts[0]).size();
  return fmt::format(
      "# One pod for each host, all its devices in it, so that ranks {0} x pod .. {0} x pod + {1} "
      "share a "
      "host.\n"
      "# Kubeflow sets RANK and WORLD_SIZE to pods; torchrun inside the pod makes them ranks.\n"
      "apiVersion: kubeflow.org/v1\n"
      "kind: PyTorchJob\n"
      "metadata: {{ name: ordered }}\n"
      "spec:\n"
      "  nprocPerNode: \"{0}\"\n"
      "  pytorchReplicaSpecs:\n"
      "    Worker:\n"
      "      replicas: {2}\n"
      "      template:\n{3}",
      devices,
      devices - 1,
      hosts.size(),
      pod("        ", devices, "pytorch"));
}

std::string mpi_job(const Topology& topology,
                    const std::vector<Seat>& seats,
                    const std::vector<std::size_t>& hosts) {
  const std::size_t devices = devices_of(topology, seats, hosts[0]).size();
  return fmt::format(
      "# The operator's hostfile lists the workers in order; mpirun fills one after the other by "
      "slot.\n"
      "apiVersion: kubeflow.org/v2beta1\n"
      "kind: MPIJob\n"
      "metadata: {{ name: ordered }}\n"
      "spec:\n"
      "  slotsPerWorker: {0}\n"
      "  mpiReplicaSpecs:\n"
      "    Launcher:\n"
      "      replicas: 1\n"
      "      template:\n"
      "        spec:\n"
      "          containers:\n"
      "            - name: launcher\n"
      "              image: YOUR_IMAGE\n"
      "              command: [mpirun, -n, \"{1}\", --map-by, slot, PROGRAM]\n"
      "    Worker:\n"
      "      replicas: {2}\n"
      "      template:\n{3}",
      devices,
      seats.size(),
      hosts.size(),
      pod("        ", devices, "mpi"));
}

}  // namespace

std::string_view to_string(RankFile kind) noexcept {
  return kNames[static_cast<std::size_t>(kind)];
}

RankFile rank_file_from_string(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"no such form of a rank order", "", quote(name), "one of " + join(kNames), ""});
  }
  return static_cast<RankFile>(found - kNames.begin());
}

std::string rank_file(RankFile kind,
                      const Topology& topology,
                      const std::vector<int>& place_of_rank) {
  check(topology);
  const std::vector<Seat> seats = seats_of(topology, place_of_rank);
  switch (kind) {
    case RankFile::kRankMap:
      return rank_map(topology, place_of_rank);
    case RankFile::kRankfile:
      return rankfile(topology, seats);
    case RankFile::kSlurm:
      return slurm(topology, seats);
    case RankFile::kTorchrun:
      return torchrun(topology, seats, host_order(kind, seats));
    case RankFile::kCuda:
      return cuda(topology, seats);
    case RankFile::kPyTorchJob:
      return pytorch_job(topology, seats, host_order(kind, seats));
    case RankFile::kMpiJob:
      return mpi_job(topology, seats, host_order(kind, seats));
  }
  return {};
}

}  // namespace stretto
