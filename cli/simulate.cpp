// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/simulate.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "codecs.hpp"
#include "commands.hpp"
#include "output.hpp"
#include "plan_input.hpp"
#include "result.hpp"
#include "schedule.hpp"
#include "stretto/analyze/analyze.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/plan/planner.hpp"
#include "stretto/plan/validate_buckets.hpp"
#include "stretto/report/report.hpp"
#include "stretto/simulate/validate.hpp"
#include "version.hpp"

namespace stretto::cli {
namespace {

using nlohmann::ordered_json;

struct SimulateFlags {
  PlanInput input;
  std::string buckets;
  std::string plan;
  std::string validate;
  ArtifactOptions artifacts;
  std::string output;
  bool json = false;
};

std::string validation_of(const SimulateFlags& flags, const Context& context) {
  if (!std::filesystem::is_directory(flags.validate)) {
    throw Error(ErrorCode::kInvalidArgument,
                {"no such directory",
                 "--validate",
                 flags.validate,
                 "a directory of published measurements as CSV",
                 "docs/layouts.md says which"});
  }
  std::vector<ValidationRow> rows = validate(flags.validate);
  for (ValidationRow& row : validate_buckets(flags.validate)) {
    rows.push_back(std::move(row));
  }
  if (std::all_of(
          rows.begin(), rows.end(), [](const ValidationRow& row) { return row.test_rows == 0; })) {
    throw Error(ErrorCode::kParse,
                {"no measurements to hold the simulator against",
                 flags.validate,
                 "none of the files",
                 "nccl_allreduce.csv, train_vtrain_single_node.csv and others",
                 "docs/layouts.md says which"});
  }
  if (!flags.json) {
    return validation_text(rows);
  }
  ordered_json series = ordered_json::array();
  for (const ValidationRow& row : rows) {
    series.push_back(ordered_json{{"series", row.series},
                                  {"rows", row.rows},
                                  {"calibration_rows", row.calibration_rows},
                                  {"test_rows", row.test_rows},
                                  {"mean_error_ratio", row.mean_error},
                                  {"worst_error_ratio", row.worst_error},
                                  {"target_ratio", row.target},
                                  {"note", row.note}});
  }
  return ordered_json{{"schema", "stretto.validation/1"},
                      {"version", kVersion},
                      {"arguments", context.arguments},
                      {"series", std::move(series)}}
             .dump(2) +
         "\n";
}

int run_simulate(const SimulateFlags& flags, const Context& context) {
  if (!flags.validate.empty()) {
    if (!flags.input.trace.paths.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"measurements are compared instead of a step simulated",
                   "--validate",
                   "--validate and " + flags.input.trace.paths.front(),
                   "one of them",
                   "The published runs bring their own models and machines"});
    }
    write_stdout(validation_of(flags, context));
    return 0;
  }
  PlanInput::Loaded loaded = flags.input.load(flags.json);
  ScheduleOptions schedule;
  schedule.schedule = flags.input.schedule;
  schedule.buckets = flags.buckets;
  schedule.plan = flags.plan;
  schedule.compress = flags.input.compress;
  schedule.streams = loaded.options.streams;
  const CodecSpec codec = flags.input.compress.uniform();
  if (codec.lossy()) {
    flags.input.price(loaded, {codec});
  }
  ScheduleOptions::Resolved resolved =
      schedule.resolve(loaded.profile, loaded.costs, loaded.options);
  flags.input.refuse_idle_segment(loaded, &resolved.plan);
  std::string why;
  if (flags.input.compress.automatic()) {
    const CodecPolicy policy = flags.input.compress.policy();
    flags.input.price(loaded, policy.allowed);
    AutoCodecs codecs;
    codecs.choice =
        choose_codecs(loaded.profile, loaded.costs, resolved.plan, loaded.options, policy);
    resolved.plan = codecs.choice.plan;
    why = "\n" + auto_codecs_text(codecs);
  } else if (!codec.lossy()) {
    flags.input.price(loaded, codecs_of(resolved.plan));
  }
  const auto begin = std::chrono::steady_clock::now();
  const Simulation simulation =
      simulate(loaded.profile, loaded.costs, resolved.plan, loaded.options);
  if (!simulation.steady) {
    std::fputs("warning: steps did not come to repeat; their length is the mean of the last 31\n",
               stderr);
  }
  const Seconds elapsed = std::chrono::steady_clock::now() - begin;
  AnalyzeOptions analysis;
  analysis.samples_per_step =
      loaded.profile.batch * loaded.options.accumulate * std::int64_t{loaded.costs.ranks};
  analysis.one_rank_step = flags.artifacts.one_rank_step(loaded.profile.model);
  Summary summary = analyze(simulation.timeline, analysis);
  // Ranks that do the same are drawn as one.
  summary.ranks = simulation.timeline.world_size;
  // Of the model, and not of what was simulated: no plan, this one neither, is quicker.
  if (!compresses(resolved.plan)) {
    summary.bound =
        std::min(summary.step, plan(loaded.profile, loaded.costs, loaded.options).bound);
  }
  const std::vector<std::string> files = flags.artifacts.write(simulation.timeline, resolved.plan);
  std::string text;
  if (flags.json) {
    ordered_json document = {{"schema", "stretto.simulate/1"},
                             {"version", kVersion},
                             {"arguments", context.arguments},
                             {"model", loaded.profile.model},
                             {"ranks", loaded.costs.ranks},
                             {"step_s", simulation.step.count()},
                             {"communication_end_s", simulation.communication_end.count()},
                             {"events", simulation.events},
                             {"elapsed_s", elapsed.count()},
                             {"summary", ordered_json::parse(to_json(summary))},
                             {"machine", loaded.costs_basis},
                             {"profile_assumptions", loaded.profile.assumptions},
                             {"files", files}};
    text = document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  } else {
    TextTimelineOptions drawing;
    drawing.step = simulation.timeline.steps_total - 1;
    drawing.color = flags.output.empty() && use_color();
    text = fmt::format("step {} on {} ranks ({}), of it {} exposed; simulated, {} events in {}\n\n",
                       format(simulation.step),
                       loaded.costs.ranks,
                       resolved.name,
                       format(summary.exposed),
                       simulation.events,
                       format(elapsed)) +
           text_timeline(simulation.timeline, drawing) + "\n" + text_summary(summary) + why +
           fmt::format("\nprofile: {}, {}\nmachine: {}\n",
                       to_string(loaded.profile.basis),
                       loaded.profile.assumptions,
                       loaded.costs_basis) +
           file_list(files);
  }
  if (flags.output.empty()) {
    write_stdout(text);
  } else {
    write_file(flags.output, text);
  }
  return 0;
}

}  // namespace

