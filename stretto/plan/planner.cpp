// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/planner.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/plan/bucketing.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/plan/problem.hpp"

namespace stretto {
namespace {

using detail::Evaluator;
using detail::gradient_cost;
using detail::is_exact;
using detail::most_tensors_to_bisect;
using detail::Problem;
using detail::problem_of;

/// Buckets that end after tensors `ends`: one per dtype each.
Plan plan_of_ends(std::vector<TensorSpec> tensors,
                  std::span<const std::size_t> ends,
                  std::string origin) {
  Plan result;
  result.origin = std::move(origin);
  result.tensors = std::move(tensors);
  std::array<std::int64_t, std::size(kAllDTypes)> filled{};
  std::array<std::int64_t, std::size(kAllDTypes)> closed{};
  std::size_t i = 0;
  for (const std::size_t end : ends) {
    for (; i < end; ++i) {
      filled[static_cast<std::size_t>(result.tensors[i].dtype)] += result.tensors[i].elements();
    }
    for (const DType dtype : kAllDTypes) {
      const auto index = static_cast<std::size_t>(dtype);
      if (filled[index] > closed[index]) {
        result.buckets.push_back({dtype, closed[index], filled[index], 0, Algorithm::kAuto});
        closed[index] = filled[index];
      }
    }
  }
  return result;
}

/// What an error in an input would make of it.
struct Scenario {
  const char* what;
  double factor;         // so many times what it was taken for
  double compute = 1.0;  // times are multiplied by these
  double latency = 1.0;
  double per_byte = 1.0;
};
constexpr std::array kScenarios = {Scenario{"compute time", 0.8, 0.8},
                                   Scenario{"compute time", 1.2, 1.2},
                                   Scenario{"bandwidth", 0.8, 1.0, 1.0, 1 / 0.8},
                                   Scenario{"bandwidth", 1.2, 1.0, 1.0, 1 / 1.2},
                                   Scenario{"latency", 0.8, 1.0, 0.8, 1.0},
                                   Scenario{"latency", 1.2, 1.0, 1.2, 1.0}};

std::vector<ReadyBytes> times(std::vector<ReadyBytes> gradients, double factor) {
  for (ReadyBytes& gradient : gradients) {
    gradient.ready *= factor;
  }
  return gradients;
}

/// How much later than it need be communication ends with this cut, in the worst of the scenarios.
Seconds worst_regret(const Problem& problem, const ExchangeTime& cost, const Bucketing& cut) {
  Seconds worst{};
  for (const Scenario& scenario : kScenarios) {
    const std::vector<ReadyBytes> gradients = times(problem.gradients, scenario.compute);
    const ExchangeTime then = cost.scaled(scenario.latency, scenario.per_byte);
    const Seconds compute_end = problem.compute_end * scenario.compute;
    const Seconds best = std::max(compute_end, earliest_buckets(gradients, then).communication_end);
    const Seconds got = std::max(compute_end, communication_end(gradients, cut.ends, then));
    worst = std::max(worst, got - best);
  }
  return worst;
}

/// Of the cuts that end earliest, the one to take.
Bucketing optimal_cut(const Problem& problem, const ExchangeTime& cost, bool updates_follow) {
  if (updates_follow && problem.update > Seconds(0) &&
      problem.gradients.size() <= most_tensors_to_bisect(cost)) {
    return buckets_before_update(
               problem.gradients,
               cost,
               problem.compute_end,
               problem.update.count() / static_cast<double>(problem.total.count()))
        .bucketing;
  }
  Bucketing earliest = earliest_buckets(problem.gradients, cost);
  // Every bucket more is a pass over the tensors; over their pairs where the cost is a curve.
  const std::size_t most_to_count = cost.lines().empty() ? 1024 : 4096;
  if (problem.gradients.size() > most_to_count) {
    return earliest;
  }
  // What ends before compute does need not end earlier; the last part in 10^9 is rounding.
  const Seconds deadline = std::max(problem.compute_end, earliest.communication_end) * (1.0 + 1e-9);
  Bucketing fewest = fewest_buckets(problem.gradients, cost, deadline);
  const Seconds close = 1e-6 * deadline;
  return worst_regret(problem, cost, fewest) <= worst_regret(problem, cost, earliest) + close
             ? fewest
             : earliest;
}

Seconds largest(const std::vector<Bound>& bounds) {
  Seconds most{};
  for (const Bound& bound : bounds) {
    most = std::max(most, bound.step);
  }
  return most;
}

std::vector<PlannedBucket> travel(const StepProfile& profile,
                                  const ExchangeCosts& costs,
                                  const Plan& plan,
                                  const SimulateOptions& options) {
  SimulateOptions one = options;
  one.recorded_ranks = 1;
  const Simulation simulation = simulate(profile, costs, plan, one);
  std::vector<PlannedBucket> buckets(plan.buckets.size());
  const std::vector<std::vector<TensorRange>> ranges = plan.all_ranges();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    buckets[b].bytes = plan.buckets[b].bytes();
    buckets[b].tensors = ranges[b].size();
    buckets[b].first_tensor = ranges[b].front().tensor;
    buckets[b].last_tensor = ranges[b].back().tensor;
    buckets[b].algorithm = gradient_cost(costs, options).algorithm(buckets[b].bytes);
  }
  const std::uint32_t last = simulation.timeline.steps_total - 1;
  std::int64_t begin_ns = 0;
  for (const Record& record : simulation.timeline.records) {
    if (record.kind == RecordKind::kStep && record.step == last) {
      begin_ns = record.begin_ns;
    }
  }
  for (const Record& record : simulation.timeline.records) {
    if (record.step != last || record.bucket >= buckets.size() ||
        record.collective == Collective::kAllGather) {
      continue;
    }
    PlannedBucket& bucket = buckets[record.bucket];
    if (record.kind == RecordKind::kLaunched) {
      bucket.ready = Seconds(Nanoseconds(record.begin_ns - begin_ns));
    } else if (record.kind == RecordKind::kCommunication) {
      bucket.begin = Seconds(Nanoseconds(record.begin_ns - begin_ns));
      bucket.end = Seconds(Nanoseconds(record.end_ns - begin_ns));
    }
  }
  return buckets;
}

/// What frameworks and rules of thumb would do.
std::vector<Alternative> alternatives_of(const StepProfile& profile,
                                         const ExchangeCosts& costs,
                                         const SimulateOptions& options,
                                         const Evaluator& evaluate) {
  const std::vector<TensorSpec> tensors = tensors_of(profile);
  std::vector<Alternative> alternatives;
  alternatives.push_back(
      {"serial, one bucket", single_bucket_plan(tensors), Schedule::kSerial, {}});
  alternatives.push_back(
      {"PyTorch DDP, 25 MiB, first 1 MiB", ddp_plan(tensors), options.schedule, {}});
  BestCap cap = best_ddp_cap(profile, costs, options, false);
  alternatives.push_back({"PyTorch DDP, all " + format(cap.cap) + " (best cap)",
                          std::move(cap.plan),
                          options.schedule,
                          {}});
  alternatives.push_back(
      {"4 MiB, tensors split", uniform_plan(tensors, Bytes(4 << 20)), options.schedule, {}});
  alternatives.push_back(
      {"one bucket per tensor", uniform_plan(tensors, Bytes(1), false), options.schedule, {}});
  for (Alternative& alternative : alternatives) {
    alternative.step = evaluate.step(alternative.plan, alternative.schedule);
  }
  return alternatives;
}

struct Candidate {
  Plan plan;
  Seconds step{};
  bool exact = false;  ///< Nothing is quicker, proven.
};

/// Of some plans the one to take: the quickest, or one that is as quick but for `tolerance` of the
/// step with fewer launches, which cost what no model here knows. The first ones have a reason:
/// they win where nothing else tells. Plans are made again when they have won: a hundred of a model
/// of many tensors would not fit into memory.
class Choice {
 public:
  using Make = std::function<Plan(std::vector<TensorSpec>)>;

