// SPDX-License-Identifier: Apache-2.0
#include "schedule.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "flags.hpp"
#include "job.hpp"
#include "numbers.hpp"
#include "output.hpp"
#include "stretto/analyze/analyze.hpp"
#include "stretto/base/text.hpp"
#include "stretto/plan/algorithm_choice.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/plan/planner.hpp"
#include "stretto/run/text_exchange.hpp"

namespace stretto::cli {
namespace {

constexpr Bytes kDefaultBucket(4 << 20);

Plan read_plan(const std::string& path, const std::vector<TensorSpec>& tensors) {
  const std::string text = read_file(path, "--plan");
  Plan plan = from_file(path, [&] { return plan_from_json(text, path); });
  if (plan.tensors != tensors) {
    Plan wanted;
    wanted.tensors = tensors;
    Plan found;
    found.tensors = plan.tensors;
    PlanDifference first = difference(wanted, found);
    throw Error(ErrorCode::kParse,
                {"the plan is for another model",
                 fmt::format("{}, {}", path, first.where),
                 std::move(first.found),
                 std::move(first.expected),
                 "Use the plan with the model it was made for; --save-plan writes one"});
  }
  return plan;
}

/// Of a --buckets that is neither planned nor ddp.
Bytes bucket_size(const std::string& text) {
  const auto refuse = [&](std::string expected, std::string help) {
    throw Error(ErrorCode::kInvalidArgument,
                {"buckets cannot be made like this",
                 "--buckets",
                 quote(text),
                 std::move(expected),
                 std::move(help)});
  };
  constexpr std::array<std::string_view, 2> kRules = {"planned", "ddp"};
  Bytes size;
  try {
    size = parse_bytes(text);
  } catch (const Error& error) {
    const std::string_view meant = nearest(text, kRules);
    refuse("planned, ddp, or " + error.detail().expected,
           meant.empty() ? std::string() : fmt::format("Did you mean {}?", quote(meant)));
  }
  if (size <= Bytes(0)) {
    refuse("planned, ddp, or a size above 0", "Example: 4M");
  }
  return size;
}

}  // namespace

void ScheduleOptions::add_to(CLI::App& app) {
  app.add_option("--schedule",
                 schedule,
                 "serial (communicate after backward), overlap (during it; default) or priority "
                 "(during it and the next forward pass, what that reads first first)")
      ->type_name("NAME");
  auto* by_rule =
      app.add_option(
             "--buckets",
             buckets,
             "planned (for the emulated machine), ddp (PyTorch's rules, imitated) or a size "
             "like 4M, tensors split (default with overlap: replay on an emulated machine "
             "plans, else 4M; one bucket with serial)")
          ->type_name("RULE");
  app.add_option("--plan", plan, "Buckets from this file (see --save-plan)")
      ->excludes(by_rule)
      ->type_name("FILE");
  app.add_option(
         "--algorithm",
         algorithm,
         "direct (default: equal weights for every schedule), auto (the cheapest on the "
         "machine; without one, direct) or another: ring, halving_doubling, hierarchical...")
      ->type_name("NAME");
  app.add_option("--machine", machine, "What --algorithm auto reckons with; else --emulate's")
      ->type_name("M");
  app.add_flag("--explain", explain, "Say which algorithm --algorithm auto takes, and why");
  compress.add_to(app,
                  "Codec of the gradients: none (default), fp16, bf16, int8, int4, onebit, "
                  "topk:0.01, threshold:3rms, powersgd:4...; auto or auto:int8,topk:0.01: one of "
                  "those, per bucket, where it pays. All but none lose something: see "
                  "docs/compression.md");
  app.add_option("--compress-start",
                 compress.start,
                 "So many steps, the warm-up included, travel as they are first (default 0)")
      ->check(CLI::Range(0, 1000000000))
      ->type_name("STEPS");
  app.add_option("--streams", streams, "Buckets on the wire at once (default 1; 0 = all)")
      ->check(whole_number_from(0, 4096))
      ->type_name("N");
  app.add_option("--verify", verify, "Every N steps reduce one bucket a second time and compare")
      ->type_name("N");
  app.add_option(
         "--warmup", warmup, fmt::format("Steps before those measured (default {})", warmup))
      ->type_name("N");
}

std::vector<NamedValue> ScheduleOptions::settings() const {
  return {{"--schedule", schedule},
          {"--plan", plan.empty() ? "" : "a file"},  // which may lie elsewhere for each rank
          {"--buckets", buckets},
          {"--algorithm", algorithm},
          {"--machine", machine},
          {"--compress", compress.codec},
          {"--compress-except", fmt::format("{}", fmt::join(compress.exact, ","))},
          {"--compress-min", compress.least_bytes},
          {"--compress-ratio", fmt::format("{}", compress.least_ratio)},
          {"--compress-gain", fmt::format("{}", compress.least_gain_percent)},
          {"--compress-start", fmt::format("{}", compress.start)},
          {"--streams", fmt::format("{}", streams)},
          {"--verify", fmt::format("{}", verify)},
          {"--steps", fmt::format("{}", steps)},
          {"--warmup", fmt::format("{}", warmup)}};
}

ScheduleOptions::Resolved ScheduleOptions::resolve(const std::vector<TensorSpec>& tensors) const {
  if (planned()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"buckets can be planned where it is known what communication costs",
                 "--buckets planned",
                 "no machine",
                 "--emulate M",
                 "Or write a plan with stretto plan --save-plan FILE, and use --plan FILE"});
  }
  return resolve_rule(tensors);
}

