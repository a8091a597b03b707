// SPDX-License-Identifier: Apache-2.0
#include "report_input.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "job.hpp"
#include "output.hpp"
#include "stretto/analyze/collectives.hpp"
#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/report/redact.hpp"
#include "stretto/trace/nccl_tests.hpp"

namespace stretto::cli {
namespace {

using nlohmann::ordered_json;

/// How a file begins; nothing of a pipe, which could not be read again.
std::string head_of(const std::filesystem::path& path) {
  constexpr std::size_t kHead = 4096;
  if (!std::filesystem::is_regular_file(path)) {
    return {};
  }
  std::ifstream file(path, std::ios::binary);
  std::string head(kHead, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(file.gcount()));
  return head;
}

/// The noun after `"schema": "stretto.` near a file's begin; empty for any other file.
std::string schema_of(const std::string& head) {
  constexpr std::string_view kMark = "\"stretto.";
  const std::size_t at = head.find(kMark);
  const std::size_t end = at == std::string::npos ? at : head.find('/', at);
  if (end == std::string::npos || !head.starts_with('{')) {
    return {};
  }
  return head.substr(at + kMark.size(), end - at - kMark.size());
}

/// Which files become one run.
struct Sorted {
  std::vector<std::string> traces;     ///< Of one job.
  std::vector<std::string> timelines;  ///< Each of a whole job.
  std::vector<std::string> summaries;
  std::vector<std::string> results;  ///< With the summaries of several runs, or of one.
  std::vector<std::string> plans;
  std::vector<std::string> machines;
};

Sorted sort_files(const std::vector<std::string>& paths) {
  Sorted sorted;
  for (const std::string& path : paths) {
    const std::string head = head_of(path);
    const std::string schema = schema_of(head);
    if (schema == "timeline") {
      sorted.timelines.push_back(path);
    } else if (schema == "summary") {
      sorted.summaries.push_back(path);
    } else if (schema == "plan") {
      sorted.plans.push_back(path);
    } else if (schema == "machine" || is_nccl_tests(head)) {
      sorted.machines.push_back(path);
    } else if (schema == "train" || schema == "replay" || schema == "demo" || schema == "analyze") {
      sorted.results.push_back(path);
    } else if (!schema.empty()) {
      throw Error(ErrorCode::kParse,
                  {"a file that a report has no page for",
                   path,
                   "stretto." + schema,
                   "a trace, a timeline, a plan, a summary, a machine, or what analyze, train, "
                   "replay or demo wrote with --json",
                   ""});
    } else {
      sorted.traces.push_back(path);
    }
  }
  return sorted;
}

std::size_t rank_count(const Timeline& timeline) {
  std::set<std::uint32_t> ranks;
  for (const Record& record : timeline.records) {
    ranks.insert(record.rank);
  }
  return ranks.size();
}

class Reader {
 public:
  Reader(const ReportInput& input, std::string& warnings) : input_(input), warnings_(warnings) {}

  Report read() {
    Sorted sorted = sort_files(input_.paths);
    std::vector<std::pair<std::string, Trace>> whole;
    for (const std::string& path : sorted.timelines) {
      Trace trace = read_trace({path});
      // One rank of several: with the others it is a job.
      if (trace.timeline.world_size > 1 && rank_count(trace.timeline) == 1 &&
          sorted.timelines.size() > 1) {
        sorted.traces.push_back(path);
      } else {
        whole.emplace_back(path, std::move(trace));
      }
    }
    if (!sorted.traces.empty()) {
      add_run("", read_trace(sorted.traces));
    }
    for (auto& [path, trace] : whole) {
      add_run(path, std::move(trace));
    }
    for (const std::string& path : sorted.summaries) {
      report_.summaries.push_back(
          {name_of(path), summary_from_json(read_file(path, "FILE"), path)});
    }
    for (const std::string& path : sorted.results) {
      add_result(path);
    }
    for (const std::string& path : sorted.plans) {
      Plan plan = plan_from_json(read_file(path, "FILE"), path);
      report_.plans.push_back({name_of(path), input_.redact ? redactor_(std::move(plan)) : plan});
    }
    for (const std::string& path : sorted.machines) {
      add_machine(machine_of_file("FILE", path));
    }
    if (input_.machine) {
      add_machine(*input_.machine);
    }
    report_.redacted = input_.redact;
    return std::move(report_);
  }