  Choice(const Evaluator& evaluate, double tolerance, std::vector<TensorSpec> tensors)
      : evaluate_(evaluate), tolerance_(tolerance), tensors_(std::move(tensors)) {}

  void consider(Make make) {
    Plan plan = make(std::move(tensors_));
    const Seconds step = evaluate_.step(plan);
    least_ = options_.empty() ? step : std::min(least_, step);
    options_.push_back({std::move(make), plan.buckets.size(), step});
    tensors_ = std::move(plan.tensors);
  }
  [[nodiscard]] Candidate take() {
    const auto best = std::min_element(
        options_.begin(), options_.end(), [this](const Option& a, const Option& b) {
          const bool a_close = a.step <= least_ * (1.0 + tolerance_);
          const bool b_close = b.step <= least_ * (1.0 + tolerance_);
          return a_close != b_close ? a_close : a.buckets < b.buckets;
        });
    return {best->make(std::move(tensors_)), best->step, false};
  }

 private:
  struct Option {
    Make make;
    std::size_t buckets = 0;
    Seconds step{};
  };

  const Evaluator& evaluate_;
  double tolerance_;
  std::vector<TensorSpec> tensors_;
  std::vector<Option> options_;
  Seconds least_{};
};

Candidate best_plan(const StepProfile& profile,
                    const ExchangeCosts& costs,
                    const SimulateOptions& options,
                    const Evaluator& evaluate) {
  const Problem problem = problem_of(profile, options);
  const bool exact = is_exact(profile, costs, options);
  const ExchangeTime& cost = gradient_cost(costs, options);
  const bool updates_follow = problem.optimizer_follows;
  const std::vector<std::size_t> ends = optimal_cut(problem, cost, updates_follow).ends;
  Candidate proven{plan_of_ends(tensors_of(profile), ends, "optimal for this cost"), {}, exact};
  proven.step = evaluate.step(proven.plan);
  // On one stream whose cost is one line a tensor that is cut in two gains nothing, unless the
  // optimizer follows on each piece. Where the cut is not proven, others may be better.
  if (exact && (!updates_follow || problem.update <= Seconds(0))) {
    return proven;
  }
  // Where the next forward pass waits for the last layers' last pieces, thousands of slivers gain
  // less than they cost to launch: two milliseconds of a second at the most.
  Choice choice(
      evaluate, options.schedule == Schedule::kPriority ? 2e-3 : 1e-4, tensors_of(profile));
  const auto consider_cut = [&](const std::vector<std::size_t>& cut) {
    choice.consider([cut](std::vector<TensorSpec> tensors) {
      return plan_of_ends(std::move(tensors), cut, "planned");
    });
  };
  const Bytes least = std::max(Bytes(64 << 10), Bytes(profile.bytes().count() / 4096));
  const auto consider_sizes = [&](bool split) {
    for (const Bytes cap : detail::sizes_between(least, profile.bytes(), 2)) {
      choice.consider([cap, split](std::vector<TensorSpec> tensors) {
        return uniform_plan(std::move(tensors), cap, split);
      });
    }
  };
  consider_cut(ends);
  if (!exact) {
    for (const double latency : {0.5, 0.8, 1.25, 2.0, 4.0}) {
      consider_cut(optimal_cut(problem, cost.scaled(latency, 1.0), updates_follow).ends);
    }
  }
  consider_sizes(true);
  if (!exact) {  // else nothing that cuts no tensor is quicker
    consider_sizes(false);
    choice.consider([](std::vector<TensorSpec> tensors) { return ddp_plan(std::move(tensors)); });
    const BestCap cap = best_ddp_cap(profile, costs, options, false);
    choice.consider([&cap](std::vector<TensorSpec> tensors) {
      return ddp_plan(std::move(tensors), cap.cap, cap.first_cap);
    });
    choice.consider(single_bucket_plan);
    choice.consider([](std::vector<TensorSpec> tensors) {
      return uniform_plan(std::move(tensors), Bytes(1), false);
    });
    return choice.take();
  }
  Candidate best = choice.take();
  return proven.step <= best.step * (1.0 + 1e-9) ? proven : best;
}

/// The step of best_plan(), without its plan where that is a formula.
Seconds best_step(const StepProfile& profile,
                  const ExchangeCosts& costs,
                  const SimulateOptions& options,
                  const Evaluator& evaluate) {
  const bool update_in_one_piece =
      !optimizer_follows(profile, options) || profile.compute_end <= profile.backward_end;
  if (!update_in_one_piece || !is_exact(profile, costs, options)) {
    return best_plan(profile, costs, options, evaluate).step;
  }
  const Problem problem = problem_of(profile, options);
  const Seconds exchanged =
      earliest_buckets(problem.gradients, gradient_cost(costs, options)).communication_end;
  return std::max(problem.compute_end, exchanged) + problem.update;
}

}  // namespace

