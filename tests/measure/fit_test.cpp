// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/fit.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/measure/machine_of_curve.hpp"
#include "stretto/simulate/collective_cost.hpp"

namespace stretto {
namespace {

std::vector<CurvePoint> line_points(double latency_s, double seconds_per_byte) {
  std::vector<CurvePoint> points;
  for (std::int64_t size = 8; size <= 64 << 20; size *= 4) {
    points.push_back(
        {Bytes(size), Seconds(latency_s + seconds_per_byte * static_cast<double>(size))});
  }
  return points;
}

TEST(FitLine, RecoversALineExactly) {
  const LineFit fit = fit_line(line_points(50e-6, 8e-9));
  EXPECT_NEAR(fit.latency.count(), 50e-6, 1e-14);
  EXPECT_NEAR(fit.seconds_per_byte, 8e-9, 1e-18);
  EXPECT_NEAR(fit.bandwidth().value(), 125e6, 1.0);
  EXPECT_LT(fit.worst_residual, 1e-9);
}

RC_GTEST_PROP(FitLine, RecoversAnyLine, ()) {
  const double latency = *rc::gen::inRange(1, 100000) * 1e-7;
  const double per_byte = *rc::gen::inRange(1, 100000) * 1e-12;
  const LineFit fit = fit_line(line_points(latency, per_byte));
  RC_ASSERT(std::abs(fit.latency.count() / latency - 1) < 1e-6);
  RC_ASSERT(std::abs(fit.seconds_per_byte / per_byte - 1) < 1e-6);
}

TEST(FitLine, WeighsRelativeErrorsSoThatSmallSizesDecideTheLatency) {
  std::vector<CurvePoint> points = line_points(50e-6, 8e-9);
  // 1 % off at the largest size is milliseconds, a hundred times the latency.
  points.back().time *= 1.01;
  EXPECT_NEAR(fit_line(points).latency.count(), 50e-6, 0.5e-6);
}

TEST(FitLine, NeverFindsWhatIsNegative) {
  // Convex: an unconstrained line would start below zero.
  const std::vector<CurvePoint> steep = {{Bytes(100), Seconds(1e-6)}, {Bytes(200), Seconds(9e-6)}};
  EXPECT_EQ(fit_line(steep).latency, Seconds(0));
  const std::vector<CurvePoint> falling = {{Bytes(100), Seconds(9e-6)},
                                           {Bytes(200), Seconds(1e-6)}};
  EXPECT_EQ(fit_line(falling).seconds_per_byte, 0.0);
  EXPECT_EQ(fit_line(falling).bandwidth(), BytesPerSecond(0));
}

TEST(FitLine, OfOnePointIsALatency) {
  const std::vector<CurvePoint> one = {{Bytes(4096), Seconds(3e-6)}};
  EXPECT_EQ(fit_line(one).latency, Seconds(3e-6));
  EXPECT_EQ(fit_line(one).seconds_per_byte, 0.0);
}

TEST(FitLine, ResidualsSayHowFarOffThePointsAre) {
  const std::vector<CurvePoint> points = {
      {Bytes(1), Seconds(1.0)}, {Bytes(2), Seconds(1.0)}, {Bytes(3), Seconds(2.0)}};
  const LineFit fit = fit_line(points);
  ASSERT_EQ(fit.residuals.size(), 3U);
  double worst = 0.0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_NEAR(fit.residuals[i], fit(points[i].size) / points[i].time - 1, 1e-12);
    worst = std::max(worst, std::abs(fit.residuals[i]));
  }
  EXPECT_EQ(fit.worst_residual, worst);
  EXPECT_GT(worst, 0.1);
}

TEST(FitLine, RefusesWhatIsNoTime) {
  EXPECT_THROW((void)fit_line({}), Error);
  const std::vector<CurvePoint> zero = {{Bytes(1), Seconds(0)}};
  EXPECT_THROW((void)fit_line(zero), Error);
  const std::vector<CurvePoint> nan = {{Bytes(1), Seconds(NAN)}};
  EXPECT_THROW((void)fit_line(nan), Error);
}

TEST(FitSegments, OneLineIsOneSegment) {
  const std::vector<CurvePoint> points = line_points(5e-6, 1e-10);
  const auto segments = fit_segments(points);
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments[0].first, points.front().size);
  EXPECT_EQ(segments[0].last, points.back().size);
}

