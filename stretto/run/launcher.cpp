// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/launcher.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <deque>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stretto/base/error.hpp"
#include "stretto/comm/rank_environment.hpp"
#include "stretto/run/child_process.hpp"
#include "stretto/run/owned_directory.hpp"

namespace stretto {
namespace {

using Clock = std::chrono::steady_clock;

Error system_error(const std::string& what, int error, const std::string& help = {}) {
  return {ErrorCode::kUnavailable,
          {.message = what, .found = std::generic_category().message(error), .help = help}};
}

/// Takes SIGCHLD and the signals that would end this process out of the ordinary way, so that
/// next() returns them. A SIGHUP that nohup had ignored stays ignored.
class Signals {
 public:
  Signals() {
    sigemptyset(&ours_);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM}) {
      sigaddset(&ours_, number);
    }
    struct sigaction hangup {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) {
      sigaddset(&ours_, SIGHUP);
    }
    pthread_sigmask(SIG_BLOCK, &ours_, &before_);
    // Were it ignored, the system would reap children itself and their exit codes would be lost.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &standard, &child_before_);
  }
  ~Signals() {
    sigaction(SIGCHLD, &child_before_, nullptr);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// The mask of this process without us: what a rank is to have.
  [[nodiscard]] const sigset_t& mask_before() const noexcept { return before_; }

  /// Waits for one of them; nothing if `timeout` passed first.
  [[nodiscard]] std::optional<siginfo_t> next(Nanoseconds timeout) const noexcept {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
    const timespec time{.tv_sec = seconds.count(), .tv_nsec = (timeout - seconds).count()};
    siginfo_t info{};
    return sigtimedwait(&ours_, &info, &time) > 0 ? std::optional(info) : std::nullopt;
  }

 private:
  sigset_t ours_{};
  sigset_t before_{};
  struct sigaction child_before_ {};
};

/// A port that was free a moment ago. It is the ranks that bind it: nothing can hold it for them.
int free_port() {
  const int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool found = socket_fd >= 0 && bind(socket_fd, generic, size) == 0 &&
                     getsockname(socket_fd, generic, &size) == 0;
  const int error = errno;
  if (socket_fd >= 0) {
    close(socket_fd);
  }
  if (!found) {
    throw system_error("no free port on 127.0.0.1 for MASTER_PORT", error);
  }
  return ntohs(address.sin_port);
}

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

void set(std::vector<std::string>& environment, std::string variable) {
  std::erase_if(environment,
                [&](const std::string& old) { return name_of(old) == name_of(variable); });
  environment.push_back(std::move(variable));
}

/// What all ranks get. Of torchrun's own variables, inherited when it started us, nothing may stay:
/// they tell torch to look for torchrun's store.
std::vector<std::string> common_environment(const LaunchOptions& options,
                                            const std::filesystem::path& rendezvous) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("TORCHELASTIC_")) {
      result.emplace_back(*variable);
    }
  }
  set(result, fmt::format("STRETTO_WORLD_SIZE={}", options.ranks));
  set(result, fmt::format("STRETTO_LOCAL_WORLD_SIZE={}", options.ranks));
  set(result, fmt::format("STRETTO_RENDEZVOUS={}", rendezvous.string()));
  set(result, fmt::format("WORLD_SIZE={}", options.ranks));
  set(result, fmt::format("LOCAL_WORLD_SIZE={}", options.ranks));
  set(result, "GROUP_RANK=0");
  set(result, "MASTER_ADDR=127.0.0.1");
  set(result, fmt::format("MASTER_PORT={}", free_port()));
  return result;
}

/// The i-th process is in the i-th place of this host, whichever rank sits there.
std::vector<std::string> rank_environment(std::vector<std::string> common,
                                          int place,
                                          int rank,
                                          const std::vector<std::string>& extra) {
  for (const char* prefix : {"STRETTO_", ""}) {
    set(common, fmt::format("{}RANK={}", prefix, rank));
    set(common, fmt::format("{}LOCAL_RANK={}", prefix, place));
  }
  for (const std::string& variable : extra) {
    set(common, variable);
  }
  return common;
}

std::vector<int> checked_rank_map(const LaunchOptions& options) {
  std::vector<int> expected(static_cast<std::size_t>(options.ranks));
  std::iota(expected.begin(), expected.end(), 0);
  if (options.rank_map.empty()) {
    return expected;
  }
  std::vector<int> sorted = options.rank_map;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != expected) {
    throw Error(ErrorCode::kInvalidArgument,
                {.message = "the rank map does not name every rank once",
                 .where = "rank map",
                 .found = fmt::format("{}", fmt::join(options.rank_map, ", ")),
                 .expected = fmt::format("the numbers 0 to {} in any order", options.ranks - 1),
                 .help = "Its i-th number is the rank of the i-th process"});
  }
  return options.rank_map;
}

void check(const std::vector<std::string>& command, const LaunchOptions& options) {
  if (command.empty() || command[0].empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                ErrorDetail{.message = "there is no program to start",
                            .help = "Name it after --: stretto run -n 4 -- PROGRAM ARGUMENTS"});
  }
  if (options.ranks < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                {.message = "the number of ranks is not positive",
                 .found = std::to_string(options.ranks),
                 .expected = "1 or more"});
  }
  for (const std::string& variable : options.environment) {
    if (name_of(variable).empty() || name_of(variable) == variable) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.message = "not an environment variable",
                   .found = "'" + variable + "'",
                   .expected = "NAME=value"});
    }
  }
}

