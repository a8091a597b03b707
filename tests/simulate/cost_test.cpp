// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/collective_cost.hpp"

namespace stretto {
namespace {

/// a = 1 s, b = 1 s/B, c = 10 s/B: numbers one can add up.
constexpr LinkCost kLink{Seconds(1), 1.0, 10.0};

void expect_line(const CostLine& line, double latency, double per_byte) {
  EXPECT_NEAR(line.latency.count(), latency, 1e-12);
  EXPECT_NEAR(line.seconds_per_byte, per_byte, 1e-12);
}

TEST(CostFormulas, AllReduce) {
  expect_line(cost::direct_all_reduce(4, kLink), 2, 1.5 + 7.5);
  expect_line(cost::ring_all_reduce(4, kLink), 6, 1.5 + 7.5);
  expect_line(cost::recursive_doubling_all_reduce(8, kLink), 3, 3 + 30);
  // 5 ranks: fold, two rounds, and back.
  expect_line(cost::recursive_doubling_all_reduce(5, kLink), 4, 4 + 30);
  expect_line(cost::halving_doubling_all_reduce(8, kLink), 6, 1.75 + 8.75);
  expect_line(cost::halving_doubling_all_reduce(6, kLink), 6, 1.5 + 2 + 7.5 + 10);
  expect_line(cost::binomial_tree_all_reduce(6, kLink), 6, 6 + 30);
  expect_line(cost::in_switch_all_reduce(8, kLink, 0.8), 2, 1.25);
}

TEST(CostFormulas, ReduceScatterAndAllGather) {
  expect_line(cost::direct_reduce_scatter(4, kLink), 1, 0.75 * 11);
  expect_line(cost::ring_reduce_scatter(4, kLink), 3, 0.75 * 11);
  expect_line(cost::recursive_halving_reduce_scatter(4, kLink), 2, 0.75 * 11);
  expect_line(cost::recursive_halving_reduce_scatter(5, kLink), 4, 0.8 * 11 + 11 + 0.2);
  expect_line(cost::direct_all_gather(4, kLink), 1, 0.75);
  expect_line(cost::ring_all_gather(5, kLink), 4, 0.8);
  expect_line(cost::bruck_all_gather(5, kLink), 3, 0.8);
}

TEST(CostFormulas, BroadcastAndReduce) {
  expect_line(cost::direct_broadcast(4, kLink), 1, 3);
  expect_line(cost::binomial_broadcast(5, kLink), 3, 3);
  expect_line(cost::ring_broadcast(4, kLink), 5, 1.5);
  expect_line(cost::direct_reduce(4, kLink), 1, 33);
  expect_line(cost::binomial_reduce(5, kLink), 3, 33);
  expect_line(cost::ring_reduce(4, kLink), 5, 1.5 + 7.5);
}

TEST(CostFormulas, AllToAll) {
  expect_line(cost::direct_all_to_all(4, kLink), 1, 0.75);
  expect_line(cost::pairwise_all_to_all(4, kLink), 3, 0.75);
  expect_line(cost::bruck_all_to_all(5, kLink), 3, 1.5);
}

TEST(CostFormulas, ParameterServers) {
  // A server of its own serves 4; one on a worker the other 3.
  expect_line(cost::one_parameter_server(4, kLink), 2, 8 + 40);
  expect_line(cost::one_parameter_server(3, kLink), 2, 6 + 30);
  // 8 workers, 2 servers 5 times as fast: the workers' links are no longer the limit.
  expect_line(cost::parameter_servers(8, 2, {Seconds(1), 1.0, 0.0}, 0.2), 2, 1);
  expect_line(cost::parameter_servers(8, 2, {Seconds(1), 1.0, 0.0}, 0.5), 2, 2);
  expect_line(cost::sharded_parameter_server(4, kLink), 2, 1.5 + 7.5);
}

/// Tries all numbers of segments.
template <typename Time>
double least_over_segments(int most, Time time) {
  double least = INFINITY;
  for (int s = 1; s <= most; ++s) {
    least = std::min(least, time(static_cast<double>(s)));
  }
  return least;
}

TEST(CostFormulas, PipelinesTakeTheBestWholeNumberOfSegments) {
  for (const int ranks : {2, 3, 8, 13}) {
    for (const int n : {1, 2, 7, 100, 999}) {
      const double h = std::ceil(std::log2(ranks));
      EXPECT_NEAR(cost::pipelined_chain_all_reduce(ranks, Bytes(n), kLink).count(),
                  least_over_segments(
                      n, [&](double s) { return (ranks - 2 + s) * (2 + 2 * n / s + 10 * n / s); }),
                  1e-9);
      EXPECT_NEAR(cost::pipelined_chain_broadcast(ranks, Bytes(n), kLink).count(),
                  least_over_segments(n, [&](double s) { return (ranks - 2 + s) * (1 + n / s); }),
                  1e-9);
      EXPECT_NEAR(
          cost::double_binary_tree_all_reduce(ranks, Bytes(n), kLink).count(),
          least_over_segments(
              n, [&](double s) { return (2 * h + 2 * s) * (2 + n / s + 10 * n / (2 * s)); }),
          1e-9);
      EXPECT_NEAR(
          cost::double_binary_tree_broadcast(ranks, Bytes(n), kLink).count(),
          least_over_segments(n, [&](double s) { return (2 * h + 2 * s) * (1 + n / (2 * s)); }),
          1e-9);
    }
  }
  // Without latency as many as there are bytes.
  EXPECT_NEAR(
      cost::pipelined_chain_broadcast(4, Bytes(8), {Seconds(0), 1.0, 0.0}).count(), 10, 1e-9);
}

TEST(CostFormulas, PointToPointAsksFirstAboveTheThreshold) {
  EXPECT_DOUBLE_EQ(cost::point_to_point(Bytes(8), kLink).count(), 9);
  EXPECT_DOUBLE_EQ(cost::point_to_point(Bytes(8), kLink, Bytes(8)).count(), 9);
  EXPECT_DOUBLE_EQ(cost::point_to_point(Bytes(9), kLink, Bytes(8)).count(), 12);
}

std::vector<std::vector<Bytes>> matrix(std::vector<std::vector<std::int64_t>> rows) {
  std::vector<std::vector<Bytes>> result;
  for (const auto& row : rows) {
    result.emplace_back(row.begin(), row.end());
  }
  return result;
}

TEST(CostFormulas, RoutingMatrix) {
  // Round 1: 0->1 (5), 1->2 (1), 2->0 (1); round 2: 0->2 (1), 1->0 (1), 2->1 (7).
  const auto sent = matrix({{100, 5, 1}, {1, 100, 1}, {1, 7, 100}});
  EXPECT_DOUBLE_EQ(cost::pairwise_all_to_all(sent, kLink).count(), 2 + 5 + 7);
  EXPECT_DOUBLE_EQ(cost::least_all_to_all(sent, kLink).count(), 12);  // rank 1 receives
  // Balanced: the formula of the same name.
  const auto even = matrix({{4, 4, 4, 4}, {4, 4, 4, 4}, {4, 4, 4, 4}, {4, 4, 4, 4}});
  EXPECT_DOUBLE_EQ(cost::pairwise_all_to_all(even, kLink).count(),
                   cost::pairwise_all_to_all(4, kLink)(Bytes(16)).count());
}

TEST(CostFormulas, RoutingMatrixMustBeSquareAndNotNegative) {
  EXPECT_THROW((void)cost::pairwise_all_to_all(matrix({{1, 2}}), kLink), Error);
  EXPECT_THROW((void)cost::least_all_to_all(matrix({{1, -2}, {0, 0}}), kLink), Error);
}

/// Four ranks, each with 64 rows of 4 KiB for the others and itself, sent evenly or mostly to rank
/// 2 (a study's ledger): what leaves the ranks is the same, what arrives is not.
TEST(CostFormulas, SkewedRoutingCostsWhatTheFullestRankReceives) {
  const std::int64_t row = 4096;
  const auto even =
      matrix(std::vector(4, std::vector<std::int64_t>{16 * row, 16 * row, 16 * row, 16 * row}));
  const auto skewed =
      matrix(std::vector(4, std::vector<std::int64_t>{4 * row, 4 * row, 52 * row, 4 * row}));
  const LinkCost link{Seconds(0), 1.0, 0.0};
  const auto remote = [](const std::vector<std::vector<Bytes>>& sent) {
    std::int64_t sum = 0;
    for (std::size_t s = 0; s < sent.size(); ++s) {
      for (std::size_t d = 0; d < sent.size(); ++d) {
        sum += s == d ? 0 : sent[s][d].count();
      }
    }
    return sum;
  };
  EXPECT_EQ(remote(even), 3 * (std::int64_t{1} << 18));  // 0.75 MiB
  EXPECT_EQ(remote(skewed), 3 * (std::int64_t{1} << 18));
  EXPECT_DOUBLE_EQ(cost::least_all_to_all(even, link).count(), 48.0 * row);
  // Received 208 of 256 rows, ratio to the mean 3.25; 3 of 4 parts are remote.
  EXPECT_DOUBLE_EQ(cost::least_all_to_all(skewed, link).count(), 3.25 * 48 * row);
}

TEST(CostFormulas, Compression) {
  const ExchangeTime line({CostLine{Seconds(1), 2.0, Algorithm::kRing}});
  EXPECT_DOUBLE_EQ(cost::power_sgd(100, 50, 2, 4, line).count(), 2 + 2 * (800 + 400));
  EXPECT_DOUBLE_EQ(cost::top_k(8, 10, 4, 4, line).count(), 1 + 2 * 640);
  EXPECT_DOUBLE_EQ(cost::quantised_two_shot(Bytes(100), line, line).count(), 2 * 201);
}

/// The numbers of a study at 25 GB/s and 4 MB, without latency.
TEST(CostFormulas, RingAndParameterServerAt25GBps) {
  const LinkCost link{Seconds(0), 1 / 25e9, 0.0};
  const Bytes size(4'000'000);
  const auto server_ms = [&](int ranks) {
    return cost::one_parameter_server(ranks - 1, link)(size).count() * 1e3;
  };
  const auto ring_ms = [&](int ranks) {
    return cost::ring_all_reduce(ranks, link)(size).count() * 1e3;
  };
  EXPECT_NEAR(server_ms(8), 2.24, 1e-9);
  EXPECT_NEAR(server_ms(32), 9.92, 1e-9);
  EXPECT_NEAR(server_ms(128), 40.64, 1e-9);
  EXPECT_NEAR(ring_ms(8), 0.28, 1e-9);
  EXPECT_NEAR(ring_ms(32), 0.31, 1e-9);
  EXPECT_NEAR(ring_ms(128), 0.3175, 1e-9);
}

TEST(CostFormulas, RingOf256MiBOnFourRanksSends384MiBEach) {
  const LinkCost a_second_per_byte{Seconds(0), 1.0, 0.0};
  EXPECT_DOUBLE_EQ(cost::ring_all_reduce(4, a_second_per_byte)(Bytes(256 << 20)).count(),
                   384.0 * (1 << 20));
}

/// 4 nodes of 8 B200: 50 GB/s for each GPU between the nodes; inside, the bus bandwidth measured at
/// this size. Measured in all: 22.05 ms (ml-engineering, network/README.md).
TEST(CollectiveTime, FourGiBOnFourNodesOfEight) {
  const Machine machine = machine_from_spec("4x8@nvlink=740.64GB/s,0s@net=400GB/s,0s");
  const Bytes size(std::int64_t{4} << 30);
  const auto ms = [&](Algorithm algorithm) {
    return collective_time(machine, Collective::kAllReduce, algorithm, size).count() * 1e3;
  };
  EXPECT_NEAR(ms(Algorithm::kHierarchicalPipelined), 16.1, 0.05);
  EXPECT_NEAR(ms(Algorithm::kHierarchical), 26.25, 0.05);
  EXPECT_NEAR(ms(Algorithm::kRing), 20.8, 0.05);
  // Through one card of 50 GB/s: 85.9 ms for every n that crosses it, here 2 * 3/4 of them, after
  // 2 * 2 * 7/8 n inside.
  const double one_way_ms = static_cast<double>(size.count()) / 50e9 * 1e3;
  EXPECT_NEAR(one_way_ms, 85.9, 0.05);
  EXPECT_NEAR(ms(Algorithm::kLeader),
              1.5 * one_way_ms + 3.5 * static_cast<double>(size.count()) / 740.64e9 * 1e3,
              0.05);
}

}  // namespace
}  // namespace stretto
