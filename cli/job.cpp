// SPDX-License-Identifier: Apache-2.0
#include "job.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include "flags.hpp"
#include "output.hpp"
#include "root_cause.hpp"
#include "stretto/comm/connect.hpp"
#include "stretto/comm/mpi/mpi.hpp"
#include "stretto/comm/rank_environment.hpp"
#include "stretto/comm/shm/shm.hpp"
#include "stretto/measure/machine_of_curve.hpp"
#include "stretto/trace/nccl_tests.hpp"

namespace stretto::cli {
namespace {

/// Names the first of the file descriptors in which the ranks leave a result or an error, one for
/// each rank. Memory and not files: nothing is left behind, whoever is killed when.
constexpr const char* kResultsVariable = "STRETTO_CLI_RESULTS";
constexpr int kDefaultRanks = 2;
constexpr const char* kShm = "shm";
constexpr const char* kMpi = "mpi";

class ResultSlots {
 public:
  explicit ResultSlots(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      int made = memfd_create("stretto-result", 0);
      // Successive numbers, so that one tells a rank all.
      if (made >= 0 && rank > 0 && made != first_ + rank) {
        const int moved = dup2(made, first_ + rank);
        close(made);
        made = moved;
      }
      if (made < 0) {
        throw Error(ErrorCode::kUnavailable,
                    {"memory for the ranks' results cannot be had",
                     fmt::format("rank {}", rank),
                     std::error_code(errno, std::generic_category()).message(),
                     "",
                     "Raise the limit on open files (ulimit -n)"});
      }
      first_ = rank == 0 ? made : first_;
      ++count_;
    }
  }
  ~ResultSlots() {
    for (int i = 0; i < count_; ++i) {
      close(first_ + i);
    }
  }
  ResultSlots(const ResultSlots&) = delete;
  ResultSlots& operator=(const ResultSlots&) = delete;

  [[nodiscard]] int first() const noexcept { return first_; }

  [[nodiscard]] std::string read(int rank) const {
    std::string content;
    std::array<char, 65536> chunk{};
    ssize_t got = 0;
    while ((got = pread(
                first_ + rank, chunk.data(), chunk.size(), static_cast<off_t>(content.size()))) >
           0) {
      content.append(chunk.data(), static_cast<std::size_t>(got));
    }
    return content;
  }

 private:
  int first_ = -1;
  int count_ = 0;
};

/// The descriptor this rank reports to, if a copy of this program started it.
std::optional<int> result_descriptor(int rank) {
  const std::optional<std::string> first = process_environment()(kResultsVariable);
  if (!first) {
    return std::nullopt;
  }
  return std::atoi(first->c_str()) + rank;  // NOLINT: written by ourselves
}

void report(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      throw Error(ErrorCode::kUnavailable,
                  {"the result cannot be handed over",
                   "",
                   std::error_code(errno, std::generic_category()).message(),
                   "",
                   ""});
    }
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
}

std::optional<Error> read_error(const std::string& text) {
  const auto document = nlohmann::json::parse(text, nullptr, false);
  if (!document.is_object() || !document.contains("error")) {
    return std::nullopt;
  }
  const auto& error = document["error"];
  const auto part = [&error](const char* key) { return error.value(key, std::string()); };
  for (int code = 0; code <= static_cast<int>(ErrorCode::kReadyTwice); ++code) {
    if (to_string(static_cast<ErrorCode>(code)) == part("code")) {
      return Error(static_cast<ErrorCode>(code),
                   {part("message"), part("where"), part("found"), part("expected"), part("help")});
    }
  }
  return std::nullopt;
}

void print_result(const JobOptions& options, std::string_view text) {
  if (options.output.empty()) {
    write_stdout(text);
  } else {
    write_file(options.output, text);
  }
}

