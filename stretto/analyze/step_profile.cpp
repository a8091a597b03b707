// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stretto/analyze/analyze.hpp"
#include "stretto/analyze/steps.hpp"
#include "stretto/base/error.hpp"
#include "stretto/base/intervals.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/base/text.hpp"

namespace stretto {
namespace {

using detail::RankStep;
using detail::Step;

Seconds from_ns(double ns) {
  return Seconds(ns / 1e9);
}

/// One rank's compute in one step, from the step's begin.
struct Passes {
  std::int64_t forward_end_ns = 0;
  std::int64_t backward_end_ns = 0;
  std::int64_t optimizer_ns = 0;
  bool beside_communication = false;
};

Passes passes_of(const RankStep& rank, const detail::Activities& activities) {
  Passes passes;
  for (const Record* record : rank.records) {
    const std::int64_t end_ns = rank.since_begin_ns(record->end_ns);
    switch (record->kind) {
      case RecordKind::kForward:
        passes.forward_end_ns = std::max(passes.forward_end_ns, end_ns);
        break;
      case RecordKind::kBackward:
      case RecordKind::kReady:
        passes.backward_end_ns = std::max(passes.backward_end_ns, end_ns);
        break;
      case RecordKind::kOptimizer:
        passes.optimizer_ns += end_ns - rank.since_begin_ns(record->begin_ns);
        break;
      default:
        break;
    }
  }
  passes.beside_communication =
      activities.within_ns(rank.rank, &detail::Activity::communication, rank.window) >
      activities.within_ns(rank.rank, &detail::Activity::exposed, rank.window);
  return passes;
}

std::vector<ProfileTensor> measured_tensors(const Timeline& timeline,
                                            const std::vector<Step>& steps,
                                            std::vector<ProfileTensor> tensors) {
  std::unordered_map<std::string, Seconds> ready;
  for (const auto& [name, tensor] : detail::ready_times(steps)) {
    if (name < timeline.names.size()) {
      ready[timeline.names[name]] = from_ns(tensor.ready_ns);
    }
  }
  for (ProfileTensor& tensor : tensors) {
    const auto found = ready.find(tensor.name);
    if (found == ready.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"the timeline does not say when a gradient was ready",
                   "tensor " + quote(tensor.name),
                   std::to_string(ready.size()) + " other tensors",
                   "a ready record of each tensor",
                   {}});
    }
    tensor.ready = found->second;
  }
  std::stable_sort(
      tensors.begin(), tensors.end(), [](const ProfileTensor& a, const ProfileTensor& b) {
        return a.ready < b.ready;
      });
  return tensors;
}

}  // namespace

StepProfile step_profile(const Timeline& timeline, const StepProfile& shape) {
  const detail::Activities activities(timeline);
  const std::vector<Step> steps = detail::whole_steps(timeline, activities);
  StepProfile profile;
  profile.model = shape.model;
  profile.batch = shape.batch;
  profile.basis = Basis::kMeasured;
  profile.tensors = measured_tensors(timeline, steps, shape.tensors);
  profile.forward = detail::forward_layers(timeline, steps);
  std::vector<double> forward_end;
  std::vector<double> backward_end;
  std::vector<double> optimizer;
  for (const Step& step : steps) {
    Passes latest;
    double optimizer_sum = 0.0;
    for (const RankStep& rank : step.ranks) {
      const Passes passes = passes_of(rank, activities);
      latest.forward_end_ns = std::max(latest.forward_end_ns, passes.forward_end_ns);
      latest.backward_end_ns = std::max(latest.backward_end_ns, passes.backward_end_ns);
      optimizer_sum += static_cast<double>(passes.optimizer_ns);
      profile.beside_communication = profile.beside_communication || passes.beside_communication;
    }
    forward_end.push_back(static_cast<double>(latest.forward_end_ns));
    backward_end.push_back(static_cast<double>(latest.backward_end_ns));
    optimizer.push_back(optimizer_sum / static_cast<double>(step.ranks.size()));
  }
  profile.forward_end = from_ns(median(std::move(forward_end)));
  profile.backward_end = from_ns(median(std::move(backward_end)));
  if (!profile.tensors.empty()) {
    // Records need not keep to the order of the passes (several threads); a profile does.
    profile.forward_end = std::min(profile.forward_end, profile.tensors.front().ready);
    profile.backward_end = std::max(profile.backward_end, profile.tensors.back().ready);
  }
  profile.backward_end = std::max(profile.backward_end, profile.forward_end);
  profile.compute_end = profile.backward_end + from_ns(median(std::move(optimizer)));
  profile.assumptions = "median of " + std::to_string(steps.size()) + " steps, the latest of " +
                        std::to_string(steps.front().ranks.size()) +
                        " ranks; the optimizer's time follows backward";
  return profile;
}

}  // namespace stretto
