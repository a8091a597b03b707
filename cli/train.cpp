// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/train.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "flags.hpp"
#include "job.hpp"
#include "numbers.hpp"
#include "output.hpp"
#include "result.hpp"
#include "schedule.hpp"
#include "stretto/analyze/analyze.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/report/report.hpp"
#include "stretto/workload/mlp.hpp"

namespace stretto::cli {
namespace {

struct TrainFlags {
  JobOptions job;
  ScheduleOptions schedule;
  ArtifactOptions artifacts;
  std::string layers = "784-512-512-10";
  std::string data = std::string(kFashionMnistDirectory);
  std::string optimizer = "sgd";
  std::optional<float> learning_rate;
  std::optional<float> momentum;
  int zero = 0;
  TrainOptions train;
};

/// What must be alike on all ranks, or they train silently different models.
std::vector<NamedValue> settings_of(const TrainFlags& flags) {
  const TrainOptions& train = flags.train;
  std::vector<NamedValue> settings = flags.schedule.settings();
  settings.insert(settings.end(),
                  {{"--epochs", fmt::format("{}", train.epochs)},
                   {"--batch", fmt::format("{}", train.batch)},
                   {"--seed", fmt::format("{}", train.seed)},
                   {"--layers", fmt::format("{}", fmt::join(train.widths, "-"))},
                   {"--optimizer", std::string(to_string(train.optimizer.kind))},
                   {"--lr", fmt::format("{}", train.learning_rate)},
                   {"--momentum", fmt::format("{}", train.optimizer.momentum)},
                   {"--weight-decay", fmt::format("{}", train.optimizer.weight_decay)},
                   {"--zero", fmt::format("{}", flags.zero)},
                   {"--clip-norm", fmt::format("{}", train.clip_norm)}});
  return settings;
}

/// What a baseline must be of as well.
std::string model_name(const TrainOptions& options) {
  return fmt::format("{}, batch {}", fmt::join(options.widths, "-"), options.batch);
}

std::string report(const TrainFlags& flags,
                   const Context& context,
                   const ScheduleOptions::Resolved& resolved,
                   const Communicator& communicator,
                   const TrainResult& result,
                   const std::optional<AutoCodecs>& codecs) {
  const std::optional<Machine> machine = flags.job.machine();
  AnalyzeOptions analysis;
  analysis.samples_per_step =
      static_cast<std::int64_t>(flags.train.batch) * std::int64_t{communicator.size()};
  if (!compresses(resolved.plan)) {  // the bound is of bytes that travel as they are
    analysis.machine = machine;
  }
  analysis.one_rank_step = flags.artifacts.one_rank_step(model_name(flags.train));
  const Run run{resolved.name,
                std::string(to_string(resolved.session.schedule)),
                analyze(result.timeline, analysis),
                result.loss,
                result.accuracy,
                result.weights_hash,
                result.plan_hash};
  const Provenance provenance{"train",
                              context.arguments,
                              communicator.size(),
                              std::string(communicator.backend()),
                              machine ? machine->name : "",
                              flags.train.seed,
                              ""};
  const std::vector<std::string> files = flags.artifacts.write(result.timeline, resolved.plan);
  if (flags.job.json) {
    nlohmann::ordered_json document = result_document(provenance, {run}, files);
    document["model"] = model_name(flags.train);
    document["steps"] = result.steps;
    document["kernels"] = result.kernels;
    document["optimizer_state_bytes"] = result.optimizer_bytes;
    add_compression(document, resolved.plan, result.compression);
    if (codecs) {
      document["codec_choice"] = auto_codecs_json(*codecs);
    }
    return document.dump(2) + "\n";
  }
  return verdict(run, provenance) + "\n" + comparison_table({{run.name, run.summary}}) + "\n" +
         text_summary(run.summary) + "\n" + compression_text(resolved.plan, result.compression) +
         (codecs ? auto_codecs_text(*codecs) : std::string()) +
         fmt::format("{}, {} of state on this rank\n",
                     to_string(flags.train.optimizer.kind),
                     format(Bytes(static_cast<std::int64_t>(result.optimizer_bytes)))) +
         learned(run) + file_list(files) +
         (flags.zero == 1 && flags.train.clip_norm > 0.0  // which only this schedule runs
              ? std::string()
              : other_schedule(context.arguments, run));
}

/// A few steps from the beginning, for their times only.
TrainResult train_briefly(Communicator& communicator,
                          const Dataset& dataset,
                          const TrainFlags& flags,
                          const Plan& plan,
                          Schedule schedule,
                          const char* what) {
  constexpr std::uint32_t kSteps = 5;
  TrainOptions options = flags.train;
  options.plan = plan;
  options.session.schedule = schedule;
  // Updates belong to the step that is measured, and cost what they cost unclipped.
  options.session.shard_optimizer = false;
  options.session.codec_start = 0;
  options.clip_norm = 0.0;
  options.steps = kSteps;
  options.warmup = std::min(options.warmup, kSteps);
  options.on_progress = progress_line(communicator, what, flags.job.json);
  return train(communicator, dataset, options);
}

/// The timeline of a few serial steps, on rank 0: what plans are made of.
Timeline measure_step(Communicator& communicator, const Dataset& dataset, const TrainFlags& flags) {
  return train_briefly(communicator,
                       dataset,
                       flags,
                       single_bucket_plan(mlp_tensors(flags.train.widths)),
                       Schedule::kSerial,
                       "measuring the step")
      .timeline;
}

/// `--compress auto`: chosen on rank 0, tried by all.
AutoCodecs set_codecs(Communicator& communicator,
                      const Dataset& dataset,
                      TrainFlags& flags,
                      const Timeline& measured,
                      const Machine& machine,
                      bool cut) {
  AutoCodecs codecs;
  if (communicator.rank() == 0) {
    const StepProfile profile = measured_profile(measured, mlp_tensors(flags.train.widths));
    codecs = flags.schedule.choose_codecs(profile, machine, flags.train.plan, cut);
  }
  const Schedule schedule = flags.train.session.schedule;
  flags.train.plan = try_codecs(
      communicator, codecs, flags.schedule.compress.policy().least_gain, [&](const Plan& plan) {
        const TrainResult result =
            train_briefly(communicator, dataset, flags, plan, schedule, "trying codecs");
        return communicator.rank() == 0 ? analyze(result.timeline).step : Seconds(0);
      });
  return codecs;
}

int run_train(TrainFlags flags, const Context& context) {
  flags.train.widths = from_flag("--layers", [&] { return parse_widths(flags.layers); });
  flags.train.optimizer.kind =
      from_flag("--optimizer", [&] { return optimizer_from_string(flags.optimizer); });
  const bool sgd = flags.train.optimizer.kind == OptimizerKind::kSgd;
  if (flags.momentum && !sgd) {
    throw Error(ErrorCode::kInvalidArgument,
                {"this optimizer has no momentum",
                 "--momentum",
                 "--optimizer " + flags.optimizer,
                 "--optimizer sgd",
                 "Leave it out"});
  }
  constexpr float kAdamRate = 0.001F;
  flags.train.learning_rate =
      flags.learning_rate.value_or(sgd ? flags.train.learning_rate : kAdamRate);
  const std::optional<Machine> machine = flags.job.machine();
  const bool plans = flags.schedule.planned() && machine && machine->ranks() > 1;
  ScheduleOptions rule = flags.schedule;
  if (plans) {
    rule.buckets.clear();
  }
  ScheduleOptions::Resolved resolved = rule.resolve(mlp_tensors(flags.train.widths));
  if (plans) {
    resolved.name = fmt::format("{}, planned buckets", flags.schedule.schedule);
  }
  (void)flags.artifacts.one_rank_step(model_name(flags.train));
  flags.train.plan = resolved.plan;
  // A codec with momentum stands for the optimizer's.
  std::optional<double> of_codec = flags.schedule.compress.momentum();
  for (const Bucket& bucket : resolved.plan.buckets) {
    of_codec = bucket.codec.momentum > 0.0 ? bucket.codec.momentum : of_codec;
  }
  const float by_default =
      of_codec ? static_cast<float>(*of_codec) : flags.train.optimizer.momentum;
  flags.train.optimizer.momentum = flags.momentum.value_or(by_default);
  resolved.session.shard_optimizer = flags.zero == 1;
  flags.train.session = resolved.session;
  flags.train.steps = flags.schedule.steps;
  flags.train.warmup = flags.schedule.warmup;
  const bool automatic = flags.schedule.compress.automatic();
  const std::optional<Machine> known = flags.schedule.machine_for_auto(machine);
  if (automatic && !known) {
    flags.schedule.refuse_auto_codecs();
  }
  const Alike alike{settings_of(flags), resolved.plan};
  return run_job(flags.job, context.arguments, alike, [&](Communicator& communicator) {
    const Dataset dataset = load_fashion_mnist(flags.data);
    flags.schedule.choose_algorithms(communicator, machine);
    Timeline measured;
    if (plans || automatic) {
      measured = measure_step(communicator, dataset, flags);
    }
    if (plans) {
      flags.train.plan = plan_measured(
          communicator, measured, mlp_tensors(flags.train.widths), *machine, flags.schedule);
      flags.schedule.compress.set(flags.train.plan);
    }
    std::optional<AutoCodecs> codecs;
    if (automatic) {
      codecs = set_codecs(communicator, dataset, flags, measured, *known, plans);
    }
    resolved.plan = flags.train.plan;
    flags.train.on_progress = progress_line(communicator, resolved.name, flags.job.json);
    if (codecs) {
      // All ranks watch, or none: that codecs are left is in the plan.
      flags.train.watch_codecs =
          watch_agreed(flags.train.plan, *codecs, flags.schedule.compress.policy().least_gain);
    }
    const TrainResult result = train(communicator, dataset, flags.train);
    if (codecs) {
      codecs->switches = result.codec_switches;
    }
    return communicator.rank() == 0 ? report(flags, context, resolved, communicator, result, codecs)
                                    : std::string();
  });
}

}  // namespace

Action add_train(CLI::App& app) {
  app.description("Trains a network on Fashion-MNIST, data-parallel, on local ranks");
  app.footer(
      "Examples:\n"
      "  stretto train -n 2 --epochs 5\n"
      "  stretto train --emulate 4@1Gbit/s,50us --batch 256 --steps 30 --schedule serial\n"
      "  stretto train -n 2 --buckets 256K --timeline run.trace.json --json -o result.json");
  // Shared with the action, which outlives this function and is copied.
  const auto flags = std::make_shared<TrainFlags>();
  flags->schedule.warmup = 5;
  flags->job.add_to(app);
  flags->schedule.add_to(app);
  auto* steps =
      app.add_option("--steps", flags->schedule.steps, "Measured steps, instead of --epochs")
          ->check(CLI::Range(1, 1000000))
          ->type_name("N");
  app.add_option("--epochs",
                 flags->train.epochs,
                 "Passes over the training images, the warm-up included (default 1)")
      ->excludes(steps)
      ->check(CLI::Range(1, 10000))
      ->type_name("N");
  app.add_option("--batch", flags->train.batch, "Images per rank and step (default 64)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option("--layers", flags->layers, "Widths of the network (default 784-512-512-10)")
      ->type_name("A-B-C");
  app.add_option("--lr",
                 flags->learning_rate,
                 "Learning rate of one rank, scaled with ranks (default 0.05; adam, adamw: 0.001)")
      ->check(number_from(0.0, 1e6))
      ->type_name("X");
  app.add_option("--optimizer", flags->optimizer, "sgd (with momentum; default), adam or adamw")
      ->type_name("NAME");
  app.add_option("--momentum", flags->momentum, "Of sgd (default 0.9)")
      ->check(number_from(0.0, 1.0))
      ->type_name("X");
  app.add_option("--weight-decay", flags->train.optimizer.weight_decay, "Default 0")
      ->check(number_from(0.0, 1.0))
      ->type_name("X");
  app.add_option("--zero",
                 flags->zero,
                 "1: each rank keeps the optimizer's state of its part of every bucket only")
      ->check(CLI::Range(0, 1))
      ->type_name("STAGE");
  app.add_option(
         "--clip-norm",
         flags->train.clip_norm,
         "Scale gradients down to this norm over all of them; needs all before the first update")
      ->check(positive_number())
      ->type_name("X");
  app.add_option("--seed", flags->train.seed, "Of weights and order of images (default 1)")
      ->check(whole_number_from(0, std::numeric_limits<std::int64_t>::max()))
      ->type_name("N");
  app.add_option("--data", flags->data, "Directory of the Fashion-MNIST files")->type_name("DIR");
  flags->artifacts.add_to(app);
  return [flags](const Context& context) { return run_train(*flags, context); };
}

}  // namespace stretto::cli
