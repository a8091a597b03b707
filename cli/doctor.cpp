// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands.hpp"
#include "doctor_report.hpp"
#include "flags.hpp"
#include "job.hpp"
#include "output.hpp"
#include "stretto/base/text.hpp"
#include "stretto/comm/rank_environment.hpp"
#include "stretto/run/child_process.hpp"
#include "stretto/run/text_exchange.hpp"
#include "stretto/topology/nccl_xml.hpp"
#include "stretto/topology/rank_files.hpp"
#include "stretto/topology/toml.hpp"

namespace stretto::cli {
namespace {

namespace fs = std::filesystem;

struct DoctorFlags {
  JobOptions job;
  std::string topology;
  std::string order;
  int hosts = 1;
  std::string machine;
  std::string size = "25M";
  std::string emit;
  bool all = false;
  bool nccl_dump = false;
};

std::vector<std::string> environment_now() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    result.emplace_back(*entry);
  }
  return result;
}

/// A file that is gone with the object.
class TemporaryFile {
 public:
  TemporaryFile() {
    std::string pattern = (fs::temp_directory_path() / "stretto-topology-XXXXXX").string();
    const int made = mkstemp(pattern.data());
    if (made < 0) {
      throw Error(ErrorCode::kUnavailable,
                  {"a temporary file cannot be made", pattern, "", "", "Set TMPDIR"});
    }
    close(made);
    path_ = pattern;
  }
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  [[nodiscard]] const fs::path& path() const noexcept { return path_; }

 private:
  fs::path path_;
};

/// Runs the program with NCCL told to write its topology, and reads that.
Topology dumped_topology(const std::vector<std::string>& program) {
  if (program.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"there is no program to run",
                 "--nccl-dump",
                 "",
                 "-- and a program that makes an NCCL communicator",
                 "Example: stretto doctor --nccl-dump -- all_reduce_perf -g 8"});
  }
  const TemporaryFile file;
  ChildCommand command;
  command.arguments = program;
  command.environment = environment_now();
  std::erase_if(command.environment,
                [](const std::string& one) { return one.starts_with("NCCL_TOPO_DUMP_FILE="); });
  command.environment.push_back("NCCL_TOPO_DUMP_FILE=" + file.path().string());
  ChildProcess child(command);
  std::optional<int> status;
  while (!(status = child.reap())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::string text = read_file(file.path(), "--nccl-dump");
  const std::string how = WIFSIGNALED(*status) ? fmt::format("signal {}", WTERMSIG(*status))
                                               : fmt::format("exit code {}", WEXITSTATUS(*status));
  if (text.empty()) {
    throw Error(ErrorCode::kUnavailable,
                {"the program ended and NCCL has written no topology",
                 "--nccl-dump",
                 fmt::format("{} ended with {}", quote(program[0]), how),
                 "a program that makes an NCCL communicator",
                 "NCCL writes the file when the communicator is made, on rank 0 only: run this on "
                 "that host"});
  }
  return topology_from_nccl_xml(text, "NCCL's topology of this host");
}

Topology topology_file(const std::string& path) {
  const std::string text = read_file(path, "--topology");
  if (path.ends_with(".toml")) {
    return topology_from_toml(text, path);
  }
  if (path.ends_with(".xml")) {
    return topology_from_nccl_xml(text, path);
  }
  throw Error(ErrorCode::kInvalidArgument,
              {"the kind of the topology is not known",
               "--topology",
               path,
               "a name that ends in .xml (NCCL's) or .toml",
               ""});
}

void repeat_host(Topology& topology, int hosts) {
  if (hosts == 1) {
    return;
  }
  if (topology.hosts.size() != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                {"there are several hosts already",
                 "--hosts",
                 fmt::format("{} hosts in the topology", topology.hosts.size()),
                 "one",
                 ""});
  }
  const Host host = topology.hosts.front();
  topology.hosts.clear();
  for (int h = 0; h < hosts; ++h) {
    topology.hosts.push_back(host);
    topology.hosts.back().name = fmt::format("{}-{}", host.name, h);
  }
}

/// As `--rank-map`: the rank at each place.
void set_order(Topology& topology, const std::string& path) {
  if (!path.empty()) {
    topology.rank_at = read_rank_map("--order", path);
    from_file(path, [&] {
      check(topology);
      return 0;
    });
  }
}

