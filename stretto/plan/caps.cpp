// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "stretto/plan/bucketing.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/plan/planner.hpp"
#include "stretto/plan/problem.hpp"

namespace stretto {
namespace {

using detail::Evaluator;
using detail::Problem;

constexpr Bytes kDdpFirstCap(1 << 20);

/// Of the caps in [low, high), the largest of the shortest decimal numbers of MiB; low if that
/// takes more than 6 digits behind the point.
Bytes roundest(Bytes low, Bytes high) {
  constexpr double kMiB = 1 << 20;
  double unit = 1.0;
  for (int digits = 0; digits <= 6; ++digits, unit /= 10.0) {
    const double units = std::floor(static_cast<double>(high.count() - 1) / kMiB / unit + 1e-9);
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
  constexpr std::size_t kGeometric = 1024;
  constexpr std::size_t kMostWork = 20'000'000;  // tensors looked at
  std::set<std::int64_t> sizes = {1};            // a bucket for every tensor
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
    const auto tries =
        static_cast<int>(std::clamp<std::size_t>(kMostWork / count, 128, kGeometric));
    for (int k = 0; k <= tries; ++k) {
      sizes.insert(static_cast<std::int64_t>(std::pow(total, 0.25 + 0.75 * k / tries)));
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

}  // namespace

Bytes least_cap_to_sweep(const StepProfile& profile) {
  return std::max(Bytes(64 << 10), Bytes(profile.bytes().count() / 16384));
}

std::vector<SweepPoint> sweep_caps(const StepProfile& profile,
                                   const ExchangeCosts& costs,
                                   const SimulateOptions& options,
                                   bool split,
                                   Bytes least,
                                   int per_factor_of_two) {
  const Evaluator evaluate(profile, costs, options);
  std::vector<TensorSpec> tensors = tensors_of(profile);
  std::vector<SweepPoint> points;
  for (const Bytes cap : detail::sizes_between(least, profile.bytes(), per_factor_of_two)) {
    Plan plan = uniform_plan(std::move(tensors), cap, split);
    points.push_back({cap, plan.buckets.size(), evaluate.step(plan)});
    tensors = std::move(plan.tensors);
  }
  return points;
}

BestCap best_ddp_cap(const StepProfile& profile,
                     const ExchangeCosts& costs,
                     const SimulateOptions& options,
                     bool own_first) {
  const Evaluator evaluate(profile, costs, options);
  const Problem problem = detail::problem_of(profile, options);
  const ExchangeTime& cost = detail::gradient_cost(costs, options);
  const bool exact = detail::is_exact(profile, costs, options);
  std::vector<TensorSpec> tensors = tensors_of(profile);
  const std::vector<Bytes> caps = caps_to_try(profile);
  // Times that differ by rounding are equal: of those the largest cap, which launches least.
  double best_end = 0.0;
  std::size_t best = caps.size();
  std::vector<std::size_t> best_ends;
  const std::size_t stride = exact ? 1 : std::max<std::size_t>(1, caps.size() / 64);
  for (std::size_t k = 0; k < caps.size(); k += stride) {
    const Bytes first = own_first ? kDdpFirstCap : caps[k];
    const std::vector<std::size_t> ends = ddp_ends(problem.gradients, caps[k], first);
    double end = 0.0;
    if (exact) {
      end = std::max(problem.compute_end, communication_end(problem.gradients, ends, cost)).count();
    } else {
      Plan plan = ddp_plan(std::move(tensors), caps[k], first);
      end = evaluate.step(plan).count();
      tensors = std::move(plan.tensors);
    }
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
  result.plan = ddp_plan(std::move(tensors), result.cap, result.first_cap);
  result.step = evaluate.step(result.plan);
  return result;
}

}  // namespace stretto
