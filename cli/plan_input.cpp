// SPDX-License-Identifier: Apache-2.0
#include "plan_input.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codecs.hpp"
#include "flags.hpp"
#include "job.hpp"
#include "numbers.hpp"
#include "output.hpp"
#include "profile.hpp"
#include "stretto/analyze/explain.hpp"
#include "stretto/base/error.hpp"
#include "stretto/plan/planner.hpp"

namespace stretto::cli {
namespace {

constexpr std::string_view kMeasuredSlowdown = "auto";

[[noreturn]] void refuse(std::string message,
                         std::string where,
                         std::string found,
                         std::string expected,
                         std::string help = {}) {
  throw Error(ErrorCode::kInvalidArgument,
              {std::move(message),
               std::move(where),
               std::move(found),
               std::move(expected),
               std::move(help)});
}

void add_scale(CLI::App& app, const std::string& name, double& value, const std::string& help) {
  app.add_option(name, value, help)->check(number_from(1e-6, 1e6))->type_name("X");
}

std::vector<double> factors(const std::vector<std::string>& texts, int ranks) {
  if (texts.empty()) {
    return {};
  }
  std::vector<double> result(static_cast<std::size_t>(ranks), 1.0);
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    int rank = -1;
    double speed = 0.0;
    const char* const end = text.data() + text.size();
    const bool good =
        equals != std::string::npos &&
        std::from_chars(text.data(), text.data() + equals, rank).ptr == text.data() + equals &&
        std::from_chars(text.data() + equals + 1, end, speed).ptr == end;
    if (!good || rank < 0 || rank >= ranks || !(speed >= 1e-6 && speed <= 1e6)) {
      refuse("not the speed of a rank",
             "--rank-speed",
             text,
             fmt::format("RANK=X, a rank from 0 to {} and a speed above 0", ranks - 1),
             "Example: --rank-speed 3=0.8 for a rank that computes at 80 %");
    }
    result[static_cast<std::size_t>(rank)] = 1.0 / speed;
  }
  return result;
}

/// Where a profile, a model table or a trace is wanted and a file of another of Stretto's forms is
/// given.
void refuse_other_forms(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 512> head{};
  file.read(head.data(), head.size());
  const std::string_view text(head.data(), static_cast<std::size_t>(file.gcount()));
  struct Form {
    std::string_view schema;
    std::string_view what;
    std::string_view help;
  };
  constexpr std::array kForms = {
      Form{"\"stretto.plan/",
           "a plan",
           "Example: stretto simulate resnet50 --machine M --plan FILE"},
      Form{"\"stretto.machine/", "a machine", "Example: stretto plan resnet50 --machine FILE"},
      Form{"\"stretto.summary/", "a summary", "stretto report and stretto diff read it"},
      Form{"\"stretto.plan_result/",
           "a result of stretto plan",
           "It was made from a profile: give that"},
      Form{"\"stretto.simulate/",
           "a result of stretto simulate",
           "It was made from a profile: give that"}};
  for (const Form& form : kForms) {
    if (text.find(form.schema) != std::string_view::npos) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"this file is something else",
                   path,
                   std::string(form.what),
                   "a model's name, a step profile, a model table, or traces",
                   std::string(form.help)});
    }
  }
}

/// A note where a step has more bytes than the largest exchange that was measured on the machine.
std::string beyond_measured(const Machine& machine, Bytes step) {
  Bytes most(0);
  for (const CollectiveCurve& curve : machine.curves) {
    if (curve.collective == Collective::kAllReduce && curve.ranks == machine.ranks() &&
        !curve.points.empty()) {
      most = std::max(most, curve.points.back().size);
    }
  }
  return most == Bytes(0) || most >= step
             ? ""
             : fmt::format(
                   "note: all_reduce was measured up to {}; larger exchanges, of the {} of a step, "
                   "are taken straight on from there. stretto measure all_reduce -e {} goes as "
                   "far\n",
                   format(most),
                   format(step),
                   step.count());
}

}  // namespace