/// What a rank knows of itself, in one line of words without blanks.
std::string own_line(const RankEnvironment& environment) {
  const EnvironmentReader read = process_environment();
  const auto file = [](const char* path) {
    std::error_code failed;
    return fs::exists(path, failed) ? read_file(path, path) : std::string();
  };
  std::error_code failed;
  std::string identity = file("/proc/sys/kernel/random/boot_id") +
                         fs::read_symlink("/proc/self/ns/net", failed).string();
  std::string name = file("/proc/sys/kernel/hostname");
  for (std::string* text : {&identity, &name}) {
    std::erase_if(*text, [](char c) { return c == '\n' || c == ' '; });
  }
  int index = std::max(0, sched_getcpu());
  std::string kind = "core";
  // Of several visible devices a rank takes that with its local number, by custom.
  if (const auto visible = read("CUDA_VISIBLE_DEVICES")) {
    std::vector<int> devices;
    std::istringstream words(*visible);
    for (std::string word; std::getline(words, word, ',');) {
      devices.push_back(std::atoi(word.c_str()));  // NOLINT(cert-err34-c): UUIDs count as 0
    }
    if (!devices.empty()) {
      const auto local = static_cast<std::size_t>(environment.local_rank) % devices.size();
      index = devices[local];
      kind = "GPU";
    }
  }
  int socket = 0;
  int numa = 0;
  const Host host = local_host();
  for (const Place& place : host.places) {
    if (place.index == index && place.device.starts_with(kind)) {
      socket = place.socket;
      numa = place.numa;
    }
  }
  return fmt::format("{} {} {} {} {} {}", name + ":" + identity, name, kind, index, socket, numa);
}

/// Of all ranks, on rank 0.
Topology gathered_topology(const std::vector<std::string>& lines) {
  struct Seat {
    int rank;
    Place place;
  };
  struct Group {
    std::string identity;
    std::string name;
    std::vector<Seat> seats;
  };
  std::vector<Group> groups;
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    std::istringstream words(lines[rank]);
    std::string identity;
    std::string name;
    std::string kind;
    Place place;
    words >> identity >> name >> kind >> place.index >> place.socket >> place.numa;
    place.device = fmt::format("{} {}", kind, place.index);
    auto group = std::find_if(
        groups.begin(), groups.end(), [&](const Group& one) { return one.identity == identity; });
    if (group == groups.end()) {
      groups.push_back({identity, name, {}});
      group = groups.end() - 1;
    }
    group->seats.push_back({static_cast<int>(rank), place});
  }
  Topology topology;
  topology.name = fmt::format(
      "{} ranks on {} {}", lines.size(), groups.size(), groups.size() == 1 ? "host" : "hosts");
  topology.source = "asked of the ranks";
  for (Group& group : groups) {
    std::stable_sort(group.seats.begin(), group.seats.end(), [](const Seat& a, const Seat& b) {
      // Ranks on cores move: their order is no placement.
      const bool devices = a.place.device.starts_with("GPU");
      return devices && std::tuple(a.place.socket, a.place.numa, a.place.index) <
                            std::tuple(b.place.socket, b.place.numa, b.place.index);
    });
    Host host;
    host.name = group.name;
    for (const Seat& seat : group.seats) {
      host.places.push_back(seat.place);
      topology.rank_at.push_back(seat.rank);
    }
    topology.hosts.push_back(std::move(host));
  }
  return topology;
}

std::vector<std::string> gather_lines(Communicator& communicator) {
  const std::string mine = own_line(detect_rank_environment(process_environment()));
  if (communicator.rank() != 0) {
    send_text(communicator, mine, 0);
    return {};
  }
  std::vector<std::string> lines = {mine};
  for (int rank = 1; rank < communicator.size(); ++rank) {
    lines.push_back(receive_text(communicator, rank));
  }
  return lines;
}

