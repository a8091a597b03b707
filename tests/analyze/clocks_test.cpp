// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/clocks.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/analyze/collectives.hpp"

namespace stretto {
namespace {

/// Collectives of 100 us on each rank, that end that much later by its clock.
Timeline ranks_of(const std::vector<std::vector<std::int64_t>>& later_us) {
  Timeline timeline;
  timeline.names = {"nccl"};
  for (std::uint32_t rank = 0; rank < later_us.size(); ++rank) {
    std::int64_t at_us = 1000;
    for (const std::int64_t later : later_us[rank]) {
      Record record;
      record.kind = RecordKind::kCommunication;
      record.lane = Lane::kCommunication;
      record.collective = Collective::kAllReduce;
      record.rank = rank;
      record.device = rank;
      record.begin_ns = 1000 * (at_us + later);
      record.end_ns = record.begin_ns + 100'000;
      timeline.records.push_back(record);
      at_us += 1000;
    }
  }
  timeline.world_size = static_cast<std::uint32_t>(later_us.size());
  return timeline;
}

TEST(Clocks, ThatAreNotMovedAreCompared) {
  Timeline timeline = ranks_of({{0, 0, 0}, {38, 40, 45}});
  EXPECT_TRUE(align_clocks(timeline).empty()) << "40 us are too little to be moved";
  const std::vector<ClockDifference> clocks = compare_clocks(timeline);
  ASSERT_EQ(clocks.size(), 1U);
  EXPECT_EQ(clocks[0].rank, 1U);
  EXPECT_EQ(clocks[0].against, 0U);
  EXPECT_NEAR(clocks[0].later.count(), 40e-6, 1e-12);
  EXPECT_NEAR(clocks[0].residual.count(), 2e-6, 1e-12);
  EXPECT_EQ(clocks[0].collectives, 3);
}

TEST(Clocks, OfThoseThatAreMovedTheResidualIsLeft) {
  Timeline timeline = ranks_of({{0, 0, 0}, {-5002, -5000, -4990}});
  EXPECT_EQ(align_clocks(timeline).size(), 1U);
  const std::vector<ClockDifference> clocks = compare_clocks(timeline);
  ASSERT_EQ(clocks.size(), 1U);
  EXPECT_NEAR(clocks[0].later.count(), 0.0, 1e-12);
  EXPECT_NEAR(clocks[0].residual.count(), 2e-6, 1e-12);
}

TEST(Clocks, OfOneRankThereAreNone) {
  EXPECT_TRUE(compare_clocks(ranks_of({{0, 0}})).empty());
}

}  // namespace
}  // namespace stretto