TEST(FitSegments, FindsWhereAProtocolChanges) {
  // Eager up to 16 KiB, above it 20 us more and twice as quick per byte.
  std::vector<CurvePoint> points;
  for (std::int64_t size = 64; size <= 4 << 20; size *= 2) {
    const auto bytes = static_cast<double>(size);
    points.push_back(
        {Bytes(size), Seconds(size <= 16384 ? 2e-6 + bytes * 1e-9 : 22e-6 + bytes * 0.5e-9)});
  }
  const auto segments = fit_segments(points);
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_EQ(segments[0].last, Bytes(16384));
  EXPECT_EQ(segments[1].first, Bytes(32768));
  EXPECT_NEAR(segments[1].line.latency.count(), 22e-6, 1e-9);
  EXPECT_NEAR(segments[1].line.bandwidth().value(), 2e9, 1e5);
}

RC_GTEST_PROP(FitSegments, CoverAllPointsWithinTheTolerance, ()) {
  std::vector<CurvePoint> points;
  std::int64_t size = 0;
  const int count = *rc::gen::inRange(1, 25);
  for (int i = 0; i < count; ++i) {
    size += *rc::gen::inRange(1, 1 << 20);
    points.push_back({Bytes(size), Seconds(*rc::gen::inRange(1, 1000) * 1e-6)});
  }
  const auto segments = fit_segments(points, 0.1);
  std::size_t next = 0;
  for (const FitSegment& segment : segments) {
    RC_ASSERT(segment.first == points[next].size);
    std::size_t inside = 0;
    while (next < points.size() && points[next].size <= segment.last) {
      ++inside;
      ++next;
    }
    RC_ASSERT(inside == segment.line.residuals.size());
    RC_ASSERT(inside == 1 || segment.line.worst_residual <= 0.1);
  }
  RC_ASSERT(next == points.size());
}

TEST(MachineOfCurve, ItsRingTakesWhatTheCurveSays) {
  const CollectiveCurve curve{
      Collective::kAllReduce, Algorithm::kAuto, 8, line_points(70e-6, 2e-9)};
  Machine machine = machine_of_curve("x", "y", curve);
  EXPECT_EQ(machine.ranks(), 8);
  EXPECT_EQ(machine.basis, Basis::kMeasured);
  EXPECT_NEAR(machine.levels[0].latency.count(), 5e-6, 1e-12);         // 14 messages in a row
  EXPECT_NEAR(machine.levels[0].bandwidth.value(), 1.75 / 2e-9, 1e3);  // 2 x 7/8 of the bytes
  ASSERT_EQ(machine.curves.size(), 1U);
  // The formula says the same without the curve.
  machine.curves.clear();
  const Bytes size(4 << 20);
  EXPECT_NEAR(collective_time(machine, Collective::kAllReduce, Algorithm::kRing, size).count(),
              70e-6 + 2e-9 * static_cast<double>(size.count()),
              1e-9);
}

TEST(MachineOfCurve, RefusesWhatSaysNothing) {
  const CollectiveCurve none{Collective::kAllReduce, Algorithm::kAuto, 8, {}};
  EXPECT_THROW((void)machine_of_curve("x", "y", none), Error);
  const CollectiveCurve alone{
      Collective::kAllReduce, Algorithm::kAuto, 1, line_points(70e-6, 2e-9)};
  EXPECT_THROW((void)machine_of_curve("x", "y", alone), Error);
}

TEST(FitSegments, WantsSizesThatIncrease) {
  const std::vector<CurvePoint> twice = {{Bytes(8), Seconds(1.0)}, {Bytes(8), Seconds(1.0)}};
  EXPECT_THROW((void)fit_segments(twice), Error);
}

}  // namespace
}  // namespace stretto