/// Everything but the topology and who is on it.
std::string examine(const DoctorFlags& flags,
                    const Context& context,
                    Topology topology,
                    bool has_ranks) {
  Diagnosis diagnosis;
  diagnosis.topology = std::move(topology);
  diagnosis.has_ranks = has_ranks;
  diagnosis.size = from_flag("--bytes", [&] { return parse_bytes(flags.size); });
  std::optional<Machine> figures;
  if (!flags.machine.empty()) {
    figures = load_machine("--machine", flags.machine);
  }
  diagnose_ring(diagnosis, figures);
  if (!flags.emit.empty()) {
    const RankFile kind = from_flag("--emit", [&] { return rank_file_from_string(flags.emit); });
    std::vector<int> best(static_cast<std::size_t>(diagnosis.topology.places()));
    for (std::size_t i = 0; i < best.size(); ++i) {
      best[i] = static_cast<int>(i);
    }
    return rank_file(kind, diagnosis.topology, best);
  }
  diagnosis.interfaces = network_interfaces();
  diagnosis.adapters = rdma_adapters();
  diagnosis.variables = variables(environment_now(), flags.all);
  diagnosis.warnings = unknown_variables(diagnosis.variables);
  const std::vector<std::string> odd = odd_paths(diagnosis.topology);
  diagnosis.warnings.insert(diagnosis.warnings.end(), odd.begin(), odd.end());
  if (diagnosis.crossing.size() > static_cast<std::size_t>(diagnosis.fewest_crossing)) {
    diagnosis.next = command_line(context.arguments) +
                     " --emit rankfile   (or slurm, torchrun, "
                     "cuda, pytorchjob, mpijob, rank-map)";
  }
  check_interfaces(diagnosis.variables);
  return flags.job.json ? doctor_json(diagnosis) : doctor_text(diagnosis);
}

int run_doctor(const DoctorFlags& flags, const Context& context) {
  if (flags.nccl_dump && !flags.topology.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"two topologies are asked for", "--nccl-dump, --topology", "both", "one of them", ""});
  }
  if (!flags.nccl_dump && !context.program.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"a program is given and nothing is to be done with it",
                 "",
                 "",
                 "",
                 "Remove what follows --, or add --nccl-dump"});
  }
  const bool from_description = flags.nccl_dump || !flags.topology.empty();
  const bool launched = detect_rank_environment(process_environment()).launcher != "none";
  if (!from_description && (launched || flags.job.ranks > 0)) {
    return run_job(flags.job, context.arguments, {}, [&](Communicator& communicator) {
      const std::vector<std::string> lines = gather_lines(communicator);
      return communicator.rank() == 0 ? examine(flags, context, gathered_topology(lines), true)
                                      : std::string();
    });
  }
  if (!from_description && flags.hosts != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                {"a host that runs is not repeated",
                 "--hosts",
                 std::to_string(flags.hosts),
                 "--topology FILE or --nccl-dump beside it",
                 "Example: stretto doctor --topology system.xml --hosts 4"});
  }
  Topology topology;
  if (from_description) {
    topology = flags.nccl_dump ? dumped_topology(context.program) : topology_file(flags.topology);
    repeat_host(topology, flags.hosts);
  } else {
    topology.name = "this host";
    topology.source = "/sys";
    topology.hosts.push_back(local_host());
  }
  set_order(topology, flags.order);
  const std::string text = examine(flags, context, std::move(topology), from_description);
  if (flags.job.output.empty()) {
    write_stdout(text);
  } else {
    write_file(flags.job.output, text);
  }
  return 0;
}

}  // namespace

Action add_doctor(CLI::App& app) {
  app.description(
      "Where the ranks are, what their order costs, and what the environment tells NCCL and "
      "Stretto");
  app.footer(
      "Exit code 5: a variable names an interface that is not there.\n\n"
      "Examples:\n"
      "  stretto doctor\n"
      "  mpirun -n 8 stretto doctor\n"
      "  stretto doctor --topology cluster.toml --order map.txt\n"
      "  stretto doctor --topology cluster.toml --emit rankfile > ranks.txt\n"
      "  stretto doctor --nccl-dump -- all_reduce_perf -g 8");
  const auto flags = std::make_shared<DoctorFlags>();
  app.add_option("--topology", flags->topology, "NCCL's topology (.xml) or one by hand (.toml)")
      ->type_name("FILE");
  app.add_option("--hosts", flags->hosts, "So many hosts like the one of --topology or --nccl-dump")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  app.add_option("--order", flags->order, "The rank at each place, host by host, as in --rank-map")
      ->type_name("FILE");
  app.add_option("--machine", flags->machine, "What links cost, instead of the topology's figures")
      ->type_name("M");
  app.add_option("--bytes", flags->size, "Tensor that the order is priced for (default 25M)")
      ->type_name("SIZE");
  app.add_option(
         "--emit",
         flags->emit,
         "The best order for a launcher, and nothing else: rankfile, slurm, torchrun, cuda, "
         "pytorchjob, mpijob, rank-map")
      ->type_name("KIND");
  app.add_flag("--nccl-dump", flags->nccl_dump, "Run the program after -- to get NCCL's topology");
  app.add_flag("--all", flags->all, "Variables that are not set, too");
  flags->job.add_to(app);
  return [flags](const Context& context) { return run_doctor(*flags, context); };
}

}  // namespace stretto::cli
