// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stretto/analyze/analyze.hpp"
#include "stretto/analyze/certificate.hpp"
#include "stretto/analyze/collectives.hpp"
#include "stretto/analyze/devices.hpp"
#include "stretto/analyze/modules.hpp"
#include "stretto/data/summary.hpp"
#include "stretto/data/timeline.hpp"

namespace stretto {

/// One thing that the numbers say, in words.
struct Diagnosis {
  enum class Weight : std::uint8_t {
    kNote,   ///< Good to know.
    kCause,  ///< Explains part of the exposed time.
    kFirst,  ///< The first thing to change.
  };
  std::string id;  ///< `straggler`, `one_stream`...: stable, for programs.
  Weight weight = Weight::kNote;
  std::string finding;    ///< One sentence.
  std::string evidence;   ///< The numbers it stands on,
  std::string threshold;  ///< and the rule that made it worth saying.
  std::string advice;     ///< What to change; empty if nothing needs to be.
};
[[nodiscard]] std::string_view to_string(Diagnosis::Weight weight) noexcept;

/// How kernels of one name and launch shape ran beside communication and without it.
struct Slowdown {
  double factor = 1.0;  ///< Time-weighted over those that ran both ways often enough; 1 = none.
  std::size_t kernels = 0;
  /// Of these, those compared at the same positions of the step; the others only ran beside
  /// communication at some positions and alone at others.
  std::size_t same_position = 0;
  Seconds extra{};  ///< What the slowed kernels took longer, per device and recording.
  /// Of the step's compute, what would be left without it: all compute beside communication is
  /// taken to have been as slow as these kernels. Absent without steps, and where it is too little
  /// to tell from chance (the rule of the diagnosis `slowed_compute`).
  std::optional<Seconds> compute_without;

  /// For step_profile_of_trace(): `factor` where it is more than chance, else 1.
  [[nodiscard]] double believed() const noexcept { return compute_without ? factor : 1.0; }
};

/// Everything that can be said of a Timeline of any origin.
struct Explanation {
  bool host_only = false;  ///< No device rows: the numbers are of host rows.
  /// Absent if nothing can be cut into steps.
  std::optional<Summary> summary;
  /// False if nothing marks steps in the recording: the summary's one step is all of it.
  bool steps_marked = true;
  std::vector<DeviceTotals> devices;
  std::vector<HostTotals> hosts;
  CollectiveReport collectives;
  std::vector<ModuleSummary> modules;      ///< Most exposed first; empty without FSDP.
  std::optional<FittedExchange> fitted;    ///< From the recording's own collectives.
  std::optional<Certificate> certificate;  ///< Absent where it is not known what exchanges cost.
  std::optional<Slowdown> slowdown;
  std::vector<Diagnosis> diagnoses;  ///< Heaviest first.
  std::vector<std::string> notes;

  /// No communication anywhere: everything exposed is undefined, not zero.
  [[nodiscard]] bool has_communication() const noexcept;
  /// What of the exposed time no schedule of the same gradients could avoid: bound minus the step
  /// without exposed communication. Absent without a bound.
  [[nodiscard]] std::optional<Seconds> least_exposed() const;
};

/// Analyzes with the bound from `options` if it has a machine or cost, else from the cost fitted to
/// the recording. Clocks are taken as they are: see align_clocks.
[[nodiscard]] Explanation explain(const Timeline& timeline, const AnalyzeOptions& options = {});

/// The step of a trace as input of a planner: its gradient exchanges (all_reduce, reduce_scatter)
/// of known size as tensors `bucket N`, ready as measured; compute_end = the step without exposed
/// communication.
///
/// `slowdown`: how many times as long compute took while communication ran beside it
/// (Slowdown::believed()). With 1 the times are as recorded; else that part of them is divided by
/// it, the profile is not beside_communication, and what plans with it says so to the simulator
/// (ExchangeCosts::compute_slowdown).
/// @throws Error kInvalidArgument without steps or without such exchanges, or a slowdown below 1.
[[nodiscard]] StepProfile step_profile_of_trace(const Timeline& timeline, double slowdown = 1.0);

}  // namespace stretto
