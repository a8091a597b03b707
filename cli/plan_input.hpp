// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app.hpp"
#include "codecs.hpp"
#include "stretto/analyze/certificate.hpp"
#include "stretto/analyze/explain.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/data/summary.hpp"
#include "stretto/simulate/simulate.hpp"
#include "trace_options.hpp"

namespace stretto::cli {

/// What plan and simulate work on: a model, profile or trace; a machine; what-ifs; how a step goes.
struct PlanInput {
  TraceOptions trace;  ///< Its paths are the positional arguments, whatever they are.
  std::string machine;
  std::string algorithm = "auto";
  std::string schedule = "overlap";
  std::string segment;
  AssumedDevice device;
  double mfu = 0.0;
  std::optional<double> compute_s;
  double compute_speed = 1.0;
  double bandwidth = 1.0;
  double latency = 1.0;
  std::string slowdown;  ///< A factor, or auto: the one that was measured.
  int zero = 0;
  std::vector<std::string> rank_speed;
  CompressFlags compress;
  SimulateOptions simulate;

  void add_to(CLI::App& app);
  /// @throws Error kInvalidArgument when nothing was named.
  void require_profile() const;
  /// @throws Error kInvalidArgument when flags are given that mean something for a model only.
  void refuse_model_flags(const std::string& input) const;

  /// All of it, read and checked.
  struct Loaded {
    StepProfile profile;
    std::optional<Machine> machine;  ///< Absent: costs are fitted to the trace.
    ExchangeCosts costs;
    Algorithm algorithm = Algorithm::kDirect;  ///< Of the costs, if they are of a machine.
    SimulateOptions options;
    std::string costs_basis;                 ///< For people: where the costs come from.
    std::optional<Certificate> certificate;  ///< Of the same.
    std::optional<Summary> measured;         ///< Of the trace, if it was one.
  };
  [[nodiscard]] Loaded load(bool quiet) const;

  /// @throws Error kInvalidArgument when --segment is given and nothing can overtake: no schedule
  /// by priority, and no plan (null: one without priorities) whose buckets differ in theirs.
  void refuse_idle_segment(const Loaded& loaded, const Plan* plan) const;

  /// Gives these codecs a price: by the machine's rates, else by those measured here and now.
  void price(Loaded& loaded, const std::vector<CodecSpec>& codecs) const;

  /// The factor that the times of a trace are freed of: 1 unless --slowdown says otherwise.
  [[nodiscard]] double slowdown_of_recording(const std::optional<Slowdown>& measured,
                                             bool quiet) const;

  /// Costs of the loaded machine, as the what-ifs want it, with one algorithm.
  [[nodiscard]] ExchangeCosts costs_on(const Machine& on,
                                       Algorithm chosen,
                                       const StepProfile& profile) const;
};

/// The machine with `ranks` ranks: the outermost level takes as many groups as that needs.
/// @throws Error kInvalidArgument when the levels inside do not divide it.
[[nodiscard]] Machine with_ranks(const Machine& machine, int ranks);

}  // namespace stretto::cli
