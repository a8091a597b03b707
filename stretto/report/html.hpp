// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "stretto/analyze/explain.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/report/report.hpp"

namespace stretto {

/// One job that a report shows.
struct ReportedRun {
  std::string name;  ///< Tells it from the others.
  Timeline timeline;
  Explanation explanation;         ///< Of this timeline.
  std::vector<std::string> files;  ///< Where it came from.
  std::vector<std::string> notes;  ///< What a reader of the numbers should know.
};

struct NamedPlan {
  std::string name;
  Plan plan;
};

/// All that one report shows.
struct Report {
  std::vector<ReportedRun> runs;
  std::vector<NamedSummary> summaries;  ///< Of runs whose timeline is not here.
  std::vector<NamedPlan> plans;
  std::vector<Machine> machines;
  std::string command;  ///< That gives this report again; empty if not told.
  std::string version;  ///< Of the program.
  bool redacted = false;
};

enum class Language : std::uint8_t { kEnglish, kChinese };

struct HtmlOptions {
  Language language = Language::kEnglish;  ///< To begin with: the page has a switch.
  /// Of the whole page. Timelines that would make it larger lose detail, and the page says what.
  std::size_t most_bytes = 15'000'000;
  /// Of all timelines together; beyond it neighbours are drawn as one. Some 9 bytes each.
  std::size_t most_intervals = 1'000'000;
};

/// False in a build without esbuild: it has no page to put the numbers in.
[[nodiscard]] bool has_viewer() noexcept;

/// One HTML file: needs no network and asks for none, works from disk, and holds a picture and
/// tables that can be read where scripts do not run. All text of the report is escaped.
/// @throws Error kUnavailable without a viewer; kInvalidArgument for a report without anything, or
///         one that has more than fits into `most_bytes` beside its timelines.
[[nodiscard]] std::string html_report(const Report& report, const HtmlOptions& options = {});

}  // namespace stretto
