// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/exchange_time.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

bool possible(double value) {
  return value >= 0.0 && std::isfinite(value);
}

/// Of points with increasing x, those on the lower convex hull.
std::vector<std::pair<double, double>> lower_hull(
    const std::vector<std::pair<double, double>>& points) {
  std::vector<std::pair<double, double>> hull;
  for (const auto& point : points) {
    const auto bends_down = [&] {
      const auto& [x0, y0] = hull[hull.size() - 2];
      const auto& [x1, y1] = hull.back();
      return (y1 - y0) * (point.first - x1) >= (point.second - y1) * (x1 - x0);
    };
    while (hull.size() >= 2 && bends_down()) {
      hull.pop_back();
    }
    hull.push_back(point);
  }
  return hull;
}

}  // namespace

double seconds_per_byte_beyond(std::span<const CurvePoint> points) noexcept {
  const CurvePoint& last = points.back();
  const auto half = std::upper_bound(
      points.begin(), points.end(), last.size, [](Bytes size, const CurvePoint& point) {
        return size.count() < 2 * point.size.count();
      });
  const CurvePoint& before = half == points.begin() ? points.front() : *(half - 1);
  const auto slope_from = [&last](const CurvePoint& point) {
    return last.time > point.time ? (last.time - point.time).count() /
                                        static_cast<double>((last.size - point.size).count())
                                  : 0.0;
  };
  const double slope = slope_from(before);
  return slope > slope_from(points.front()) / 2
             ? slope
             : last.time.count() / static_cast<double>(last.size.count());
}

ExchangeTime::ExchangeTime(std::vector<CostLine> lines) : lines_(std::move(lines)) {
  if (lines_.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the cost of an exchange is not known", "lines", "none", "one or more", ""});
  }
  for (const CostLine& line : lines_) {
    if (!possible(line.latency.count()) || !possible(line.seconds_per_byte)) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"the cost of an exchange is not possible",
                   std::string(to_string(line.algorithm)),
                   std::to_string(line.latency.count()) + " s and " +
                       std::to_string(line.seconds_per_byte) + " s per byte",
                   "numbers of zero or more",
                   ""});
    }
  }
  // One that is nowhere the cheapest only takes time.
  std::stable_sort(lines_.begin(), lines_.end(), [](const CostLine& a, const CostLine& b) {
    return a.latency < b.latency ||
           (a.latency == b.latency && a.seconds_per_byte < b.seconds_per_byte);
  });
  double least = INFINITY;
  std::erase_if(lines_, [&](const CostLine& line) {
    const bool useless = line.seconds_per_byte >= least;
    least = std::min(least, line.seconds_per_byte);
    return useless;
  });
}

ExchangeTime::ExchangeTime(std::span<const CurvePoint> points) {
  if (points.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the curve of an exchange is empty", "points", "none", "one or more", ""});
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    const bool increases = points[i].size > (i == 0 ? Bytes(0) : points[i - 1].size);
    if (!increases || !(points[i].time > Seconds(0)) || !possible(points[i].time.count())) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"a point of a measured curve is not possible",
                   "point " + std::to_string(i),
                   format(points[i].size) + " in " + format(points[i].time),
                   "sizes that increase, and times above zero",
                   ""});
    }
    log_size_.push_back(std::log(static_cast<double>(points[i].size.count())));
    log_time_.push_back(std::log(points[i].time.count()));
  }
  for (std::size_t i = log_time_.size() - 1; i-- > 0;) {
    log_time_[i] = std::min(log_time_[i], log_time_[i + 1]);
  }
  std::vector<CurvePoint> rising(points.begin(), points.end());
  for (std::size_t i = 0; i + 1 < rising.size(); ++i) {
    rising[i].time = Seconds(std::exp(log_time_[i]));
  }
  beyond_ = seconds_per_byte_beyond(rising);
}

Seconds ExchangeTime::operator()(Bytes size) const noexcept {
  if (size <= Bytes(0)) {
    return Seconds(0);
  }
  if (!lines_.empty()) {
    return cheapest(size)(size);
  }
  const double x = std::log(static_cast<double>(size.count()));
  const auto above = std::lower_bound(log_size_.begin(), log_size_.end(), x);
  if (above == log_size_.begin()) {
    return Seconds(std::exp(log_time_.front()));
  }
  if (above == log_size_.end()) {
    const double more = static_cast<double>(size.count()) - std::exp(log_size_.back());
    return Seconds(std::exp(log_time_.back()) + beyond_ * more);
  }
  const auto i = static_cast<std::size_t>(above - log_size_.begin());
  const double part = (x - log_size_[i - 1]) / (log_size_[i] - log_size_[i - 1]);
  return Seconds(std::exp(log_time_[i - 1] + part * (log_time_[i] - log_time_[i - 1])));
}