StepProfile scaled(const StepProfile& profile, double factor) {
  StepProfile result = profile;
  for (LayerTime& layer : result.forward) {
    layer.forward *= factor;
  }
  result.forward_end *= factor;
  result.backward_end *= factor;
  result.compute_end *= factor;
  for (ProfileTensor& tensor : result.tensors) {
    tensor.ready *= factor;
  }
  return result;
}

PlanResult plan(const StepProfile& profile,
                const ExchangeCosts& costs,
                const SimulateOptions& options) {
  if (profile.bytes() == Bytes(0)) {
    throw Error(ErrorCode::kInvalidArgument,
                {"there is nothing to plan",
                 profile.model.empty() ? "profile" : profile.model,
                 "no gradient bytes",
                 "a profile with tensors",
                 ""});
  }
  const Evaluator evaluate(profile, costs, options);
  const Problem problem = problem_of(profile, options);
  Candidate best = best_plan(profile, costs, options, evaluate);
  best.step = evaluate.simulated_step(best.plan);
  PlanResult result;
  result.step = best.step;
  result.compute = problem.compute_end +
                   problem.update / (options.sharding == Sharding::kNone ? 1 : costs.ranks);
  result.optimum = best.step;
  result.optimum_is_exact = best.exact;
  result.bounds = detail::bounds_of(profile, problem, costs, options);
  result.bound = std::min(result.step, largest(result.bounds));
  result.alternatives = alternatives_of(profile, costs, options, evaluate);
  for (const Scenario& scenario : kScenarios) {
    const StepProfile then = scaled(profile, scenario.compute);
    const ExchangeCosts costs_then = scaled(costs, scenario.latency, scenario.per_byte);
    const Evaluator evaluate_then(then, costs_then, options);
    const Seconds step = evaluate_then.step(best.plan);
    const Seconds other = best_step(then, costs_then, options, evaluate_then);
    result.sensitivity.push_back({scenario.what, scenario.factor, step, std::min(step, other)});
  }
  result.buckets = travel(profile, costs, best.plan, options);
  result.plan = std::move(best.plan);
  return result;
}

}  // namespace stretto