Machine with_ranks(const Machine& machine, int ranks) {
  if (ranks < 1) {
    refuse("the number of ranks is not possible", "ranks", std::to_string(ranks), "1 or more");
  }
  Machine result = machine;
  result.name = fmt::format("{} with {} ranks", machine.name, ranks);
  int left = ranks;
  for (std::size_t l = 0; l < result.levels.size(); ++l) {
    Level& level = result.levels[l];
    const bool outermost = l + 1 == result.levels.size();
    if (outermost || left <= level.group_size) {
      level.group_size = left;
      left = 1;
      continue;
    }
    if (left % level.group_size != 0) {
      refuse("the machine cannot have so many ranks",
             machine.name,
             std::to_string(ranks),
             fmt::format("a multiple of {}, the ranks of one {}",
                         ranks / left * level.group_size,
                         level.name));
    }
    left /= level.group_size;
  }
  std::erase_if(result.curves, [&](const CollectiveCurve& curve) { return curve.ranks > ranks; });
  return result;
}

void PlanInput::add_to(CLI::App& app) {
  app.add_option("PROFILE",
                 trace.paths,
                 "A model's name, a profile or model table as JSON, or traces of a run");
  app.add_option(
         "--machine", machine, "Preset, file, or 4@5Gbit/s,50us; only a trace can do without")
      ->type_name("M");
  app.add_option("--schedule", schedule, "serial, overlap (default) or priority")
      ->type_name("NAME");
  app.add_option("--algorithm", algorithm, "Of the exchanges (default auto: the cheapest)")
      ->type_name("NAME");
  app.add_option("--streams",
                 simulate.streams,
                 "Exchanges whose latencies may overlap, on one wire (default 1; 0 = all)")
      ->check(whole_number_from(0, 4096))
      ->type_name("N");
  app.add_option(
         "--segment",
         segment,
         "With priority: after so much a more urgent bucket overtakes (default 0: after all of it)")
      ->type_name("SIZE");
  app.add_option("--zero", zero, "ZeRO stage: 0 (none), 1, 2 or 3 (FSDP)")
      ->check(whole_number_from(0, 3))
      ->type_name("N");
  app.add_option("--prefetch", simulate.prefetch, "Buckets that --zero 3 gathers ahead (default 1)")
      ->check(whole_number_from(0, 1 << 20))
      ->type_name("N");
  compress.add_to(
      app,
      "Codec of the gradients, with its time: int8, topk:0.01...; auto or auto:int8,...: "
      "one of those, per bucket, where it pays");
  app.add_option("--accumulate", simulate.accumulate, "Passes per step; the last one communicates")
      ->check(whole_number_from(1, 1 << 20))
      ->type_name("N");
  app.add_option("--batch", device.batch, "Samples per rank and pass, of a model")
      ->check(whole_number_from(1, 1 << 30))
      ->type_name("N");
  auto* flops = app.add_option(
      "--device-flops", device.flops_per_s, "Rate assumed for a model (default 50e12)");
  flops->check(positive_number())->type_name("X");
  app.add_option("--flops", device.flops_per_s, "The same, as a peak with --mfu")
      ->check(positive_number())
      ->excludes(flops)
      ->type_name("X");
  app.add_option("--mfu", mfu, "Part of --flops that is reached, 0 to 1")
      ->check(number_from(1e-6, 1.0))
      ->type_name("X");
  app.add_option("--compute-s", compute_s, "Stretch the profile to so many seconds of compute")
      ->check(number_from(1e-9, 1e9))
      ->type_name("S");
  add_scale(app, "--compute-speed", compute_speed, "What if compute were X times as quick");
  add_scale(app, "--bandwidth", bandwidth, "What if all links were X times as quick");
  app.add_option("--latency", latency, "What if latencies were X times as long (0: none)")
      ->check(number_from(0.0, 1e6))
      ->type_name("X");
  app.add_option("--slowdown",
                 slowdown,
                 "Compute takes X times as long beside communication (default: the machine's); "
                 "auto: as measured in the trace")
      ->check([](const std::string& text) {
        return text == kMeasuredSlowdown ? std::string() : number_from(1.0, 100.0)(text);
      })
      ->type_name("X");
  app.add_option(
         "--rank-speed", rank_speed, "RANK=X: it computes X times as quick (again for more)")
      ->take_all()
      ->allow_extra_args(false)  // one each time: what follows is an argument
      ->type_name("R=X");
}

