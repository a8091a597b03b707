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
  // 5 ranks: fold, two rounds, and back; one of them may come before the fold.
  expect_line(cost::recursive_doubling_all_reduce(5, kLink), 4, 5 + 30);
  expect_line(cost::halving_doubling_all_reduce(8, kLink), 6, 1.75 + 8.75);
  expect_line(cost::halving_doubling_all_reduce(6, kLink), 6, 1.5 + 2 + 0.75 + 7.5 + 10);
  expect_line(cost::binomial_tree_all_reduce(6, kLink), 4, 6 + 30);
  expect_line(cost::in_switch_all_reduce(8, kLink, 0.8), 2, 1.25);
}

TEST(CostFormulas, ReduceScatterAndAllGather) {
  expect_line(cost::direct_reduce_scatter(4, kLink), 1, 0.75 * 11);
  expect_line(cost::ring_reduce_scatter(4, kLink), 3, 0.75 * 11);
  expect_line(cost::recursive_halving_reduce_scatter(4, kLink), 2, 0.75 * 11);
  expect_line(cost::recursive_halving_reduce_scatter(5, kLink), 4, 2.8 + 20);
  expect_line(cost::direct_all_gather(4, kLink), 1, 0.75);
  expect_line(cost::ring_all_gather(5, kLink), 4, 0.8);
  expect_line(cost::bruck_all_gather(5, kLink), 3, 0.8);
}

TEST(CostFormulas, BroadcastAndReduce) {
  expect_line(cost::direct_broadcast(4, kLink), 1, 3);
  expect_line(cost::binomial_broadcast(5, kLink), 2, 3);
  expect_line(cost::ring_broadcast(4, kLink), 5, 1.5);
  expect_line(cost::direct_reduce(4, kLink), 1, 33);
  expect_line(cost::binomial_reduce(5, kLink), 2, 33);
  expect_line(cost::ring_reduce(4, kLink), 5, 1.5 + 7.5);
}

TEST(CostFormulas, AllToAll) {
  expect_line(cost::direct_all_to_all(4, kLink), 1, 0.75);
  expect_line(cost::pairwise_all_to_all(4, kLink), 3, 0.75);
  expect_line(cost::bruck_all_to_all(5, kLink), 3, 1.0);  // parts 1 and 3, 2 and 3, 4
  expect_line(cost::bruck_all_to_all(8, kLink), 3, 1.5);
  for (std::int64_t ranks = 2; ranks < 70; ++ranks) {
    for (std::int64_t bit = 1; bit < ranks; bit *= 2) {
      int with_bit = 0;
      for (std::int64_t part = 1; part < ranks; ++part) {
        with_bit += (part & bit) != 0 ? 1 : 0;
      }
      EXPECT_EQ(cost::bruck_parts(ranks, bit), with_bit) << ranks << " ranks, bit " << bit;
    }
  }
}

TEST(CostFormulas, AsManyRanksAsAnIntHolds) {
  // More than 2^30: a power of two of an int would overflow, and rounds never end.
  constexpr int kRanks = (1 << 30) + 1;
  EXPECT_NEAR(cost::bruck_all_to_all(kRanks, kLink).latency / kLink.latency, 31, 1e-6);
  EXPECT_NEAR(
      cost::recursive_halving_reduce_scatter(kRanks, kLink).latency / kLink.latency, 32, 1e-6);
  const Machine machine = machine_from_spec("1073741825@100GB/s,1us");
  for (const Collective collective : {Collective::kAllReduce,
                                      Collective::kReduceScatter,
                                      Collective::kAllGather,
                                      Collective::kAllToAll}) {
    const std::vector<AlgorithmCost> costs =
        compare_algorithms(machine, collective, Bytes(1 << 20));
    EXPECT_TRUE(std::all_of(costs.begin(), costs.end(), [](const AlgorithmCost& cost) {
      return std::isfinite(cost.time.count()) && cost.time > Seconds(0);
    })) << to_string(collective);
  }
}

