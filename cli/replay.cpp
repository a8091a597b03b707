// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/replay.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "flags.hpp"
#include "job.hpp"
#include "output.hpp"
#include "profile.hpp"
#include "result.hpp"
#include "schedule.hpp"
#include "stretto/analyze/analyze.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/plan/planner.hpp"
#include "stretto/report/report.hpp"

namespace stretto::cli {
namespace {

struct ReplayFlags {
  JobOptions job;
  ScheduleOptions schedule;
  ArtifactOptions artifacts;
  std::string profile;
  std::string compute = "wait";
  std::optional<double> compute_s;
  AssumedDevice device;
};

ComputeMode compute_mode(const std::string& name) {
  if (name == "wait") {
    return ComputeMode::kWait;
  }
  if (name == "busy") {
    return ComputeMode::kBusy;
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      {"no such stand-in for compute", "--compute", fmt::format("'{}'", name), "wait or busy", ""});
}

std::string report(const ReplayFlags& flags,
                   const Context& context,
                   const StepProfile& profile,
                   const ScheduleOptions::Resolved& resolved,
                   const Communicator& communicator,
                   const ReplayResult& result,
                   const std::optional<AutoCodecs>& codecs) {
  const std::optional<Machine> machine = flags.job.machine();
  AnalyzeOptions analysis;
  analysis.samples_per_step = profile.batch * std::int64_t{communicator.size()};
  if (!compresses(resolved.plan)) {  // the bound is of bytes that travel as they are
    analysis.machine = machine;
  }
  analysis.one_rank_step = flags.artifacts.one_rank_step(profile.model);
  const Run run{fmt::format("{}: {}", profile.model, resolved.name),
                std::string(to_string(resolved.session.schedule)),
                analyze(result.timeline, analysis),
                std::nullopt,
                std::nullopt,
                std::nullopt,
                result.plan_hash};
  const Provenance provenance{"replay",
                              context.arguments,
                              communicator.size(),
                              std::string(communicator.backend()),
                              machine ? machine->name : "",
                              0,
                              profile.assumptions};
  const std::vector<std::string> files = flags.artifacts.write(result.timeline, resolved.plan);
  if (flags.job.json) {
    nlohmann::ordered_json document = result_document(provenance, {run}, files);
    document["model"] = profile.model;
    document["basis"] = to_string(profile.basis);
    document["compute"] = flags.compute;
    document["values_checked"] = result.values_checked;
    add_compression(document, resolved.plan, result.compression);
    if (codecs) {
      document["codec_choice"] = auto_codecs_json(*codecs);
    }
    return document.dump(2) + "\n";
  }
  return verdict(run, provenance) + "\n" + comparison_table({{run.name, run.summary}}) + "\n" +
         text_summary(run.summary) +
         fmt::format("\n{}: {} of gradients in {} tensors, times {}{}{}\n",
                     profile.model,
                     format(profile.bytes()),
                     profile.tensors.size(),
                     to_string(profile.basis),
                     profile.assumptions.empty() ? "" : ": ",
                     profile.assumptions) +
         compression_text(resolved.plan, result.compression) +
         (codecs ? auto_codecs_text(*codecs) : std::string()) +
         (result.values_checked > 0
              ? fmt::format("{} reduced values looked at, all right\n", result.values_checked)
              : std::string()) +
         file_list(files) + other_schedule(context.arguments, run);
}

/// What must be alike on all ranks, or they replay different steps.
std::vector<NamedValue> settings_of(const ReplayFlags& flags, const StepProfile& profile) {
  std::vector<NamedValue> settings = flags.schedule.settings();
  settings.insert(
      settings.end(),
      {{"PROFILE", profile.model},
       {"--batch", fmt::format("{}", profile.batch)},
       {"--device-flops", fmt::format("{}", flags.device.flops_per_s)},
       {"--compute-s", flags.compute_s ? fmt::format("{}", *flags.compute_s) : std::string()},
       {"--compute", flags.compute}});
  return settings;
}

/// The profile with times as they will be replayed.
StepProfile stretched(const ReplayFlags& flags, const StepProfile& profile) {
  return scaled(profile,
                flags.compute_s && profile.compute_end > Seconds(0)
                    ? *flags.compute_s / profile.compute_end.count()
                    : 1.0);
}

/// On an emulated machine buckets can be planned for the profile as it will be replayed.
ScheduleOptions::Resolved resolve(const ReplayFlags& flags, const StepProfile& profile) {
  const std::optional<Machine> machine = flags.job.machine();
  if (!machine || machine->ranks() < 2 || profile.bytes() == Bytes(0)) {
    return flags.schedule.resolve(tensors_of(profile));
  }
  const Algorithm algorithm = flags.schedule.chosen_algorithm();
  return flags.schedule.resolve(stretched(flags, profile),
                                emulated_costs(*machine, algorithm, profile.bytes()),
                                flags.schedule.simulated(*machine));
}

/// `--compress auto`: chosen on rank 0, tried by all.
AutoCodecs set_codecs(Communicator& communicator,
                      const ReplayFlags& flags,
                      const StepProfile& profile,
                      const Machine& machine,
                      ReplayOptions& options) {
  AutoCodecs codecs;
  if (communicator.rank() == 0) {
    const bool cut = flags.schedule.plan.empty() && flags.schedule.buckets.empty() &&
                     options.session.schedule != Schedule::kSerial;
    codecs = flags.schedule.choose_codecs(stretched(flags, profile), machine, options.plan, cut);
  }
  options.plan = try_codecs(
      communicator, codecs, flags.schedule.compress.policy().least_gain, [&](const Plan& plan) {
        constexpr std::uint32_t kSteps = 5;
        ReplayOptions brief = options;
        brief.plan = plan;
        brief.steps = kSteps;
        brief.warmup = 1;
        brief.session.codec_start = 0;
        brief.on_progress = progress_line(communicator, "trying codecs", flags.job.json);
        const ReplayResult result = replay(communicator, profile, brief);
        return communicator.rank() == 0 ? analyze(result.timeline).step : Seconds(0);
      });
  return codecs;
}

int run_replay(const ReplayFlags& flags, const Context& context) {
  const StepProfile profile = load_profile(flags.profile, flags.device);
  ScheduleOptions::Resolved resolved = resolve(flags, profile);
  (void)flags.artifacts.one_rank_step(profile.model);
  ReplayOptions options;
  options.plan = resolved.plan;
  options.session = resolved.session;
  options.steps = flags.schedule.steps;
  options.warmup = flags.schedule.warmup;
  options.mode = compute_mode(flags.compute);
  if (flags.compute_s) {
    options.compute = Seconds(*flags.compute_s);
  }
  const bool automatic = flags.schedule.compress.automatic();
  const std::optional<Machine> known = flags.schedule.machine_for_auto(flags.job.machine());
  if (automatic && !known) {
    flags.schedule.refuse_auto_codecs();
  }
  const Alike alike{settings_of(flags, profile), resolved.plan};
  return run_job(flags.job, context.arguments, alike, [&](Communicator& communicator) {
    flags.schedule.choose_algorithms(communicator, flags.job.machine());
    std::optional<AutoCodecs> codecs;
    if (automatic) {
      codecs = set_codecs(communicator, flags, profile, *known, options);
      resolved.plan = options.plan;
    }
    options.on_progress = progress_line(communicator, resolved.name, flags.job.json);
    if (codecs) {
      options.watch_codecs =
          watch_agreed(options.plan, *codecs, flags.schedule.compress.policy().least_gain);
    }
    const ReplayResult result = replay(communicator, profile, options);
    if (codecs) {
      codecs->switches = result.codec_switches;
    }
    return communicator.rank() == 0
               ? report(flags, context, profile, resolved, communicator, result, codecs)
               : std::string();
  });
}

}  // namespace

Action add_replay(CLI::App& app) {
  app.description(
      "Runs a model's step with real ranks and real gradient bytes; compute is waited for");
  app.footer("Models: " + model_list() +
             "\n\nExamples:\n"
             "  stretto replay resnet50 --emulate 8@2Gbit/s,50us\n"
             "  stretto replay bert_large -n 2 --compute-s 0.2 --buckets ddp\n"
             "  stretto replay my_profile.json --emulate 4@5Gbit/s,20us --schedule serial --json");
  const auto flags = std::make_shared<ReplayFlags>();
  flags->schedule.warmup = 3;
  flags->schedule.steps = 20;
  app.add_option("PROFILE", flags->profile, "A model's name, or a profile or model table as JSON")
      ->required();
  flags->job.add_to(app);
  flags->schedule.add_to(app);
  app.add_option("--steps", flags->schedule.steps, "Measured steps (default 20)")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N");
  app.add_option("--compute-s",
                 flags->compute_s,
                 "Stretch the profile so that a step computes for so many seconds")
      ->check(number_from(0.0, 86400.0))
      ->type_name("S");
  app.add_option("--compute",
                 flags->compute,
                 "wait (as a GPU would, without the CPU; default) or busy (arithmetic)")
      ->type_name("HOW");
  app.add_option("--device-flops",
                 flags->device.flops_per_s,
                 "Sustained rate assumed for a model (default 50e12)")
      ->check(positive_number())
      ->type_name("X");
  app.add_option("--batch", flags->device.batch, "Samples per rank assumed for a model")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  flags->artifacts.add_to(app);
  return [flags](const Context& context) { return run_replay(*flags, context); };
}

}  // namespace stretto::cli