void PlanInput::refuse_model_flags(const std::string& input) const {
  const AssumedDevice usual;
  if (device.batch != usual.batch || device.flops_per_s != usual.flops_per_s || mfu > 0.0) {
    refuse("times that were measured need no assumed device or batch",
           "--batch, --device-flops, --flops, --mfu",
           input,
           "a model's name or table",
           "--compute-speed and --compute-s stretch measured times");
  }
}

void PlanInput::require_profile() const {
  if (trace.paths.empty()) {
    refuse("nothing to work on",
           "PROFILE",
           "",
           "a model's name, a profile, or traces",
           "Models: " + model_list());
  }
}

ExchangeCosts PlanInput::costs_on(const Machine& on,
                                  Algorithm chosen,
                                  const StepProfile& profile) const {
  ExchangeCosts costs = stretto::scaled(
      exchange_costs(on, chosen, std::max(Bytes(1), profile.bytes())), latency, 1.0 / bandwidth);
  if (costs.compute_slowdown == 1.0 && !profile.beside_communication) {
    costs.compute_slowdown = profile.compute_slowdown;  // its times are without it
  }
  if (!slowdown.empty() && slowdown != kMeasuredSlowdown) {
    costs.compute_slowdown = std::stod(slowdown);
  }
  return costs;
}

void PlanInput::price(Loaded& loaded, const std::vector<CodecSpec>& codecs) const {
  if (codecs.empty()) {
    return;
  }
  const PricedCodecs priced = price_codecs(loaded.machine ? &*loaded.machine : nullptr, codecs);
  ExchangeCosts& costs = loaded.costs;
  if (loaded.machine) {
    set_codecs(*loaded.machine, priced.rates);
    costs.codecs = costs_on(*loaded.machine, loaded.algorithm, loaded.profile).codecs;
  } else {
    costs.codecs = codec_costs(priced.rates, costs.all_reduce, costs.all_gather, costs.ranks);
  }
  loaded.costs_basis += "; " + priced.basis;
}

double PlanInput::slowdown_of_recording(const std::optional<Slowdown>& measured, bool quiet) const {
  const double believed = measured ? measured->believed() : 1.0;
  if (slowdown.empty() && believed > 1.0 && !quiet) {
    std::fputs(fmt::format("note: compute took {:.2f} times as long beside communication, and is "
                           "planned with as recorded; --slowdown auto takes that into account\n",
                           believed)
                   .c_str(),
               stderr);
  }
  if (slowdown == kMeasuredSlowdown && believed == 1.0) {
    refuse("no slow-down was measured in this trace",
           "--slowdown",
           measured ? fmt::format("{:.2f} over {} kernels: too little to tell from chance",
                                  measured->factor,
                                  measured->kernels)
                    : "no kernel that ran often enough beside communication and alone",
           "a factor");
  }
  return slowdown.empty() ? 1.0 : slowdown == kMeasuredSlowdown ? believed : std::stod(slowdown);
}

void PlanInput::refuse_idle_segment(const Loaded& loaded, const Plan* plan) const {
  const bool ordered =
      loaded.options.schedule == Schedule::kPriority ||
      (plan != nullptr &&
       std::any_of(plan->buckets.begin(), plan->buckets.end(), [&](const Bucket& bucket) {
         return bucket.priority != plan->buckets.front().priority;
       }));
  if (loaded.options.segment > Bytes(0) && !ordered) {
    refuse("no bucket is more urgent than another, so segments change nothing",
           "--segment",
           fmt::format("{} with --schedule {}", segment, schedule),
           "--schedule priority, or none");
  }
}