int print_failure(const JobOptions& options, const Failure& failure) {
  if (options.json) {
    nlohmann::ordered_json document = error_document(failure.error);
    if (!failure.consequences.empty()) {
      document["consequences"] = failure.consequences;
    }
    write_stdout(document.dump(2) + "\n");
  } else {
    std::string text = error_text(failure.error);
    if (!failure.consequences.empty()) {
      text += "  then:     " + failure.consequences + "\n";
    }
    std::fputs(text.c_str(), stderr);
  }
  return failure.code;
}

/// Only mpirun can start ranks of MPI, and what it does is not ours to do again.
void require_mpi_job(const JobOptions& options, const std::vector<std::string>& arguments) {
  if (!options.emulate.empty() || !options.rank_map.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"that is for ranks in shared memory",
         options.emulate.empty() ? "--rank-map" : "--emulate",
         "--backend mpi",
         "--backend shm",
         options.emulate.empty() ? "Give mpirun a rankfile" : "Machines are emulated on one host"});
  }
  if (started_by_mpi(process_environment())) {
    return;
  }
  throw Error(ErrorCode::kUnavailable,
              {"backend mpi runs on ranks that mpirun started",
               "--backend mpi",
               "no variable of an MPI launcher",
               "a rank of an MPI job",
               fmt::format("mpirun -n {} stretto {}",
                           options.ranks == 0 ? kDefaultRanks : options.ranks,
                           fmt::join(arguments, " "))});
}

int launch_copies(const JobOptions& options, int ranks, const std::vector<std::string>& arguments) {
  LaunchOptions launch_options;
  launch_options.ranks = ranks;
  if (!options.rank_map.empty()) {
    launch_options.rank_map = read_rank_map("--rank-map", options.rank_map);
  }
  const ResultSlots slots(ranks);
  launch_options.environment = {fmt::format("{}={}", kResultsVariable, slots.first())};
  std::vector<std::string> command = {own_program()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const LaunchResult result = launch(command, launch_options);

  if (result.interrupted_by != 0) {
    if (options.json) {
      write_stdout(interrupted_document("").dump(2) + "\n");
    }
    return exit_code_of_signal(result.interrupted_by);
  }
  std::vector<RankError> errors;
  for (const RankExit& exit : result.exits) {
    if (exit.exit_code != 0) {
      if (std::optional<Error> error = read_error(slots.read(exit.rank))) {
        errors.push_back({exit.rank, *std::move(error)});
      }
    }
  }
  if (result.exit_code != 0 || !errors.empty()) {
    return print_failure(options, root_cause(result, errors));
  }
  print_result(options, slots.read(0));
  return 0;
}

Seconds timeout_of(const JobOptions& options) {
  const Seconds timeout = from_flag("--timeout", [&] { return parse_duration(options.timeout); });
  if (!(timeout > Seconds(0))) {
    throw Error(ErrorCode::kInvalidArgument,
                {"no operation can be over at once",
                 "--timeout",
                 options.timeout,
                 "a time above 0",
                 "Example: --timeout 30s"});
  }
  return timeout;
}

/// `started_by_us`: a copy of this program started all ranks, and ends those that wait for one that
/// has ended. Then --timeout does not cover their start, which takes what it takes on a busy host.
std::unique_ptr<Communicator> connect_as(const JobOptions& options,
                                         const RankEnvironment& environment,
                                         bool started_by_us) {
  const auto timeout = std::chrono::duration_cast<Nanoseconds>(timeout_of(options));
  if (options.backend == kMpi) {
    return connect_mpi({.timeout = timeout});
  }
  ShmOptions shm;
  shm.timeout = timeout;
  if (!started_by_us) {
    shm.connect_timeout = timeout;
  }
  shm.emulate = options.machine();
  if (shm.emulate && !options.rank_map.empty()) {
    // The i-th process is in the i-th place, whichever rank sits there.
    const std::vector<int> rank_at = read_rank_map("--rank-map", options.rank_map);
    shm.places.assign(rank_at.size(), -1);
    for (std::size_t place = 0; place < rank_at.size(); ++place) {
      const auto rank = static_cast<std::size_t>(rank_at[place]);
      if (rank >= shm.places.size() || shm.places[rank] >= 0 ||
          rank_at.size() != static_cast<std::size_t>(environment.world_size)) {
        throw Error(ErrorCode::kInvalidArgument,
                    {"the rank map does not name every rank once",
                     fmt::format("--rank-map {}", options.rank_map),
                     fmt::format("{}", fmt::join(rank_at, ", ")),
                     fmt::format("the numbers 0 to {} in any order", environment.world_size - 1),
                     "Its i-th number is the rank of the i-th process"});
      }
      shm.places[rank] = static_cast<int>(place);
    }
  }
  return connect(environment, shm);
}

/// What fails on this rank outside of communication fails the job: the others need not wait for it.
std::string run_body(Communicator& communicator,
                     const std::function<std::string(Communicator&)>& body) {
  try {
    return body(communicator);
  } catch (const Error& error) {
    communicator.abort(error, 0xffffffffU, 0xffffffffU);
    throw;
  }
}

int be_rank(const JobOptions& options,
            const RankEnvironment& environment,
            const Alike& alike,
            const std::function<std::string(Communicator&)>& body) {
  const std::optional<int> descriptor = result_descriptor(environment.rank);
  try {
    const std::unique_ptr<Communicator> communicator =
        connect_as(options, environment, descriptor.has_value());
    // Not in the body, which aborts: every rank is to say what differs.
    agree_on_settings(*communicator, alike.settings);
    if (alike.plan) {
      agree_on_plan(*communicator, *alike.plan);
    }
    const std::string text = run_body(*communicator, body);
    // All ranks are past their last operation before the first one goes.
    communicator->barrier().wait();
    if (environment.rank == 0) {
      if (descriptor) {
        report(*descriptor, text);
      } else {
        print_result(options, text);
      }
    }
    return 0;
  } catch (const Error& error) {
    if (descriptor) {
      report(*descriptor, error_document(error).dump());
      return exit_code(error.code());
    }
    if (error.detail().secondhand && !(options.json && environment.rank == 0)) {
      return exit_code(error.code());  // the rank that failed says why
    }
    // One document and not one per rank: the other ranks fail with it or because of it.
    if ((options.json || options.backend == kMpi) && environment.rank != 0) {
      std::fputs(fmt::format("[{}] {}", environment.rank, error_text(error)).c_str(), stderr);
      return exit_code(error.code());
    }
    throw;
  }
}

}  // namespace

