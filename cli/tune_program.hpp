// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/summary.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/run/owned_directory.hpp"

namespace stretto::cli {

/// What a trial changes in the program; what is empty is left as it is.
struct TrialRequest {
  std::optional<Plan> plan;
  std::string schedule;
  std::string algorithm;
  std::string streams;
  bool places_in_order = false;          ///< Without the program's --rank-map.
  std::vector<std::string> environment;  ///< `NAME=value`.
};

/// What a trial gave.
struct TrialReport {
  std::optional<Summary> summary;
  std::string schedule;  ///< That it ran, if it says so.
  std::optional<Plan> plan;
  std::optional<Timeline> timeline;
  std::string error;  ///< One line; empty if there is a summary.
  bool interrupted = false;
  Seconds wall{};
};

/// Takes SIGINT, SIGTERM and SIGHUP out of the ordinary way while it lives, and remembers them.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  /// Waits up to `timeout` for one of them or the end of a child; false once one of them came.
  bool wait(std::chrono::milliseconds timeout) noexcept;
  [[nodiscard]] bool interrupted() noexcept { return !wait(std::chrono::milliseconds(0)); }
  /// The first that came; 0 if none did.
  [[nodiscard]] int signal() const noexcept { return signal_; }
  [[nodiscard]] const sigset_t& mask_before() const noexcept { return before_; }

 private:
  sigset_t ours_{};
  sigset_t before_{};
  int signal_ = 0;
};

/// The program that is tuned: `replay ...`, `train ...` or `run -n N -- PROGRAM`, started anew for
/// every trial. The first two are given flags; the third variables that stretto.torch.DDP reads.
class TunedProgram {
 public:
  /// @throws Error kInvalidArgument: none of the three.
  TunedProgram(std::vector<std::string> words,
               std::uint32_t steps,
               std::optional<std::uint32_t> warmup,
               Seconds time_limit);

  [[nodiscard]] const std::vector<std::string>& words() const noexcept { return words_; }
  [[nodiscard]] bool launches() const noexcept { return words_[0] == "run"; }
  /// The last value of a flag among the words; nothing if it is not there.
  [[nodiscard]] std::optional<std::string> flag(std::string_view name) const;
  /// The same program with the flags and variables of a request, to be copied by people; the plan
  /// is in file `plan`, if there is one.
  [[nodiscard]] std::string command(const TrialRequest& request, const std::string& plan) const;

  /// One trial. `record`: with plan and timeline, if it can give them.
  /// @throws Error kUnavailable when no process can be started.
  [[nodiscard]] TrialReport run(const TrialRequest& request, bool record, InterruptWatch& watch);

 private:
  [[nodiscard]] std::vector<std::string> arguments(const TrialRequest& request,
                                                   const std::string& plan) const;
  [[nodiscard]] static std::vector<std::string> variables(const TrialRequest& request,
                                                          const std::string& plan);
  void read_result(TrialReport& report, bool record, int status) const;
  [[nodiscard]] std::string why(int status) const;

  std::vector<std::string> words_;
  std::uint32_t steps_;
  std::optional<std::uint32_t> warmup_;
  Seconds time_limit_;
  OwnedDirectory directory_{"stretto-tune-"};
  std::filesystem::path folder_;  ///< In it; emptied before every trial.
};

}  // namespace stretto::cli
