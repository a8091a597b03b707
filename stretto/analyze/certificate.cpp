// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/certificate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "stretto/analyze/explain.hpp"
#include "stretto/analyze/sharded_certificate.hpp"
#include "stretto/plan/fixed_plans.hpp"

namespace stretto {
namespace {

constexpr int kPieces = 8;

/// The recorded step with its buckets cut into pieces, and the plan that it ran with.
struct Recorded {
  StepProfile profile;
  Plan plan;
};

Recorded cut(const StepProfile& whole, int pieces) {
  Recorded recorded;
  recorded.profile = whole;
  recorded.profile.tensors.clear();
  std::int64_t at = 0;
  Seconds before{};
  for (std::size_t i = 0; i < whole.tensors.size(); ++i) {
    const ProfileTensor& bucket = whole.tensors[i];
    const std::int64_t elements = bucket.elements();
    const std::int64_t parts = i == 0 ? 1 : std::min<std::int64_t>(pieces, elements);
    const std::int64_t begin = at;
    for (std::int64_t k = 0; k < parts; ++k) {
      const std::int64_t size = elements * (k + 1) / parts - elements * k / parts;
      const double done = static_cast<double>(k + 1) / static_cast<double>(parts);
      recorded.profile.tensors.push_back(
          {parts == 1 ? bucket.name : bucket.name + ", part " + std::to_string(k),
           bucket.dtype,
           {size},
           k + 1 == parts ? bucket.ready : before + done * (bucket.ready - before)});
      at += size;
    }
    if (at > begin) {
      recorded.plan.buckets.push_back({bucket.dtype, begin, at, 0, Algorithm::kAuto});
    }
    before = bucket.ready;
  }
  recorded.plan.origin = "as recorded";
  if (pieces > 1 && whole.tensors.size() > 1) {
    recorded.profile.assumptions +=
        "; gradients inside a bucket are taken to become ready evenly between the bucket before "
        "and "
        "its own time, the first bucket is kept whole";
  }
  recorded.plan.tensors = tensors_of(recorded.profile);
  return recorded;
}

/// What no buckets could avoid whenever inside its bucket each gradient was ready: all but the last
/// byte of a bucket may have been there when the one before it was, and nothing that follows need
/// wait for it.
Seconds least_exposed(const StepProfile& whole, const ExchangeCosts& costs) {
  std::vector<ReadyBytes> gradients;
  Bytes total;
  Seconds before{};
  for (const ProfileTensor& bucket : whole.tensors) {
    if (bucket.bytes() > Bytes(0)) {
      gradients.push_back({before, bucket.bytes() - Bytes(1)});
      gradients.push_back({bucket.ready, Bytes(1)});
      total += bucket.bytes();
    }
    before = bucket.ready;
  }
  const Seconds end = release_bound(gradients, exchange_floor(costs.all_reduce, total, 1));
  return std::max(Seconds(0), end - whole.compute_end);
}

bool is_all_reduce_only(const Summary& summary) {
  bool any = false;
  for (const BucketSummary& bucket : summary.buckets) {
    if (bucket.collective == Collective::kReduceScatter ||
        bucket.collective == Collective::kAllGather) {
      return false;
    }
    any = any || (bucket.collective == Collective::kAllReduce && bucket.bytes > Bytes(0));
  }
  return any;
}

}  // namespace

ExchangeCosts costs_of(const FittedExchange& fitted, int ranks) {
  ExchangeCosts costs;
  costs.all_reduce = ExchangeTime(
      std::vector<CostLine>{{fitted.cost.latency, fitted.cost.seconds_per_byte, Algorithm::kAuto}});
  costs.reduce_scatter = costs.all_reduce.scaled(0.5, 0.5);
  costs.all_gather = costs.reduce_scatter;
  costs.ranks = ranks;
  return costs;
}

StepProfile planning_profile_of_trace(const Timeline& timeline, double slowdown, int pieces) {
  return cut(step_profile_of_trace(timeline, slowdown), std::max(1, pieces)).profile;
}

std::optional<Certificate> certify(const Timeline& timeline,
                                   const Summary& summary,
                                   const ExchangeCosts& costs) {
  if (!is_all_reduce_only(summary)) {
    return detail::certify_sharded(timeline, summary, costs);
  }
  const Recorded recorded = cut(step_profile_of_trace(timeline), kPieces);
  SimulateOptions options;
  options.recorded_ranks = 0;
  const PlanResult best = plan(recorded.profile, costs, options);
  const Seconds now = simulate(recorded.profile, costs, recorded.plan, options).step;
  if (now > summary.step * 1.1) {
    return std::nullopt;  // costs that are too high for what was recorded cannot be its own
  }
  Certificate certificate;
  certificate.exposed_now = summary.exposed;
  certificate.exposed_model = now - best.compute;
  certificate.exposed_best = std::min(best.exposed(), certificate.exposed_model);
  certificate.exposed_bound =
      std::min(least_exposed(step_profile_of_trace(timeline), costs), certificate.exposed_best);
  certificate.recoverable =
      std::clamp(now - best.step, Seconds(0), std::max(Seconds(0), summary.exposed));
  certificate.settings = settings_for(Framework::kDdp, recorded.profile, costs, best, options);
  certificate.assumptions =
      "the best buckets are a model: gradients of a bucket taken as 8 equal tensors that become "
      "ready evenly between the bucket before and its own time, the first bucket kept whole; one "
      "stream, the optimizer after the last exchange, compute as long as it was recorded";
  return certificate;
}

}  // namespace stretto
