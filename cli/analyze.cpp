// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/analyze.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "job.hpp"
#include "output.hpp"
#include "stretto/analyze/as_hta.hpp"
#include "stretto/analyze/clocks.hpp"
#include "stretto/analyze/device_steps.hpp"
#include "stretto/analyze/explain.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/report/explanation.hpp"
#include "trace_options.hpp"
#include "version.hpp"

namespace stretto::cli {
namespace {

using nlohmann::ordered_json;

struct AnalyzeFlags {
  TraceOptions trace;
  std::string per;
  std::string machine;
  std::string output;
  bool json = false;
  bool csv = false;
  bool classes = false;
  std::string as;
  bool quiet = false;
};

Per per_of(const std::string& name) {
  if (name == "rank") {
    return Per::kRank;
  }
  if (name == "step") {
    return Per::kStep;
  }
  if (name == "collective") {
    return Per::kCollective;
  }
  if (name == "module") {
    return Per::kModule;
  }
  return Per::kBucket;
}

ordered_json document_of(const Context& context,
                         const Trace& trace,
                         const Explanation& explanation) {
  ordered_json document = {{"schema", "stretto.analyze/1"},
                           {"version", kVersion},
                           {"arguments", context.arguments},
                           {"files", files_json(trace)},
                           {"notes", trace.notes}};
  document.update(ordered_json::parse(to_json(explanation)));
  document["steps"] = ordered_json::array();
  const auto seconds = [](std::int64_t ns) { return static_cast<double>(ns) / 1e9; };
  for (const DeviceStep& step : device_steps(trace.timeline)) {
    document["steps"].push_back(
        {{"rank", step.rank},
         {"step", step.step},
         {"name", step.name},
         {"device", step.device == kNoId ? ordered_json() : ordered_json(step.device)},
         {"begin_s", seconds(step.begin_ns)},
         {"length_s", seconds(step.length_ns)},
         {"compute_s", seconds(step.compute_ns)},
         {"communication_s", seconds(step.communication_ns)},
         {"communication_sum_s", seconds(step.communication_sum_ns)},
         {"exposed_s", seconds(step.exposed_ns)},
         {"hidden_s", seconds(step.hidden_ns)},
         {"exposed_copies_s", seconds(step.exposed_copies_ns)},
         {"idle_s", seconds(step.idle_ns)},
         {"launches", step.collectives}});
  }
  document["clocks"] = ordered_json::array();
  for (const ClockDifference& clock : compare_clocks(trace.timeline)) {
    document["clocks"].push_back({{"rank", clock.rank},
                                  {"against", clock.against},
                                  {"later_s", clock.later.count()},
                                  {"residual_s", clock.residual.count()},
                                  {"collectives", clock.collectives}});
  }
  document["classes"] = classes_json(trace);
  for (const std::string& note : explanation.notes) {
    document["notes"].push_back(note);
  }
  return document;
}

ordered_json hta_json(const HtaNumbers& numbers) {
  const auto overlap = numbers.overlap_percent();
  return {{"rows", numbers.rows},
          {"overlap_percent", overlap ? ordered_json(*overlap) : ordered_json()},
          {"idle_ns", numbers.idle_ns},
          {"compute_ns", numbers.compute_ns},
          {"non_compute_ns", numbers.non_compute_ns()},
          {"kernel_time_ns", numbers.kernel_time_ns}};
}

ordered_json as_hta_document(const Context& context, const Trace& trace) {
  ordered_json ranks = ordered_json::array();
  for (const AsHta& rank : as_hta(trace.timeline, trace.zero_ns)) {
    ordered_json stages = ordered_json::array();
    for (const HtaStage& stage : rank.stages) {
      ordered_json numbers = {{"what", stage.what}};
      numbers.update(hta_json(stage.numbers));
      stages.push_back(std::move(numbers));
    }
    ranks.push_back({{"rank", rank.rank},
                     {"stages", std::move(stages)},
                     {"with_last_step", hta_json(rank.with_last_step)}});
  }
  return {{"schema", "stretto.analyze_as_hta/1"},
          {"version", kVersion},
          {"arguments", context.arguments},
          {"files", files_json(trace)},
          {"notes", trace.notes},
          {"ranks", std::move(ranks)}};
}

/// One command that goes on from here.
std::string next_of(const AnalyzeFlags& flags, const Explanation& explanation) {
  constexpr std::size_t kMostNamed = 4;
  std::vector<std::string> arguments = {"analyze"};
  if (flags.trace.paths.size() > kMostNamed) {
    return "the same command with --per " +
           std::string(explanation.has_communication() ? "bucket" : "rank");
  }
  arguments.insert(arguments.end(), flags.trace.paths.begin(), flags.trace.paths.end());
  if (explanation.certificate && explanation.certificate->sharded) {
    arguments.emplace_back("--per");
    arguments.emplace_back(explanation.modules.empty() ? "bucket" : "module");
  } else if (explanation.certificate) {
    arguments.front() = "plan";
  } else if (!explanation.has_communication()) {
    arguments.emplace_back("--classes");
  } else if (explanation.summary && explanation.summary->buckets.size() > 1) {
    arguments.emplace_back("--per");
    arguments.emplace_back("bucket");
  } else {
    arguments.emplace_back("--per");
    arguments.emplace_back("collective");
  }
  // Whatever made these numbers must make the next ones.
  for (std::string& flag : flags.trace.arguments()) {
    arguments.push_back(std::move(flag));
  }
  if (!flags.machine.empty()) {
    arguments.emplace_back("--machine");
    arguments.push_back(flags.machine);
  }
  return command_line(arguments);
}

/// The worst of each, so that one line says how far times of different ranks can be compared.
std::string clocks_line(const Timeline& timeline) {
  const std::vector<ClockDifference> clocks = compare_clocks(timeline);
  if (clocks.empty()) {
    return {};
  }
  const auto furthest = *std::max_element(
      clocks.begin(), clocks.end(), [](const ClockDifference& a, const ClockDifference& b) {
        return std::abs(a.later.count()) < std::abs(b.later.count());
      });
  const auto vaguest = *std::max_element(
      clocks.begin(), clocks.end(), [](const ClockDifference& a, const ClockDifference& b) {
        return a.residual < b.residual;
      });
  return fmt::format(
      "\nclocks: ranks end the same collectives {} apart at most (median, rank {} against {}), "
      "residual at most {} (rank {})\n",
      format(Seconds(std::abs(furthest.later.count()))),
      furthest.rank,
      furthest.against,
      format(vaguest.residual),
      vaguest.rank);
}

std::string clock_rows(const Timeline& timeline) {
  const std::vector<ClockDifference> clocks = compare_clocks(timeline);
  if (clocks.empty()) {
    return {};
  }
  std::string text = "\nclocks, by the ends of the same collectives:\n";
  for (const ClockDifference& clock : clocks) {
    text += fmt::format("rank {} against {}: {} {}, residual {}, from {} collectives\n",
                        clock.rank,
                        clock.against,
                        format(Seconds(std::abs(clock.later.count()))),
                        clock.later < Seconds(0) ? "earlier" : "later",
                        format(clock.residual),
                        clock.collectives);
  }
  return text;
}

std::string text_of(const AnalyzeFlags& flags, const Trace& trace, const Explanation& explanation) {
  std::string text = text_explanation(explanation);
  if (!explanation.has_communication()) {
    text += fmt::format("\nlooked for {}; name yours with --comm-regex\n",
                        CommunicationRules::looked_for());
  }
  std::uint64_t events = 0;
  for (const TraceFile& file : trace.files) {
    events += file.events;
  }
  text += clocks_line(trace.timeline);
  text += fmt::format(
      "\n{} {} read, {} events; steps from {}\n",
      trace.files.size(),
      trace.files.size() == 1 ? "file" : "files",
      events,
      trace.files[0].steps_from.empty() ? "nothing: no step is marked" : trace.files[0].steps_from);
  return text + fmt::format("next: {}\n", next_of(flags, explanation));
}

int run_analyze(const AnalyzeFlags& flags, const Context& context) {
  AnalyzeOptions options;
  if (!flags.machine.empty()) {
    options.machine = load_machine("--machine", flags.machine);
  }
  TraceOptions reading = flags.trace;
  reading.no_align = reading.no_align || !flags.as.empty();  // HTA aligns nothing
  reading.rows_without_collectives = !flags.as.empty();
  const Trace trace = reading.read(flags.json || flags.csv || flags.quiet);
  if (!flags.json) {
    std::fputs(warnings_of(trace).c_str(), stderr);
  }
  const Explanation explanation = explain(trace.timeline, options);
  if (!flags.json) {
    for (const std::string& note : explanation.notes) {
      std::fputs(fmt::format("warning: {}\n", note).c_str(), stderr);
    }
  }
  std::string result;
  if (flags.json) {
    const ordered_json document = flags.as.empty() ? document_of(context, trace, explanation)
                                                   : as_hta_document(context, trace);
    result = document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  } else if (!flags.as.empty()) {
    result = text_as_hta(as_hta(trace.timeline, trace.zero_ns));
  } else if (flags.classes) {
    result = class_table(trace);
  } else if (!flags.per.empty() || flags.csv) {
    const Per per = flags.per.empty() ? Per::kBucket : per_of(flags.per);
    const std::vector<DeviceStep> steps =
        per == Per::kStep ? device_steps(trace.timeline) : std::vector<DeviceStep>();
    result = flags.csv ? csv_table(explanation, steps, per) : text_table(explanation, steps, per);
    if (!flags.csv && per == Per::kRank) {
      result += clock_rows(trace.timeline);
    }
  } else {
    result = text_of(flags, trace, explanation);
  }
  if (flags.output.empty()) {
    write_stdout(result);
  } else {
    write_file(flags.output, result);
  }
  return 0;
}

}  // namespace

Action add_analyze(CLI::App& app) {
  app.description(
      "Says how long devices wait for communication in a profiler's trace, where and why");
  app.footer("Reads " + trace_formats() +
             ".\n\nExamples:\n"
             "  stretto analyze trace_rank0.json.gz\n"
             "  stretto analyze traces/ --per bucket\n"
             "  stretto analyze traces/*.json.gz --json > result.json\n"
             "  stretto analyze trace.json --comm-regex 'my_all_to_all'");
  const auto flags = std::make_shared<AnalyzeFlags>();
  flags->trace.add_to(app);
  app.add_option(
         "--per", flags->per, "One whole table: rank, step, collective, bucket, or module (FSDP)")
      ->check(CLI::IsMember({"rank", "step", "collective", "bucket", "module"}))
      ->type_name("WHAT");
  app.add_option("--machine",
                 flags->machine,
                 "Bound for this machine instead of the costs fitted to the trace (file, preset, "
                 "or 4@5Gbit/s,50us)")
      ->type_name("M");
  app.add_option("-o,--output", flags->output, "Write the result there instead of to stdout")
      ->type_name("FILE");
  app.add_option("--as",
                 flags->as,
                 "hta: the numbers of Holistic Trace Analysis, and what makes them differ")
      ->check(CLI::IsMember({"hta"}))
      ->type_name("TOOL");
  app.add_flag("--classes", flags->classes, "List which kernels count as what, and by which rule")
      ->excludes("--as")
      ->excludes("--per");
  app.add_flag("--json", flags->json, "One JSON document on stdout: every table, and the classes");
  app.add_flag("--csv", flags->csv, "The table of --per (default bucket) as CSV")
      ->excludes("--json")
      ->excludes("--as")
      ->excludes("--classes");
  app.add_flag("-q,--quiet", flags->quiet, "No progress");
  return [flags](const Context& context) { return run_analyze(*flags, context); };
}

}  // namespace stretto::cli