TEST(CostFormulas, ParameterServers) {
  // A server of its own serves 4; one on a worker the other 3.
  expect_line(cost::one_parameter_server(4, kLink), 2, 8 + 40);
  expect_line(cost::one_parameter_server(3, kLink), 2, 6 + 30);
  // 4 ranks, of which 1, 2 or all serve: from one server to the direct exchange.
  expect_line(cost::shared_parameter_servers(4, 1, kLink), 2, 6 + 30);
  expect_line(cost::shared_parameter_servers(4, 2, kLink), 2, 3 + 15);
  expect_line(cost::shared_parameter_servers(4, 4, kLink), 2, 1.5 + 7.5);
  // 8 workers, 2 servers 5 times as fast: the workers' links are no longer the limit.
  expect_line(cost::parameter_servers(8, 2, {Seconds(1), 1.0, 0.0}, 0.2), 2, 1);
  expect_line(cost::parameter_servers(8, 2, {Seconds(1), 1.0, 0.0}, 0.5), 2, 2);
  expect_line(cost::sharded_parameter_server(4, kLink), 2, 1.5 + 7.5);
}

TEST(CostFormulas, PipelinesPayALatencyPerRankAndFillWithOneSegment) {
  constexpr int kKi = 1024;
  for (const int ranks : {2, 3, 8, 13}) {
    for (const int n : {1, 100, 100 * kKi, 640 * kKi, 9000 * kKi}) {
      const double s = std::clamp(std::floor(n / 65536.0), 1.0, 64.0);
      const double h = std::floor(std::log2(ranks));
      const double exact = 1e-9 * n * ranks * 100;
      EXPECT_NEAR(cost::pipelined_chain_all_reduce(ranks, Bytes(n), kLink).count(),
                  ranks == 2 ? 2 + (1 + s) * n / s + 10 * n
                             : 2 * (ranks - 1) + (ranks - 2 + s) * 12 * n / s,
                  exact);
      EXPECT_NEAR(cost::pipelined_chain_broadcast(ranks, Bytes(n), kLink).count(),
                  ranks - 1 + (ranks - 2 + s) * n / s,
                  exact);
      const double load = std::min(ranks / 2.0, 2.0);
      EXPECT_NEAR(cost::double_binary_tree_all_reduce(ranks, Bytes(n), kLink).count(),
                  2 * h + (load + 10) * n + (std::max(2 * h - 1 - load, 0.0) + 10 * h) * n / s,
                  exact);
      const double below = std::floor(std::log2(ranks - 1));
      EXPECT_NEAR(cost::double_binary_tree_broadcast(ranks, Bytes(n), kLink).count(),
                  1 + below + (below + s) * n / s,
                  exact);
    }
  }
}

TEST(CostFormulas, PointToPointAsksFirstAboveTheThreshold) {
  EXPECT_DOUBLE_EQ(cost::point_to_point(Bytes(8), kLink).count(), 9);
  EXPECT_DOUBLE_EQ(cost::point_to_point(Bytes(8), kLink, Bytes(8)).count(), 9);
  EXPECT_DOUBLE_EQ(cost::point_to_point(Bytes(9), kLink, Bytes(8)).count(), 12);
}

