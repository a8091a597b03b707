// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/nccl_model.hpp"

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "simulate/validation_data.hpp"
#include "stretto/base/error.hpp"
#include "stretto/simulate/exchange_time.hpp"

namespace stretto {
namespace {

double us(const NcclPrediction& prediction) {
  return prediction.time.count() * 1e6;
}

TEST(NcclSystem, ChannelsFromLinkCounts) {
  // 12 links of 20: 6 channels of 40, each split in two.
  const NcclSystem a100 = nccl_system("a100", 1);
  EXPECT_EQ(a100.channels, 12);
  EXPECT_DOUBLE_EQ(a100.channel_intra.value(), 20e9);
  EXPECT_EQ(a100.nvls_channels, 0);
  // 18 links of 20.6 = 370.8: 6 channels of 60 in halves; adding switches: 9 x 40.
  const NcclSystem h100 = nccl_system("h100", 1);
  EXPECT_EQ(h100.channels, 12);
  EXPECT_DOUBLE_EQ(h100.channel_intra.value(), 30e9);
  EXPECT_EQ(h100.nvls_channels, 8);
  EXPECT_DOUBLE_EQ(h100.nvls_channel_intra.value(), 40e9);
  // 18 of 40.1 = 721.8.
  const NcclSystem b200 = nccl_system("b200", 1);
  EXPECT_EQ(b200.channels, 16);
  EXPECT_DOUBLE_EQ(b200.channel_intra.value(), 45e9);
  EXPECT_DOUBLE_EQ(b200.nvls_channel_intra.value(), 80e9);
}

TEST(NcclSystem, ChannelsOnCards) {
  // A card of 50 GB/s carries a channel of 48, but 8 x 48 is more than the links: 45.
  const NcclSystem h100 = nccl_system("h100", 2);
  EXPECT_EQ(h100.channels, 8);
  EXPECT_DOUBLE_EQ(h100.channel_inter.value(), 45e9);
  // 8 cards of 25: 8 channels of 24 between and 30 inside, in halves.
  const NcclSystem a100 = nccl_system("a100", 4);
  EXPECT_EQ(a100.channels, 16);
  EXPECT_DOUBLE_EQ(a100.channel_inter.value(), 12e9);
  EXPECT_DOUBLE_EQ(a100.channel_intra.value(), 15e9);
}

TEST(NcclSystem, ErrorsSayWhatIsMissing) {
  try {
    (void)nccl_system("h10", 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(error.detail().help.find("h100"), std::string::npos);
  }
  EXPECT_THROW((void)nccl_system(NcclHardware{}, 1, 8), Error);
  NcclHardware no_cards;
  no_cards.nvlinks = 18;
  EXPECT_NO_THROW((void)nccl_system(no_cards, 1, 8));
  EXPECT_THROW((void)nccl_system(no_cards, 2, 8), Error);
}

/// By hand from the constants, 8 GPUs of an H100 node.
TEST(NcclModel, SmallMessagesByRingLL) {
  const NcclPrediction small =
      predict_nccl(nccl_system("h100", 1), Collective::kAllReduce, Bytes(8));
  EXPECT_EQ(small.algorithm, NcclAlgorithm::kRing);
  EXPECT_EQ(small.protocol, NcclProtocol::kLL);
  // 6.6 + 14 x 0.6, and 8 bytes at 141 x 8/14 GB/s.
  EXPECT_NEAR(us(small), 15.0 + 8 / (1000 * 141.0 * 8 / 14), 1e-9);
}

TEST(NcclModel, LargeMessagesByNvlsOnHopperAndRingOnAmpere) {
  const Bytes size(std::int64_t{1} << 34);
  const NcclPrediction h100 = predict_nccl(nccl_system("h100", 1), Collective::kAllReduce, size);
  EXPECT_EQ(h100.algorithm, NcclAlgorithm::kNvls);
  // 25 us; 8 channels of 40 x 0.85 x 7/8 x 2 = 476 GB/s of bus bandwidth.
  EXPECT_NEAR(us(h100), 25 + static_cast<double>(size.count()) / (1000 * 476.0 * 8 / 14), 1e-6);
  const NcclPrediction a100 = predict_nccl(nccl_system("a100", 1), Collective::kAllReduce, size);
  EXPECT_EQ(a100.algorithm, NcclAlgorithm::kRing);
  EXPECT_EQ(a100.protocol, NcclProtocol::kSimple);
  EXPECT_NEAR(
      us(a100), 8.4 + 14 * 3.4 + static_cast<double>(size.count()) / (1000 * 240.0 * 8 / 14), 1e-6);
}

TEST(NcclModel, RingBetweenNodesWithOverheadAndPlateau) {
  // 4 nodes of 8 H100: 62 steps, 6 of them between nodes; Intel posts in 1 us, thrice for Simple.
  const NcclSystem system = nccl_system("h100", 4);
  const double bytes = 1 << 20;
  for (const NcclPrediction& choice :
       nccl_choices(system, Collective::kAllReduce, Bytes(1 << 20))) {
    if (choice.algorithm == NcclAlgorithm::kRing && choice.protocol == NcclProtocol::kSimple) {
      const double latency = (8.4 + 56 * 3.4 + 6 * 14.0) * 1.4;
      EXPECT_NEAR(us(choice), latency + bytes / (1000 * 8 * 45.0 * 32 / 62), 1e-6);
    }
    if (choice.algorithm == NcclAlgorithm::kTree && choice.protocol == NcclProtocol::kLL) {
      // 35.0 of Intel's row is less than 0.92 x 288 / 3.8; 1 MiB is class 14, which reaches half.
      const double rate = std::min(std::min(0.92 * 360, 8 * 36.0) / 3.8, 20.4) * 0.5 * 0.5;
      EXPECT_NEAR(us(choice), 6.8 + 2 * (7 * 0.6 + 2 * 5.0) + bytes / (1000 * rate), 1e-6);
    }
  }
}

TEST(NcclModel, TwoNodesNeverOutrunTheirCards) {
  const NcclSystem system = nccl_system("a100", 2);
  const Bytes size(std::int64_t{1} << 30);
  for (const NcclPrediction& choice : nccl_choices(system, Collective::kAllReduce, size)) {
    EXPECT_GE(choice.time.count(), static_cast<double>(size.count()) / (16 * 12e9));
  }
}

TEST(NcclModel, WhereOnlySimpleIsSafeItIsTheOnlyProtocol) {
  NcclSystem system = nccl_system("a100", 2);
  const Bytes small(1024);
  EXPECT_EQ(predict_nccl(system, Collective::kAllReduce, small).protocol, NcclProtocol::kLL);
  system.simple_only = true;
  for (const NcclPrediction& choice : nccl_choices(system, Collective::kAllReduce, small)) {
    EXPECT_EQ(choice.protocol, NcclProtocol::kSimple);
  }
  // Tree: 8.4 + 2 (7 x 4.0 in the nodes + 14.0 between them), and 1 KiB in class 4.
  const NcclPrediction tree = predict_nccl(system, Collective::kAllReduce, small);
  EXPECT_EQ(tree.algorithm, NcclAlgorithm::kTree);
  EXPECT_NEAR(us(tree), 92.4, 0.1);
  // A latency that is announced counts twice in each of the two messages between nodes.
  system.network_latency = Seconds(75e-6);
  EXPECT_NEAR(us(predict_nccl(system, Collective::kAllReduce, small)), 392.4, 0.1);
}

TEST(NcclModel, NothingToDoIsFreeAndUnknownCollectivesAreErrors) {
  EXPECT_EQ(us(predict_nccl(nccl_system("h100", 1), Collective::kAllReduce, Bytes(0))), 0.0);
  EXPECT_EQ(us(predict_nccl(nccl_system("h100", 1, 1), Collective::kAllReduce, Bytes(9))), 0.0);
  EXPECT_THROW((void)predict_nccl(nccl_system("h100", 1), Collective::kAllToAll, Bytes(9)), Error);
}

TEST(NcclModel, AsACurveForPlanning) {
  const NcclSystem system = nccl_system("h100", 1);
  const std::vector<CurvePoint> points =
      nccl_curve(system, Collective::kAllReduce, Bytes(100'000'000));
  EXPECT_EQ(points.front().size, Bytes(1));
  EXPECT_EQ(points.back().size, Bytes(100'000'000));
  const ExchangeTime time(points);
  for (const std::int64_t size : {10, 5'000, 777'777, 30'000'000}) {
    EXPECT_NEAR(time(Bytes(size)) / predict_nccl(system, Collective::kAllReduce, Bytes(size)).time,
                1.0,
                0.02)
        << size;
  }
}

RC_GTEST_PROP(NcclModel, ChoicesAreSortedAndTheFirstIsThePrediction, ()) {
  const auto gpu = *rc::gen::element<std::string>("v100", "a100", "h100", "h200", "b200");
  const int nodes = *rc::gen::inRange(1, 20);
  const Bytes size(*rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 34));
  const auto collective =
      *rc::gen::element(Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather);
  const NcclSystem system = nccl_system(gpu, nodes);
  const auto choices = nccl_choices(system, collective, size);
  for (std::size_t i = 1; i < choices.size(); ++i) {
    RC_ASSERT(choices[i - 1].time <= choices[i].time);
  }
  RC_ASSERT(choices.front().time == predict_nccl(system, collective, size).time);
  RC_ASSERT(choices.front().time > Seconds(0));
  RC_ASSERT(std::isfinite(choices.back().time.count()));
}

struct Point {
  double bytes;
  double time_us;
};

std::map<std::string, std::vector<Point>> measured_all_reduces() {
  std::map<std::string, std::vector<Point>> series;
  for (auto& row : testing::read_rows("nccl_allreduce.csv")) {
    series[row["series"]].push_back({std::stod(row["size_bytes"]), std::stod(row["time_us_oop"])});
  }
  return series;
}

/// How far the model, nothing fitted, is from what was measured: a guard against changes, at what
/// it was when it was written, which docs/costs.md reports too.
TEST(NcclModel, AgainstPublishedMeasurements) {
  const auto series = measured_all_reduces();
  if (series.empty()) {
    GTEST_SKIP() << "no nccl_allreduce.csv in " STRETTO_VALIDATION_DIR;
  }
  NcclHardware p4de{GpuArchitecture::kAmpere, 12, false, 4, BytesPerSecond(12.5e9)};
  NcclHardware p5{GpuArchitecture::kHopper, 18, true, 32, BytesPerSecond(12.5e9)};
  NcclHardware gb200{GpuArchitecture::kBlackwell, 18, true, 0, BytesPerSecond(0)};
  NcclSystem sharp = nccl_system("h100", 12);
  sharp.network_adds = true;
  NcclSystem efa = nccl_system(p4de, 2, 8);
  efa.simple_only = true;
  struct Case {
    std::string series;
    NcclSystem system;
    double mean;        // of all sizes
    double large_mean;  // from 16 MiB
    double last;        // of the largest size
  };
  for (const Case& c :
       {Case{"aws_p5_1x8_batch", nccl_system("h100", 1), 0.126, 0.108, 0.016},
        Case{"mleng_h200_1x8", nccl_system("h200", 1), 0.277, 0.103, 0.014},
        Case{"mleng_b200_1x8", nccl_system("b200", 1), 0.403, 0.213, 0.022},
        Case{"mleng_a100_1x8", nccl_system("a100", 1), 0.317, 0.133, 0.022},
        Case{"aws_p4de_2x8", efa, 0.464, 0.309, 0.13},
        Case{"aws_p5_2x8_eks_2023", nccl_system(p5, 2, 8), 0.45, 0.45, 0.045},
        Case{"coreweave_h100_sharp", sharp, 0.047, 0.047, 0.076},
        Case{"coreweave_gb200_1rack", nccl_system(gb200, 1, 72), 0.19, 0.19, 0.09}}) {
    ASSERT_TRUE(series.contains(c.series)) << c.series;
    double sum = 0.0;
    double large_sum = 0.0;
    double last = 0.0;
    int large = 0;
    for (const Point& point : series.at(c.series)) {
      const NcclPrediction prediction = predict_nccl(
          c.system, Collective::kAllReduce, Bytes(static_cast<std::int64_t>(point.bytes)));
      last = std::abs(us(prediction) / point.time_us - 1);
      sum += last;
      if (point.bytes >= 1 << 24) {
        large_sum += last;
        ++large;
      }
    }
    const double mean = sum / static_cast<double>(series.at(c.series).size());
    EXPECT_LE(mean, c.mean) << c.series;
    EXPECT_LE(large_sum / large, c.large_mean) << c.series;
    EXPECT_LE(last, c.last) << c.series;
  }
}

/// From how many GPUs on the switches pay, and what they reach: H200, 8 GiB.
TEST(NcclModel, SwitchesAddFromFiveHopperGpusOn) {
  const auto rows = testing::read_rows("nvls_ranks_h200.csv");
  if (rows.empty()) {
    GTEST_SKIP() << "no nvls_ranks_h200.csv in " STRETTO_VALIDATION_DIR;
  }
  for (auto row : rows) {
    const int ranks = std::stoi(row["ranks"]);
    const double bytes = std::stod(row["size_bytes"]);
    const NcclPrediction prediction = predict_nccl(nccl_system("h200", 1, ranks),
                                                   Collective::kAllReduce,
                                                   Bytes(static_cast<std::int64_t>(bytes)));
    EXPECT_EQ(prediction.algorithm,
              row["algo_default"] == "Ring" ? NcclAlgorithm::kRing : NcclAlgorithm::kNvls)
        << ranks;
    const double bus_gb = bytes * 2 * (ranks - 1) / ranks / prediction.time.count() / 1e9;
    EXPECT_NEAR(bus_gb / std::stod(row["busbw_gbs_default"]), 1.0, 0.12) << ranks;
  }
}

}  // namespace
}  // namespace stretto
