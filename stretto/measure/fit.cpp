// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/fit.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

[[noreturn]] void refuse(std::string found, std::string expected) {
  throw Error(ErrorCode::kInvalidArgument,
              {"no line can be fitted to these times",
               "points",
               std::move(found),
               std::move(expected),
               ""});
}

void check(std::span<const CurvePoint> points) {
  if (points.empty()) {
    refuse("none", "one or more");
  }
  for (const CurvePoint& point : points) {
    if (!(point.time > Seconds(0)) || !std::isfinite(point.time.count()) || point.size < Bytes(0)) {
      refuse(format(point.size) + " in " + format(point.time), "times above zero");
    }
  }
}

/// Sums of the weighted normal equations; weights are 1 / time^2.
struct Sums {
  double w = 0.0;
  double wx = 0.0;
  double wxx = 0.0;
  double wy = 0.0;
  double wxy = 0.0;
};

double squares(const LineFit& line) {
  double sum = 0.0;
  for (const double residual : line.residuals) {
    sum += residual * residual;
  }
  return sum;
}

}  // namespace

BytesPerSecond LineFit::bandwidth() const noexcept {
  return BytesPerSecond(seconds_per_byte > 0.0 ? 1.0 / seconds_per_byte : 0.0);
}

LineFit fit_line(std::span<const CurvePoint> points) {
  check(points);
  // Sizes in units of the largest, so that squares of bytes do not swamp the sums.
  double unit = 1.0;
  for (const CurvePoint& point : points) {
    unit = std::max(unit, static_cast<double>(point.size.count()));
  }
  Sums sums;
  for (const CurvePoint& point : points) {
    const double x = static_cast<double>(point.size.count()) / unit;
    const double y = point.time.count();
    const double w = 1.0 / (y * y);
    sums.w += w;
    sums.wx += w * x;
    sums.wxx += w * x * x;
    sums.wy += w * y;
    sums.wxy += w * x * y;
  }
  const double determinant = sums.w * sums.wxx - sums.wx * sums.wx;
  double latency = sums.wy / sums.w;
  double slope = 0.0;
  // Relative to the product, for it is a difference: equal sizes leave only its rounding.
  if (determinant > 1e-12 * sums.w * sums.wxx) {
    latency = (sums.wxx * sums.wy - sums.wx * sums.wxy) / determinant;
    slope = (sums.w * sums.wxy - sums.wx * sums.wy) / determinant;
    // With two unknowns the best point of the quadrant is on the axis that was left.
    if (latency < 0.0) {
      latency = 0.0;
      slope = sums.wxy / sums.wxx;
    }
    if (slope < 0.0) {
      slope = 0.0;
      latency = sums.wy / sums.w;
    }
  }
  LineFit line;
  line.latency = Seconds(latency);
  line.seconds_per_byte = slope / unit;
  for (const CurvePoint& point : points) {
    line.residuals.push_back((line(point.size) - point.time) / point.time);
    line.worst_residual = std::max(line.worst_residual, std::abs(line.residuals.back()));
  }
  return line;
}

std::vector<FitSegment> fit_segments(std::span<const CurvePoint> points, double tolerance) {
  check(points);
  for (std::size_t i = 1; i < points.size(); ++i) {
    if (points[i].size <= points[i - 1].size) {
      refuse(format(points[i - 1].size) + ", then " + format(points[i].size),
             "sizes that increase");
    }
  }
  // best[j]: the cheapest cover of the first j points, fewest lines first, then least squares.
  struct Cover {
    std::size_t lines = std::numeric_limits<std::size_t>::max();
    double squares = 0.0;
    std::size_t begin = 0;  // of its last line
    LineFit last;
  };
  std::vector<Cover> best(points.size() + 1);
  best[0].lines = 0;
  for (std::size_t end = 1; end <= points.size(); ++end) {
    for (std::size_t begin = 0; begin < end; ++begin) {
      LineFit line = fit_line(points.subspan(begin, end - begin));
      // One point is always met.
      if (line.worst_residual > tolerance && end - begin > 1) {
        continue;
      }
      const std::size_t lines = best[begin].lines + 1;
      const double sum = best[begin].squares + squares(line);
      if (lines < best[end].lines || (lines == best[end].lines && sum < best[end].squares)) {
        best[end] = {lines, sum, begin, std::move(line)};
      }
    }
  }
  std::vector<FitSegment> segments;
  for (std::size_t end = points.size(); end > 0; end = best[end].begin) {
    segments.push_back(
        {points[best[end].begin].size, points[end - 1].size, std::move(best[end].last)});
  }
  std::reverse(segments.begin(), segments.end());
  return segments;
}

}  // namespace stretto
