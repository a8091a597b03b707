// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/measure.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/comm/callback/callback.hpp"
#include "stretto/measure/overlap.hpp"
#include "stretto/measure/probe.hpp"
#include "workload/ranks.hpp"

namespace stretto {
namespace {

MeasureOptions quick(Collective collective) {
  MeasureOptions options;
  options.collective = collective;
  options.sizes = {Bytes(4), Bytes(1000), Bytes(64 << 10)};
  options.warmup = 1;
  options.stop = {3, 6, 0.0, Seconds(0)};
  return options;
}

TEST(Sampling, SpreadIsOfOrderStatistics) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) {
    values.push_back(i);
  }
  const Spread spread = spread_of(values);
  EXPECT_EQ(spread.samples, 100);
  EXPECT_DOUBLE_EQ(spread.median.count(), 50.5);
  EXPECT_DOUBLE_EQ(spread.least.count(), 1);
  EXPECT_DOUBLE_EQ(spread.most.count(), 100);
  EXPECT_DOUBLE_EQ(spread.p10.count(), 10.9);
  // The 40th and the 61st of 100 hold the median with 95 %.
  EXPECT_NEAR(spread.confidence_ratio, (61.0 - 40.0) / 2 / 50.5, 1e-12);
}

TEST(Sampling, EqualSamplesAreKnownAtOnceAndNoiseIsNot) {
  std::vector<Sampled> results = on_ranks<Sampled>(2, [](Communicator& communicator) {
    return sample(
        communicator,
        {5, 100, 0.01, Seconds(60)},
        [] {
          return Taken{0.0, 2e-3};
        },
        [](std::span<const Taken> taken) { return taken[0].duration(); });
  });
  EXPECT_EQ(results[0].seconds.size(), 5U);
  EXPECT_TRUE(results[0].settled);
  results = on_ranks<Sampled>(2, [](Communicator& communicator) {
    int i = 0;
    return sample(
        communicator,
        {5, 100, 0.01, Seconds(60)},
        [&] {
          return Taken{0.0, ++i % 2 == 0 ? 1e-3 : 2e-3};
        },
        [](std::span<const Taken> taken) { return taken[1].duration(); });
  });
  EXPECT_EQ(results[0].seconds.size(), 100U);
  EXPECT_FALSE(results[0].settled);
  EXPECT_EQ(results[0].seconds, results[1].seconds);
}

TEST(Sampling, TheBudgetEndsWhatPrecisionDoesNot) {
  const auto results = on_ranks<Sampled>(2, [](Communicator& communicator) {
    int i = 0;
    return sample(
        communicator,
        {5, 100000, 0.0, Seconds(0)},
        [&] {
          return Taken{0.0, static_cast<double>(++i)};
        },
        [](std::span<const Taken> taken) { return taken[0].duration(); });
  });
  EXPECT_EQ(results[0].seconds.size(), 5U);
  EXPECT_EQ(results[1].seconds.size(), 5U);
}

TEST(Sampling, EveryRankSeesWhatAllTook) {
  const auto results = on_ranks<Sampled>(3, [](Communicator& communicator) {
    return sample(
        communicator,
        {2, 2, 0.0, Seconds(60)},
        [&] {
          return Taken{1.0, 1.0 + communicator.rank()};
        },
        [](std::span<const Taken> taken) {
          return taken[0].duration() + 10 * taken[1].duration() + 100 * taken[2].duration();
        });
  });
  for (const Sampled& sampled : results) {
    EXPECT_EQ(sampled.seconds, (std::vector<double>{210, 210}));
  }
}

TEST(Sampling, AnImpossibleRuleIsRefused) {
  for (const StopRule& rule : {StopRule{0, 5, 0.1, Seconds(1)},
                               StopRule{5, 4, 0.1, Seconds(1)},
                               StopRule{5, 5, -1, Seconds(1)}}) {
    const auto alone = local_shm_world(1);
    EXPECT_EQ(
        error_of([&] {
          (void)sample(
              *alone[0], rule, [] { return Taken{}; }, [](std::span<const Taken>) { return 0.0; });
        }).code(),
        ErrorCode::kInvalidArgument);
  }
}