ScheduleOptions::Resolved ScheduleOptions::resolve(const StepProfile& profile,
                                                   const ExchangeCosts& costs,
                                                   const SimulateOptions& options) const {
  const bool overlap = chosen_schedule() != Schedule::kSerial;
  if (!planned() && !(plan.empty() && buckets.empty() && overlap)) {
    return resolve_rule(tensors_of(profile));
  }
  ScheduleOptions other = *this;
  other.buckets = "4M";
  Resolved resolved = other.resolve_rule(tensors_of(profile));
  const Algorithm chosen = chosen_algorithm();
  // The cut is for exchanges with the codec, where their price is known.
  ExchangeCosts with_codec = costs;
  if (const CodecCost* const cost = costs.codec(compress.uniform())) {
    with_codec.all_reduce = cost->curve(std::max(Bytes(1), profile.bytes()));
  }
  resolved.plan = stretto::plan(profile, with_codec, options).plan;
  for (Bucket& bucket : resolved.plan.buckets) {
    bucket.algorithm = chosen;
  }
  compress.set(resolved.plan);
  resolved.name = fmt::format("{}, {} planned {}{}",
                              schedule,
                              resolved.plan.buckets.size(),
                              resolved.plan.buckets.size() == 1 ? "bucket" : "buckets",
                              compress.codec.empty() ? "" : ", " + compress.codec);
  return resolved;
}

ScheduleOptions::Resolved ScheduleOptions::resolve_rule(
    const std::vector<TensorSpec>& tensors) const {
  Resolved resolved;
  resolved.session.schedule = chosen_schedule();
  resolved.session.streams = streams;
  resolved.session.verify_every = verify;
  resolved.session.codec_start = compress.start;
  const Algorithm chosen = chosen_algorithm();
  std::string rule;
  if (!plan.empty()) {
    resolved.plan = read_plan(plan, tensors);
    rule = fmt::format("plan {}", plan);
  } else if (buckets == "ddp") {
    resolved.plan = ddp_plan(tensors);
    rule = "DDP bucket rules (Stretto's imitation)";
  } else if (buckets.empty() && resolved.session.schedule == Schedule::kSerial) {
    resolved.plan = single_bucket_plan(tensors);
  } else {
    const Bytes cap = buckets.empty() ? kDefaultBucket : bucket_size(buckets);
    resolved.plan = uniform_plan(tensors, cap);
    rule = fmt::format("buckets of {}", format(cap));
  }
  if (plan.empty() || !algorithm.empty()) {
    for (Bucket& bucket : resolved.plan.buckets) {
      bucket.algorithm = chosen;
    }
  }
  compress.set(resolved.plan);
  resolved.name = rule.empty() ? schedule : fmt::format("{}, {}", schedule, rule);
  if (!compress.codec.empty()) {
    resolved.name += ", " + compress.codec;
  }
  return resolved;
}

ExchangeCosts emulated_costs(const Machine& machine, Algorithm algorithm, Bytes most) {
  if (algorithm != Algorithm::kAuto) {
    return exchange_costs(machine, algorithm, most);
  }
  ExchangeCosts costs = exchange_costs(machine, Algorithm::kDirect, most);
  const AlgorithmTable table = algorithm_table(
      machine, Collective::kAllReduce, runnable_algorithms(Collective::kAllReduce), most);
  if (!table.rules.empty()) {
    costs.all_reduce = table_time(machine, Collective::kAllReduce, table, most);
  }
  return costs;
}

Schedule ScheduleOptions::chosen_schedule() const {
  return from_flag("--schedule", [&] { return schedule_from_string(schedule); });
}

SimulateOptions ScheduleOptions::simulated(const Machine& emulated) const {
  SimulateOptions options;
  options.streams = streams;
  // What is planned for is what can run: a serial run of planned buckets is compared with them.
  if (chosen_schedule() == Schedule::kPriority) {
    options.schedule = Schedule::kPriority;
    // Where an emulated link lets an urgent message overtake.
    constexpr double kSegmentBytes = 256.0 * 1024;
    constexpr double kSegmentSeconds = 1e-3;
    options.segment = Bytes(static_cast<std::int64_t>(
        std::max(kSegmentBytes, emulated.levels.front().bandwidth.value() * kSegmentSeconds)));
  }
  return options;
}

Algorithm ScheduleOptions::chosen_algorithm() const {
  return algorithm.empty()
             ? Algorithm::kDirect
             : from_flag("--algorithm", [&] { return algorithm_from_string(algorithm); });
}

std::optional<Machine> ScheduleOptions::machine_for_auto(
    const std::optional<Machine>& emulated) const {
  return machine.empty() ? emulated : load_machine("--machine", machine);
}

