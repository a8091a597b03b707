// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/planner.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/plan/bucketing.hpp"
#include "stretto/plan/fixed_plans.hpp"

namespace stretto {
namespace {

constexpr Bytes kDdpCap(25 << 20);
constexpr Bytes kDdpFirstCap(1 << 20);

/// The step as bucketing.hpp looks at it.
struct Problem {
  std::vector<ReadyBytes> gradients;
  Seconds compute_end{};  ///< Backward is over.
  Seconds update{};       ///< The optimizer, on all bytes.
  Bytes total{};
};

double slowest(const SimulateOptions& options) {
  return options.compute_factor.empty()
             ? 1.0
             : *std::max_element(options.compute_factor.begin(), options.compute_factor.end());
}

Problem problem_of(const StepProfile& profile, const SimulateOptions& options) {
  // All wait for the slowest rank, and only the last of several passes communicates.
  const double factor = slowest(options);
  const Seconds before = (options.accumulate - 1) * factor * profile.backward_end;
  Problem problem;
  problem.gradients.reserve(profile.tensors.size());
  const bool serial = options.schedule == Schedule::kSerial;
  for (const ProfileTensor& tensor : profile.tensors) {
    const Seconds ready = before + factor * (serial ? profile.backward_end : tensor.ready);
    problem.gradients.push_back({ready, tensor.bytes()});
    problem.total += tensor.bytes();
  }
  problem.compute_end = before + factor * profile.backward_end;
  problem.update = factor * (profile.compute_end - profile.backward_end);
  return problem;
}

bool one_dtype(const StepProfile& profile) {
  return std::all_of(profile.tensors.begin(), profile.tensors.end(), [&](const ProfileTensor& t) {
    return t.dtype == profile.tensors.front().dtype;
  });
}

/// More tries of buckets_before_update() than this take too long: the optimizer then counts as one
/// piece, and the cut is not proven.
constexpr std::size_t kMostTensorsToBisect = 4096;

/// Whether the least end of communication on one stream is the whole question.
bool is_exact(const StepProfile& profile,
              const ExchangeCosts& costs,
              const SimulateOptions& options) {
  return options.schedule != Schedule::kPriority && options.sharding == Sharding::kNone &&
         options.streams == 1 && costs.compute_slowdown == 1.0 && one_dtype(profile) &&
         (!options.optimizer_per_bucket || profile.compute_end <= profile.backward_end ||
          profile.tensors.size() <= kMostTensorsToBisect);
}

/// Buckets that end after tensors `ends`: one per dtype each.
Plan plan_of_ends(const StepProfile& profile,
                  std::span<const std::size_t> ends,
                  std::string origin) {
  Plan result;
  result.origin = std::move(origin);
  result.tensors = tensors_of(profile);
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

/// Evaluates plans of one profile, as the caller's options ask.
class Evaluator {
 public:
  Evaluator(const StepProfile& profile, const ExchangeCosts& costs, const SimulateOptions& options)
      : profile_(profile), costs_(costs), options_(options) {
    options_.recorded_ranks = 0;
  }
  [[nodiscard]] Seconds step(const Plan& plan) const {
    return simulate(profile_, costs_, plan, options_).step;
  }
  [[nodiscard]] Seconds step(const Plan& plan, Schedule schedule) const {
    SimulateOptions options = options_;
    options.schedule = schedule;
    return simulate(profile_, costs_, plan, options).step;
  }

 private:
  const StepProfile& profile_;
  const ExchangeCosts& costs_;
  SimulateOptions options_;
};

const ExchangeTime& gradient_cost(const ExchangeCosts& costs, const SimulateOptions& options) {
  return options.sharding == Sharding::kNone ? costs.all_reduce : costs.reduce_scatter;
}

/// What an error in an input would make of it.
struct Scenario {
  const char* what;
  double factor;
  double compute = 1.0;  // times are multiplied by these
  double latency = 1.0;
  double per_byte = 1.0;
};
constexpr Scenario kScenarios[] = {{"compute", 0.8, 1 / 0.8},
                                   {"compute", 1.2, 1 / 1.2},
                                   {"bandwidth", 0.8, 1.0, 1.0, 1 / 0.8},
                                   {"bandwidth", 1.2, 1.0, 1.0, 1 / 1.2},
                                   {"latency", 0.8, 1.0, 1 / 0.8, 1.0},
                                   {"latency", 1.2, 1.0, 1 / 1.2, 1.0}};

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
      problem.gradients.size() <= kMostTensorsToBisect) {
    return buckets_before_update(
               problem.gradients,
               cost,
               problem.compute_end,
               problem.update.count() / static_cast<double>(problem.total.count()))
        .bucketing;
  }
  Bucketing earliest = earliest_buckets(problem.gradients, cost);
  constexpr std::size_t kMostTensorsToCount = 4096;
  if (problem.gradients.size() > kMostTensorsToCount) {
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

/// Of the caps in [low, high), the shortest decimal number of MiB; low if that takes more than 6
/// digits behind the point.
Bytes roundest(Bytes low, Bytes high) {
  constexpr double kMiB = 1 << 20;
  for (double unit = 1.0; unit > 1e-7; unit /= 10.0) {
    const double units = std::ceil(static_cast<double>(low.count()) / kMiB / unit - 1e-9);
    const Bytes cap(static_cast<std::int64_t>(units * unit * kMiB));
    if (cap >= low && cap < high) {
      return cap;
    }
  }
  return low;
}

/// Sizes at which PyTorch's rule cuts differently, in increasing order.
std::vector<Bytes> caps_to_try(const StepProfile& profile) {
  constexpr std::size_t kMostTensors = 256;
  constexpr int kGeometric = 1024;
  std::set<std::int64_t> sizes;
  const std::size_t count = profile.tensors.size();
  if (count <= kMostTensors) {
    for (std::size_t i = 0; i < count; ++i) {
      std::int64_t sum = 0;
      for (std::size_t j = i; j < count; ++j) {
        sum += profile.tensors[j].bytes().count();
        sizes.insert(std::max<std::int64_t>(1, sum));
      }
    }
  } else {
    const auto total = static_cast<double>(std::max<std::int64_t>(2, profile.bytes().count()));
    for (int k = 0; k <= kGeometric; ++k) {
      sizes.insert(static_cast<std::int64_t>(std::pow(total, 0.25 + 0.75 * k / kGeometric)));
    }
  }
  std::vector<Bytes> caps;
  caps.reserve(sizes.size());
  for (const std::int64_t size : sizes) {
    caps.emplace_back(size);
  }
  return caps;
}

/// Where PyTorch's rule cuts gradients of one dtype.
std::vector<std::size_t> ddp_ends(std::span<const ReadyBytes> gradients, Bytes cap, Bytes first) {
  std::vector<std::size_t> ends;
  Bytes open;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    open += gradients[i].bytes;
    if (open >= (ends.empty() ? first : cap)) {
      ends.push_back(i + 1);
      open = Bytes(0);
    }
  }
  if (ends.empty() || ends.back() != gradients.size()) {
    ends.push_back(gradients.size());
  }
  return ends;
}

std::vector<GradientUse> gradient_uses(const StepProfile& profile, double factor) {
  std::vector<Seconds> before(std::max<std::size_t>(1, profile.forward.size()));
  Seconds at = profile.forward_end;  // what is left of the forward pass
  for (std::size_t l = 0; l < profile.forward.size(); ++l) {
    before[l] = factor * std::max(Seconds(0), at);
    at -= profile.forward[l].forward;
  }
  if (profile.forward.empty()) {
    before[0] = factor * at;
  }
  const std::vector<std::size_t> layer_of = layers_of_tensors(profile);
  std::vector<GradientUse> uses;
  for (std::size_t i = 0; i < profile.tensors.size(); ++i) {
    const ProfileTensor& tensor = profile.tensors[i];
    uses.push_back({factor * std::max(Seconds(0), tensor.ready - profile.forward_end),
                    before[layer_of[i]],
                    tensor.bytes()});
  }
  return uses;
}

/// Gradients are reduce-scattered and parameters all-gathered over one wire in every step.
Bound wire_bound(const Problem& problem,
                 const ExchangeCosts& costs,
                 const SimulateOptions& options) {
  // Without the latency of lines, which streams may overlap.
  const auto on_wire = [&](const ExchangeTime& cost) {
    Seconds least{};
    for (const CostLine& line : exchange_floor(cost, problem.total, 0)) {
      least =
          std::max(least, line(problem.total) - (cost.lines().empty() ? Seconds(0) : line.latency));
    }
    return least;
  };
  const bool parameters = options.sharding == Sharding::kParameters;
  const int gathers = parameters ? 2 * options.accumulate : 1;
  // ZeRO-1 and 2 gather after the update, so nothing is on the wire before the first gradient.
  const Seconds begin =
      parameters || problem.gradients.empty() ? Seconds(0) : problem.gradients.front().ready;
  return {"wire",
          begin + on_wire(costs.reduce_scatter) + gathers * on_wire(costs.all_gather),
          "gradients are reduce-scattered once and parameters gathered before each use, in this "
          "iteration, on one wire"};
}

std::vector<Bound> bounds_of(const StepProfile& profile,
                             const Problem& problem,
                             const ExchangeCosts& costs,
                             const SimulateOptions& options) {
  const std::vector<CostLine> floor =
      exchange_floor(gradient_cost(costs, options), problem.total, options.streams);
  const Seconds update = problem.update / (options.sharding == Sharding::kNone ? 1 : costs.ranks);
  if (options.schedule == Schedule::kPriority) {
    std::vector<Bound> bounds = cross_iteration_bounds(
        gradient_uses(profile, slowest(options)), problem.compute_end + update, floor);
    if (options.accumulate > 1) {
      // The wire may carry a step's gradients while the next one's earlier passes run.
      std::erase_if(bounds, [](const Bound& bound) {
        return bound.name == "cycle" || bound.name == "delivery";
      });
    }
    return bounds;
  }
  std::vector<Bound> bounds = in_iteration_bounds(problem.gradients, problem.compute_end, floor);
  if (options.sharding != Sharding::kNone) {
    bounds.push_back(wire_bound(problem, costs, options));
  }
  bounds[0].step += update;
  // The last exchange is followed by its own part of the optimizer, or all of it.
  if (!options.optimizer_per_bucket) {
    bounds[1].step += update;
  } else {
    bounds[1].step = std::max(bounds[1].step, bounds[0].step);
  }
  return bounds;
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
  for (const Record& record : simulation.timeline.records) {
    if (record.bucket >= buckets.size() || record.collective == Collective::kAllGather) {
      continue;
    }
    PlannedBucket& bucket = buckets[record.bucket];
    if (record.kind == RecordKind::kLaunched) {
      bucket.ready = Seconds(Nanoseconds(record.begin_ns));
    } else if (record.kind == RecordKind::kCommunication) {
      bucket.begin = Seconds(Nanoseconds(record.begin_ns));
      bucket.end = Seconds(Nanoseconds(record.end_ns));
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
  alternatives.push_back(
      {"PyTorch DDP, best cap " + format(cap.cap), std::move(cap.plan), options.schedule, {}});
  alternatives.push_back(
      {"4 MiB, tensors split", uniform_plan(tensors, Bytes(4 << 20)), options.schedule, {}});
  alternatives.push_back(
      {"one bucket per tensor", uniform_plan(tensors, Bytes(1), false), options.schedule, {}});
  for (Alternative& alternative : alternatives) {
    alternative.step = evaluate.step(alternative.plan, alternative.schedule);
  }
  return alternatives;
}

ExchangeCosts scaled(const ExchangeCosts& costs, const Scenario& scenario) {
  ExchangeCosts result = costs;
  result.all_reduce = costs.all_reduce.scaled(scenario.latency, scenario.per_byte);
  result.reduce_scatter = costs.reduce_scatter.scaled(scenario.latency, scenario.per_byte);
  result.all_gather = costs.all_gather.scaled(scenario.latency, scenario.per_byte);
  return result;
}

struct Candidate {
  Plan plan;
  Seconds step{};
  bool exact = false;  ///< Nothing is quicker, proven.
};

void consider(std::optional<Candidate>& best, Plan plan, const Evaluator& evaluate) {
  const Seconds step = evaluate.step(plan);
  // Not for a rounding error: the first ones are the ones with a reason.
  if (!best || step < best->step * (1.0 - 1e-9)) {
    best = Candidate{std::move(plan), step, false};
  }
}

Candidate best_plan(const StepProfile& profile,
                    const ExchangeCosts& costs,
                    const SimulateOptions& options,
                    const Evaluator& evaluate) {
  const Problem problem = problem_of(profile, options);
  const bool exact = is_exact(profile, costs, options);
  const Bucketing cut =
      optimal_cut(problem, gradient_cost(costs, options), options.optimizer_per_bucket);
  std::optional<Candidate> best;
  consider(
      best, plan_of_ends(profile, cut.ends, exact ? "optimal for this cost" : "planned"), evaluate);
  best->exact = exact;
  // On one stream whose cost is one line a tensor that is cut in two gains nothing, unless the
  // optimizer follows on each piece. Where the cut is not proven, uniform ones may be better.
  const bool pieces_help = options.optimizer_per_bucket && problem.update > Seconds(0);
  if (!exact || pieces_help) {
    const Bytes least = std::max(Bytes(64 << 10), Bytes(profile.bytes().count() / 4096));
    for (const bool split : {true, false}) {
      for (const SweepPoint& point : sweep_caps(profile, costs, options, split, least, 2)) {
        if (point.step < best->step * (1.0 - 1e-9)) {
          consider(best, uniform_plan(tensors_of(profile), point.cap, split), evaluate);
        }
      }
    }
    consider(best, ddp_plan(tensors_of(profile)), evaluate);
    consider(best, uniform_plan(tensors_of(profile), Bytes(1), false), evaluate);
    consider(best, best_ddp_cap(profile, costs, options, false).plan, evaluate);
  }
  return std::move(*best);
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

std::vector<SweepPoint> sweep_caps(const StepProfile& profile,
                                   const ExchangeCosts& costs,
                                   const SimulateOptions& options,
                                   bool split,
                                   Bytes least,
                                   int per_factor_of_two) {
  const Evaluator evaluate(profile, costs, options);
  const std::vector<TensorSpec> tensors = tensors_of(profile);
  const Bytes total = profile.bytes();
  std::vector<SweepPoint> points;
  for (int k = 0;; ++k) {
    const double factor = std::pow(2.0, static_cast<double>(k) / per_factor_of_two);
    const Bytes cap(static_cast<std::int64_t>(static_cast<double>(least.count()) * factor));
    const Bytes used = std::max(Bytes(1), std::min(cap, total));
    const Plan plan = uniform_plan(tensors, used, split);
    points.push_back({used, plan.buckets.size(), evaluate.step(plan)});
    if (cap >= total) {
      return points;
    }
  }
}

BestCap best_ddp_cap(const StepProfile& profile,
                     const ExchangeCosts& costs,
                     const SimulateOptions& options,
                     bool own_first) {
  const Evaluator evaluate(profile, costs, options);
  const Problem problem = problem_of(profile, options);
  const ExchangeTime& cost = gradient_cost(costs, options);
  const bool exact = is_exact(profile, costs, options);
  const std::vector<TensorSpec> tensors = tensors_of(profile);
  const std::vector<Bytes> caps = caps_to_try(profile);
  // Times that differ by rounding are equal: of those the largest cap, which launches least.
  double best_end = 0.0;
  std::size_t best = caps.size();
  std::vector<std::size_t> best_ends;
  const std::size_t stride = exact ? 1 : std::max<std::size_t>(1, caps.size() / 64);
  for (std::size_t k = 0; k < caps.size(); k += stride) {
    const Bytes first = own_first ? kDdpFirstCap : caps[k];
    const std::vector<std::size_t> ends = ddp_ends(problem.gradients, caps[k], first);
    const double end =
        exact ? std::max(problem.compute_end, communication_end(problem.gradients, ends, cost))
                    .count()
              : evaluate.step(ddp_plan(tensors, caps[k], first)).count();
    if (best == caps.size() || end <= best_end * (1.0 + 1e-12)) {
      best_end = best == caps.size() ? end : std::min(best_end, end);
      best = k;
      best_ends = ends;
    }
  }
  BestCap result;
  result.cap = caps[best];
  if (exact && best > 0) {
    // Down to the cap before it, exclusive, everything closes where this one does.
    result.cap = roundest(caps[best - 1] + Bytes(1), caps[best] + Bytes(1));
  }
  result.first_cap = own_first ? kDdpFirstCap : result.cap;
  result.plan = ddp_plan(tensors, result.cap, result.first_cap);
  result.step = evaluate.step(result.plan);
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
  PlanResult result;
  result.step = best.step;
  result.compute = problem.compute_end +
                   problem.update / (options.sharding == Sharding::kNone ? 1 : costs.ranks);
  result.optimum = best.step;
  result.optimum_is_exact = best.exact;
  result.bounds = bounds_of(profile, problem, costs, options);
  result.bound = std::min(result.step, largest(result.bounds));
  result.alternatives = alternatives_of(profile, costs, options, evaluate);
  for (const Scenario& scenario : kScenarios) {
    const StepProfile then = scaled(profile, scenario.compute);
    const ExchangeCosts costs_then = scaled(costs, scenario);
    const Evaluator evaluate_then(then, costs_then, options);
    const Seconds step = evaluate_then.step(best.plan);
    const Seconds other = best_plan(then, costs_then, options, evaluate_then).step;
    result.sensitivity.push_back({scenario.what, scenario.factor, step, std::min(step, other)});
  }
  result.buckets = travel(profile, costs, best.plan, options);
  result.plan = std::move(best.plan);
  return result;
}

}  // namespace stretto
