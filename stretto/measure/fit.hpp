// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"

namespace stretto {

/// time = latency + size * seconds_per_byte, neither below zero.
struct LineFit {
  Seconds latency{};
  double seconds_per_byte = 0.0;
  std::vector<double> residuals;  ///< Of each point: (line - measured) / measured.
  double worst_residual = 0.0;    ///< The largest without its sign.

  [[nodiscard]] Seconds operator()(Bytes size) const noexcept {
    return latency + Seconds(seconds_per_byte * static_cast<double>(size.count()));
  }
  /// 1 / seconds_per_byte; 0 if the sizes say nothing about it (one size, or times that do not
  /// grow).
  [[nodiscard]] BytesPerSecond bandwidth() const noexcept;
};

/// Least squares of the *relative* errors: a microsecond off counts at 5 us and not at 5 ms, so
/// that small sizes decide the latency and large ones the bandwidth. One point gives a latency
/// only.
/// @throws Error kInvalidArgument: no points, or a time that is not above zero.
[[nodiscard]] LineFit fit_line(std::span<const CurvePoint> points);

/// One stretch of sizes on which one line holds.
struct FitSegment {
  Bytes first{};
  Bytes last{};
  LineFit line;
};

/// The fewest lines of which none is off by more than `tolerance` at any point: where a library
/// changes its protocol, or memory its level, one line does not do. Among as few lines the one with
/// the least sum of squared relative errors. Sizes must increase.
/// @throws Error kInvalidArgument as fit_line, or sizes that do not increase.
[[nodiscard]] std::vector<FitSegment> fit_segments(std::span<const CurvePoint> points,
                                                   double tolerance = 0.05);

}  // namespace stretto
