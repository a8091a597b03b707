// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "flags.hpp"
#include "job.hpp"
#include "layouts.hpp"
#include "numbers.hpp"
#include "output.hpp"
#include "plan_input.hpp"
#include "stretto/analyze/explain.hpp"
#include "stretto/base/text.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/plan/planner.hpp"
#include "stretto/plan/settings.hpp"
#include "stretto/report/plan_report.hpp"
#include "stretto/report/report.hpp"
#include "stretto/simulate/collective_cost.hpp"
#include "version.hpp"

namespace stretto::cli {
namespace {

using nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

struct PlanFlags {
  PlanInput input;
  LayoutFlags layouts;
  std::string emit;
  std::vector<int> ranks;
  std::vector<std::string> check;
  std::optional<double> exposed_below;
  std::string save_plan;
  std::string output;
  bool sweep = false;
  bool json = false;
};

std::string percent(double ratio) {
  return fmt::format("{:.1f} %", 100.0 * ratio);
}

// --sweep

std::vector<SweepPoint> sweep_of(const PlanInput::Loaded& loaded) {
  return sweep_caps(
      loaded.profile, loaded.costs, loaded.options, true, least_cap_to_sweep(loaded.profile), 2);
}

/// The rules of thumb, marked in the sweep.
std::vector<SweepMark> rules_of_thumb(const StepProfile& profile) {
  const auto layers = static_cast<std::int64_t>(std::max<std::size_t>(1, profile.forward.size()));
  const Bytes layer(std::max<std::int64_t>(1, profile.bytes().count() / layers));
  return {{"5 MiB", Bytes(5 << 20)},
          {"25 MiB", Bytes(25 << 20)},
          {"one layer (mean)", layer},
          {"four layers", layer * 4}};
}

ordered_json sweep_json(const std::vector<SweepPoint>& points) {
  ordered_json json = ordered_json::array();
  for (const SweepPoint& point : points) {
    json.push_back(ordered_json{{"cap_bytes", point.cap.count()},
                                {"buckets", point.buckets},
                                {"step_s", point.step.count()}});
  }
  return json;
}

// --ranks

struct ScalingRow {
  int ranks = 0;
  Algorithm algorithm = Algorithm::kAuto;
  Seconds step{};
  Seconds compute{};
  Seconds communication{};  ///< Of all gradients in the plan's buckets, one after the other.
  std::string_view price;   ///< Where that comes from: measured, formula, or both.
};

/// Where the prices of a step's exchanges come from; empty where they are not this algorithm's: a
/// curve that names no algorithm stands for each that has none of its own.
std::string_view price_of(const Machine& machine, bool sharded, Algorithm algorithm) {
  const auto measured = [&](Collective collective, Algorithm asked) {
    return std::any_of(
        machine.curves.begin(), machine.curves.end(), [&](const CollectiveCurve& curve) {
          return curve.collective == collective && curve.algorithm == asked &&
                 curve.ranks == machine.ranks() && !curve.points.empty();
        });
  };
  std::size_t curves = 0;
  std::size_t formulas = 0;
  for (const Collective collective :
       sharded ? std::vector<Collective>{Collective::kReduceScatter, Collective::kAllGather}
               : std::vector<Collective>{Collective::kAllReduce}) {
    if (measured(collective, algorithm)) {
      ++curves;
    } else if (measured(collective, Algorithm::kAuto)) {
      return {};
    } else if (algorithm != Algorithm::kAuto) {
      ++formulas;
    } else {  // the cheapest of all, for each size
      for (const AlgorithmCost& cost : compare_algorithms(machine, collective, Bytes(1))) {
        ++(cost.basis == Basis::kMeasured && measured(collective, cost.algorithm) ? curves
                                                                                  : formulas);
      }
    }
  }
  return formulas == 0 ? "measured" : curves == 0 ? "formula" : "both";
}

std::vector<ScalingRow> scaling_of(const PlanFlags& flags, const PlanInput::Loaded& loaded) {
  if (!loaded.machine) {
    throw Error(ErrorCode::kInvalidArgument,
                {"costs fitted to a trace hold for its own number of ranks",
                 "--ranks",
                 "no machine",
                 "--machine M",
                 "Example: --machine dgx-h100x4 --ranks 8,16,32"});
  }
  std::vector<ScalingRow> rows;
  std::set<int> seen;
  for (const int ranks : flags.ranks) {
    if (!seen.insert(ranks).second) {
      continue;
    }
    const Machine machine =
        from_flag("--ranks", [&] { return with_ranks(*loaded.machine, ranks); });
    std::vector<Algorithm> algorithms = {Algorithm::kAuto};
    for (const AlgorithmCost& cost :
         compare_algorithms(machine, Collective::kAllReduce, loaded.profile.bytes())) {
      if (std::find(algorithms.begin(), algorithms.end(), cost.algorithm) == algorithms.end()) {
        algorithms.push_back(cost.algorithm);
      }
    }
    for (const Algorithm algorithm : algorithms) {
      const std::string_view price = price_of(machine, flags.input.zero > 0, algorithm);
      if (price.empty()) {
        continue;
      }
      SimulateOptions options = loaded.options;
      options.compute_factor.clear();
      const ExchangeCosts costs = flags.input.costs_on(machine, algorithm, loaded.profile);
      const PlanResult best = plan(loaded.profile, costs, options);
      ScalingRow row{ranks, algorithm, best.step, best.compute, {}, price};
      for (const Bucket& bucket : best.plan.buckets) {
        row.communication += costs.all_reduce(bucket.bytes());
      }
      rows.push_back(row);
    }
  }
  return rows;
}

std::string scaling_text(const std::vector<ScalingRow>& rows, std::int64_t batch) {
  Rows table_rows = {{"ranks, algorithm",
                      "step",
                      "exposed",
                      "samples/s",
                      "efficiency",
                      "communication share",
                      "prices"}};
  for (const ScalingRow& row : rows) {
    const double samples = static_cast<double>(batch * row.ranks) / row.step.count();
    table_rows.push_back({fmt::format("{}, {}", row.ranks, to_string(row.algorithm)),
                          format(row.step),
                          format(row.step - row.compute),
                          batch > 0 ? fmt::format("{:.0f}", samples) : "n/a",
                          percent(row.compute / row.step),
                          percent(row.communication / (row.communication + row.compute)),
                          std::string(row.price)});
  }
  return table(table_rows);
}

ordered_json scaling_json(const std::vector<ScalingRow>& rows, std::int64_t batch) {
  ordered_json json = ordered_json::array();
  for (const ScalingRow& row : rows) {
    ordered_json entry{
        {"ranks", row.ranks},
        {"algorithm", to_string(row.algorithm)},
        {"step_s", row.step.count()},
        {"exposed_s", (row.step - row.compute).count()},
        {"scaling_efficiency", row.compute / row.step},
        {"communication_ratio", row.communication / (row.communication + row.compute)},
        {"prices", row.price}};
    entry["samples_per_s"] =
        batch > 0 ? ordered_json(static_cast<double>(batch * row.ranks) / row.step.count())
                  : ordered_json(nullptr);
    json.push_back(std::move(entry));
  }
  return json;
}

// --exposed-below

/// The least whole number for which `good` holds, when it holds from there on.
template <typename Good>
std::optional<std::int64_t> least(std::int64_t most, Good good) {
  std::int64_t high = 1;
  while (!good(high)) {
    if (high >= most) {
      return std::nullopt;
    }
    high = std::min(most, high * 2);
  }
  std::int64_t low = high / 2;  // not good, or 0
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (good(middle) ? high : low) = middle;
  }
  return high;
}

std::string hiding_text(const PlanFlags& flags, const PlanInput::Loaded& loaded) {
  const double wanted = *flags.exposed_below / 100.0;
  const auto exposed_ratio = [&](const StepProfile& profile, const SimulateOptions& options) {
    const PlanResult result = plan(profile, loaded.costs, options);
    return result.exposed() / result.step;
  };
  constexpr std::int64_t kMost = 1 << 16;
  const auto accumulate = least(kMost, [&](std::int64_t passes) {
    SimulateOptions options = loaded.options;
    options.accumulate = static_cast<int>(passes);
    return exposed_ratio(loaded.profile, options) < wanted;
  });
  std::string text = accumulate ? fmt::format("accumulation: {} {} per step\n",
                                              *accumulate,
                                              *accumulate == 1 ? "pass" : "passes")
                                : fmt::format("accumulation: not with {} passes\n", kMost);
  if (loaded.profile.batch > 0) {
    // Compute as long as the batch is large; what does not grow with it is not known.
    const auto batch = least(kMost, [&](std::int64_t samples) {
      const double factor =
          static_cast<double>(samples) / static_cast<double>(loaded.profile.batch);
      return exposed_ratio(scaled(loaded.profile, factor), loaded.options) < wanted;
    });
    text += batch ? fmt::format("batch: {} per rank (compute taken as proportional)\n", *batch)
                  : fmt::format("batch: not with {} per rank\n", kMost);
  }
  return fmt::format("smallest with less than {:g} % of the step exposed:\n",
                     *flags.exposed_below) +
         text;
}

// --check

std::string check_text(const PlanFlags& flags,
                       const PlanInput::Loaded& loaded,
                       const PlanResult& result) {
  if (!loaded.measured) {
    throw Error(ErrorCode::kInvalidArgument,
                {"only a plan made from a trace can be checked against another trace",
                 "--check",
                 flags.input.trace.paths[0],
                 "the trace of the run before the change",
                 "Example: stretto plan before.json.gz --check after.json.gz"});
  }
  TraceOptions reading = flags.input.trace;
  reading.paths = flags.check;
  const Explanation after = explain(reading.read(flags.json).timeline);
  if (!after.summary) {
    throw Error(ErrorCode::kParse,
                {"the trace has no steps to compare", flags.check[0], "none", "marked steps", ""});
  }
  const Settings ddp =
      settings_for(Framework::kDdp, loaded.profile, loaded.costs, result, loaded.options);
  Rows rows = {{"", "step", "exposed", "launches"}};
  rows.push_back({"before",
                  format(loaded.measured->step),
                  format(loaded.measured->exposed),
                  fmt::format("{:.0f}", loaded.measured->launches)});
  rows.push_back({"predicted with the best single cap",
                  format(ddp.step),
                  format(ddp.step - result.compute),
                  ""});
  rows.push_back({"predicted with the plan",
                  format(result.step),
                  format(result.exposed()),
                  std::to_string(result.plan.buckets.size())});
  rows.push_back({"achieved",
                  format(after.summary->step),
                  format(after.summary->exposed),
                  fmt::format("{:.0f}", after.summary->launches)});
  // What buckets can give: the rest of the exposed time is in no model of them.
  const Seconds promised =
      loaded.certificate ? loaded.certificate->recoverable : loaded.measured->step - result.step;
  const Seconds got = loaded.measured->step - after.summary->step;
  return fmt::format("{} per step won, of {} that other buckets were to save{}\n\n",
                     format(got),
                     format(promised),
                     promised > Seconds(0) ? fmt::format(" ({})", percent(got / promised)) : "") +
         table(rows);
}

// The whole answer.

std::string inputs_text(const PlanInput::Loaded& loaded) {
  std::string recorded;
  if (loaded.measured) {
    recorded =
        fmt::format("\nrecorded: step {}, {} exposed{}",
                    format(loaded.measured->step),
                    format(loaded.measured->exposed),
                    loaded.certificate ? fmt::format("; the model has {} exposed for its buckets",
                                                     format(loaded.certificate->exposed_model))
                                       : std::string());
  }
  return recorded + fmt::format("\nprofile: {}, {} in {} tensors, {}{}{}\nmachine: {}\n",
                                loaded.profile.model,
                                format(loaded.profile.bytes()),
                                loaded.profile.tensors.size(),
                                to_string(loaded.profile.basis),
                                loaded.profile.assumptions.empty() ? "" : ": ",
                                loaded.profile.assumptions,
                                loaded.costs_basis);
}

/// One command that goes on from here: what to set for a trace; the same step with real bytes where
/// this host may emulate the machine and runs the schedule; else its picture.
std::string next_of(const PlanFlags& flags,
                    const Context& context,
                    const PlanInput::Loaded& loaded) {
  std::vector<std::string> arguments = context.arguments;
  const PlanInput& input = flags.input;
  const bool runs = input.zero == 0 && input.bandwidth == 1.0 && input.latency == 1.0 &&
                    input.compute_speed == 1.0 && input.slowdown.empty() &&
                    input.rank_speed.empty() && loaded.options.accumulate == 1 &&
                    input.machine.find('@') != std::string::npos;
  if (loaded.measured) {
    arguments.insert(arguments.end(), {"--emit", "ddp"});
  } else if (runs && arguments.size() == 4) {
    arguments = {
        "replay", input.trace.paths[0], "--emulate", input.machine, "--buckets", "planned"};
  } else {
    arguments.front() = "simulate";
  }
  return command_line(arguments);
}

/// What the answer is about; without --json one at a time.
void check_modes(const PlanFlags& flags) {
  std::vector<std::string> modes;
  const auto add = [&](bool given, const char* name) {
    if (given) {
      modes.emplace_back(name);
    }
  };
  add(flags.layouts.wanted, "--layouts");
  add(flags.sweep, "--sweep");
  add(!flags.ranks.empty(), "--ranks");
  add(!flags.emit.empty(), "--emit");
  add(flags.exposed_below.has_value(), "--exposed-below");
  add(!flags.check.empty(), "--check");
  const PlanInput& input = flags.input;
  const bool what_if = input.bandwidth != 1.0 || input.latency != 1.0 ||
                       input.compute_speed != 1.0 || !input.slowdown.empty() || input.zero != 0 ||
                       !input.rank_speed.empty() || input.simulate.accumulate != 1 ||
                       input.schedule != "overlap" || input.algorithm != "auto" ||
                       input.compute_s.has_value() || !flags.save_plan.empty();
  if (flags.layouts.wanted && (what_if || modes.size() > 1)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"--layouts has flags of its own, and takes no other what-ifs",
         "--layouts",
         "flags of the planner beside it",
         "--machine, --shape, --device, --global-batch, --most, --fused-attention, --imbalance",
         ""});
  }
  if (!flags.json && modes.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                {"one question at a time",
                 "plan",
                 modes[0] + " and " + modes[1],
                 "one of them, or --json, which answers all",
                 ""});
  }
}

