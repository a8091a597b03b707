// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app.hpp"
#include "codecs.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/run/plan_agreement.hpp"
#include "stretto/run/session.hpp"
#include "stretto/simulate/simulate.hpp"

namespace stretto::cli {

/// The flags that train and replay share: when and how gradients travel, and for how long.
struct ScheduleOptions {
  std::string schedule = "overlap";
  std::string buckets;
  std::string plan;
  std::string algorithm;  ///< Empty: as the plan says, else direct.
  std::string machine;
  CompressFlags compress;
  bool explain = false;
  int streams = 1;
  std::uint32_t verify = 0;
  std::uint32_t steps = 0;
  std::uint32_t warmup = 0;

  void add_to(CLI::App& app);

  /// What a run will do, made of the flags.
  struct Resolved {
    std::string name;  ///< For people.
    Plan plan;
    SessionOptions session;
  };
  [[nodiscard]] Resolved resolve(const std::vector<TensorSpec>& tensors) const;
  /// As above, where it is known what a step does and what exchanges cost: then `planned` is
  /// possible, and the default with overlap.
  [[nodiscard]] Resolved resolve(const StepProfile& profile,
                                 const ExchangeCosts& costs,
                                 const SimulateOptions& options) const;
  /// @throws Error kInvalidArgument, which names the flag; so does the next.
  [[nodiscard]] Schedule chosen_schedule() const;
  [[nodiscard]] Algorithm chosen_algorithm() const;
  /// What the planner is to reckon with when these flags run on an emulated machine.
  [[nodiscard]] SimulateOptions simulated(const Machine& emulated) const;
  /// Where no machine is known. @throws Error kInvalidArgument.
  [[noreturn]] void refuse_auto_codecs() const;
  /// For `--compress auto`, on rank 0: the codecs of a plan's buckets on a machine, or, if they may
  /// be `cut` anew, of the best ones. Measures the codecs that the machine has no rates of.
  [[nodiscard]] AutoCodecs choose_codecs(const StepProfile& profile,
                                         const Machine& on,
                                         const Plan& buckets_of,
                                         bool cut) const;
  /// The machine that `--algorithm auto` reckons with: `--machine`, else the emulated one.
  [[nodiscard]] std::optional<Machine> machine_for_auto(
      const std::optional<Machine>& emulated) const;
  /// With `--algorithm auto` lets the communicator take the cheapest on that machine, and with
  /// `--explain` says which on stderr.
  /// @throws Error kInvalidArgument: a machine with another number of ranks, or nothing to explain.
  void choose_algorithms(Communicator& communicator, const std::optional<Machine>& emulated) const;

  /// What must be alike on all ranks, but for the plan, of which Session says more.
  [[nodiscard]] std::vector<NamedValue> settings() const;

  /// Whether the buckets are to be planned.
  [[nodiscard]] bool planned() const noexcept { return plan.empty() && buckets == "planned"; }

 private:
  [[nodiscard]] Resolved resolve_rule(const std::vector<TensorSpec>& tensors) const;
};

/// What an exchange costs in a communicator of this version on an emulated machine: by the
/// algorithm that it runs there, under kAuto the cheapest for each size.
[[nodiscard]] ExchangeCosts emulated_costs(const Machine& machine, Algorithm algorithm, Bytes most);

/// What a step of a run that trained `tensors` does without communication, with tensors in that
/// order.
/// @throws Error as step_profile().
[[nodiscard]] StepProfile measured_profile(const Timeline& timeline,
                                           const std::vector<TensorSpec>& tensors);

/// The plan for a step as rank 0 measured it: `timeline` is its own, of a run that trained
/// `tensors`. Collective; every rank gets the same plan.
[[nodiscard]] Plan plan_measured(Communicator& communicator,
                                 const Timeline& timeline,
                                 const std::vector<TensorSpec>& tensors,
                                 const Machine& machine,
                                 const ScheduleOptions& schedule);

}  // namespace stretto::cli
