// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <nlohmann/json.hpp>

#include "stretto/report/plan_report.hpp"

namespace stretto {

using nlohmann::ordered_json;

std::string to_json(const PlanResult& result) {
  ordered_json buckets = ordered_json::array();
  for (const PlannedBucket& bucket : result.buckets) {
    buckets.push_back(ordered_json{{"bytes", bucket.bytes.count()},
                                   {"tensors", bucket.tensors},
                                   {"ready_s", bucket.ready.count()},
                                   {"begin_s", bucket.begin.count()},
                                   {"end_s", bucket.end.count()},
                                   {"algorithm", to_string(bucket.algorithm)},
                                   {"last_tensor", result.plan.tensors[bucket.last_tensor].name}});
  }
  ordered_json alternatives = ordered_json::array();
  for (const Alternative& other : result.alternatives) {
    alternatives.push_back(ordered_json{{"name", other.name},
                                        {"schedule", to_string(other.schedule)},
                                        {"buckets", other.plan.buckets.size()},
                                        {"step_s", other.step.count()}});
  }
  ordered_json bounds = ordered_json::array();
  for (const Bound& bound : result.bounds) {
    bounds.push_back(ordered_json{
        {"name", bound.name}, {"step_s", bound.step.count()}, {"assumption", bound.assumption}});
  }
  ordered_json sensitivity = ordered_json::array();
  for (const Sensitivity& off : result.sensitivity) {
    sensitivity.push_back(ordered_json{{"what", off.what},
                                       {"factor", off.factor},
                                       {"step_s", off.step.count()},
                                       {"best_step_s", off.best_step.count()}});
  }
  const bool exact = result.optimum_is_exact;
  return ordered_json{
      {"predicted_step_s", result.step.count()},
      {"compute_s", result.compute.count()},
      {"exposed_s", result.exposed().count()},
      {"optimum_s", exact ? ordered_json(result.optimum.count()) : ordered_json()},
      {"optimum_is_exact", result.optimum_is_exact},
      {"bound_s", result.bound.count()},
      {"bound_gap_ratio", result.bound_gap_ratio()},
      {"optimum_gap_ratio", exact ? ordered_json(result.optimum_gap_ratio()) : ordered_json()},
      {"origin", result.plan.origin},
      {"buckets", buckets},
      {"alternatives", alternatives},
      {"bounds", bounds},
      {"sensitivity", sensitivity}}
      .dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace stretto