 private:
  [[nodiscard]] Trace read_trace(std::vector<std::string> paths) const {
    const auto pipe = std::find_if(paths.begin(), paths.end(), [](const std::string& path) {
      std::error_code ignored;
      const auto status = std::filesystem::status(path, ignored);
      return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
             !std::filesystem::is_directory(status);
    });
    const std::string piped = pipe == paths.end() ? std::string() : *pipe;
    TraceOptions reading = input_.reading;
    reading.paths = std::move(paths);
    try {
      return reading.read(input_.quiet);
    } catch (const Error& error) {
      ErrorDetail detail = error.detail();
      if (error.code() != ErrorCode::kParse || piped.empty()) {
        throw;
      }
      detail.help += (detail.help.empty() ? "" : ". ") + piped +
                     " is a pipe, which is read once and as a trace or a timeline; of a machine, a "
                     "plan, a summary or a result name the file";
      throw Error(error.code(), std::move(detail));
    }
  }

  /// What a reader calls it: the file's name without its folder.
  std::string name_of(const std::string& path) {
    if (input_.redact) {
      return redactor_.file(path);
    }
    const std::filesystem::path name = std::filesystem::path(path).filename();
    return name.empty() ? path : name.string();
  }

  void add_run(const std::string& path, Trace trace) {
    ReportedRun run;
    warnings_ += warnings_of(trace);
    for (const TraceFile& file : trace.files) {
      run.files.push_back(input_.redact ? redactor_.file(file.path) : file.path);
    }
    // Sentences about files may quote anything that stands in them.
    if (!input_.redact) {
      run.notes = notes_of(trace);
    }
    run.timeline = input_.redact ? redactor_(std::move(trace.timeline)) : std::move(trace.timeline);
    AnalyzeOptions options;
    options.machine = input_.machine;
    run.explanation = explain(run.timeline, options);
    run.name = !path.empty()             ? name_of(path)
               : trace.files.size() == 1 ? name_of(trace.files[0].path)
                                         : fmt::format("{} ranks", rank_count(run.timeline));
    report_.runs.push_back(std::move(run));
  }

  void add_machine(Machine machine) {
    report_.machines.push_back(input_.redact ? redactor_(std::move(machine)) : std::move(machine));
  }

  static std::vector<std::string> notes_of(const Trace& trace) {
    std::vector<std::string> notes;
    const std::string text = warnings_of(trace);
    constexpr std::string_view kHead = "warning: ";
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      notes.push_back(text.substr(at + kHead.size(), end - at - kHead.size()));
      at = end + 1;
    }
    return notes;
  }

  /// What train, replay, demo or analyze wrote.
  void add_result(const std::string& path) {
    const ordered_json document =
        ordered_json::parse(read_file(path, "FILE"), nullptr, /*allow_exceptions=*/false);
    const auto add = [&](std::string name, const ordered_json& summary) {
      report_.summaries.push_back({std::move(name), summary_from_json(summary.dump(), path)});
    };
    if (document.is_object() && document.contains("runs") && document["runs"].is_array()) {
      for (const ordered_json& run : document["runs"]) {
        if (run.is_object() && run.contains("summary")) {
          const auto name = run.find("name");
          add(name != run.end() && name->is_string() ? name->get<std::string>() : name_of(path),
              run["summary"]);
        }
      }
      return;
    }
    if (document.is_object() && document.contains("summary") && document["summary"].is_object()) {
      add(name_of(path), document["summary"]);
      return;
    }
    throw Error(ErrorCode::kParse,
                {"a result without a summary",
                 path,
                 document.is_discarded() ? "not JSON" : "no member summary or runs",
                 "what analyze, train, replay or demo wrote with --json",
                 ""});
  }

  const ReportInput& input_;
  std::string& warnings_;
  Redactor redactor_;
  Report report_;
};

}  // namespace

Report read_report(const ReportInput& input, std::string& warnings) {
  return Reader(input, warnings).read();
}

}  // namespace stretto::cli
