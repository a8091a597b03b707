// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/tune/paired.hpp"
#include "stretto/tune/setting.hpp"

namespace stretto {

/// What one trial gave: the median of its steps, or why there is none.
struct TrialOutcome {
  std::optional<Seconds> step;
  std::string error;  ///< One line; empty if there is a step.
};

/// Runs a setting for some steps; `repeat` counts its trials from 0. What it throws goes through
/// tune().
using RunTrial = std::function<TrialOutcome(const Setting& setting, std::size_t repeat)>;

struct TuneOptions {
  /// Pairs for the last candidate, run after it was picked: once more as many if these do not
  /// decide. At least 2.
  std::size_t confirm_pairs = 6;
  /// Of the intervals; each of the two looks gets half of what is left to 1 (Bonferroni).
  double confidence = 0.95;
  /// A gain below this is not worth another setting than the default.
  double least_gain = 0.01;
  std::uint64_t seed = 1;
  /// Asked before each trial: no more, and the default is kept unless something was confirmed.
  std::function<bool()> stop;
};

struct CandidateResult {
  Candidate candidate;
  std::vector<Seconds> steps;      ///< Of all its trials.
  std::vector<double> log_ratios;  ///< Of all its pairs with the default.
  std::size_t trials = 0;          ///< Those that failed too.
  int rungs = 0;                   ///< So many rungs it was in.
  std::string error;               ///< Why it was dropped, if a trial failed.
};

/// Why tune() chose as it did.
enum class Verdict : std::uint8_t {
  kBetter,   ///< Confirmed: the interval lies above no gain at all.
  kNoise,    ///< The gain is inside the noise, or below least_gain.
  kNothing,  ///< There was nothing but the default to try, or all else failed.
  kStopped,  ///< It was stopped before anything was confirmed.
};
/// `better`, `noise`, `nothing`, `stopped`.
[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;

struct TuneResult {
  CandidateResult baseline;  ///< Of the default.
  std::vector<CandidateResult> candidates;
  std::optional<std::size_t> best;  ///< The candidate that was confirmed or was to be.
  PairedGain gain;                  ///< Of `best`, of the pairs run after it was picked only.
  Verdict verdict = Verdict::kNothing;
  std::size_t trials = 0;

  [[nodiscard]] bool adopted() const noexcept { return verdict == Verdict::kBetter; }
};

/// Finds out which candidate to use instead of the default, and whether to.
///
/// Successive halving (Jamieson and Talwalkar, "Non-stochastic best arm identification and
/// hyperparameter optimization", 2016): every rung runs its candidates and the default in rounds,
/// in an order drawn anew, compares each with the default of its round, and keeps the better half;
/// the next rung has twice as many rounds, up to four. The last one is then confirmed by pairs of
/// its own, the first of a pair in turns: the pairs by which it was picked favour the lucky. Equal
/// candidates, outcomes and seed give equal trials in equal order. A round in which the default
/// fails counts for nothing.
/// @throws Error kBackend when the default fails at first, or three times in a row: then there is
///         nothing to compare with.
[[nodiscard]] TuneResult tune(std::span<const Candidate> candidates,
                              const RunTrial& run,
                              const TuneOptions& options = {});

}  // namespace stretto
