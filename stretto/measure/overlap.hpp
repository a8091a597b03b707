// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/measure/measure.hpp"

namespace stretto {

/// One row of a measurement under compute; columns as users of OSU's non-blocking benchmarks know
/// them.
struct OverlapRow {
  MeasuredRow row;            ///< What it is about; its time is pure_communication.
  Spread overall;             ///< Start communication, compute, wait for communication.
  Spread compute;             ///< The same compute alone, on all ranks at once.
  Spread pure_communication;  ///< The same communication alone.
  /// 1 - (overall - compute) / pure_communication of the medians, from 0 to 1: the share of
  /// communication that cost nothing.
  double overlap_ratio = 0.0;
  /// How much longer compute takes while communication runs beside it, over alone; of the stretch
  /// of compute during which the operation was in flight. Nothing where too little of the compute
  /// was beside it to tell, or the backend does not say when operations end.
  std::optional<double> compute_slowdown;
};

struct OverlapOptions {
  /// As of measure(); progress is kBackground whatever it says, at_once is 1.
  MeasureOptions measure;
  /// Compute takes so many times as long as the communication alone.
  double compute_ratio = 1.0;
  /// Instead of measure.on_row.
  std::function<void(const OverlapRow&)> on_row;
};

/// Collective. Samples of the three are taken in turn, so that what disturbs the machine disturbs
/// all alike.
/// @throws Error as measure().
[[nodiscard]] std::vector<OverlapRow> measure_overlap(Communicator& communicator,
                                                      const OverlapOptions& asked);

}  // namespace stretto
