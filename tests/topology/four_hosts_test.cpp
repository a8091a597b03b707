// SPDX-License-Identifier: Apache-2.0
// The example that explains rank orders: 4 hosts of 8 devices, 32 ranks. With ranks 0-7 on the
// first host and so on, a ring leaves each host once; dealt like cards, with every edge.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "comm/world.hpp"
#include "stretto/plan/rank_order.hpp"
#include "stretto/simulate/collective_cost.hpp"
#include "stretto/topology/toml.hpp"
#include "topology/files.hpp"

namespace stretto {
namespace {

constexpr int kRanks = 32;

std::vector<int> ordered() {
  std::vector<int> places(kRanks);
  std::iota(places.begin(), places.end(), 0);
  return places;
}

std::vector<int> shuffled() {
  return topology_from_toml(corpus_file("topology_toml/cluster.txt"), "cluster.toml")
      .place_of_rank();
}

TEST(FourHostsOfEight, RanksInOrderCostWhatTheRingCosts) {
  for (const char* spec : {"4x8@a=240GB/s,3us@b=25GB/s,10us",
                           "4x2x4@a=240GB/s,3us@s=40GB/s,1us@b=25GB/s,10us",
                           "32@1Gbit/s,50us"}) {
    Machine machine = machine_from_spec(spec);
    for (const double reduction : {0.0, 1e10}) {
      machine.reduction = BytesPerSecond(reduction);
      const Bytes size(25 << 20);
      const RingOrder order = best_ring_order(machine, size);
      EXPECT_NEAR(order.all_reduce.count(),
                  collective_time(machine, Collective::kAllReduce, Algorithm::kRing, size).count(),
                  1e-12)
          << spec;
    }
  }
}

TEST(FourHostsOfEight, ShuffledRanksLeaveTheirHostsEightTimesAsOften) {
  const Machine machine = machine_from_spec("4x8@inside=240GB/s,3us@network=25GB/s,10us");
  const Bytes size(25 << 20);
  const RingOrder good = ring_order(machine, ordered(), size);
  const RingOrder bad = ring_order(machine, shuffled(), size);
  EXPECT_EQ(good.crossings, (std::vector<int>{28, 4}));
  EXPECT_EQ(good.most_on_a_link, 1);
  EXPECT_EQ(bad.crossings, (std::vector<int>{0, 32}));
  EXPECT_EQ(bad.most_on_a_link, 8);
  EXPECT_EQ(bad.pace_level, 1);
  EXPECT_GT(bad.all_reduce, good.all_reduce * 7);
  EXPECT_EQ(best_ring_order(machine, size).all_reduce, good.all_reduce);
}

RC_GTEST_PROP(FourHostsOfEight, NoOrderIsBetterThanThatOfPlaces, ()) {
  const Machine machine = machine_from_spec("2x2x4@a=50GB/s,2us@s=20GB/s,3us@b=5GB/s,10us");
  std::vector<int> places(16);
  std::iota(places.begin(), places.end(), 0);
  for (std::size_t i = places.size(); i > 1; --i) {
    std::swap(places[i - 1],
              places[static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(i)))]);
  }
  const Bytes size(1 << 20);
  RC_ASSERT(ring_order(machine, places, size).all_reduce.count() >=
            best_ring_order(machine, size).all_reduce.count() * (1 - 1e-12));
}

TEST(FourHostsOfEight, WhatIsNoOrderIsRefused) {
  const Machine machine = machine_from_spec("4@1GB/s,1us");
  EXPECT_THROW((void)ring_order(machine, std::vector<int>{0, 1, 2}, Bytes(1)), Error);
  EXPECT_THROW((void)ring_order(machine, std::vector<int>{0, 1, 2, 2}, Bytes(1)), Error);
}

// One step of the ring, for real: 32 ranks send 100 kB each to the next, over emulated links.
class EmulatedStep {
 public:
  EmulatedStep() {
    ShmOptions options = testing::test_options();
    options.arena_capacity = Bytes(4 << 20);
    options.emulate = machine_from_spec("4x8@inside=10GB/s,10us@network=100MB/s,1ms");
    world_ = local_shm_world(kRanks, options);
  }

  /// To the last rank's end on the machine, which a busy host does not make later.
  struct Times {
    Seconds from_first{};  ///< From the first rank's start, which is the host's,
    Seconds from_last{};   ///< and from the last one's.
  };
  Times time(const std::vector<int>& place_of_rank) {
    std::vector<WorkTimes> sent(kRanks);
    std::vector<WorkTimes> received(kRanks);
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
          const auto at = [&](int r) {
            return place_of_rank[static_cast<std::size_t>((r + kRanks) % kRanks)];
          };
          Communicator& mine = *world_[static_cast<std::size_t>(at(rank))];
          std::vector<float> out(kFloats, 1.0F);
          std::vector<float> in(kFloats);
          mine.barrier().wait();
          const Work receive = mine.recv(view(std::span(in)), at(rank - 1));
          const Work send = mine.send(view(std::span(out)), at(rank + 1));
          receive.wait();
          send.wait();
          sent[static_cast<std::size_t>(rank)] = send.times();
          received[static_cast<std::size_t>(rank)] = receive.times();
        });
      }
    }
    Nanoseconds first = sent[0].launched;
    Nanoseconds last = first;
    Nanoseconds end{};
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      first = std::min(first, sent[rank].launched);
      last = std::max(last, sent[rank].launched);
      end = std::max(end, received[rank].emulated_end);
    }
    return {end - first, end - last};
  }

 private:
  static constexpr std::size_t kFloats = 25'000;
  std::vector<std::unique_ptr<Communicator>> world_;
};

TEST(FourHostsOfEight, OnAnEmulatedMachineTheShuffledStepWaitsForTheHostsLinks) {
  EmulatedStep step;
  const EmulatedStep::Times good = step.time(ordered());
  const EmulatedStep::Times bad = step.time(shuffled());
  EXPECT_GE(good.from_first.count(), 0.97 * (1e-3 + 1 * 100e3 / 100e6));
  EXPECT_GE(bad.from_first.count(), 0.97 * (1e-3 + 8 * 100e3 / 100e6));
  // Once the last rank has started, nobody waits for a host's link.
  EXPECT_LT(good.from_last.count() * 2, bad.from_first.count());
}

}  // namespace
}  // namespace stretto