std::string own_program() {
  constexpr const char* kSelf = "/proc/self/exe";
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink(kSelf, failed);
  // The link works even when the file was replaced meanwhile; the name looks better in `ps`.
  return !failed && std::filesystem::exists(program, failed) ? program.string() : kSelf;
}

void JobOptions::add_to(CLI::App& app) {
  app.add_option("-n,--ranks", ranks, "Ranks to start on this host (default: as --emulate, or 2)")
      ->check(CLI::Range(1, 256))
      ->type_name("RANKS");
  app.add_option("--backend", backend, "How ranks communicate: shm, or mpi under mpirun")
      ->type_name("NAME");
  app.add_option("--emulate",
                 emulate,
                 "Deliver messages as this machine would: RANKS@BANDWIDTH,LATENCY as in "
                 "4@5Gbit/s,50us, a preset as in dgx-a100x2, or a .json file")
      ->type_name("M");
  app.add_option("--timeout",
                 timeout,
                 "Longest time for any one operation, and under another launcher for all ranks to "
                 "come (default 30s)")
      ->type_name("TIME");
  app.add_option("--rank-map",
                 rank_map,
                 "File of rank numbers, one for each process started; with --emulate, one for each "
                 "place on the machine")
      ->type_name("FILE");
  app.add_option("-o,--output", output, "Write the result there instead of to stdout")
      ->type_name("FILE");
  app.add_flag("--json", json, "One JSON document on stdout, also on failure");
}