TEST(Measure, EveryCollectiveAlgorithmTypeAndMemoryIsTimedAndRight) {
  for (const Collective collective : {Collective::kAllReduce,
                                      Collective::kReduceScatter,
                                      Collective::kAllGather,
                                      Collective::kBroadcast,
                                      Collective::kReduce,
                                      Collective::kAllToAll,
                                      Collective::kSendRecv}) {
    SCOPED_TRACE(to_string(collective));
    const auto results = on_ranks<Measurement>(3, [&](Communicator& communicator) {
      MeasureOptions options = quick(collective);
      const bool ring = collective == Collective::kAllReduce ||
                        collective == Collective::kReduceScatter ||
                        collective == Collective::kAllGather;
      options.algorithms = {Algorithm::kAuto, ring ? Algorithm::kRing : Algorithm::kDirect};
      options.dtypes = {DType::kF32, DType::kBF16, DType::kI64};
      options.buffers = {Buffers::kArena, Buffers::kPrivate};
      options.root = 1;
      return measure(communicator, options);
    });
    const Measurement& measurement = results[0];
    ASSERT_EQ(measurement.rows.size(), 3U * 2 * 3 * 2);
    EXPECT_EQ(measurement.ranks, 3);
    EXPECT_EQ(measurement.backend, "shm");
    EXPECT_EQ(measurement.wrong(), 0);
    for (std::size_t i = 0; i < measurement.rows.size(); ++i) {
      const MeasuredRow& row = measurement.rows[i];
      EXPECT_EQ(row.wrong, 0);
      EXPECT_EQ(row.size.count(), static_cast<std::int64_t>(row.count * size_of(row.dtype)));
      EXPECT_GT(row.time.median, Seconds(0));
      EXPECT_LE(row.time.p10, row.time.median);
      EXPECT_LE(row.time.median, row.time.p90);
      EXPECT_EQ(row.time.samples, 3);  // there is no budget for more
      EXPECT_NEAR(row.bus_bandwidth.value(),
                  row.algorithm_bandwidth.value() * bus_factor(collective, 3),
                  1e-6 * row.bus_bandwidth.value());
      EXPECT_EQ(row.time.median, results[2].rows[i].time.median) << "all ranks have the same";
    }
  }
}

TEST(Measure, BackgroundOperationsAndSeveralAtOnceAreTimedToo) {
  const auto results = on_ranks<Measurement>(2, [&](Communicator& communicator) {
    MeasureOptions options = quick(Collective::kAllReduce);
    options.progress = Progress::kBackground;
    options.one_clock = true;
    options.at_once = 3;
    options.op = ReduceOp::kMean;
    return measure(communicator, options);
  });
  for (const MeasuredRow& row : results[0].rows) {
    EXPECT_GT(row.time.median, Seconds(0));
    EXPECT_EQ(row.block, 1);
    EXPECT_EQ(row.wrong, 0);
  }
}

TEST(Measure, BusBandwidthCountsAsNcclTestsDo) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllToAll, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kBroadcast, 4), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kSendRecv, 4), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 1), 0.0);
}

TEST(Measure, SizesBelowAnElementAreOneElementOnce) {
  const auto results = on_ranks<Measurement>(2, [&](Communicator& communicator) {
    MeasureOptions options = quick(Collective::kBroadcast);
    options.sizes = {Bytes(1), Bytes(2), Bytes(4), Bytes(8), Bytes(9)};
    options.dtypes = {DType::kF64};
    return measure(communicator, options);
  });
  ASSERT_EQ(results[0].rows.size(), 1U);
  EXPECT_EQ(results[0].rows[0].size, Bytes(8));
}

