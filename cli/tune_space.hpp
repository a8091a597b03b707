// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/data/machine.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/simulate/simulate.hpp"
#include "stretto/tune/setting.hpp"
#include "tune_program.hpp"

namespace stretto::cli {

/// What two recordings of the program say: how its gradients travel by default, what a step does
/// without communication, and what communication costs.
struct RecordedProgram {
  Plan plan;                            ///< As it is by default.
  std::string schedule;                 ///< Likewise; empty if the program does not say.
  std::string streams = "1";            ///< Likewise.
  StepProfile profile;                  ///< Tensors in the plan's order.
  std::optional<Machine> machine;       ///< If one is emulated or given;
  std::optional<ExchangeCosts> fitted;  ///< else what fits the recording, if anything does.
  bool optimizer_per_bucket = true;
  std::string costs_basis;  ///< For people: where the costs come from.
};

/// A plan that serves to measure: in serial runs its exchanges have sizes from a 32nd of the
/// gradients to the half of them, so that a line can be laid through their times.
[[nodiscard]] Plan probe_plan(const Plan& plan);

/// What may be tried, and what each of it means for the program.
class TuneSpace {
 public:
  struct Allowed {
    std::vector<std::string> schedules;
    std::vector<std::string> codecs;
    std::vector<KnobValues> environment;
    bool places = false;  ///< The machine is emulated and its ranks are not in order.
    Setting fixed;        ///< Holds in every trial, the default's too.
  };
  TuneSpace(RecordedProgram recorded, Allowed allowed);

  /// buckets, schedule, algorithm, streams, codec, ratio (of topk), places, and allowed variables.
  /// @throws Error kInvalidArgument: an unknown knob, with the nearest one, or a value it cannot
  /// have.
  [[nodiscard]] TrialRequest request(const Setting& setting);
  /// @throws Error as above, without a recording.
  static void check(const Setting& setting, const Allowed& allowed);
  /// What a step will take; nothing if that cannot be said.
  [[nodiscard]] std::optional<Seconds> predict(const Setting& setting);
  /// What is worth a trial, what is predicted to be quickest first: up to `count` that can be
  /// predicted, and what cannot be (codecs, variables, algorithms that nobody can price) together
  /// with the best of these. None does just what the default does.
  [[nodiscard]] std::vector<Candidate> candidates(std::size_t count);
  /// How many combinations the candidates were taken from.
  [[nodiscard]] std::size_t combinations() const noexcept { return combinations_; }
  [[nodiscard]] const RecordedProgram& recorded() const noexcept { return recorded_; }

 private:
  [[nodiscard]] std::optional<std::string> knob(const Setting& setting,
                                                std::string_view name) const;
  [[nodiscard]] Plan plan_of(const Setting& setting);
  [[nodiscard]] const ExchangeCosts* costs(Algorithm algorithm);
  [[nodiscard]] SimulateOptions options(const Setting& setting) const;
  [[nodiscard]] std::vector<KnobValues> predictable();
  [[nodiscard]] bool same_as_default(const Setting& setting);

  RecordedProgram recorded_;
  Allowed allowed_;
  std::map<Algorithm, std::optional<ExchangeCosts>> costs_;
  std::map<std::string, Plan> planned_;
  std::size_t combinations_ = 0;
};

}  // namespace stretto::cli
