// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stretto/data/machine.hpp"
#include "stretto/report/html.hpp"
#include "trace_options.hpp"

namespace stretto::cli {

/// What goes into a report, and how.
struct ReportInput {
  std::vector<std::string> paths;
  TraceOptions reading;            ///< Its paths are not looked at.
  std::optional<Machine> machine;  ///< For the bound; it is shown, too.
  bool redact = false;
  bool quiet = false;
};

/// Reads all of it: timelines that hold a whole job, summaries, results and plans each for
/// themselves, all other traces as the ranks of one job. Adds to `warnings` what was not as it
/// should be.
/// @throws Error kInvalidArgument, kParse as the readers do.
[[nodiscard]] Report read_report(const ReportInput& input, std::string& warnings);

}  // namespace stretto::cli