TEST(Measure, WhatCannotBeMeasuredIsRefusedByName) {
  const auto refused = [](const std::function<void(MeasureOptions&)>& change) {
    const auto world = local_shm_world(1);
    MeasureOptions options = quick(Collective::kAllReduce);
    change(options);
    return error_of([&] { (void)measure(*world[0], options); });
  };
  EXPECT_EQ(refused([](MeasureOptions& o) { o.collective = Collective::kBarrier; }).detail().found,
            "barrier");
  EXPECT_EQ(refused([](MeasureOptions& o) { o.collective = Collective::kSendRecv; }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](MeasureOptions& o) { o.sizes.clear(); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](MeasureOptions& o) { o.sizes = {Bytes(0)}; }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](MeasureOptions& o) { o.root = 1; }).detail().expected, "0 to 0");
  EXPECT_EQ(refused([](MeasureOptions& o) { o.at_once = 0; }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](MeasureOptions& o) { o.one_clock = true; }).detail().where, "one_clock");
}

// A process group that says "done" and does nothing: what is wrong must be seen.
TEST(Measure, WrongElementsAreCounted) {
  const auto communicator = make_callback_communicator(
      0, 2, [](const detail::Call&, const CallbackDone& done) { done(std::nullopt); });
  MeasureOptions options = quick(Collective::kAllReduce);
  options.sizes = {Bytes(4000)};
  const Measurement measurement = measure(*communicator, options);
  ASSERT_EQ(measurement.rows.size(), 1U);
  EXPECT_GT(measurement.rows[0].wrong, 900);
  EXPECT_GT(measurement.wrong(), 900);
}

TEST(Measure, CurvesHaveOneAlgorithmEachAndIncreasingSizes) {
  Measurement measurement;
  measurement.ranks = 4;
  const auto add = [&](std::int64_t size, Algorithm algorithm, DType dtype, double time_s) {
    MeasuredRow row;
    row.size = Bytes(size);
    row.algorithm = algorithm;
    row.dtype = dtype;
    row.time.median = Seconds(time_s);
    measurement.rows.push_back(row);
  };
  add(100, Algorithm::kAuto, DType::kF32, 1);
  add(50, Algorithm::kAuto, DType::kF32, 2);
  add(50, Algorithm::kAuto, DType::kF32, 3);
  add(100, Algorithm::kRing, DType::kF32, 4);
  add(100, Algorithm::kAuto, DType::kF64, 5);
  const std::vector<CollectiveCurve> curves = curves_of(measurement);
  ASSERT_EQ(curves.size(), 2U);
  EXPECT_EQ(curves[0].ranks, 4);
  ASSERT_EQ(curves[0].points.size(), 2U);
  EXPECT_EQ(curves[0].points[0].size, Bytes(50));
  EXPECT_EQ(curves[0].points[1].time, Seconds(1));
  EXPECT_EQ(curves[1].algorithm, Algorithm::kRing);
  measurement.ranks = 1;
  EXPECT_TRUE(curves_of(measurement).empty());
}

TEST(Probe, EveryLevelHasItsOwnLineAndTheMachineReadsBack) {
  using Probes = std::vector<LevelProbe>;
  const auto results = on_ranks<Probes>(4, [&](Communicator& communicator) {
    ProbeOptions options;
    options.group_sizes = {2, 1, 2};
    options.most = Bytes(64 << 10);
    options.warmup = 1;
    options.stop = {3, 3, 0.0, Seconds(0)};
    return probe_levels(communicator, options);
  });
  const Probes& probes = results[0];
  ASSERT_EQ(probes.size(), 2U);  // the level with one member has no links
  EXPECT_EQ(probes[0].level, 0);
  EXPECT_EQ(probes[0].sharing, 1);
  EXPECT_EQ(probes[1].level, 2);
  EXPECT_EQ(probes[1].sharing, 2);
  // The first message is one rank's, the last goes with that of the other rank on the link.
  EXPECT_EQ(probes[1].points.front().size, Bytes(8));
  EXPECT_EQ(probes[1].points.back().size, Bytes(64 << 10));
  for (const LevelProbe& probe : probes) {
    EXPECT_EQ(probe.spreads.size(), probe.points.size());
    EXPECT_EQ(probe.line.residuals.size(), probe.points.size());
    EXPECT_FALSE(probe.segments.empty());
  }
  const std::vector<int> groups = {2, 1, 2};
  const std::vector<std::string> names = {"node"};
  const Machine machine = measured_machine("m", "a test", probes, groups, names, {});
  EXPECT_EQ(machine.ranks(), 4);
  EXPECT_EQ(machine.basis, Basis::kMeasured);
  EXPECT_EQ(machine.levels[0].name, "node");
  EXPECT_EQ(machine.levels[1].name, "level2");
  EXPECT_EQ(to_json(machine_from_json(to_json(machine), "text")), to_json(machine));
}

