// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "stretto/tune/trial_log.hpp"
#include "stretto/tune/tuner.hpp"
#include "tune_program.hpp"
#include "tune_space.hpp"

namespace stretto::cli {

/// Thrown out of a search when the user has had enough.
struct Interrupted {};

/// Runs trials, writes each to the log as it ends, and takes those from the log that are there.
class Trials {
 public:
  struct Options {
    std::string log;          ///< File; empty for none.
    std::string fingerprint;  ///< Of the program and how it is run: TrialRecord::program.
    bool quiet = false;       ///< No progress on stderr.
  };
  /// @throws Error kParse: the log is none, or of another program.
  Trials(TunedProgram& program, TuneSpace& space, InterruptWatch& watch, Options options);

  /// @throws Interrupted.
  TrialOutcome run(const Setting& setting, std::size_t repeat);
  /// The same, also where the log has it, for what the log does not hold. Not logged.
  /// @throws Interrupted.
  TrialReport record(const Setting& setting);

  [[nodiscard]] std::size_t ran() const noexcept { return ran_; }
  [[nodiscard]] std::size_t from_log() const noexcept { return from_log_; }
  /// Medians over the setting's trials so far; absent where there are none.
  [[nodiscard]] std::optional<double> samples_per_s(const Setting& setting) const;
  [[nodiscard]] std::optional<Seconds> step(const Setting& setting) const;
  [[nodiscard]] std::optional<Seconds> exposed(const Setting& setting) const;

 private:
  /// A busy host fails an emulated machine now and then; what fails twice fails.
  [[nodiscard]] TrialReport once_more_if_failed(const TrialRequest& request, bool record);
  void read_log();
  void append(const TrialRecord& record);
  void say(const Setting& setting, const std::string& what) const;

  TunedProgram& program_;
  TuneSpace& space_;
  InterruptWatch& watch_;
  Options options_;
  std::map<std::pair<std::string, std::size_t>, TrialRecord> done_;
  std::map<std::string, std::vector<TrialRecord>> used_;
  std::size_t ran_ = 0;
  std::size_t from_log_ = 0;
};

}  // namespace stretto::cli
