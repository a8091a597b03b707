// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "stretto/base/units.hpp"

namespace stretto {

struct LaunchOptions {
  int ranks = 1;
  /// Extra `NAME=value` for every rank.
  std::vector<std::string> environment;
  /// rank_map[i] is the rank that the i-th process started becomes; empty = identity.
  std::vector<int> rank_map;
  /// After one rank failed, the others get this long to fail by themselves, then SIGTERM, and as
  /// long again until SIGKILL. After SIGPIPE they get SIGTERM at once: nobody reads what they say.
  Nanoseconds grace = std::chrono::seconds(1);
};

struct RankExit {
  int rank = 0;
  int pid = 0;
  int exit_code = 0;  ///< 128 + signal when killed, as shells have it.
  int signal = 0;     ///< 0 if it exited.
  bool ended_by_us = false;
};

struct LaunchResult {
  /// Of the first rank that failed by itself; 0 if none did.
  int exit_code = 0;
  std::vector<RankExit> exits;  ///< In the order they ended.
  /// SIGINT, SIGTERM or SIGHUP, the first that we got and passed on; 0 if none came.
  int interrupted_by = 0;
};

/// Starts `ranks` copies of a program on this host and returns when all have ended. Each gets
/// STRETTO_RANK, STRETTO_WORLD_SIZE, STRETTO_LOCAL_RANK, STRETTO_LOCAL_WORLD_SIZE and
/// STRETTO_RENDEZVOUS (a private directory that is removed afterwards, or, if this process is
/// killed, by the next launch), and torchrun's RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
/// GROUP_RANK, MASTER_ADDR and MASTER_PORT (a port that was free, bound by nobody yet). No rank
/// outlives this process or, as Linux has it, the calling thread (PR_SET_PDEATHSIG).
///
/// Of several ranks, each leads a process group, and signals go to all of it; the first reads this
/// process's input unless that is a terminal, the others nothing. A single rank stays in this
/// process's group and may use the terminal.
///
/// Blocks SIGCHLD and takes SIGINT, SIGTERM and SIGHUP while it runs; a process with other threads
/// should block these there.
/// @throws Error kUnavailable when the program cannot be started, kInvalidArgument for a bad rank
/// map, no program, or extra environment that is not `NAME=value`. No rank is left running then.
[[nodiscard]] LaunchResult launch(const std::vector<std::string>& command,
                                  const LaunchOptions& options);

/// The directory the ranks of a launch may use to leave results for the launching process:
/// STRETTO_RENDEZVOUS of this process, empty if none.
[[nodiscard]] std::filesystem::path rendezvous_directory();

}  // namespace stretto