TEST(Probe, FindsTheEmulatedMachineBehindTheCalls) {
  ShmOptions emulated;
  emulated.emulate = machine_from_spec("2@200MB/s,2ms");
  const auto world = local_shm_world(2, emulated);
  std::vector<std::vector<LevelProbe>> results(2);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        ProbeOptions options;
        options.group_sizes = {2};
        options.most = Bytes(2 << 20);
        options.progress = Progress::kBackground;
        options.one_clock = true;
        options.stop = {5, 5, 0.0, Seconds(0)};
        results[rank] = probe_levels(*world[rank], options);
      });
    }
  }
  ASSERT_EQ(results[0].size(), 1U);
  // Model time is never early. How late this host is, is not this test's business: benchmarks have
  // the figures.
  EXPECT_GE(results[0][0].line.latency.count(), 2e-3 * 0.98);
  for (const CurvePoint& point : results[0][0].points) {
    EXPECT_GE(point.time.count(), 2e-3 + static_cast<double>(point.size.count()) / 200e6 - 1e-6);
  }
}

TEST(Probe, GroupsMustHoldTheRanks) {
  const auto world = local_shm_world(1);
  ProbeOptions options;
  options.group_sizes = {2, 2};
  EXPECT_EQ(error_of([&] { (void)probe_levels(*world[0], options); }).detail().found, "2 x 2 = 4");
  options.group_sizes = {1};
  EXPECT_TRUE(probe_levels(*world[0], options).empty());
}

TEST(Overlap, RowsHaveAllColumnsAndResultsAreRight) {
  using Rows = std::vector<OverlapRow>;
  const auto results = on_ranks<Rows>(2, [&](Communicator& communicator) {
    OverlapOptions options;
    options.measure = quick(Collective::kAllReduce);
    options.measure.sizes = {Bytes(256 << 10)};
    options.measure.buffers = {Buffers::kArena, Buffers::kPrivate};
    options.compute_ratio = 2.0;
    return measure_overlap(communicator, options);
  });
  ASSERT_EQ(results[0].size(), 2U);
  for (const OverlapRow& row : results[0]) {
    EXPECT_EQ(row.row.wrong, 0);
    EXPECT_EQ(row.overall.samples, row.compute.samples);
    EXPECT_EQ(row.overall.samples, row.pure_communication.samples);
    EXPECT_GT(row.compute.median, Seconds(0));
    EXPECT_GE(row.overlap_ratio, 0.0);
    EXPECT_LE(row.overlap_ratio, 1.0);
    EXPECT_EQ(
        row.overlap_ratio,
        std::clamp(1.0 - (row.overall.median - row.compute.median) / row.pure_communication.median,
                   0.0,
                   1.0));
  }
  EXPECT_EQ(results[0][0].overall.median, results[1][0].overall.median);
}

TEST(Overlap, OnAnEmulatedNetworkCommunicationHidesBehindCompute) {
  ShmOptions emulated;
  emulated.emulate = machine_from_spec("2@50MB/s,1ms");
  const auto world = local_shm_world(2, emulated);
  const auto overlapped = [&] {
    std::vector<std::vector<OverlapRow>> results(2);
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        OverlapOptions options;
        options.measure = quick(Collective::kAllReduce);
        options.measure.sizes = {Bytes(500'000)};
        results[rank] = measure_overlap(*world[rank], options);
      });
    }
    threads.clear();
    // Two latencies and twice half the bytes, of which nothing needs a processor.
    EXPECT_GE(results[0][0].pure_communication.least, Seconds(12e-3 * 0.97));
    return results[0][0].overlap_ratio > 0.1;
  };
  // Were communication not beside compute, this would never be so, however quiet the host; and
  // however busy it is, once in ten times it must be.
  bool seen = false;
  for (int attempt = 0; attempt < 10 && !seen; ++attempt) {
    seen = overlapped();
  }
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace stretto
