// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app.hpp"

namespace stretto::cli {

/// What main() knows beside a command's own flags.
struct Context {
  std::vector<std::string> arguments;  ///< As given to the program, without its name.
  std::vector<std::string> program;    ///< What came after `--`.
};

/// Runs a parsed command; returns the exit code.
using Action = std::function<int(const Context&)>;

/// Each adds its flags to `app` and returns what to do once they are parsed.
[[nodiscard]] Action add_analyze(CLI::App& app);
[[nodiscard]] Action add_convert(CLI::App& app);
[[nodiscard]] Action add_diff(CLI::App& app);
[[nodiscard]] Action add_demo(CLI::App& app);
[[nodiscard]] Action add_doctor(CLI::App& app);
[[nodiscard]] Action add_measure(CLI::App& app);
[[nodiscard]] Action add_plan(CLI::App& app);
[[nodiscard]] Action add_simulate(CLI::App& app);
[[nodiscard]] Action add_train(CLI::App& app);
[[nodiscard]] Action add_replay(CLI::App& app);
[[nodiscard]] Action add_report(CLI::App& app);
[[nodiscard]] Action add_run(CLI::App& app);
[[nodiscard]] Action add_tune(CLI::App& app);

}  // namespace stretto::cli
