// SPDX-License-Identifier: Apache-2.0
#include "schedule.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "flags.hpp"
#include "output.hpp"
#include "stretto/analyze/analyze.hpp"
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

}  // namespace

void ScheduleOptions::add_to(CLI::App& app) {
  app.add_option("--schedule",
                 schedule,
                 "serial (communicate after backward) or overlap (during it; default)")
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
  app.add_option("--algorithm", algorithm, "auto (default), direct or ring")->type_name("NAME");
  app.add_option("--streams", streams, "Buckets on the wire at once (default 1; 0 = all)")
      ->check(CLI::Range(0, 4096))
      ->type_name("N");
  app.add_option("--verify", verify, "Every N steps reduce one bucket a second time and compare")
      ->type_name("N");
  app.add_option(
         "--warmup", warmup, fmt::format("Steps before those measured (default {})", warmup))
      ->type_name("N");
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
  const bool overlap =
      from_flag("--schedule", [&] { return schedule_from_string(schedule); }) != Schedule::kSerial;
  if (!planned() && !(plan.empty() && buckets.empty() && overlap)) {
    return resolve_rule(tensors_of(profile));
  }
  ScheduleOptions other = *this;
  other.buckets = "4M";
  Resolved resolved = other.resolve_rule(tensors_of(profile));
  const Algorithm chosen =
      from_flag("--algorithm", [&] { return algorithm_from_string(algorithm); });
  resolved.plan = stretto::plan(profile, costs, options).plan;
  for (Bucket& bucket : resolved.plan.buckets) {
    bucket.algorithm = chosen;
  }
  resolved.name = fmt::format("{}, {} planned {}",
                              schedule,
                              resolved.plan.buckets.size(),
                              resolved.plan.buckets.size() == 1 ? "bucket" : "buckets");
  return resolved;
}

ScheduleOptions::Resolved ScheduleOptions::resolve_rule(
    const std::vector<TensorSpec>& tensors) const {
  Resolved resolved;
  resolved.session.schedule =
      from_flag("--schedule", [&] { return schedule_from_string(schedule); });
  resolved.session.streams = streams;
  resolved.session.verify_every = verify;
  const Algorithm chosen =
      from_flag("--algorithm", [&] { return algorithm_from_string(algorithm); });
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
    const Bytes cap = buckets.empty()
                          ? kDefaultBucket
                          : from_flag("--buckets", [&] { return parse_bytes(buckets); });
    if (cap <= Bytes(0)) {
      throw Error(
          ErrorCode::kInvalidArgument,
          {"a bucket must have a size", "--buckets", buckets, "more than 0", "Example: 4M"});
    }
    resolved.plan = uniform_plan(tensors, cap);
    rule = fmt::format("buckets of {}", format(cap));
  }
  if (chosen != Algorithm::kAuto) {
    for (Bucket& bucket : resolved.plan.buckets) {
      bucket.algorithm = chosen;
    }
  }
  resolved.name = rule.empty() ? schedule : fmt::format("{}, {}", schedule, rule);
  return resolved;
}

ExchangeCosts emulated_costs(const Machine& machine, Algorithm algorithm, Bytes most) {
  return exchange_costs(
      machine, algorithm == Algorithm::kAuto ? Algorithm::kDirect : algorithm, most);
}

Plan plan_measured(Communicator& communicator,
                   const Timeline& timeline,
                   const std::vector<TensorSpec>& tensors,
                   const Machine& machine,
                   Algorithm algorithm,
                   int streams) {
  std::string text;
  if (communicator.rank() == 0) {
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
    SimulateOptions options;
    options.streams = streams;
    Plan made =
        stretto::plan(profile, emulated_costs(machine, algorithm, profile.bytes()), options).plan;
    for (Bucket& bucket : made.buckets) {
      bucket.algorithm = algorithm;
    }
    text = to_json(made);
  }
  text = broadcast_text(communicator, text, 0);
  return plan_from_json(text, "rank 0's plan");
}

}  // namespace stretto::cli
