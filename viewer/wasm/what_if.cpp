// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "page.hpp"
#include "stretto/analyze/analyze.hpp"
#include "stretto/analyze/certificate.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/models.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/plan/planner.hpp"
#include "stretto/plan/settings.hpp"
#include "stretto/report/html_parts.hpp"
#include "stretto/report/plan_report.hpp"
#include "stretto/simulate/simulate.hpp"

namespace stretto::page {
namespace {

constexpr std::size_t kMostIntervals = 20'000;

StepProfile profile_of(const Json& question) {
  StepProfile profile;
  if (question.contains("profile")) {
    profile = step_profile_from_json(question["profile"].dump(), "profile");
  } else {
    const auto name = question.at("model").get<std::string>();
    AssumedDevice device;
    device.batch = question.value("batch", device.batch);
    device.flops_per_s = question.value("device_flops", device.flops_per_s);
    profile = profile_from_model_json(model_json(name), name, device);
  }
  return scaled(profile, 1.0 / question.value("compute_speed", 1.0));
}

ExchangeCosts costs_of_question(const Json& question, const StepProfile& profile) {
  ExchangeCosts costs;
  if (question.contains("fitted")) {
    const Json& json = question["fitted"];
    FittedExchange fitted;
    fitted.cost.latency = Seconds(json.at("latency_s").get<double>());
    fitted.cost.seconds_per_byte = json.at("seconds_per_byte").get<double>();
    costs = costs_of(fitted, json.at("ranks").get<int>());
  } else {
    costs = exchange_costs(machine_from_text(question.at("machine").get<std::string>()),
                           algorithm_from_string(question.value("algorithm", "auto")),
                           std::max(Bytes(1), profile.bytes()));
  }
  return scaled(
      std::move(costs), question.value("latency", 1.0), 1.0 / question.value("bandwidth", 1.0));
}

SimulateOptions options_of(const Json& question, int ranks) {
  SimulateOptions options;
  options.schedule = schedule_from_string(question.value("schedule", "overlap"));
  options.streams = question.value("streams", 1);
  if (const auto slow = question.find("rank_speed"); slow != question.end()) {
    options.compute_factor.assign(static_cast<std::size_t>(ranks), 1.0);
    options.compute_factor.at(slow->at("rank").get<std::size_t>()) =
        1.0 / slow->at("speed").get<double>();
  }
  return options;
}

Plan plan_of(const std::string& buckets, const StepProfile& profile, const PlanResult& best) {
  if (buckets == "planned") {
    return best.plan;
  }
  if (buckets == "ddp") {
    return ddp_plan(tensors_of(profile));
  }
  return uniform_plan(tensors_of(profile), parse_bytes(buckets));
}

Json sweep_of(const StepProfile& profile,
              const ExchangeCosts& costs,
              const SimulateOptions& options) {
  Json points = Json::array();
  for (const SweepPoint& point :
       sweep_caps(profile, costs, options, true, least_cap_to_sweep(profile), 2)) {
    points.push_back(Json{{"cap_bytes", point.cap.count()},
                          {"buckets", point.buckets},
                          {"step_s", point.step.count()}});
  }
  return points;
}

}  // namespace

Json what_if(const Json& question) {
  const StepProfile profile = profile_of(question);
  const ExchangeCosts costs = costs_of_question(question, profile);
  const SimulateOptions options = options_of(question, costs.ranks);
  const PlanResult best = plan(profile, costs, options);
  const Plan buckets = plan_of(question.value("buckets", "planned"), profile, best);
  const Simulation simulation = simulate(profile, costs, buckets, options);
  AnalyzeOptions analysis;
  analysis.samples_per_step = profile.batch * std::int64_t{costs.ranks};
  Summary summary = analyze(simulation.timeline, analysis);
  summary.bound = std::min(summary.step, best.bound);
  // Ranks that do the same are drawn as one.
  summary.ranks = simulation.timeline.world_size;
  Json answer = {
      {"ranks", costs.ranks},
      {"assumptions", profile.assumptions},
      {"bytes", profile.bytes().count()},
      {"tensors", profile.tensors.size()},
      {"plan", Json::parse(to_json(best))},
      {"step_s", simulation.step.count()},
      {"communication_end_s", simulation.communication_end.count()},
      {"steady", simulation.steady},
      {"summary", Json::parse(to_json(summary))},
      {"timeline", Json::parse(detail::timeline_columns(simulation.timeline, kMostIntervals))}};
  if (question.value("sweep", false)) {
    answer["sweep"] = sweep_of(profile, costs, options);
  }
  if (question.value("settings", false)) {
    answer["settings"] = settings_for(Framework::kDdp, profile, costs, best, options).text;
  }
  return answer;
}

}  // namespace stretto::page
