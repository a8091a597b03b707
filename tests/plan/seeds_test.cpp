// SPDX-License-Identifier: Apache-2.0
// The demonstrations this project began from, as cases: the same numbers where they are right.
// What they print wrongly, and the right value, stands in docs/misconceptions.md.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/intervals.hpp"
#include "stretto/plan/bucketing.hpp"

namespace stretto {
namespace {

/// 48 layers of 4 MiB, 4 ms of backward each, 25 Gbit/s.
constexpr std::size_t kLayers = 48;
constexpr double kCompute = 4e-3;

std::vector<ReadyBytes> layers() {
  std::vector<ReadyBytes> gradients;
  for (std::size_t l = 1; l <= kLayers; ++l) {
    gradients.push_back({Seconds(kCompute * static_cast<double>(l)), Bytes(4 << 20)});
  }
  return gradients;
}

ExchangeTime cost(double latency_s) {
  return ExchangeTime(std::vector<CostLine>{{Seconds(latency_s), 8.0 / 25e9, {}}});
}

/// Buckets of `size` layers, as the seed's simulate_step().
double step(std::size_t size, double latency_s, bool overlap) {
  std::vector<std::size_t> ends;
  for (std::size_t end = size; end < kLayers; end += size) {
    ends.push_back(end);
  }
  ends.push_back(kLayers);
  std::vector<ReadyBytes> gradients = layers();
  if (!overlap) {
    for (ReadyBytes& gradient : gradients) {
      gradient.ready = Seconds(kCompute * kLayers);
    }
  }
  return std::max(kCompute * kLayers, communication_end(gradients, ends, cost(latency_s)).count());
}

std::pair<std::size_t, double> best(double latency_s, bool overlap) {
  std::vector<ReadyBytes> gradients = layers();
  if (!overlap) {
    for (ReadyBytes& gradient : gradients) {
      gradient.ready = Seconds(kCompute * kLayers);
    }
  }
  const EvenBuckets found = best_even_buckets(gradients, cost(latency_s).lines()[0]);
  return {found.gradients_each, found.communication_end.count()};
}

TEST(Seed, SimulateStepOf48Layers) {
  struct Row {
    std::size_t size;
    double serial_s;
    double overlap_s;
  };
  const auto check = [](double latency_s, const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      EXPECT_NEAR(step(row.size, latency_s, false), row.serial_s, 1e-12) << row.size;
      EXPECT_NEAR(step(row.size, latency_s, true), row.overlap_s, 1e-12) << row.size;
    }
  };
  check(2e-4,
        {{1, 0.26602450944000017, 0.19354217728000014},
         {2, 0.2612245094400001, 0.19488435456000014},
         {3, 0.25962450944000004, 0.19622653184000013},
         {4, 0.2588245094400001, 0.19756870912000013},
         {8, 0.25762450944000015, 0.20293741824000014},
         {16, 0.2570245094400001, 0.21367483648000013},
         {48, 0.25662450944000015, 0.25662450944000015}});
  check(5e-3,
        {{1, 0.4964245094399995, 0.30842450943999977},
         {2, 0.37642450944000005, 0.19968435456000014},
         {3, 0.3364245094400002, 0.20102653184000013},
         {4, 0.31642450944000006, 0.20236870912000016},
         {8, 0.28642450944000014, 0.20773741824000014},
         {16, 0.27142450944000013, 0.21847483648000016},
         {48, 0.2614245094400002, 0.2614245094400002}});
}

TEST(Seed, FindBest) {
  EXPECT_EQ(best(2e-4, false).first, 48U);  // one bucket of 48 layers, not "48 buckets"
  EXPECT_EQ(best(2e-4, true).first, 1U);
  EXPECT_EQ(best(5e-3, false).first, 48U);
  EXPECT_EQ(best(5e-3, true).first, 2U);
  EXPECT_NEAR(best(2e-4, false).second, 0.25662450944000015, 1e-12);
  EXPECT_NEAR(best(2e-4, true).second, 0.19354217728000014, 1e-12);
  EXPECT_NEAR(best(5e-3, false).second, 0.2614245094400002, 1e-12);
  EXPECT_NEAR(best(5e-3, true).second, 0.19968435456000014, 1e-12);
  // No uneven buckets do better than the best even ones here.
  const Bucketing optimum = earliest_buckets(layers(), cost(5e-3));
  EXPECT_NEAR(optimum.communication_end.count(), best(5e-3, true).second, 1e-12);
  EXPECT_NEAR(earliest_buckets(layers(), cost(2e-4)).communication_end.count(),
              best(2e-4, true).second,
              1e-12);
}

TEST(Seed, ScheduleGradientBuckets) {
  // 32 MiB each, ready at 2, 5, 9, 14 ms; 50 GiB/s, 8 us. A bucket closes with the layer that
  // reaches the cap. The seed rounds times to 0.1 us inside; these are exact.
  const std::vector<ReadyBytes> gradients = {{Seconds(2e-3), Bytes(32 << 20)},
                                             {Seconds(5e-3), Bytes(32 << 20)},
                                             {Seconds(9e-3), Bytes(32 << 20)},
                                             {Seconds(14e-3), Bytes(32 << 20)}};
  const ExchangeTime link(
      std::vector<CostLine>{{Seconds(8e-6), 1.0 / (50.0 * (std::int64_t{1} << 30)), {}}});
  const auto end_ms = [&](const std::vector<std::size_t>& ends) {
    return communication_end(gradients, ends, link).count() * 1e3;
  };
  EXPECT_NEAR(end_ms({1, 2, 3, 4}), 14.633, 1e-9);
  EXPECT_NEAR(end_ms({2, 4}), 15.258, 1e-9);
  EXPECT_NEAR(end_ms({4}), 16.508, 1e-9);
  EXPECT_NEAR(earliest_buckets(gradients, link).communication_end.count() * 1e3, 14.633, 1e-9);
}

TEST(Seed, CommunicationTimeOfLaunches) {
  // 256 MiB at 50 GiB/s in 1, 8 and 64 launches of 8 us.
  const ExchangeTime link(
      std::vector<CostLine>{{Seconds(8e-6), 1.0 / (50.0 * (std::int64_t{1} << 30)), {}}});
  for (const auto& [launches, ms] :
       std::vector<std::pair<std::int64_t, double>>{{1, 5.008}, {8, 5.064}, {64, 5.512}}) {
    const double time =
        static_cast<double>(launches) * link(Bytes((std::int64_t{256} << 20) / launches)).count();
    EXPECT_NEAR(time * 1e3, ms, 1e-9);
  }
  EXPECT_EQ(link(Bytes(0)),
            Seconds(0));  // the seed pays the latency for nothing: there is no message
}

TEST(Seed, CommunicationExposure) {
  // Of communication from 0 to 12, beside compute.
  const auto exposed = [](std::vector<Interval> compute) {
    return subtract(IntervalSet({{0, 12}}), IntervalSet(std::move(compute))).measure_ns();
  };
  EXPECT_EQ(exposed({}), 12);
  EXPECT_EQ(exposed({{1, 4}, {3, 8}}), 5);
  EXPECT_EQ(exposed({{-2, 5}, {5, 20}}), 0);
}

}  // namespace
}  // namespace stretto
