// SPDX-License-Identifier: Apache-2.0
#include "variables.hpp"

#include <algorithm>
#include <fstream>
#include <optional>

#include <fmt/format.h>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/topology/interfaces.hpp"

namespace stretto::cli {
namespace {

constexpr std::string_view kEnvironment = "environment";

bool concerns_us(std::string_view name) {
  return name.starts_with("NCCL_") || name.starts_with("STRETTO_");
}

const KnownVariable* find_known(std::string_view name) {
  const std::vector<KnownVariable>& table = known_variables();
  const auto found = std::find_if(
      table.begin(), table.end(), [name](const KnownVariable& one) { return one.name == name; });
  return found == table.end() ? nullptr : &*found;
}

void add(std::vector<Variable>& variables, const std::string& assignment, std::string_view source) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos) {
    return;
  }
  const std::string name = assignment.substr(0, equals);
  const bool there = std::any_of(
      variables.begin(), variables.end(), [&](const Variable& one) { return one.name == name; });
  if (!concerns_us(name) || there) {
    return;  // the first place that sets it wins
  }
  const KnownVariable* const known = find_known(name);
  variables.push_back({name,
                       assignment.substr(equals + 1),
                       std::string(source),
                       known == nullptr ? std::string() : std::string(known->effect),
                       known != nullptr});
}

std::optional<std::string> value_of(const std::vector<std::string>& environment,
                                    std::string_view name) {
  for (const std::string& assignment : environment) {
    if (assignment.size() > name.size() && assignment.starts_with(name) &&
        assignment[name.size()] == '=') {
      return assignment.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

void add_file(std::vector<Variable>& variables,
              const std::filesystem::path& root,
              const std::string& path) {
  std::ifstream in(root / std::filesystem::path(path).relative_path());
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with('#')) {
      add(variables, line, path);
    }
  }
}

}  // namespace

const std::vector<KnownVariable>& known_variables() {
  static const std::vector<KnownVariable> table = {
      {"STRETTO_DEBUG", "1: stretto.torch.DDP prints who waits for whom"},
      {"STRETTO_LOCAL_RANK", "this process's number on its host; set by the launcher"},
      {"STRETTO_LOCAL_WORLD_SIZE", "ranks on this host; set by the launcher"},
      {"STRETTO_MPI", "the MPI that backend mpi uses"},
      {"STRETTO_PLAN",
       "stretto.torch.DDP: how gradients travel (a file), before its own arguments"},
      {"STRETTO_RANK", "this process's rank; comes before all other launchers' variables"},
      {"STRETTO_RENDEZVOUS", "directory in which the ranks of one host meet"},
      {"STRETTO_SCHEDULE", "stretto.torch.DDP: serial or overlap, before its own argument"},
      {"STRETTO_SOCKET_IFNAME",
       "interfaces, checked here; backends of this version open no sockets"},
      {"STRETTO_STREAMS",
       "stretto.torch.DDP: buckets on the wire at once, before its own argument"},
      {"STRETTO_TRIAL",
       "stretto.torch.DDP: folder for the results of a trial; set by stretto tune"},
      {"STRETTO_TRIAL_STEPS", "steps of a trial; set by stretto tune"},
      {"STRETTO_TRIAL_WARMUP", "steps before those; set by stretto tune"},
      {"STRETTO_WORLD_SIZE", "number of ranks"},
      {"NCCL_ALGO", "algorithms NCCL may choose: Ring, Tree, CollnetDirect, CollnetChain, NVLS..."},
      {"NCCL_ASYNC_ERROR_HANDLING", "PyTorch (old name): end the process when a collective fails"},
      {"NCCL_BLOCKING_WAIT", "PyTorch (old name): wait() blocks and times out"},
      {"NCCL_BUFFSIZE", "bytes of each channel's buffer"},
      {"NCCL_COLLNET_ENABLE", "1: reduction in InfiniBand switches (SHARP) may be used"},
      {"NCCL_COMM_BLOCKING", "whether communicator calls return before they are done"},
      {"NCCL_CONF_FILE", "file with more variables, instead of ~/.nccl.conf"},
      {"NCCL_CROSS_NIC", "whether a ring may use different network cards on different hosts"},
      {"NCCL_CUMEM_ENABLE", "buffers by CUDA's virtual memory calls"},
      {"NCCL_DEBUG", "log: VERSION, WARN, INFO, TRACE"},
      {"NCCL_DEBUG_FILE", "where the log goes; %h host, %p process"},
      {"NCCL_DEBUG_SUBSYS", "what of INFO is logged: INIT, COLL, P2P, NET, GRAPH, TUNING..."},
      {"NCCL_GRAPH_FILE", "rings and trees from a file instead of NCCL's search"},
      {"NCCL_HOSTID", "what counts as one host, instead of the system's identity"},
      {"NCCL_IB_DISABLE", "1: no InfiniBand or RoCE, sockets instead: much slower"},
      {"NCCL_IB_GID_INDEX", "address index for RoCE"},
      {"NCCL_IB_HCA", "adapters to use: prefixes, ^ excludes, = exact, :port"},
      {"NCCL_IB_QPS_PER_CONNECTION", "queue pairs per connection; more spread over paths"},
      {"NCCL_IB_RETRY_CNT", "retries of InfiniBand before an error"},
      {"NCCL_IB_TC", "traffic class of InfiniBand and RoCE packets"},
      {"NCCL_IB_TIMEOUT", "time-out exponent of InfiniBand"},
      {"NCCL_IGNORE_CPU_AFFINITY", "1: threads are bound near the GPU whatever the launcher bound"},
      {"NCCL_LAUNCH_MODE", "how kernels of several GPUs of one process are launched"},
      {"NCCL_MAX_CTAS", "most thread blocks NCCL takes from compute"},
      {"NCCL_MAX_NCHANNELS", "most channels, so most thread blocks, NCCL uses"},
      {"NCCL_MIN_CTAS", "least thread blocks NCCL uses"},
      {"NCCL_MIN_NCHANNELS", "least channels NCCL uses"},
      {"NCCL_NET", "network module by name: IB, Socket or a plugin's"},
      {"NCCL_NET_GDR_LEVEL", "how far GPU and network card may be apart for direct access"},
      {"NCCL_NET_PLUGIN", "network plugin to load"},
      {"NCCL_NSOCKS_PERTHREAD", "sockets per helper thread"},
      {"NCCL_NTHREADS", "threads of each block"},
      {"NCCL_NVLS_ENABLE", "0: no reduction in NVLink switches"},
      {"NCCL_P2P_DISABLE", "1: no direct access between GPUs, through host memory instead: slower"},
      {"NCCL_P2P_LEVEL", "how far GPUs may be apart for direct access: NVL, PIX, PXB, PHB, SYS"},
      {"NCCL_PROFILER_PLUGIN", "profiler plugin to load"},
      {"NCCL_PROTO", "protocols NCCL may choose: LL, LL128, Simple"},
      {"NCCL_SHM_DISABLE", "1: no shared memory between processes of one host"},
      {"NCCL_SOCKET_FAMILY", "AF_INET or AF_INET6"},
      {"NCCL_SOCKET_IFNAME", "interfaces to use: prefixes, ^ excludes, = exact"},
      {"NCCL_SOCKET_NTHREADS", "helper threads per connection of the socket network"},
      {"NCCL_TOPO_DUMP_FILE", "file to which NCCL writes the topology it found"},
      {"NCCL_TOPO_FILE", "topology from a file, beside what NCCL finds"},
      {"NCCL_TUNER_PLUGIN", "plugin that chooses algorithm and protocol"}};
  return table;
}