ordered_json document_of(const PlanFlags& flags,
                         const Context& context,
                         const PlanInput::Loaded& loaded,
                         const PlanResult& result) {
  ordered_json document = {{"schema", "stretto.plan_result/1"},
                           {"version", kVersion},
                           {"arguments", context.arguments},
                           {"model", loaded.profile.model},
                           {"ranks", loaded.costs.ranks},
                           {"profile_basis", to_string(loaded.profile.basis)},
                           {"profile_assumptions", loaded.profile.assumptions},
                           {"machine", loaded.costs_basis}};
  document.update(ordered_json::parse(to_json(result)));
  ordered_json emit = ordered_json::object();
  for (const Framework framework : {Framework::kDdp,
                                    Framework::kFsdp,
                                    Framework::kDeepSpeed,
                                    Framework::kMegatron,
                                    Framework::kHorovod,
                                    Framework::kNccl}) {
    if (!flags.emit.empty() && to_string(framework) != flags.emit) {
      continue;
    }
    const Settings settings =
        settings_for(framework, loaded.profile, loaded.costs, result, loaded.options);
    emit[std::string(to_string(framework))] = {
        {"text", settings.text}, {"note", settings.note}, {"step_s", settings.step.count()}};
  }
  document["emit"] = std::move(emit);
  return document;
}

