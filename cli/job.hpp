// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app.hpp"
#include "stretto/base/units.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/run/plan_agreement.hpp"

namespace stretto::cli {

/// Where ranks come from and how they are connected.
struct JobOptions {
  int ranks = 0;  ///< 0 = as the machine, the launcher or the default says.
  std::string backend = "shm";
  std::string emulate;
  std::string timeout = "30s";
  std::string rank_map;
  std::string output;  ///< Of the result; empty = stdout.
  bool json = false;

  void add_to(CLI::App& app);
  [[nodiscard]] std::optional<Machine> machine() const;
};

/// A machine's file, or what NCCL tests wrote with -J, whatever its name.
/// @throws Error kInvalidArgument or kParse, saying which flag or file.
[[nodiscard]] Machine machine_of_file(std::string_view named_by, const std::string& path);
/// What `flag` was given: a file (by its name `*.json`), a preset like `dgx-h100x4`, or a spec like
/// `4@5Gbit/s,50us`.
/// @throws Error as machine_of_file().
[[nodiscard]] Machine load_machine(std::string_view flag, const std::string& text);

/// What must be the same on all ranks: launchers of others may start each with flags of its own.
struct Alike {
  std::vector<NamedValue> settings;
  std::optional<Plan> plan;
};

/// Runs `body` on every rank of a job. A process that no launcher started becomes one: it starts
/// copies of itself (`arguments` as given to it), waits for them, and prints what rank 0's body
/// returned. Started as a rank, by itself or by mpirun, torchrun..., it runs the body; rank 0's
/// text is the result.
/// @return the exit code.
/// @throws Error for what fails before the ranks exist, or in this rank; kMismatch, the same on
/// every rank, where they are not `alike`.
int run_job(const JobOptions& options,
            const std::vector<std::string>& arguments,
            const Alike& alike,
            const std::function<std::string(Communicator&)>& body);

/// This program's file, whatever the name and path it was called by.
[[nodiscard]] std::string own_program();

/// One rank for every number in the file, separated by white space; `#` begins a comment.
/// @throws Error kParse.
[[nodiscard]] std::vector<int> read_rank_map(std::string_view flag, const std::string& path);

}  // namespace stretto::cli
