// SPDX-License-Identifier: Apache-2.0
#include "tune_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "stretto/report/report.hpp"

namespace stretto::cli {
namespace {

using nlohmann::ordered_json;

std::string times(double ratio) {
  return fmt::format("{:.3f}x", ratio);
}

std::string rate(std::optional<double> value) {
  return value ? fmt::format("{:.1f}", *value) : std::string("n/a");
}

std::string time(const std::optional<Seconds>& value) {
  return value ? format(*value) : std::string("n/a");
}

std::optional<double> gain_of(const CandidateResult& one) {
  if (one.log_ratios.empty()) {
    return std::nullopt;
  }
  return paired_gain(one.log_ratios, 0.95).ratio;
}

/// Candidates by what they gained, those that failed last.
std::vector<const CandidateResult*> ranking(const TuneResult& result) {
  std::vector<const CandidateResult*> order;
  for (const CandidateResult& one : result.candidates) {
    order.push_back(&one);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return gain_of(*a).value_or(0.0) > gain_of(*b).value_or(0.0);
  });
  return order;
}

std::string headline(const TuneReport& report) {
  const TuneResult& result = report.result;
  const std::string best =
      result.best ? to_string(result.candidates[*result.best].candidate.setting) : std::string();
  const std::string interval = result.gain.pairs < 2
                                   ? std::string()
                                   : fmt::format("{} (interval {} to {}, {} pairs)",
                                                 times(result.gain.ratio),
                                                 times(result.gain.low),
                                                 times(result.gain.high),
                                                 result.gain.pairs);
  if (report.grid) {
    return result.best
               ? fmt::format("quickest of the grid: {} (one trial each, not confirmed)\n", best)
               : std::string("quickest of the grid: the default\n");
  }
  switch (result.verdict) {
    case Verdict::kBetter:
      return fmt::format("use {}: {} the steps of the default\n", best, interval);
    case Verdict::kNoise:
      return result.trials == 0
                 ? fmt::format(
                       "keep the default: what is predicted for the best other plan, {}, gains "
                       "less "
                       "than trials can tell\n",
                       best)
                 : fmt::format("keep the default: the gain of {} is inside the noise{}{}\n",
                               best,
                               interval.empty() ? "" : ": ",
                               interval);
    case Verdict::kNothing:
      return "keep the default: there was nothing else to try, or it failed\n";
    case Verdict::kStopped:
      return "keep the default: the budget was spent before anything was confirmed; the same "
             "command with --log goes on from there\n";
  }
  return {};
}

/// One character for each value, higher for more: from nothing to `most`.
std::string bars(const std::vector<double>& values, double most) {
  constexpr std::array<const char*, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::size_t kMost = 60;
  std::string text;
  const std::size_t shown = std::min(values.size(), kMost);
  for (std::size_t i = 0; i < shown; ++i) {
    const double part = most > 0.0 ? values[i] / most : 0.0;
    const auto level = static_cast<std::size_t>(std::clamp(std::ceil(part * 8.0) - 1.0, 0.0, 7.0));
    text += kBars.at(level);
  }
  return text;
}

std::string explained_text(const TuneReport& report) {
  if (report.explained.empty()) {
    return {};
  }
  std::vector<std::vector<std::string>> rows = {
      {"one knob at a time", "step", "samples/s", "this knob", "in all"}};
  const ExplainedKnob& first = report.explained.front();
  const ExplainedKnob* before = &first;
  for (const ExplainedKnob& one : report.explained) {
    const std::string name = one.setting.empty()
                                 ? "default"
                                 : "+ " + one.setting.back().name + "=" + one.setting.back().value;
    rows.push_back({name,
                    format(one.step),
                    rate(one.samples_per_s),
                    times(before->step / one.step),
                    times(first.step / one.step)});
    before = &one;
  }
  const ExplainedKnob& last = report.explained.back();
  double most = 0.0;
  for (const ExplainedKnob* one : {&first, &last}) {
    for (const double value : one->rates) {
      most = std::max(most, value);
    }
  }
  return "\n" + table(rows) +
         fmt::format("\n{} of each step, full height {:.1f}\n  before  {}\n  after   {}\n",
                     first.samples_per_s ? "samples/s" : "steps/s",
                     most,
                     bars(first.rates, most),
                     bars(last.rates, most));
}

ordered_json or_null(const std::optional<Seconds>& value) {
  return value ? ordered_json(value->count()) : ordered_json(nullptr);
}

ordered_json or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json knobs(const Setting& setting) {
  ordered_json json = ordered_json::object();
  for (const Knob& knob : setting) {
    json[knob.name] = knob.value;
  }
  return json;
}

ordered_json candidate_json(const CandidateResult& one, const Trials& trials) {
  ordered_json steps = ordered_json::array();
  for (const Seconds step : one.steps) {
    steps.push_back(step.count());
  }
  const Setting& setting = one.candidate.setting;
  return {{"setting", to_string(setting)},
          {"knobs", knobs(setting)},
          {"predicted_step_s", or_null(one.candidate.predicted)},
          {"step_s", or_null(trials.step(setting))},
          {"exposed_s", or_null(trials.exposed(setting))},
          {"samples_per_s", or_null(trials.samples_per_s(setting))},
          {"gain_ratio", or_null(gain_of(one))},
          {"trial_steps_s", std::move(steps)},
          {"rungs", one.rungs},
          {"error", one.error.empty() ? ordered_json(nullptr) : ordered_json(one.error)}};
}

ordered_json gain_json(const PairedGain& gain) {
  if (gain.pairs < 2) {
    return nullptr;
  }
  return {{"ratio", gain.ratio}, {"low", gain.low}, {"high", gain.high}, {"pairs", gain.pairs}};
}

}  // namespace