std::vector<std::vector<Bytes>> matrix(const std::vector<std::vector<std::int64_t>>& rows) {
  std::vector<std::vector<Bytes>> result;
  result.reserve(rows.size());
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
  // 16.1 between the nodes, and an 8th of the 10.1 inside.
  EXPECT_NEAR(ms(Algorithm::kHierarchicalPipelined), 17.4, 0.05);
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

Collective any_collective() {
  return *rc::gen::element(Collective::kAllReduce,
                           Collective::kReduceScatter,
                           Collective::kAllGather,
                           Collective::kBroadcast,
                           Collective::kReduce,
                           Collective::kAllToAll,
                           Collective::kSend);
}

Machine three_levels() {
  return machine_from_spec("2x4x8@nvlink=400GB/s,2us@net=200GB/s,10us@spine=100GB/s,20us");
}

double seconds(const Machine& machine, Collective collective, Algorithm algorithm, Bytes size) {
  return collective_time(machine, collective, algorithm, size).count();
}

/// 2 nodes of 3: a = 1 s inside and 10 s between, b = 1 s/B inside and 2 s/B for a node's link.
Machine two_nodes_of_three() {
  Machine machine = machine_from_spec("2x3@1GB/s,1s@1GB/s,10s");
  machine.levels[0].bandwidth = BytesPerSecond(1);
  machine.levels[1].bandwidth = BytesPerSecond(0.5);
  return machine;
}

TEST(CollectiveTime, TwoLevelsByHand) {
  const Machine machine = two_nodes_of_three();
  const Bytes n(60);
  const auto all_reduce = [&](Algorithm algorithm) {
    return seconds(machine, Collective::kAllReduce, algorithm, n);
  };
  // Around the ring: 4 edges of 1 s and 2 of 10, one cheap one left out, twice; 10 of 60 bytes in
  // each of 10 steps over the nodes' links of 2 s/B.
  EXPECT_NEAR(all_reduce(Algorithm::kRing), 2 * (24 - 1) + 10 * 10 * 2, 1e-9);
  // From a node 3 ranks send 10 bytes to each of 3 others: 90; inside 20. Twice.
  EXPECT_NEAR(all_reduce(Algorithm::kDirect), 2 * (10 + 90 * 2), 1e-9);
  // Inside 4 messages of 20; between 2 of 10, three times at once on a node's link.
  EXPECT_NEAR(all_reduce(Algorithm::kHierarchical), 4 + 80 + 20 + 2 * 10 * 3 * 2, 1e-9);
  // So small a tensor is one chunk.
  EXPECT_NEAR(all_reduce(Algorithm::kHierarchicalPipelined), 24 + 80 + 120, 1e-9);
  // Reduce and broadcast inside: one latency of a tree and 2 around, 2 * 2/3 * 60 each; between:
  // its third of the node's link.
  EXPECT_NEAR(all_reduce(Algorithm::kLeader), 2 * (3 + 80) + 20 + 60 * 6, 1e-9);
  // Trees: inside two messages of one latency, one between, there and back.
  EXPECT_NEAR(all_reduce(Algorithm::kBinomialTree), 2 * (1 + 120) + 2 * (10 + 120), 1e-9);
  // Inside folded onto 2 ranks: three rounds of all, and one before the fold. Between all three
  // ranks at once.
  EXPECT_NEAR(all_reduce(Algorithm::kRecursiveDoubling), 3 + 240 + 10 + 60 * 6, 1e-9);
  // Rank 0 receives from 2 inside, from 3 outside, and sends to them.
  EXPECT_NEAR(all_reduce(Algorithm::kParameterServer), 2 * (10 + 3 * 60 * 2), 1e-9);
  // All_to_all: 2 partners inside, 3 outside, 10 bytes each, three ranks on the node's link.
  EXPECT_NEAR(seconds(machine, Collective::kAllToAll, Algorithm::kPairwise, n),
              2 * (1 + 10) + 3 * (10 + 10 * 6),
              1e-9);
  // 20 to each inside; then 30 to the partner in the other node.
  EXPECT_NEAR(seconds(machine, Collective::kAllToAll, Algorithm::kHierarchical, n),
              2 * (1 + 20) + 10 + 30 * 6,
              1e-9);
  // Rounds with the 1st, 2nd and 4th further on: 30, 20 and 20 bytes from 1, 2 and 3 ranks of a
  // node.
  EXPECT_NEAR(seconds(machine, Collective::kAllToAll, Algorithm::kBruck, n),
              3 * 10 + 2 * (30 * 1 + 20 * 2 + 20 * 3),
              1e-9);
  EXPECT_NEAR(seconds(machine, Collective::kSend, Algorithm::kDirect, n), 10 + 120, 1e-9);
}

TEST(CollectiveTime, AddingSwitchesWhereThereAreSome) {
  Machine machine = two_nodes_of_three();
  machine.levels[0].in_switch_efficiency = 0.5;
  // 2 hops and 60 / 0.5 s inside; between a ring of the three thirds: 2 x 10 s and 60 x 2 s.
  EXPECT_NEAR(seconds(machine, Collective::kAllReduce, Algorithm::kInSwitch, Bytes(60)),
              2 + 20 + 120,
              1e-9);
  machine.levels[1].in_switch_efficiency = 1.0;
  EXPECT_NEAR(seconds(machine, Collective::kAllReduce, Algorithm::kInSwitch, Bytes(60)),
              2 + 20 + 120,
              1e-9);
}

TEST(CollectiveTime, AddingTakesItsTime) {
  Machine machine = machine_from_spec("4@1GB/s,0");
  machine.reduction = BytesPerSecond(1e9);
  EXPECT_NEAR(seconds(machine, Collective::kAllReduce, Algorithm::kRing, Bytes(1'000'000)),
              1.5e-3 + 0.75e-3,
              1e-12);
  EXPECT_NEAR(
      seconds(machine, Collective::kAllGather, Algorithm::kRing, Bytes(1'000'000)), 0.75e-3, 1e-12);
}

TEST(CollectiveTime, ErrorsSayWhichAlgorithmsWouldDo) {
  try {
    (void)collective_time(three_levels(), Collective::kAllGather, Algorithm::kLeader, Bytes(1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.detail().found, "all_gather by leader");
    EXPECT_NE(error.detail().expected.find("ring"), std::string::npos);
    EXPECT_EQ(error.detail().expected.find("in_switch"), std::string::npos);
  }
  EXPECT_THROW(
      (void)collective_time(three_levels(), Collective::kAllReduce, Algorithm::kInSwitch, Bytes(1)),
      Error);
  EXPECT_THROW(
      (void)collective_time(three_levels(), Collective::kBarrier, Algorithm::kAuto, Bytes(1)),
      Error);
  EXPECT_THROW((void)compare_algorithms(three_levels(), Collective::kNone, Bytes(1)), Error);
  EXPECT_THROW(
      (void)exchange_time(three_levels(), Collective::kAllReduce, Algorithm::kBruck, Bytes(1)),
      Error);
  // Powers of two only.
  EXPECT_THROW((void)collective_time(machine_from_spec("3@1GB/s,1us"),
                                     Collective::kAllGather,
                                     Algorithm::kRecursiveDoubling,
                                     Bytes(1)),
               Error);
}

Machine measured_machine() {
  Machine machine = machine_from_spec("8@100GB/s,1us");
  machine.curves = {
      {Collective::kAllReduce,
       Algorithm::kAuto,
       8,
       {{Bytes(100), Seconds(10e-6)}, {Bytes(400), Seconds(40e-6)}, {Bytes(800), Seconds(20e-6)}}},
      {Collective::kAllReduce, Algorithm::kRing, 8, {{Bytes(100), Seconds(5e-6)}}},
      {Collective::kAllReduce, Algorithm::kAuto, 4, {{Bytes(100), Seconds(1)}}}};
  return machine;
}

TEST(CollectiveTime, MeasuredCurvesComeFirst) {
  const Machine machine = measured_machine();
  const auto us = [&](Algorithm algorithm, std::int64_t size) {
    return seconds(machine, Collective::kAllReduce, algorithm, Bytes(size)) * 1e6;
  };
  EXPECT_NEAR(us(Algorithm::kAuto, 1), 10, 1e-9);
  EXPECT_NEAR(us(Algorithm::kAuto, 100), 10, 1e-9);
  EXPECT_NEAR(us(Algorithm::kAuto, 200), 20, 1e-9);
  // Straight in the logarithms, and down again as it was measured.
  EXPECT_NEAR(us(Algorithm::kAuto, 566), 40 / std::sqrt(2), 0.05);
  EXPECT_NEAR(us(Algorithm::kAuto, 1600), 40, 1e-9);
  // Its own curve, else what the library chose.
  EXPECT_NEAR(us(Algorithm::kRing, 100), 5, 1e-9);
  EXPECT_NEAR(us(Algorithm::kDirect, 100), 10, 1e-9);
  EXPECT_EQ(us(Algorithm::kAuto, 0), 0.0);
  // Nobody measured all_gather.
  EXPECT_LT(seconds(machine, Collective::kAllGather, Algorithm::kAuto, Bytes(100)), 4e-6);
}

TEST(CollectiveTime, WhatWasMeasuredNeedsNoFormula) {
  Machine machine = measured_machine();
  machine.curves.push_back(
      {Collective::kBarrier, Algorithm::kAuto, 8, {{Bytes(1), Seconds(7e-6)}}});
  machine.curves.push_back(
      {Collective::kAllGather, Algorithm::kInSwitch, 8, {{Bytes(1), Seconds(1e-9)}}});
  EXPECT_DOUBLE_EQ(seconds(machine, Collective::kBarrier, Algorithm::kAuto, Bytes(1)), 7e-6);
  EXPECT_DOUBLE_EQ(seconds(machine, Collective::kAllGather, Algorithm::kAuto, Bytes(1)), 1e-9);
  EXPECT_EQ(compare_algorithms(machine, Collective::kAllGather, Bytes(1)).front().algorithm,
            Algorithm::kInSwitch);
  // A curve of whatever the library chose does not make sense of an algorithm that has none.
  EXPECT_THROW((void)collective_time(machine, Collective::kAllReduce, Algorithm::kBruck, Bytes(1)),
               Error);
}

TEST(CompareAlgorithms, SaysWhatWasMeasured) {
  const auto costs = compare_algorithms(measured_machine(), Collective::kAllReduce, Bytes(100));
  int measured = 0;
  for (const AlgorithmCost& cost : costs) {
    const bool has_curve = cost.algorithm == Algorithm::kAuto || cost.algorithm == Algorithm::kRing;
    EXPECT_EQ(cost.basis == Basis::kMeasured, has_curve) << to_string(cost.algorithm);
    measured += has_curve ? 1 : 0;
  }
  EXPECT_EQ(measured, 2);
}

TEST(ExchangeTimeOf, LinesWhereAffineElseACurve) {
  const Machine machine = machine_from_spec("8@100GB/s,1us");
  const Bytes most(1 << 30);
  const auto of = [&](Algorithm algorithm) {
    return exchange_time(machine, Collective::kAllReduce, algorithm, most);
  };
  ASSERT_EQ(of(Algorithm::kRing).lines().size(), 1U);
  EXPECT_EQ(of(Algorithm::kRing).algorithm(Bytes(1)), Algorithm::kRing);
  EXPECT_GE(of(Algorithm::kAuto).lines().size(), 1U);
  EXPECT_TRUE(of(Algorithm::kPipelinedChain).lines().empty());
  for (std::int64_t size = 1; size < most.count(); size = size * 3 / 2 + 1) {
    const double exact =
        seconds(machine, Collective::kAllReduce, Algorithm::kPipelinedChain, Bytes(size));
    // Straight between two sizes, where one of them has a segment more: a kink that grows smaller.
    const double off = size < 131'072 ? 0.1 : 0.03;
    EXPECT_NEAR(of(Algorithm::kPipelinedChain)(Bytes(size)).count() / exact, 1.0, off) << size;
  }
  // A measured curve is passed on; ExchangeTime makes it monotone.
  const ExchangeTime curve =
      exchange_time(measured_machine(), Collective::kAllReduce, Algorithm::kAuto, most);
  EXPECT_TRUE(curve.lines().empty());
  EXPECT_NEAR(curve(Bytes(400)).count(), 20e-6, 1e-12);
  // A measured line goes on as it was, whatever a byte took with the latency in it.
  Machine line = machine_from_spec("8@100GB/s,1us");
  line.curves = {{Collective::kAllReduce, Algorithm::kAuto, 8, {}}};
  for (std::int64_t size = 1024; size <= 131'072; size *= 2) {
    line.curves[0].points.push_back(
        {Bytes(size), Seconds(20e-6 + 1e-10 * static_cast<double>(size))});
  }
  const ExchangeTime beyond = exchange_time(line, Collective::kAllReduce, Algorithm::kAuto, most);
  for (const std::int64_t size : {131'073, 1'000'000, 100'000'000}) {
    const double expected = 20e-6 + 1e-10 * static_cast<double>(size);
    EXPECT_NEAR(beyond(Bytes(size)).count() / expected, 1.0, 1e-9) << size;
    EXPECT_NEAR(
        seconds(line, Collective::kAllReduce, Algorithm::kAuto, Bytes(size)) / expected, 1.0, 1e-9);
    for (const CostLine& below : beyond.lower_lines(Bytes(size))) {
      EXPECT_LE(below(Bytes(size)).count(), expected * (1 + 1e-9)) << size;
    }
  }
  EXPECT_NEAR(beyond.scaled(1, 2)(Bytes(100'000'000)).count(), 20e-6 + 2e-10 * 1e8, 1e-6);
  // One point says nothing of latency: its time per byte.
  line.curves[0].points = {{Bytes(100), Seconds(10e-6)}};
  EXPECT_NEAR(seconds(line, Collective::kAllReduce, Algorithm::kAuto, Bytes(1000)), 100e-6, 1e-12);
  // An end that chance made flat says no more.
  line.curves[0].points = {
      {Bytes(100), Seconds(10e-6)}, {Bytes(500), Seconds(50e-6)}, {Bytes(1100), Seconds(50.1e-6)}};
  EXPECT_NEAR(seconds(line, Collective::kAllReduce, Algorithm::kAuto, Bytes(101'100)),
              50.1e-6 + 1e5 * 50.1e-6 / 1100,
              1e-9);
  // One measured algorithm among formulas: the cheaper of both at each size.
  Machine mixed = measured_machine();
  std::erase_if(mixed.curves,
                [](const CollectiveCurve& one) { return one.algorithm == Algorithm::kAuto; });
  const ExchangeTime sampled =
      exchange_time(mixed, Collective::kAllReduce, Algorithm::kAuto, Bytes(1000));
  EXPECT_TRUE(sampled.lines().empty());
  EXPECT_NEAR(sampled(Bytes(1000)).count(),
              seconds(mixed, Collective::kAllReduce, Algorithm::kAuto, Bytes(1000)),
              1e-9);
}

TEST(ExchangeTimeOf, OneRankIsFree) {
  const Machine alone = machine_from_spec("1@1GB/s,1us");
  const ExchangeTime free =
      exchange_time(alone, Collective::kAllReduce, Algorithm::kRing, Bytes(1 << 20));
  EXPECT_EQ(free(Bytes(1 << 20)).count(), 0.0);
}

/// A machine of 1 to 3 levels of 1 to 6, from slow to fast links, some with adding switches.
Machine any_machine() {
  Machine machine;
  machine.name = "any";
  const int levels = *rc::gen::inRange(1, 4);
  for (int l = 0; l < levels; ++l) {
    Level level;
    level.name = std::to_string(l);
    level.group_size = *rc::gen::inRange(1, 7);
    level.latency = Seconds(*rc::gen::inRange(0, 100) * 1e-6);
    level.bandwidth = BytesPerSecond(*rc::gen::inRange(1, 1000) * 1e8);
    level.in_switch_efficiency = *rc::gen::inRange(0, 4) * 0.25;
    machine.levels.push_back(level);
  }
  machine.reduction = BytesPerSecond(*rc::gen::inRange(0, 3) * 1e10);
  return machine;
}

Bytes any_size() {
  return Bytes(*rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << *rc::gen::inRange(1, 34)));
}

RC_GTEST_PROP(CollectiveTime, MoreBytesTakeNoLessAndNothingIsFree, ()) {
  const Machine machine = any_machine();
  const Collective collective = any_collective();
  const Bytes size = any_size();
  const Bytes more = size + any_size();
  for (const AlgorithmCost& cost : compare_algorithms(machine, collective, size)) {
    const double time = seconds(machine, collective, cost.algorithm, size);
    RC_ASSERT(time == cost.time.count());
    // With one segment or chunk more, a pipeline fills with less.
    const bool in_pieces = cost.algorithm == Algorithm::kPipelinedChain ||
                           cost.algorithm == Algorithm::kDoubleBinaryTree ||
                           cost.algorithm == Algorithm::kHierarchicalPipelined;
    if (!in_pieces || (pipeline_segments(size) == pipeline_segments(more) &&
                       level_chunks(size) == level_chunks(more))) {
      RC_ASSERT(seconds(machine, collective, cost.algorithm, more) >= time * (1 - 1e-12));
    }
    RC_ASSERT(seconds(machine, collective, cost.algorithm, Bytes(0)) == 0.0);
    RC_ASSERT((time == 0.0) == (machine.ranks() == 1));
  }
}

RC_GTEST_PROP(CollectiveTime, AutoIsTheCheapestOfAllButDirect, ()) {
  const Machine machine = any_machine();
  const Collective collective = any_collective();
  const Bytes size = any_size();
  const auto costs = compare_algorithms(machine, collective, size);
  double least = INFINITY;
  double least_of_all = INFINITY;
  for (const AlgorithmCost& cost : costs) {
    const bool counts = cost.algorithm != Algorithm::kDirect || costs.size() == 1;
    least = counts ? std::min(least, cost.time.count()) : least;
    least_of_all = std::min(least_of_all, cost.time.count());
  }
  RC_ASSERT(costs.front().time.count() == least_of_all);
  RC_ASSERT(seconds(machine, collective, Algorithm::kAuto, size) == least);
}

RC_GTEST_PROP(CollectiveTime, OnOneLevelTheFlatFormulasHold, ()) {
  const int ranks = *rc::gen::inRange(2, 40);
  Machine machine;
  machine.levels = {
      {"link", ranks, Seconds(*rc::gen::inRange(0, 99) * 1e-6), BytesPerSecond(1e9), 0.5}};
  machine.reduction = BytesPerSecond(3e9);
  const LinkCost link{machine.levels[0].latency, 1e-9, 1 / 3e9};
  const Bytes size = any_size();
  const auto same = [&](Collective collective, Algorithm algorithm, Seconds expected) {
    const double found = seconds(machine, collective, algorithm, size);
    RC_LOG() << to_string(collective) << " by " << to_string(algorithm) << ": " << found << " s\n";
    RC_ASSERT(std::abs(found - expected.count()) <= 1e-9 * expected.count());
  };
  using C = Collective;
  using A = Algorithm;
  same(C::kAllReduce, A::kDirect, cost::direct_all_reduce(ranks, link)(size));
  same(C::kAllReduce, A::kRing, cost::ring_all_reduce(ranks, link)(size));
  same(C::kAllReduce, A::kHierarchical, cost::ring_all_reduce(ranks, link)(size));
  same(C::kAllReduce, A::kHierarchicalPipelined, cost::ring_all_reduce(ranks, link)(size));
  same(C::kAllReduce, A::kLeader, cost::ring_all_reduce(ranks, link)(size));
  same(
      C::kAllReduce, A::kRecursiveDoubling, cost::recursive_doubling_all_reduce(ranks, link)(size));
  same(C::kAllReduce, A::kHalvingDoubling, cost::halving_doubling_all_reduce(ranks, link)(size));
  same(C::kAllReduce, A::kBinomialTree, cost::binomial_tree_all_reduce(ranks, link)(size));
  same(C::kAllReduce, A::kPipelinedChain, cost::pipelined_chain_all_reduce(ranks, size, link));
  same(C::kAllReduce, A::kDoubleBinaryTree, cost::double_binary_tree_all_reduce(ranks, size, link));
  same(C::kAllReduce, A::kInSwitch, cost::in_switch_all_reduce(ranks, link, 0.5)(size));
  same(C::kAllReduce, A::kParameterServer, cost::one_parameter_server(ranks - 1, link)(size));
  same(C::kReduceScatter, A::kDirect, cost::direct_reduce_scatter(ranks, link)(size));
  same(C::kReduceScatter, A::kRing, cost::ring_reduce_scatter(ranks, link)(size));
  same(C::kReduceScatter,
       A::kHalvingDoubling,
       cost::recursive_halving_reduce_scatter(ranks, link)(size));
  same(C::kAllGather, A::kDirect, cost::direct_all_gather(ranks, link)(size));
  same(C::kAllGather, A::kRing, cost::ring_all_gather(ranks, link)(size));
  same(C::kAllGather, A::kBruck, cost::bruck_all_gather(ranks, link)(size));
  same(C::kBroadcast, A::kDirect, cost::direct_broadcast(ranks, link)(size));
  same(C::kBroadcast, A::kRing, cost::ring_broadcast(ranks, link)(size));
  same(C::kBroadcast, A::kBinomialTree, cost::binomial_broadcast(ranks, link)(size));
  same(C::kBroadcast, A::kPipelinedChain, cost::pipelined_chain_broadcast(ranks, size, link));
  same(C::kBroadcast, A::kDoubleBinaryTree, cost::double_binary_tree_broadcast(ranks, size, link));
  same(C::kReduce, A::kDirect, cost::direct_reduce(ranks, link)(size));
  same(C::kReduce, A::kRing, cost::ring_reduce(ranks, link)(size));
  same(C::kReduce, A::kBinomialTree, cost::binomial_reduce(ranks, link)(size));
  same(C::kAllToAll, A::kDirect, cost::direct_all_to_all(ranks, link)(size));
  same(C::kAllToAll, A::kPairwise, cost::pairwise_all_to_all(ranks, link)(size));
  same(C::kAllToAll, A::kBruck, cost::bruck_all_to_all(ranks, link)(size));
}

/// The K groups of a level send 2(K-1)n in all, over their links and those of the levels outside:
/// what no end-point algorithm beats (docs/bounds.md).
double least_per_byte(const Machine& machine) {
  double least = 0.0;
  double members = 1.0;
  double capacity = 0.0;
  for (std::size_t l = machine.levels.size(); l-- > 0;) {
    if (machine.levels[l].group_size > 1) {
      members *= machine.levels[l].group_size;
      capacity += members * machine.levels[l].bandwidth.value();
      least = std::max(least, 2 * (members - 1) / capacity);
    }
  }
  return least;
}

RC_GTEST_PROP(CollectiveTime, NoEndPointAllReduceBeatsTheBandwidthBound, ()) {
  const Machine machine = any_machine();
  const Bytes size = any_size();
  const double bound = least_per_byte(machine) * static_cast<double>(size.count());
  for (const AlgorithmCost& cost : compare_algorithms(machine, Collective::kAllReduce, size)) {
    if (cost.algorithm != Algorithm::kInSwitch) {
      RC_ASSERT(cost.time.count() >= bound * (1 - 1e-9));
    }
  }
}

RC_GTEST_PROP(ExchangeTimeOf, AgreesWithCollectiveTime, ()) {
  const Machine machine = any_machine();
  const Collective collective = any_collective();
  const Bytes size = any_size();
  for (const AlgorithmCost& cost : compare_algorithms(machine, collective, size)) {
    const ExchangeTime planned = exchange_time(machine, collective, cost.algorithm, size);
    RC_ASSERT(std::abs(planned(size).count() - cost.time.count()) <=
              1e-9 * (cost.time.count() + 1e-9));
  }
  // Planning leaves out the two that are not affine.
  RC_ASSERT(exchange_time(machine, collective, Algorithm::kAuto, size)(size).count() >=
            seconds(machine, collective, Algorithm::kAuto, size) * (1 - 1e-9));
}

}  // namespace
}  // namespace stretto