PlanInput::Loaded PlanInput::load(bool quiet) const {
  require_profile();
  Loaded loaded;
  loaded.options = simulate;
  loaded.options.schedule = from_flag("--schedule", [&] { return schedule_from_string(schedule); });
  loaded.options.sharding = static_cast<Sharding>(zero);
  if (!segment.empty()) {
    loaded.options.segment = from_flag("--segment", [&] { return parse_bytes(segment); });
  }
  if (mfu > 0.0 && device.flops_per_s == AssumedDevice{}.flops_per_s) {
    refuse("--mfu is a part of a peak that is not given",
           "--mfu",
           fmt::format("{}", mfu),
           "--flops X");
  }
  const Algorithm chosen =
      from_flag("--algorithm", [&] { return algorithm_from_string(algorithm); });
  if (!machine.empty()) {
    loaded.machine = load_machine("--machine", machine);
  }
  std::optional<ExchangeCosts> fitted;
  for (const std::string& path : trace.paths) {
    refuse_other_forms(path);
    if (trace.paths.size() > 1 && names_profile(path) && !std::filesystem::exists(path)) {
      refuse("one model at a time",
             "PROFILE",
             fmt::format("{}", fmt::join(trace.paths, " ")),
             "one model's name or profile; or only traces, of the ranks of one run",
             "Models: " + model_list());
    }
  }
  if (trace.paths.size() == 1 && names_profile(trace.paths[0])) {
    if (!names_model(trace.paths[0])) {
      refuse_model_flags("a step profile");
    }
    AssumedDevice assumed = device;
    assumed.flops_per_s *= mfu > 0.0 ? mfu : 1.0;
    loaded.profile = load_profile(trace.paths[0], assumed);
    if (slowdown == kMeasuredSlowdown && loaded.profile.compute_slowdown == 1.0) {
      refuse("no slow-down was measured here",
             "--slowdown",
             slowdown,
             "a factor, or a trace or profile that has one");
    }
  } else {
    const Trace read = trace.read(quiet);
    if (!quiet) {
      std::fputs(warnings_of(read).c_str(), stderr);
    }
    refuse_model_flags("a trace");
    const Explanation explanation = explain(read.timeline);
    loaded.profile = planning_profile_of_trace(read.timeline,
                                               slowdown_of_recording(explanation.slowdown, quiet));
    loaded.measured = explanation.summary;
    if (explanation.certificate && !explanation.certificate->sharded) {
      loaded.certificate = explanation.certificate;  // the other kind says nothing of buckets
    }
    if (loaded.machine && read.timeline.world_size != 0 &&
        std::int64_t{read.timeline.world_size} != std::int64_t{loaded.machine->ranks()} && !quiet) {
      std::fputs(fmt::format("note: recorded on {} ranks, planned for the {} of {}\n",
                             read.timeline.world_size,
                             loaded.machine->ranks(),
                             loaded.machine->name)
                     .c_str(),
                 stderr);
    }
    if (explanation.fitted) {
      const int ranks = static_cast<int>(std::max<std::uint32_t>(1, read.timeline.world_size));
      fitted = costs_of(*explanation.fitted, ranks);
      loaded.costs_basis =
          fmt::format("fitted to the trace's {} of {} sizes: {} + {:.4g} s/GB (measured)",
                      explanation.fitted->of_halves ? "reduce_scatters and all_gathers, each half "
                                                      "an all_reduce,"
                                                    : "all_reduces",
                      explanation.fitted->sizes,
                      format(explanation.fitted->cost.latency),
                      explanation.fitted->cost.seconds_per_byte * 1e9);
    }
  }
  if (compute_s) {
    if (!(loaded.profile.compute_end > Seconds(0))) {
      refuse("the profile has no compute to stretch",
             "--compute-s",
             fmt::format("{}", *compute_s),
             "a profile with times");
    }
    loaded.profile = scaled(loaded.profile, *compute_s / loaded.profile.compute_end.count());
  }
  loaded.profile = scaled(loaded.profile, 1.0 / compute_speed);
  if (loaded.machine) {
    if (!quiet) {
      std::fputs(beyond_measured(*loaded.machine, loaded.profile.bytes()).c_str(), stderr);
    }
    loaded.algorithm = chosen;
    loaded.costs = costs_on(*loaded.machine, chosen, loaded.profile);
    loaded.costs_basis = fmt::format("{} ({}{}{})",
                                     loaded.machine->name,
                                     to_string(loaded.machine->basis),
                                     loaded.machine->source.empty() ? "" : ": ",
                                     loaded.machine->source);
  } else if (fitted) {
    loaded.costs = stretto::scaled(*fitted, latency, 1.0 / bandwidth);
    loaded.costs.compute_slowdown = loaded.profile.compute_slowdown;
  } else {
    refuse(
        "what communication costs is not known",
        "--machine",
        "no machine, and the trace has too few ranks, calls or sizes of all_reduce to fit one to",
        "a preset, a file, or RANKS@BANDWIDTH,LATENCY",
        "Example: --machine 8@100Gbit/s,20us");
  }
  loaded.options.compute_factor = factors(rank_speed, loaded.costs.ranks);
  return loaded;
}

}  // namespace stretto::cli