Machine machine_of_file(std::string_view named_by, const std::string& path) {
  const std::string content = read_file(path, named_by);
  if (is_nccl_tests(content)) {
    const std::vector<NcclTestRow> rows = read_nccl_tests(content, path);
    CollectiveCurve curve = curve_of(rows, path);
    std::string source =
        fmt::format("{} of NCCL tests, {} sizes", rows.front().name, curve.points.size());
    return machine_of_curve(
        std::filesystem::path(path).stem().string(), std::move(source), std::move(curve));
  }
  return from_file(path, [&] { return machine_from_json(content, path); });
}

Machine load_machine(std::string_view flag, const std::string& text) {
  // Any file that is there, whatever its name: a pipe has none.
  const std::vector<std::string> presets = preset_names();
  std::error_code not_there;
  const auto status = std::filesystem::status(text, not_there);
  const bool file = std::filesystem::exists(status) && !std::filesystem::is_directory(status) &&
                    std::find(presets.begin(), presets.end(), text) == presets.end();
  return file || text.ends_with(".json") ? machine_of_file(flag, text)
                                         : from_flag(flag, [&] { return machine_from_text(text); });
}

std::optional<Machine> JobOptions::machine() const {
  return emulate.empty() ? std::nullopt : std::optional(load_machine("--emulate", emulate));
}

int run_job(const JobOptions& options,
            const std::vector<std::string>& arguments,
            const Alike& alike,
            const std::function<std::string(Communicator&)>& body) {
  if (options.backend != kShm && options.backend != kMpi) {
    throw Error(ErrorCode::kUnavailable,
                {fmt::format("this build has no backend '{}'", options.backend),
                 "--backend",
                 options.backend,
                 "shm or mpi",
                 ""});
  }
  if (options.backend == kMpi) {
    require_mpi_job(options, arguments);
  }
  (void)timeout_of(options);
  const std::optional<Machine> machine = options.machine();
  const RankEnvironment environment = detect_rank_environment(process_environment());
  const bool launched = environment.launcher != "none";
  int ranks = environment.world_size;
  if (!launched) {
    ranks = machine ? machine->ranks() : kDefaultRanks;
    ranks = options.ranks != 0 ? options.ranks : ranks;
  }
  if (options.ranks != 0 && options.ranks != ranks) {
    throw Error(ErrorCode::kInvalidArgument,
                {fmt::format("{} started another number of ranks", environment.launcher),
                 "-n",
                 fmt::format("{}", options.ranks),
                 fmt::format("{}", ranks),
                 fmt::format("Leave -n to {}", environment.launcher)});
  }
  if (machine && machine->ranks() != ranks) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the emulated machine has another number of ranks",
                 fmt::format("--emulate {}", options.emulate),
                 fmt::format("a machine of {}", machine->ranks()),
                 fmt::format("{}, as {} says", ranks, launched ? environment.launcher : "-n"),
                 launched ? "" : "Leave out -n: the machine's ranks then hold"});
  }
  if (launched) {
    return be_rank(options, environment, alike, body);
  }
  if (ranks > kMaxShmRanks) {  // before they are started
    throw Error(ErrorCode::kInvalidArgument,
                {"one host cannot have that many ranks",
                 options.ranks != 0 ? "-n" : fmt::format("--emulate {}", options.emulate),
                 fmt::format("{}", ranks),
                 fmt::format("at most {}", kMaxShmRanks),
                 "stretto simulate takes machines of any size"});
  }
  return launch_copies(options, ranks, arguments);
}

std::vector<int> read_rank_map(std::string_view flag, const std::string& path) {
  std::istringstream lines(read_file(path, flag));
  std::vector<int> map;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string word; words >> word;) {
      int rank = -1;
      const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), rank);
      if (status != std::errc() || end != word.data() + word.size() || rank < 0) {
        throw Error(ErrorCode::kParse,
                    {"the rank map has something that is not a rank",
                     fmt::format("{}:{}", path, number),
                     fmt::format("'{}'", word),
                     "whole numbers from 0, separated by white space",
                     ""});
      }
      map.push_back(rank);
    }
  }
  return map;
}

}  // namespace stretto::cli