const CostLine& ExchangeTime::cheapest(Bytes size) const noexcept {
  const CostLine* best = &lines_.front();
  for (const CostLine& line : lines_) {
    if (line(size) < (*best)(size)) {
      best = &line;
    }
  }
  return *best;
}

Seconds ExchangeTime::latency(Bytes size) const noexcept {
  return size <= Bytes(0) || lines_.empty() ? Seconds(0) : cheapest(size).latency;
}

Algorithm ExchangeTime::algorithm(Bytes size) const noexcept {
  return lines_.empty() ? Algorithm::kAuto : cheapest(size).algorithm;
}

std::vector<CostLine> ExchangeTime::lower_lines(Bytes most) const {
  if (lines_.size() == 1) {
    return lines_;
  }
  if (!lines_.empty()) {
    // Concave: straight from its value next to 0 to its end. Below it because every line begins at
    // or above the first, and none gains a byte for less than the last.
    Seconds first = lines_.front().latency;
    double least = lines_.front().seconds_per_byte;
    for (const CostLine& line : lines_) {
      first = std::min(first, line.latency);
      least = std::min(least, line.seconds_per_byte);
    }
    const double bytes = std::max<double>(1.0, static_cast<double>(most.count()));
    const double to_the_end = ((*this)(most)-first).count() / bytes;
    return {{first, std::max(least, to_the_end), Algorithm::kAuto}};
  }
  // Straight in the logarithms is t = c n^p: convex for p >= 1, concave else. A concave piece is
  // above the line between its ends; a convex one is followed in steps of a factor and lowered by
  // what it may sag between them.
  std::vector<std::pair<double, double>> points;
  const double end = std::max(std::exp(log_size_.front()), static_cast<double>(most.count()));
  points.emplace_back(0.0, std::exp(log_time_.front()));
  for (std::size_t i = 0; i < log_size_.size() && std::exp(log_size_[i]) < end; ++i) {
    const double x0 = log_size_[i];
    points.emplace_back(std::exp(x0), std::exp(log_time_[i]));
    if (i + 1 == log_size_.size()) {
      points.emplace_back(end, std::exp(log_time_[i]) + beyond_ * (end - std::exp(x0)));
      break;
    }
    const double x1 = std::min(log_size_[i + 1], std::log(end));
    const double slope = (log_time_[i + 1] - log_time_[i]) / (log_size_[i + 1] - x0);
    if (slope > 1.0) {
      // The tangent at the middle of a step lies below the curve on all of it.
      const int steps = 8;
      for (int s = 0; s < steps; ++s) {
        const double a = x0 + (x1 - x0) * s / steps;
        const double b = x0 + (x1 - x0) * (s + 1) / steps;
        const double middle = std::exp((a + b) / 2);
        const double value = std::exp(log_time_[i] + slope * ((a + b) / 2 - x0));
        const double rise = slope * value / middle;
        points.emplace_back(std::exp(a), value + rise * (std::exp(a) - middle));
        points.emplace_back(std::exp(b), value + rise * (std::exp(b) - middle));
      }
    }
    points.emplace_back(std::exp(x1), std::exp(log_time_[i] + slope * (x1 - x0)));
  }
  std::stable_sort(points.begin(), points.end());
  const auto hull = lower_hull(points);
  std::vector<CostLine> lines;
  for (std::size_t i = 0; i + 1 < hull.size(); ++i) {
    const auto& [x0, y0] = hull[i];
    const auto& [x1, y1] = hull[i + 1];
    if (!(x1 > x0)) {
      continue;
    }
    const double slope = std::max(0.0, (y1 - y0) / (x1 - x0));
    const double intercept = y0 - slope * x0;
    if (intercept >= 0.0) {
      lines.push_back({Seconds(intercept), slope, Algorithm::kAuto});
    } else {
      // From here on the hull is steeper than a line through the origin: many exchanges of the size
      // at this corner cost least per byte.
      lines.push_back({Seconds(0), y0 / x0, Algorithm::kAuto});
      break;
    }
  }
  if (lines.empty()) {
    lines.push_back({Seconds(points.front().second), 0.0, Algorithm::kAuto});
  }
  return lines;
}

ExchangeTime ExchangeTime::scaled(double latency, double seconds_per_byte) const {
  ExchangeTime result = *this;
  for (CostLine& line : result.lines_) {
    line.latency *= latency;
    line.seconds_per_byte *= seconds_per_byte;
  }
  if (!log_time_.empty()) {
    const double fixed = std::exp(log_time_.front());
    for (double& time : result.log_time_) {
      time = std::log(fixed * latency + (std::exp(time) - fixed) * seconds_per_byte);
    }
    result.beyond_ *= seconds_per_byte;
  }
  return result;
}

}  // namespace stretto