RankExit exit_of(int rank, pid_t pid, int status, bool ended_by_us) {
  RankExit result{.rank = rank, .pid = pid, .ended_by_us = ended_by_us};
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
    result.exit_code = 128 + result.signal;
  } else {
    result.exit_code = WEXITSTATUS(status);
  }
  return result;
}

/// The ranks of one launch, from start to end.
class Job {
 public:
  /// `alone`: there is one rank, in our process group.
  Job(const Signals& signals, Nanoseconds grace, bool alone)
      : signals_(signals), grace_(grace), alone_(alone) {}

  void start(int rank, const ChildCommand& command) { ranks_.emplace_back(rank, command); }

  /// Between two starts: false when one has failed or somebody wants the job to end.
  [[nodiscard]] bool goes_on() {
    while (const auto signal = signals_.next(Nanoseconds::zero())) {
      if (signal->si_signo != SIGCHLD) {
        pass_on(*signal);
      }
    }
    collect();
    return !deadline_;
  }

  [[nodiscard]] LaunchResult run() {
    collect();
    while (std::any_of(ranks_.begin(), ranks_.end(), is_running)) {
      if (const auto signal = signals_.next(time_to_wait());
          signal && signal->si_signo != SIGCHLD) {
        pass_on(*signal);
      }
      collect();
      escalate();
    }
    return std::move(result_);
  }

 private:
  struct Rank {
    Rank(int which, const ChildCommand& command) : number(which), process(command) {}
    int number;
    ChildProcess process;
    bool signalled = false;
  };
  static bool is_running(const Rank& rank) noexcept { return rank.process.running(); }

  /// SIGCHLD wakes us. It can be lost to another thread of this process that does not block it, so
  /// we look now and then as well.
  [[nodiscard]] Nanoseconds time_to_wait() const {
    Nanoseconds wait = std::chrono::milliseconds(200);
    if (deadline_) {
      wait = std::min<Nanoseconds>(wait, *deadline_ - Clock::now());
    }
    return std::max(wait, Nanoseconds::zero());
  }

  void collect() {
    std::vector<RankExit> ended;
    for (Rank& rank : ranks_) {
      if (const auto status = rank.process.reap()) {
        ended.push_back(exit_of(rank.number, rank.process.pid(), *status, rank.signalled));
      }
    }
    // Who was killed comes first: peers that fail at the same moment have probably noticed its end.
    std::stable_partition(
        ended.begin(), ended.end(), [](const RankExit& exit) { return exit.signal != 0; });
    for (const RankExit& exit : ended) {
      if (exit.exit_code != 0 && !exit.ended_by_us && result_.exit_code == 0) {
        result_.exit_code = exit.exit_code;
        // Who read our output has gone, as in `| head`. What the others would say about the rank
        // that they miss is for nobody.
        begin_end(exit.exit_code == 128 + SIGPIPE ? Nanoseconds::zero() : grace_);
      }
      result_.exits.push_back(exit);
    }
  }

  /// From now on all must end, by themselves within `grace`.
  void begin_end(Nanoseconds grace) {
    if (!deadline_) {
      deadline_ = Clock::now() + grace;
    }
  }

  void escalate() {
    if (deadline_ && Clock::now() >= *deadline_) {
      send(next_signal_);
      deadline_ = Clock::now() + grace_;
      next_signal_ = SIGKILL;
    }
  }

  void pass_on(const siginfo_t& signal) {
    if (result_.interrupted_by == 0) {
      result_.interrupted_by = signal.si_signo;
    }
    begin_end(grace_);
    // A single rank shares our process group: what was typed at the terminal has reached it.
    if (alone_ && signal.si_code == SI_KERNEL && !ranks_.empty()) {
      ranks_.front().signalled = true;
    } else {
      send(signal.si_signo);
    }
  }

  void send(int number) {
    for (Rank& rank : ranks_) {
      if (rank.process.running()) {
        rank.process.signal(number);
        rank.signalled = true;
      }
    }
  }

  const Signals& signals_;
  Nanoseconds grace_;
  bool alone_;
  std::deque<Rank> ranks_;  // They never move.
  LaunchResult result_;
  std::optional<Clock::time_point> deadline_;
  int next_signal_ = SIGTERM;
};

}  // namespace

LaunchResult launch(const std::vector<std::string>& command, const LaunchOptions& options) {
  check(command, options);
  const std::vector<int> rank_map = checked_rank_map(options);
  // In this order, as they end in the other one: ranks, directory, signals.
  const Signals signals;
  const OwnedDirectory directory("stretto-run-");
  const bool alone = options.ranks == 1;
  Job job(signals, options.grace, alone);

  const std::vector<std::string> common = common_environment(options, directory.path());
  for (std::size_t i = 0; i < rank_map.size() && job.goes_on(); ++i) {
    // A single rank may use the terminal, as if it had been started without us. Of several, each
    // leads a group, so that a signal reaches all it starts; then none can read the terminal, and
    // other input has one reader, the first.
    const bool reads = alone || (i == 0 && isatty(STDIN_FILENO) == 0);
    job.start(rank_map[i],
              {.arguments = command,
               .environment =
                   rank_environment(common, static_cast<int>(i), rank_map[i], options.environment),
               .signal_mask = signals.mask_before(),
               .own_group = !alone,
               .null_input = !reads});
  }
  return job.run();
}

std::filesystem::path rendezvous_directory() {
  return process_environment()("STRETTO_RENDEZVOUS").value_or("");
}

}  // namespace stretto