std::string text_of(const PlanFlags& flags,
                    const Context& context,
                    const PlanInput::Loaded& loaded,
                    const PlanResult& result) {
  if (!flags.emit.empty()) {
    const Framework framework =
        from_flag("--emit", [&] { return framework_from_string(flags.emit); });
    const Settings settings =
        settings_for(framework, loaded.profile, loaded.costs, result, loaded.options);
    if (!settings.note.empty()) {
      std::fputs(fmt::format("note: {}\n", settings.note).c_str(), stderr);
    }
    return settings.text;
  }
  if (!flags.check.empty()) {
    return check_text(flags, loaded, result);
  }
  if (flags.exposed_below) {
    return hiding_text(flags, loaded) + inputs_text(loaded);
  }
  if (flags.sweep) {
    return verdict(result) + "\n\n" +
           text_sweep(result, sweep_of(loaded), rules_of_thumb(loaded.profile), 90) +
           inputs_text(loaded);
  }
  if (!flags.ranks.empty()) {
    return scaling_text(scaling_of(flags, loaded),
                        loaded.profile.batch * loaded.options.accumulate) +
           inputs_text(loaded);
  }
  return text_plan(result) + inputs_text(loaded) +
         fmt::format("next: {}\n", next_of(flags, context, loaded));
}