void ScheduleOptions::choose_algorithms(Communicator& communicator,
                                        const std::optional<Machine>& emulated) const {
  constexpr Bytes kMost(std::int64_t{4} << 30);
  const bool automatic = algorithm == "auto";
  if (!machine.empty() && emulated) {
    throw Error(ErrorCode::kInvalidArgument,
                {"two machines are given",
                 "--machine",
                 "--machine and --emulate",
                 "one of them",
                 "With --emulate the algorithm is chosen for the emulated machine"});
  }
  const std::optional<Machine> found = machine_for_auto(emulated);
  const bool for_codecs = compress.automatic() && !explain;
  if ((explain || !machine.empty()) && !(automatic && found) && !for_codecs) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"an algorithm is chosen by itself where that is asked for and a machine is known",
         explain ? "--explain" : "--machine",
         fmt::format(
             "--algorithm {}{}", to_string(chosen_algorithm()), found ? "" : ", no machine"),
         "--algorithm auto with --machine M or --emulate M",
         "stretto measure writes such a machine"});
  }
  if (!found || (!automatic && !for_codecs)) {
    return;
  }
  if (found->ranks() != communicator.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the machine has another number of ranks than the job",
                 machine.empty() ? "--emulate" : "--machine",
                 std::to_string(found->ranks()),
                 std::to_string(communicator.size()),
                 "Measure with as many ranks as you train with"});
  }
  if (!automatic) {
    return;
  }
  // Rank 0's: another table on another rank would be another algorithm.
  const Machine agreed =
      machine_from_json(broadcast_text(communicator, to_json(*found), 0), "rank 0's machine");
  AlgorithmTable table;
  for (const Collective collective : {Collective::kAllReduce, Collective::kBroadcast}) {
    const std::vector<Algorithm> algorithms = runnable_algorithms(collective);
    const AlgorithmTable part = algorithm_table(agreed, collective, algorithms, kMost);
    table.rules.insert(table.rules.end(), part.rules.begin(), part.rules.end());
    if (explain && collective == Collective::kAllReduce && communicator.rank() == 0) {
      std::fputs(stretto::explain(agreed, part, algorithms).c_str(), stderr);
    }
  }
  communicator.use(std::move(table));
}

StepProfile measured_profile(const Timeline& timeline, const std::vector<TensorSpec>& tensors) {
  StepProfile shape;
  for (const TensorSpec& tensor : tensors) {
    shape.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
  }
  StepProfile profile = step_profile(timeline, shape);
  // Measured times differ by noise from the order of the tensors, which is that of the plan.
  Seconds latest{};
  std::vector<ProfileTensor> in_order;
  for (const TensorSpec& tensor : tensors) {
    const auto found =
        std::find_if(profile.tensors.begin(), profile.tensors.end(), [&](const auto& measured) {
          return measured.name == tensor.name;
        });
    latest = std::max(latest, found->ready);
    in_order.push_back({tensor.name, tensor.dtype, tensor.shape, latest});
  }
  profile.tensors = std::move(in_order);
  return profile;
}

void ScheduleOptions::refuse_auto_codecs() const {
  throw Error(ErrorCode::kInvalidArgument,
              {"whether a codec pays depends on the link",
               "--compress " + compress.codec,
               "no machine",
               "--machine M or --emulate M",
               "stretto measure all_reduce --codec all -o machine.json measures this one"});
}

AutoCodecs ScheduleOptions::choose_codecs(const StepProfile& profile,
                                          const Machine& on,
                                          const Plan& buckets_of,
                                          bool cut) const {
  const CodecPolicy policy = compress.policy();
  Machine priced = on;
  stretto::cli::set_codecs(priced, price_codecs(&on, policy.allowed).rates);
  const ExchangeCosts costs = emulated_costs(priced, chosen_algorithm(), profile.bytes());
  SimulateOptions options = simulated(on);
  options.schedule = chosen_schedule();
  AutoCodecs codecs;
  codecs.choice = cut ? plan_codecs(profile, costs, options, policy)
                      : stretto::choose_codecs(profile, costs, buckets_of, options, policy);
  for (Bucket& bucket : codecs.choice.plan.buckets) {
    if (cut) {
      bucket.algorithm = chosen_algorithm();
    }
    if (bucket.codec.lossy()) {
      bucket.algorithm = Algorithm::kDirect;
    }
  }
  return codecs;
}

Plan plan_measured(Communicator& communicator,
                   const Timeline& timeline,
                   const std::vector<TensorSpec>& tensors,
                   const Machine& machine,
                   const ScheduleOptions& schedule) {
  std::string text;
  if (communicator.rank() == 0) {
    const StepProfile profile = measured_profile(timeline, tensors);
    const Algorithm algorithm = schedule.chosen_algorithm();
    Plan made = stretto::plan(profile,
                              emulated_costs(machine, algorithm, profile.bytes()),
                              schedule.simulated(machine))
                    .plan;
    for (Bucket& bucket : made.buckets) {
      bucket.algorithm = algorithm;
    }
    text = to_json(made);
  }
  text = broadcast_text(communicator, text, 0);
  return plan_from_json(text, "rank 0's plan");
}

}  // namespace stretto::cli
