// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "job.hpp"
#include "output.hpp"
#include "root_cause.hpp"
#include "stretto/run/launcher.hpp"

namespace stretto::cli {
namespace {

struct RunFlags {
  int ranks = 0;
  std::string rank_map;
};

int run_program(const RunFlags& flags, const Context& context) {
  if (context.program.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"there is no program to run",
                 "",
                 "",
                 "-- and the program after the flags",
                 "Example: stretto run -n 4 -- python3 train.py"});
  }
  LaunchOptions options;
  options.ranks = flags.ranks;
  if (!flags.rank_map.empty()) {
    options.rank_map = read_rank_map("--rank-map", flags.rank_map);
  }
  const LaunchResult result = launch(context.program, options);
  if (result.interrupted_by != 0) {
    return exit_code_of_signal(result.interrupted_by);
  }
  // A reader that has gone (`| head`) is not worth a word.
  if (result.exit_code != 0 && result.exit_code != exit_code_of_signal(SIGPIPE)) {
    // The program has said what it had to say; a rank that was killed could not.
    for (const RankExit& exit : result.exits) {
      if (exit.signal != 0 && !exit.ended_by_us) {
        std::fputs(error_text(root_cause(result, {}).error).c_str(), stderr);
        break;
      }
    }
  }
  return result.exit_code;
}

}  // namespace

Action add_run(CLI::App& app) {
  app.description(
      "stretto run -n RANKS [OPTIONS] -- PROGRAM ARGS\n"
      "Starts ranks of any program on this host, with torchrun's variables set");
  app.footer(
      "The exit code is the program's; 130 after SIGINT, 143 after SIGTERM, 141 when what read the "
      "output has gone. When a rank fails, the others are ended.\n\n"
      "Examples:\n"
      "  stretto run -n 4 -- python3 train.py --epochs 1\n"
      "  stretto run -n 2 -- ./my_program\n"
      "  stretto run -n 4 --rank-map map.txt -- sh -c 'echo $RANK of $WORLD_SIZE'");
  const auto flags = std::make_shared<RunFlags>();
  app.add_option("-n,--ranks", flags->ranks, "Ranks to start on this host")
      ->required()
      ->check(CLI::Range(1, 256))
      ->type_name("RANKS");
  app.add_option(
         "--rank-map", flags->rank_map, "File of rank numbers, one for each process started")
      ->type_name("FILE");
  return [flags](const Context& context) { return run_program(*flags, context); };
}

}  // namespace stretto::cli
