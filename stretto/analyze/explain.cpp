// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/explain.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "stretto/analyze/activity.hpp"
#include "stretto/analyze/buckets.hpp"
#include "stretto/analyze/diagnose.hpp"
#include "stretto/analyze/steps.hpp"
#include "stretto/base/error.hpp"

namespace stretto {
namespace {

bool has_steps(const Timeline& timeline) {
  return std::any_of(timeline.records.begin(), timeline.records.end(), [](const Record& record) {
    return record.kind == RecordKind::kStep && record.end_ns > record.begin_ns;
  });
}

std::size_t count_steps(const Timeline& timeline) {
  std::set<std::uint32_t> steps;
  for (const Record& record : timeline.records) {
    if (record.kind == RecordKind::kStep && record.end_ns > record.begin_ns) {
      steps.insert(record.step);
    }
  }
  return steps.size();
}

bool is_imported(const Timeline& timeline) {
  return std::any_of(timeline.records.begin(), timeline.records.end(), [](const Record& record) {
    return record.device != kNoId || record.lane == Lane::kHost;
  });
}

}  // namespace

std::string_view to_string(Diagnosis::Weight weight) noexcept {
  switch (weight) {
    case Diagnosis::Weight::kNote:
      return "note";
    case Diagnosis::Weight::kCause:
      return "cause";
    case Diagnosis::Weight::kFirst:
      return "first";
  }
  return "note";
}

bool Explanation::has_communication() const noexcept {
  const auto communicates = [](const auto& totals) { return totals.communication_count > 0; };
  return std::any_of(devices.begin(), devices.end(), communicates) ||
         (host_only && std::any_of(hosts.begin(), hosts.end(), communicates));
}

std::optional<Seconds> Explanation::least_exposed() const {
  if (!summary || !summary->bound) {
    return std::nullopt;
  }
  return std::clamp(
      *summary->bound - (summary->step - summary->exposed), Seconds(0), summary->exposed);
}

namespace {

std::optional<Certificate> certificate_of(const Timeline& timeline,
                                          const Explanation& explanation,
                                          const AnalyzeOptions& options) {
  if (!explanation.summary || !explanation.steps_marked || !is_imported(timeline)) {
    return std::nullopt;
  }
  const Summary& summary = *explanation.summary;
  if (options.machine) {
    Bytes most;
    for (const BucketSummary& bucket : summary.buckets) {
      most += bucket.bytes;
    }
    return certify(timeline,
                   summary,
                   exchange_costs(*options.machine, Algorithm::kAuto, std::max(Bytes(1), most)));
  }
  if (!explanation.fitted) {
    return std::nullopt;
  }
  const auto ranks = static_cast<int>(std::max<std::uint32_t>(1, timeline.world_size));
  return certify(timeline, summary, costs_of(*explanation.fitted, ranks));
}

}  // namespace

Explanation explain(const Timeline& timeline, const AnalyzeOptions& options) {
  Explanation explanation;
  explanation.devices = device_totals(timeline);
  explanation.hosts = host_totals(timeline);
  explanation.host_only = explanation.devices.empty();
  explanation.collectives = report_collectives(timeline);
  explanation.fitted = fit_exchange(explanation.collectives);
  explanation.slowdown = detail::measure_slowdown(timeline);
  explanation.notes = explanation.collectives.notes;
  if (has_steps(timeline)) {
    AnalyzeOptions all = options;
    all.keep_idle = all.keep_idle || is_imported(timeline);
    if (!all.machine && !all.cost && explanation.fitted) {
      all.cost = explanation.fitted->cost;
    }
    explanation.summary = analyze(timeline, all);
    explanation.modules = module_summaries(timeline);
    if (const std::size_t all_steps = count_steps(timeline);
        all_steps > static_cast<std::size_t>(explanation.summary->steps)) {
      explanation.notes.push_back(
          std::to_string(all_steps - static_cast<std::size_t>(explanation.summary->steps)) +
          " of " + std::to_string(all_steps) +
          " steps are in no median: not every rank has recorded them");
    }
    if (all.machine && explanation.summary->bound == explanation.summary->step) {
      explanation.notes.push_back(
          "machine " + all.machine->name +
          " cannot be quicker than the step that was recorded: if it is not the one of the "
          "recording, its bound says nothing here");
    }
  }
  for (const Record& record : timeline.records) {
    if (record.kind == RecordKind::kStep && record.name < timeline.names.size() &&
        timeline.names[record.name] == kWholeRecording) {
      explanation.steps_marked = false;
    }
  }
  if (explanation.summary && explanation.slowdown &&
      detail::is_slowed(*explanation.slowdown, explanation.devices)) {
    const Summary& s = *explanation.summary;
    explanation.slowdown->compute_without =
        s.compute - (1.0 - 1.0 / explanation.slowdown->factor) * (s.communication - s.exposed);
  }
  explanation.certificate = certificate_of(timeline, explanation, options);
  if (explanation.certificate) {
    // The one bound that holds for any buckets, and not for the recorded ones kept whole.
    Summary& summary = *explanation.summary;
    summary.bound = std::min(
        summary.step, summary.step - summary.exposed + explanation.certificate->exposed_bound);
  }
  detail::diagnose(timeline, explanation);
  return explanation;
}

StepProfile step_profile_of_trace(const Timeline& timeline, double slowdown) {
  if (!(slowdown >= 1.0) || !std::isfinite(slowdown)) {
    throw Error(ErrorCode::kInvalidArgument,
                {"compute is not quicker beside communication",
                 "slowdown",
                 std::to_string(slowdown),
                 "a factor of 1 or more",
                 {}});
  }
  AnalyzeOptions options;
  const Summary summary = analyze(timeline, options);
  const detail::Activities activities(timeline);
  const detail::Buckets recorded =
      detail::summarize_buckets(detail::whole_steps(timeline, activities), activities);
  // Of compute beside communication, what it took longer.
  const double lost = 1.0 - 1.0 / slowdown;
  const Seconds compute =
      summary.step - summary.exposed - lost * (summary.communication - summary.exposed);
  StepProfile profile;
  profile.model = timeline.source;
  profile.basis = Basis::kMeasured;
  profile.assumptions = "from a trace: median of " + std::to_string(summary.steps) +
                        " steps; its collectives stand for the gradients they carried, as fp32";
  profile.beside_communication = slowdown == 1.0 && summary.exposed < summary.communication;
  profile.compute_slowdown = slowdown;
  profile.optimizer_after_exchanges = true;  // as the frameworks that write traces
  if (slowdown != 1.0) {
    profile.assumptions +=
        "; compute beside communication is taken to have been slowed by the measured factor, and "
        "times are without it";
  }
  for (std::size_t i = 0; i < summary.buckets.size(); ++i) {
    const BucketSummary& bucket = summary.buckets[i];
    if (bucket.bytes > Bytes(0) && detail::is_gradient_exchange(bucket.collective)) {
      const std::int64_t elements = (bucket.bytes.count() + 3) / 4;
      profile.tensors.push_back({"bucket " + std::to_string(bucket.bucket),
                                 DType::kF32,
                                 {elements},
                                 recorded.ready_at_best[i] - lost * recorded.hidden_before[i]});
    }
  }
  if (profile.tensors.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"the trace does not say what its gradients were",
         {},
         std::to_string(summary.buckets.size()) + " collectives per step, none an all_reduce or "
                                                  "reduce_scatter of known size",
         "collectives with sizes, as PyTorch 2.1 and later record them",
         {}});
  }
  std::stable_sort(
      profile.tensors.begin(),
      profile.tensors.end(),
      [](const ProfileTensor& a, const ProfileTensor& b) { return a.ready < b.ready; });
  profile.forward_end = std::min(profile.tensors.front().ready, compute);
  profile.backward_end = profile.tensors.back().ready;
  profile.compute_end = std::max(profile.backward_end, compute);
  return profile;
}

}  // namespace stretto