std::vector<Variable> variables(const std::vector<std::string>& environment,
                                bool all,
                                const std::filesystem::path& root) {
  std::vector<Variable> found;
  for (const std::string& assignment : environment) {
    add(found, assignment, kEnvironment);
  }
  if (const auto file = value_of(environment, "NCCL_CONF_FILE")) {
    add_file(found, root, *file);
  } else if (const auto home = value_of(environment, "HOME")) {
    add_file(found, root, *home + "/.nccl.conf");
  }
  add_file(found, root, "/etc/nccl.conf");
  if (all) {
    for (const KnownVariable& known : known_variables()) {
      const bool there = std::any_of(
          found.begin(), found.end(), [&](const Variable& one) { return one.name == known.name; });
      if (!there) {
        found.push_back({std::string(known.name), "", "default", std::string(known.effect), true});
      }
    }
  }
  std::sort(found.begin(), found.end(), [](const Variable& a, const Variable& b) {
    return a.name < b.name;
  });
  // What our own launcher tells its copies is nobody's setting.
  std::erase_if(found, [](const Variable& one) { return one.name == "STRETTO_CLI_RESULTS"; });
  return found;
}

std::vector<std::string> unknown_variables(const std::vector<Variable>& variables) {
  std::vector<std::string_view> names;
  for (const KnownVariable& known : known_variables()) {
    names.push_back(known.name);
  }
  std::vector<std::string> sentences;
  for (const Variable& variable : variables) {
    if (!variable.known && variable.name.starts_with("STRETTO_")) {
      const std::string_view near = nearest(variable.name, names);
      sentences.push_back(fmt::format("{} is set, and this version does not know it{}",
                                      variable.name,
                                      near.empty() ? "" : fmt::format(". Did you mean {}?", near)));
    }
  }
  return sentences;
}

void check_interfaces(const std::vector<Variable>& variables, const std::filesystem::path& root) {
  const std::vector<Interface> interfaces = network_interfaces(root);
  std::vector<std::string> names;
  std::string list;
  for (const Interface& interface : interfaces) {
    names.push_back(interface.name);
    list += fmt::format(
        "{}{}{}", list.empty() ? "" : ", ", interface.name, interface.up ? "" : " (down)");
  }
  for (const Variable& variable : variables) {
    const bool sockets =
        variable.name == "NCCL_SOCKET_IFNAME" || variable.name == "STRETTO_SOCKET_IFNAME";
    if (!sockets || variable.value.empty()) {
      continue;
    }
    if (matching_interfaces(variable.value, names).empty()) {
      throw Error(ErrorCode::kUnavailable,
                  {fmt::format("{}={} matches no interface", variable.name, variable.value),
                   fmt::format("set in {}", variable.source),
                   "nothing",
                   list.empty() ? "an interface, and this host has none" : "one of " + list,
                   "A plain name is a prefix; '=eth2' is exact, '^docker' excludes"});
    }
  }
}

}  // namespace stretto::cli