std::string layouts_of(const PlanFlags& flags, const Context& context) {
  if (flags.input.machine.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"layouts need a machine",
                 "--machine",
                 "",
                 "a preset, a file, or RANKS@BANDWIDTH,LATENCY",
                 "Example: stretto plan llama2_7b --layouts --machine dgx-a100x4"});
  }
  if (flags.layouts.shape.empty()) {
    flags.input.require_profile();
  }
  const Machine machine = load_machine("--machine", flags.input.machine);
  const std::string model =
      flags.input.trace.paths.empty() ? flags.layouts.shape : flags.input.trace.paths.front();
  if (!flags.json) {
    return flags.layouts.text(model, machine);
  }
  return ordered_json{{"schema", "stretto.plan_result/1"},
                      {"version", kVersion},
                      {"arguments", context.arguments},
                      {"model", model},
                      {"ranks", machine.ranks()},
                      {"device", flags.layouts.device},
                      {"layouts", flags.layouts.json(model, machine)}}
             .dump(2, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

/// --compress is of the whole plan.
void require_codec_fits(const PlanInput::Loaded& loaded) {
  const auto refuse = [](std::string found, std::string expected) {
    throw Error(ErrorCode::kInvalidArgument,
                {"these gradients cannot travel encoded",
                 "--compress",
                 std::move(found),
                 std::move(expected),
                 {}});
  };
  if (loaded.options.sharding != Sharding::kNone) {
    refuse("sharded gradients (--zero)", "gradients that are all-reduced");
  }
  for (const ProfileTensor& tensor : loaded.profile.tensors) {
    if (tensor.dtype != DType::kF32) {
      refuse(fmt::format("tensor {} of {}", quote(tensor.name), to_string(tensor.dtype)),
             "gradients of f32");
    }
  }
}

int run_plan(const PlanFlags& flags, const Context& context) {
  check_modes(flags);
  if (flags.layouts.wanted) {
    const std::string layouts = layouts_of(flags, context);
    if (flags.output.empty()) {
      write_stdout(layouts);
    } else {
      write_file(flags.output, layouts);
    }
    return 0;
  }
  PlanInput::Loaded loaded = flags.input.load(flags.json);
  flags.input.refuse_idle_segment(loaded, nullptr);
  const CodecSpec codec = flags.input.compress.uniform();
  AutoCodecs codecs;
  if (codec.lossy() || flags.input.compress.automatic()) {
    require_codec_fits(loaded);
  }
  const CodecPolicy policy =
      flags.input.compress.automatic() ? flags.input.compress.policy() : CodecPolicy{};
  if (codec.lossy()) {  // the cut is then for exchanges with it
    flags.input.price(loaded, {codec});
    loaded.costs.all_reduce =
        loaded.costs.codec(codec)->curve(std::max(Bytes(1), loaded.profile.bytes()));
  }
  PlanResult result = plan(loaded.profile, loaded.costs, loaded.options);
  flags.input.compress.set(result.plan);
  if (flags.input.compress.automatic()) {
    flags.input.price(loaded, policy.allowed);
    codecs.choice = plan_codecs(loaded.profile, loaded.costs, loaded.options, policy);
  }
  const bool chosen = !codecs.choice.buckets.empty();
  if (!flags.save_plan.empty()) {
    write_file(flags.save_plan, to_json(chosen ? codecs.choice.plan : result.plan));
  }
  std::string text;
  if (flags.json) {
    ordered_json document = document_of(flags, context, loaded, result);
    if (chosen) {
      document["codecs"] = auto_codecs_json(codecs);
      document["codecs"]["plan"] = ordered_json::parse(to_json(codecs.choice.plan));
    }
    if (flags.sweep) {
      document["sweep"] = sweep_json(sweep_of(loaded));
    }
    if (!flags.ranks.empty()) {
      document["scaling"] =
          scaling_json(scaling_of(flags, loaded), loaded.profile.batch * loaded.options.accumulate);
    }
    text = document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  } else {
    text = (chosen ? auto_codecs_text(codecs) + "\nwithout codecs: " : std::string()) +
           text_of(flags, context, loaded, result);
  }
  if (flags.output.empty()) {
    write_stdout(text);
  } else {
    write_file(flags.output, text);
  }
  return 0;
}

}  // namespace