Setting TuneReport::winner() const {
  const bool other = grid ? result.best.has_value() : result.adopted();
  return other ? result.candidates[*result.best].candidate.setting : Setting{};
}

std::string tune_text(const TuneReport& report, const Trials& trials) {
  const TuneResult& result = report.result;
  std::vector<std::vector<std::string>> rows = {
      {"setting", "predicted", "step", "exposed", "samples/s", "over default", "trials"}};
  const auto row = [&](const CandidateResult& one, const std::optional<Seconds>& predicted) {
    const Setting& setting = one.candidate.setting;
    const auto gain = setting.empty() ? std::optional(1.0) : gain_of(one);
    rows.push_back({to_string(setting),
                    time(predicted),
                    one.error.empty() ? time(trials.step(setting)) : "failed",
                    time(trials.exposed(setting)),
                    rate(trials.samples_per_s(setting)),
                    gain ? times(*gain) : "n/a",
                    std::to_string(one.steps.size())});
  };
  row(result.baseline, report.predicted_default);
  std::string failures;
  for (const CandidateResult* one : ranking(result)) {
    row(*one, one->candidate.predicted);
    if (!one->error.empty()) {
      failures += fmt::format("{} failed: {}\n", to_string(one->candidate.setting), one->error);
    }
  }
  std::string text =
      headline(report) + "\n" + table(rows) + failures + explained_text(report) + "\n";
  text +=
      fmt::format("{} trials in {}{}{}\n",
                  trials.ran(),
                  format(report.wall),
                  trials.from_log() == 0 ? std::string()
                                         : fmt::format(", and {} from the log", trials.from_log()),
                  report.combinations == 0
                      ? std::string()
                      : fmt::format("; candidates are of {} settings, by a model with costs {}",
                                    report.combinations,
                                    report.costs_basis));
  for (const std::string& note : report.notes) {
    text += "note: " + note + "\n";
  }
  if (!report.plan_file.empty()) {
    text += fmt::format("wrote {}\n", report.plan_file);
  }
  return text + "next: " + report.command + "\n";
}

ordered_json tune_evidence(const TuneReport& report,
                           const Trials& trials,
                           const TrialRequest& request) {
  const Setting winner = report.winner();
  return {
      {"verdict", report.grid ? "grid" : std::string(to_string(report.result.verdict))},
      {"setting", to_string(winner)},
      {"schedule",
       request.schedule.empty() ? ordered_json(nullptr) : ordered_json(request.schedule)},
      {"streams", request.streams.empty() ? ordered_json(nullptr) : ordered_json(request.streams)},
      {"environment", request.environment},
      {"gain", report.result.adopted() ? gain_json(report.result.gain) : ordered_json(nullptr)},
      {"default_step_s", or_null(trials.step({}))},
      {"step_s", or_null(trials.step(winner))},
      {"trials", report.result.trials},
      {"command", report.command}};
}

ordered_json tune_document(const TuneReport& report, const Trials& trials) {
  const TuneResult& result = report.result;
  ordered_json candidates = ordered_json::array();
  for (const CandidateResult* one : ranking(result)) {
    candidates.push_back(candidate_json(*one, trials));
  }
  ordered_json baseline = candidate_json(result.baseline, trials);
  baseline["predicted_step_s"] = or_null(report.predicted_default);
  ordered_json explained = ordered_json::array();
  for (const ExplainedKnob& one : report.explained) {
    explained.push_back(
        {{"setting", to_string(one.setting)},
         {"step_s", one.step.count()},
         {"samples_per_s", or_null(one.samples_per_s)},
         {one.samples_per_s ? "samples_per_s_by_step" : "steps_per_s_by_step", one.rates}});
  }
  return {
      {"verdict", report.grid ? "grid" : std::string(to_string(result.verdict))},
      {"setting", to_string(report.winner())},
      {"knobs", knobs(report.winner())},
      {"gain", gain_json(result.gain)},
      {"default", std::move(baseline)},
      {"candidates", std::move(candidates)},
      {"explained", std::move(explained)},
      {"combinations", report.combinations},
      {"costs", report.costs_basis},
      {"trials", trials.ran()},
      {"trials_from_log", trials.from_log()},
      {"wall_s", report.wall.count()},
      {"notes", report.notes},
      {"command", report.command},
      {"log", report.log_file.empty() ? ordered_json(nullptr) : ordered_json(report.log_file)},
      {"files",
       report.plan_file.empty() ? ordered_json::array() : ordered_json::array({report.plan_file})}};
}

}  // namespace stretto::cli
