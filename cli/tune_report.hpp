// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "stretto/tune/tuner.hpp"
#include "tune_program.hpp"
#include "tune_trials.hpp"

namespace stretto::cli {

/// One row of `--explain`: what one more knob does.
struct ExplainedKnob {
  Setting setting;  ///< With this knob and all before it.
  Seconds step{};
  std::optional<double> samples_per_s;
  std::vector<double> rates;  ///< Of each step, in order: samples/s, or steps/s if nobody says.
};

/// What a search came to.
struct TuneReport {
  TuneResult result;
  bool grid = false;  ///< The plain experiment: one trial each, nothing confirmed.
  std::optional<Seconds> predicted_default;
  std::size_t combinations = 0;  ///< That the candidates were taken from.
  std::string costs_basis;
  std::vector<std::string> notes;  ///< What was left out, and why.
  std::vector<ExplainedKnob> explained;
  std::string command;  ///< To run what won.
  std::string plan_file;
  std::string log_file;
  Seconds wall{};

  /// The setting that won; the default's is empty.
  [[nodiscard]] Setting winner() const;
};

[[nodiscard]] std::string tune_text(const TuneReport& report, const Trials& trials);
[[nodiscard]] nlohmann::ordered_json tune_document(const TuneReport& report, const Trials& trials);
/// What a plan file says of how it was found.
[[nodiscard]] nlohmann::ordered_json tune_evidence(const TuneReport& report,
                                                   const Trials& trials,
                                                   const TrialRequest& request);

}  // namespace stretto::cli
