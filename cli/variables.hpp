// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::cli {

/// A variable that changes how ranks communicate.
struct KnownVariable {
  std::string_view name;
  std::string_view effect;
};
/// Of Stretto and of NCCL, each in order of names.
[[nodiscard]] const std::vector<KnownVariable>& known_variables();

/// One that is set, or could be.
struct Variable {
  std::string name;
  std::string value;
  std::string source;  ///< `environment`, the file it is from, or `default` if it is not set.
  std::string effect;  ///< Empty if the table does not know it.
  bool known = true;
};

/// All that are set, in `environment` (`NAME=value`) or in NCCL's files; with `all` the rest of the
/// table too. NCCL reads NCCL_CONF_FILE, else ~/.nccl.conf, then /etc/nccl.conf, and what is set
/// already stays. `root`: another / than the system's, for tests.
[[nodiscard]] std::vector<Variable> variables(const std::vector<std::string>& environment,
                                              bool all,
                                              const std::filesystem::path& root = "/");

/// STRETTO_ variables that this version does not know, each as a sentence with the nearest name.
[[nodiscard]] std::vector<std::string> unknown_variables(const std::vector<Variable>& variables);

/// @throws Error kUnavailable: a variable that names interfaces names none of this host's, with the
/// list of those that are there.
void check_interfaces(const std::vector<Variable>& variables,
                      const std::filesystem::path& root = "/");

}  // namespace stretto::cli