Action add_simulate(CLI::App& app) {
  app.description("Predicts a step: who computes, communicates and waits when");
  app.footer(
      "Examples:\n"
      "  stretto simulate resnet50 --machine 8@5Gbit/s,50us\n"
      "  stretto simulate bert_large --machine dgx-a100x2 --buckets ddp --zero 3 --prefetch 2\n"
      "  stretto simulate gpt2_124m --machine 4@10Gbit/s,20us --rank-speed 3=0.8 --timeline "
      "t.json");
  const auto flags = std::make_shared<SimulateFlags>();
  flags->input.add_to(app);
  auto* by_rule = app.add_option(
      "--buckets", flags->buckets, "planned (default), ddp, or a size like 4M, tensors split");
  by_rule->type_name("RULE");
  app.add_option("--plan", flags->plan, "Buckets from this file")
      ->excludes(by_rule)
      ->type_name("FILE");
  app.add_option("--validate",
                 flags->validate,
                 "Hold the simulator against published measurements in this directory instead")
      ->type_name("DIR");
  flags->artifacts.add_to(app);
  app.add_option("-o,--output", flags->output, "Write the result there instead of to stdout")
      ->type_name("FILE");
  app.add_flag("--json", flags->json, "One JSON document on stdout");
  return [flags](const Context& context) { return run_simulate(*flags, context); };
}

}  // namespace stretto::cli
