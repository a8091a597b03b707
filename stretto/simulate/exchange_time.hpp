// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/machine.hpp"

namespace stretto {

/// latency + bytes * seconds_per_byte: what one algorithm takes for one collective.
struct CostLine {
  Seconds latency{};
  double seconds_per_byte = 0.0;
  Algorithm algorithm = Algorithm::kAuto;
  [[nodiscard]] Seconds operator()(Bytes size) const noexcept {
    return latency + Seconds(seconds_per_byte * static_cast<double>(size.count()));
  }
};

/// What a byte takes beyond the last of some measured points: as from the last point that has at
/// most half of its size (else the first) to the last. Where that is not above half of what a byte
/// took from the first point to the last, an end that chance made flat, and where there is one
/// point alone, the last point's time per byte: nothing says how much of it is latency.
///
/// `points` are at least one, with increasing sizes and times above zero.
[[nodiscard]] double seconds_per_byte_beyond(std::span<const CurvePoint> points) noexcept;

/// How long one exchange of n bytes keeps its stream busy, for n > 0; 0 for n = 0.
///
/// Either the cheapest of some lines, one per algorithm, for which plan() is exact in linear time;
/// or any function that does not fall when n grows, which takes quadratic time.
class ExchangeTime {
 public:
  /// Free: one rank has nobody to talk to.
  ExchangeTime() : ExchangeTime(std::vector<CostLine>{CostLine{}}) {}
  /// @throws Error kInvalidArgument: no line, or one with a negative or infinite number.
  explicit ExchangeTime(std::vector<CostLine> lines);
  /// Measured points, ends included: between two of them straight in log(size), log(time); below
  /// the first its time; above the last straight on by seconds_per_byte_beyond(). A point that is
  /// quicker than a smaller one is the time of the smaller sizes too (one could always pad), so
  /// that more bytes never take less time.
  /// @throws Error kInvalidArgument: no point, sizes that do not increase, times not above zero.
  explicit ExchangeTime(std::span<const CurvePoint> points);

  [[nodiscard]] Seconds operator()(Bytes size) const noexcept;
  /// Of that time, what can pass while another exchange has the wire: the cheapest line's latency.
  /// 0 for a curve, which does not say.
  [[nodiscard]] Seconds latency(Bytes size) const noexcept;
  /// Which algorithm the cheapest line is of; kAuto on a curve.
  [[nodiscard]] Algorithm algorithm(Bytes size) const noexcept;
  /// Empty for a curve.
  [[nodiscard]] std::span<const CostLine> lines() const noexcept { return lines_; }
  /// Lines with latency >= 0 that no point of this function is below, up to `most` bytes in one
  /// exchange: whatever is cut how, `total` bytes take at least the largest of their values.
  [[nodiscard]] std::vector<CostLine> lower_lines(Bytes most) const;
  /// As it would be with latencies and times per byte multiplied by these.
  [[nodiscard]] ExchangeTime scaled(double latency, double seconds_per_byte) const;

 private:
  [[nodiscard]] const CostLine& cheapest(Bytes size) const noexcept;

  std::vector<CostLine> lines_;
  std::vector<double> log_size_;  // of a curve
  std::vector<double> log_time_;
  double beyond_ = 0.0;  // s per byte above the last of them
};

}  // namespace stretto
