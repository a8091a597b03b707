// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/run/session.hpp"

namespace stretto {

struct CodecWatchOptions {
  /// Of a step without codecs, as measured before; 0: found out by the first trial.
  Seconds exact_step{};
  std::uint32_t window = 20;       ///< Steps that one look is of.
  std::uint32_t trial_window = 5;  ///< Of the other state, after one that is not counted.
  std::uint32_t trial_every = 10;  ///< Looks between two trials; twice as many after each in vain.
  /// Of the step without codecs, for codecs that were off to come back. On, they stay until they
  /// lose: between the two nothing changes, so that noise does not switch all the time.
  double least_gain = 0.03;
  /// Monotonic time; empty: the steady clock.
  std::function<Seconds()> now;
};

/// Codecs went, came back, or were tried in vain.
struct CodecSwitch {
  std::uint32_t step = 0;  ///< The Session's, which ended with it.
  bool codecs = false;     ///< From then on.
  bool changed = false;    ///< Else tried in vain: all stays as it was.
  Seconds with{};          ///< Median step with codecs, and without.
  Seconds without{};
};

/// Turns the codecs of a Session's plan off when steps with them are longer than without, and on
/// again when they are shorter by least_gain. Both are measured, the state that is not the present
/// one by a short trial now and then, and at once when steps become such that, by the last ones of
/// the other state, it would win; after each such trial in vain twice as many looks later,
/// trial_every at most. Rank 0 measures and decides for all. What is not sent when codecs go
/// travels with the first exact gradients (Session::replan). Every rank has one, and outlives
/// neither communicator nor Session.
class CodecWatch {
 public:
  /// @throws Error kInvalidArgument: a window of 0, or a gain that is not from 0 to below 1.
  CodecWatch(Communicator& communicator, Session& session, CodecWatchOptions options);

  /// After finish(), on every rank. Collective in the last step of each window or trial. Under
  /// Schedule::kPriority it drains the Session when it switches. Nothing for plans without codecs.
  /// @throws Error as Session::replan().
  void step_finished();

  [[nodiscard]] bool codecs_on() const noexcept { return on_ != trying_; }
  /// All trials so far; on rank 0.
  [[nodiscard]] const std::vector<CodecSwitch>& switches() const noexcept { return switches_; }

 private:
  /// By the last steps of both states, whether the one that does not run would win.
  [[nodiscard]] bool other_is_better() const;
  [[nodiscard]] bool wants_trial(Seconds step);
  [[nodiscard]] bool judge(Seconds step);
  void install(bool codecs);

  Communicator& communicator_;
  Session& session_;
  CodecWatchOptions options_;
  Plan with_;
  Plan without_;
  bool on_ = true;           ///< Codecs are what is run for the time being;
  bool trying_ = false;      ///< right now the other state.
  bool called_for_ = false;  ///< The trial, by what a look saw; else it is routine.
  std::uint32_t looks_ = 0;  ///< Since the last trial.
  std::uint32_t patience_ = 1;
  std::uint32_t doubt_ = 1;  ///< So many looks are between a trial and one that a look calls for.
  Seconds on_step_{};        ///< The last of each state.
  Seconds off_step_{};
  Seconds last_{};
  std::vector<double> steps_;
  std::vector<CodecSwitch> switches_;
};

}  // namespace stretto