Action add_plan(CLI::App& app) {
  app.description(
      "Finds the best buckets for a model and a machine, and says how little any schedule can "
      "take");
  app.footer(
      "Examples:\n"
      "  stretto plan resnet50 --machine 8@5Gbit/s,50us\n"
      "  stretto plan gpt2_124m --machine dgx-h100x4 --sweep\n"
      "  stretto plan trace_rank0.json.gz --emit ddp\n"
      "  stretto plan bert_large --machine 10gbex8 --ranks 8,32,128 --json\n"
      "  stretto plan before/ --check after/\n"
      "  stretto plan llama2_7b --layouts --machine dgx-a100x4 --global-batch 256");
  const auto flags = std::make_shared<PlanFlags>();
  flags->input.add_to(app);
  flags->layouts.add_to(app);
  app.add_flag("--sweep", flags->sweep, "Step over bucket size, with the rules of thumb marked");
  app.add_option("--ranks", flags->ranks, "Scaling: the best step for each number, per algorithm")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_number_from(1, 1 << 24))
      ->type_name("N,N");
  app.add_option("--emit",
                 flags->emit,
                 "Settings to paste: ddp, fsdp, deepspeed, megatron, horovod or nccl")
      ->type_name("NAME");
  app.add_option("--exposed-below",
                 flags->exposed_below,
                 "The smallest batch and accumulation with less than X % of the step exposed")
      ->check(number_from(0.01, 99.0))
      ->type_name("X");
  app.add_option("--check", flags->check, "Trace of the run after the change: predicted, achieved")
      ->type_name("TRACE");
  app.add_option("--save-plan", flags->save_plan, "Write the plan there, for train and replay")
      ->type_name("FILE");
  app.add_option("-o,--output", flags->output, "Write the result there instead of to stdout")
      ->type_name("FILE");
  app.add_flag("--json", flags->json, "One JSON document on stdout");
  return [flags](const Context& context) { return run_plan(*flags, context); };
}

}  // namespace stretto::cli
