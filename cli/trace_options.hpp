// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "app.hpp"
#include "stretto/trace/trace.hpp"

namespace stretto::cli {

/// Which traces to read, and how.
struct TraceOptions {
  std::vector<std::string> paths;
  std::vector<std::string> comm_regex;
  std::string comm_rules;
  std::string step_regex;
  bool salvage = false;
  bool no_align = false;
  bool rows_without_collectives = false;  ///< Of no flag: as TraceReadOptions has it.

  void add_to(CLI::App& app);
  /// How to read, without what: for commands that read other files too.
  void add_reading_to(CLI::App& app);
  /// Reads them; clocks of ranks are aligned unless that is off. Draws progress on a terminal.
  [[nodiscard]] Trace read(bool quiet) const;
  /// The flags of add_reading_to() that say the same again.
  [[nodiscard]] std::vector<std::string> arguments() const;
};

/// What was not as it should be, one line each: `warning: ...`. For stderr.
[[nodiscard]] std::string warnings_of(const Trace& trace);
/// What was classified how, longest first.
[[nodiscard]] std::string class_table(const Trace& trace);
/// The same with all names, as JSON.
[[nodiscard]] nlohmann::ordered_json classes_json(const Trace& trace);
/// The `files` of a JSON result.
[[nodiscard]] nlohmann::ordered_json files_json(const Trace& trace);

}  // namespace stretto::cli
