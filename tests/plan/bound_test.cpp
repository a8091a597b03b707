// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/bound.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/data/machine.hpp"

namespace stretto {
namespace {

TEST(LeastExchangeCost, OneLevelIsTheRingsBandwidthTerm) {
  const ExchangeCost cost = least_exchange_cost(machine_from_spec("4@1GB/s,50us"));
  EXPECT_DOUBLE_EQ(cost.latency.count(), 50e-6);
  EXPECT_DOUBLE_EQ(cost.seconds_per_byte, 1.5e-9);
}

TEST(LeastExchangeCost, OneRankPaysNothing) {
  const ExchangeCost cost = least_exchange_cost(machine_from_spec("1x1@1GB/s,50us@1GB/s,1s"));
  EXPECT_EQ(cost.latency.count(), 0.0);
  EXPECT_EQ(cost.seconds_per_byte, 0.0);
}

TEST(LeastExchangeCost, SlowestCutCounts) {
  // 2 nodes of 4: the link between the nodes.
  EXPECT_DOUBLE_EQ(
      least_exchange_cost(machine_from_spec("2x4@100GB/s,1us@1GB/s,50us")).seconds_per_byte, 1e-9);
  EXPECT_DOUBLE_EQ(
      least_exchange_cost(machine_from_spec("2x4@100GB/s,1us@1GB/s,50us")).latency.count(), 50e-6);
  // Slow inside: 8 ranks push 2 * 7 n over 8 links of 1 GB/s and the nodes' 2 of 100 GB/s.
  EXPECT_DOUBLE_EQ(
      least_exchange_cost(machine_from_spec("2x4@1GB/s,1us@100GB/s,50us")).seconds_per_byte,
      14.0 / 208e9);
  // A level of one changes nothing.
  EXPECT_DOUBLE_EQ(
      least_exchange_cost(machine_from_spec("1x4@1GB/s,1us@9GB/s,1s")).seconds_per_byte, 1.5e-9);
}

/// What any schedule can do, tried out: gradients in any order, in any buckets, one channel.
Seconds simulate(const std::vector<ReadyBytes>& gradients,
                 const std::vector<std::size_t>& order,
                 const std::vector<bool>& bucket_ends_after,
                 Seconds compute_end,
                 const ExchangeCost& cost) {
  Seconds channel_free{};
  Seconds ready{};
  Bytes bytes;
  for (std::size_t i = 0; i < order.size(); ++i) {
    ready = std::max(ready, gradients[order[i]].ready);
    bytes += gradients[order[i]].bytes;
    if (bucket_ends_after[i] || i + 1 == order.size()) {
      channel_free = std::max(channel_free, ready) + cost.latency +
                     Seconds(cost.seconds_per_byte * static_cast<double>(bytes.count()));
      ready = Seconds{};
      bytes = Bytes{};
    }
  }
  return std::max(channel_free, compute_end);
}

struct Case {
  std::vector<ReadyBytes> gradients;
  Seconds compute_end{};
  ExchangeCost cost;
};

Case any_case() {
  Case c;
  const std::size_t count = *rc::gen::inRange<std::size_t>(1, 6);
  for (std::size_t i = 0; i < count; ++i) {
    c.gradients.push_back({Seconds(*rc::gen::inRange(0, 100)), Bytes(*rc::gen::inRange(1, 50))});
    c.compute_end = std::max(c.compute_end, c.gradients.back().ready);
  }
  c.compute_end += Seconds(*rc::gen::inRange(0, 20));
  c.cost = {Seconds(*rc::gen::inRange(0, 30)), *rc::gen::inRange(0, 5) * 0.5};
  return c;
}

RC_GTEST_PROP(InIterationBound, NoScheduleIsQuicker, ()) {
  const Case c = any_case();
  const Seconds bound = in_iteration_bound(c.gradients, c.compute_end, c.cost);
  const std::size_t count = c.gradients.size();
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) {
    order[i] = i;
  }
  do {
    for (std::uint32_t cuts = 0; cuts < (1U << (count - 1)); ++cuts) {
      std::vector<bool> ends(count);
      for (std::size_t i = 0; i < count; ++i) {
        ends[i] = ((cuts >> i) & 1U) != 0;
      }
      RC_ASSERT(simulate(c.gradients, order, ends, c.compute_end, c.cost) >= bound - Seconds(1e-9));
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

RC_GTEST_PROP(InIterationBound, FirstReadyFirstServedReachesItWithoutLatency, ()) {
  Case c = any_case();
  c.cost.latency = Seconds(0);
  std::sort(c.gradients.begin(), c.gradients.end(), [](const ReadyBytes& a, const ReadyBytes& b) {
    return a.ready < b.ready;
  });
  std::vector<std::size_t> order(c.gradients.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  const std::vector<bool> each_alone(order.size(), true);
  const Seconds step = simulate(c.gradients, order, each_alone, c.compute_end, c.cost);
  RC_ASSERT(std::abs((step - in_iteration_bound(c.gradients, c.compute_end, c.cost)).count()) <
            1e-9);
}

TEST(LeastExchangeCost, SwitchesThatAddHalveIt) {
  Machine machine = machine_from_spec("8@1GB/s,1us");
  EXPECT_DOUBLE_EQ(least_exchange_cost(machine).seconds_per_byte, 1.75e-9);
  machine.levels[0].in_switch_efficiency = 0.85;  // a bound does not count on the loss
  EXPECT_DOUBLE_EQ(least_exchange_cost(machine).seconds_per_byte, 1e-9);
  machine.levels[0].group_size = 2;  // nothing to gain for two
  EXPECT_DOUBLE_EQ(least_exchange_cost(machine).seconds_per_byte, 1e-9);
}

TEST(InIterationBound, NothingToExchangeLeavesCompute) {
  EXPECT_EQ(in_iteration_bound({}, Seconds(3), {Seconds(1), 1.0}), Seconds(3));
  const std::vector<ReadyBytes> empty = {{Seconds(3), Bytes(0)}};
  EXPECT_EQ(in_iteration_bound(empty, Seconds(3), {Seconds(1), 1.0}), Seconds(3));
}

}  // namespace
}  // namespace stretto
