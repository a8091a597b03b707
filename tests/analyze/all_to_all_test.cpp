// SPDX-License-Identifier: Apache-2.0
// How evenly all_to_alls load the ranks.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "analyze/trace_files.hpp"
#include "stretto/analyze/explain.hpp"
#include "stretto/report/explanation.hpp"

namespace stretto {
namespace {

using testing::KinetoText;

struct Counts {
  std::int64_t in;
  std::int64_t out;
};

/// Calls of 100 us one after the other, on NCCL's kernel for sends and receives.
KinetoText rank_of(int rank, const std::vector<Counts>& calls) {
  KinetoText trace;
  trace.member(R"("distributedInfo": {"backend": "nccl", "rank": )" + std::to_string(rank) +
               R"(, "world_size": 2})");
  trace.kernel("gemm", 0, 50, 7, 1000);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    trace.kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
                 100 + 200 * static_cast<std::int64_t>(i),
                 100,
                 20,
                 static_cast<int>(i) + 1,
                 R"(, "Collective name": "all_to_allv", "In msg nelems": )" +
                     std::to_string(calls[i].in) + R"(, "Out msg nelems": )" +
                     std::to_string(calls[i].out) +
                     R"(, "dtype": "BFloat16", "Group size": 2, "Process Group Name": "3")");
  }
  return trace;
}

Explanation explain_ranks(const std::vector<KinetoText>& ranks) {
  return explain(testing::read_ranks(ranks).timeline);
}

const Diagnosis* uneven(const Explanation& explanation) {
  for (const Diagnosis& diagnosis : explanation.diagnoses) {
    if (diagnosis.id == "uneven_all_to_all") {
      return &diagnosis;
    }
  }
  return nullptr;
}

TEST(AllToAll, TheBusiestAndTheIdlestRank) {
  const Explanation explanation =
      explain_ranks({rank_of(0, {{1000, 0}, {1000, 100}}), rank_of(1, {{0, 1000}, {500, 9900}})});
  ASSERT_TRUE(explanation.collectives.all_to_all);
  const AllToAllBalance& balance = *explanation.collectives.all_to_all;
  ASSERT_EQ(balance.ranks.size(), 2U);
  EXPECT_EQ(balance.ranks[0].rank, 1U);
  EXPECT_EQ(balance.ranks[0].calls, 2);
  EXPECT_EQ(balance.ranks[0].sent, Bytes(2 * 500));
  EXPECT_EQ(balance.ranks[0].received, Bytes(2 * 10900));
  EXPECT_EQ(balance.ranks[0].bytes, Bytes(2 * 10900));
  EXPECT_EQ(balance.ranks[1].bytes, Bytes(2 * 2000));
  EXPECT_NEAR(balance.ranks[1].total.count(), 200e-6, 1e-12);
  EXPECT_NEAR(balance.max_over_mean, 10900.0 / 6450.0, 1e-12);
  EXPECT_NEAR(balance.max_over_mean_per_call.value(), (1000.0 + 9900.0) / (1000.0 + 5450.0), 1e-12);
  const Diagnosis* diagnosis = uneven(explanation);
  ASSERT_NE(diagnosis, nullptr);
  EXPECT_NE(diagnosis->finding.find("rank 1 carries most, rank 0 least"), std::string::npos);
  EXPECT_NE(diagnosis->evidence.find("most over mean 1.69"), std::string::npos)
      << diagnosis->evidence;
  EXPECT_NE(to_json(explanation).find(R"("received_bytes":21800)"), std::string::npos);
  EXPECT_NE(text_table(explanation, {}, Per::kCollective).find("1.69"), std::string::npos);
}

TEST(AllToAll, WhatComesOutIsUnknownWhereTheTraceHasOnlyWhatGoesIn) {
  Timeline timeline =
      testing::read_ranks({rank_of(0, {{1000, 7}, {1000, 7}}), rank_of(1, {{500, 9}, {500, 9}})})
          .timeline;
  ASSERT_EQ(timeline.calls.size(), 4U);
  for (const Record& record : timeline.records) {
    if (record.rank == 0 && record.call != kNoId) {
      timeline.calls[record.call].out_elements = -1;
      break;  // of one of its calls is enough
    }
  }
  const Explanation explanation = explain(timeline);
  ASSERT_TRUE(explanation.collectives.all_to_all);
  const AllToAllBalance& balance = *explanation.collectives.all_to_all;
  EXPECT_EQ(balance.ranks[0].rank, 0U);
  EXPECT_FALSE(balance.ranks[0].received);
  EXPECT_EQ(balance.ranks[0].sent, Bytes(2 * 2000));
  EXPECT_EQ(balance.ranks[1].received, Bytes(2 * 18));
  EXPECT_NE(to_json(explanation).find(R"("received_bytes":null)"), std::string::npos);
  EXPECT_NE(text_table(explanation, {}, Per::kCollective).find("  ?"), std::string::npos);
}

TEST(AllToAll, EvenOnesAreNoCause) {
  const Explanation explanation =
      explain_ranks({rank_of(0, {{1000, 1000}}), rank_of(1, {{1000, 1000}})});
  ASSERT_TRUE(explanation.collectives.all_to_all);
  EXPECT_EQ(explanation.collectives.all_to_all->max_over_mean, 1.0);
  EXPECT_EQ(explanation.collectives.all_to_all->max_over_mean_per_call, 1.0);
  EXPECT_EQ(uneven(explanation), nullptr);
}

TEST(AllToAll, ThatAreEvenOnlyInTheSumAreUneven) {
  const Explanation explanation =
      explain_ranks({rank_of(0, {{1000, 0}, {0, 0}}), rank_of(1, {{0, 0}, {1000, 0}})});
  ASSERT_TRUE(explanation.collectives.all_to_all);
  EXPECT_EQ(explanation.collectives.all_to_all->max_over_mean, 1.0);
  EXPECT_EQ(explanation.collectives.all_to_all->max_over_mean_per_call, 2.0);
  ASSERT_NE(uneven(explanation), nullptr);
  EXPECT_NE(uneven(explanation)->finding.find("other ranks in each"), std::string::npos);
}

TEST(AllToAll, OneRankOrNoSizesSayNothing) {
  EXPECT_FALSE(explain_ranks({rank_of(0, {{1000, 0}})}).collectives.all_to_all);
  EXPECT_FALSE(explain_ranks({rank_of(0, {}), rank_of(1, {})}).collectives.all_to_all);
}

}  // namespace
}  // namespace stretto
