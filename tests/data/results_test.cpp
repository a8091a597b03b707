// SPDX-License-Identifier: Apache-2.0
// Timeline and Summary.
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/summary.hpp"
#include "stretto/data/timeline.hpp"

namespace stretto {
namespace {

std::string where_it_fails(const std::string& text) {
  try {
    (void)timeline_from_json(text, "t");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kParse);
    return error.detail().where;
  }
  return "accepted";
}

Timeline two_records() {
  Timeline timeline;
  Record record;
  record.name = timeline.name_id("fc1");
  record.begin_ns = 5;
  record.end_ns = 9;
  timeline.records = {record, record};
  return timeline;
}

std::string replaced(std::string text, std::string_view part, std::string_view by) {
  const std::size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return at == std::string::npos ? text : text.replace(at, part.size(), by);
}

TEST(Timeline, NamesAreKeptOnce) {
  Timeline timeline;
  EXPECT_EQ(timeline.name_id("a"), 0U);
  EXPECT_EQ(timeline.name_id("b"), 1U);
  EXPECT_EQ(timeline.name_id("a"), 0U);
}

TEST(Timeline, ColumnsAreChecked) {
  const std::string text = to_json(two_records());
  EXPECT_EQ(where_it_fails(text), "accepted");
  EXPECT_EQ(where_it_fails(replaced(text, "\"end_ns\": [9,9]", "\"end_ns\": [9]")),
            "t at /records/end_ns");
  EXPECT_EQ(where_it_fails(replaced(text, "\"end_ns\": [9,9]", "\"end_ns\": [9,4]")),
            "t at /records/end_ns/1");
  EXPECT_EQ(where_it_fails(replaced(text, "\"name\": [0,0]", "\"name\": [0,1]")),
            "t at /records/name/1");
  EXPECT_EQ(where_it_fails(replaced(text, "\"link\": [-1,-1]", "\"link\": [-1,-2]")),
            "t at /records/link/1");
  EXPECT_EQ(where_it_fails(replaced(text, "\"kind\": [0,0]", "\"kind\": [0,1]")),
            "t at /records/kind/1");
  EXPECT_EQ(where_it_fails(replaced(text, "[\"compute\"]", "[\"dreaming\"]")),
            "t at /records/kind_names/0");
  EXPECT_EQ(where_it_fails(replaced(text, "[5,5]", "[5,-9223372036854775808]")),
            "t at /records/begin_ns/1");
}

TEST(Enumerations, NamesRoundTripAndErrorsListThem) {
  for (int a = 0; a <= static_cast<int>(kLastAlgorithm); ++a) {
    const auto algorithm = static_cast<Algorithm>(a);
    EXPECT_EQ(algorithm_from_string(to_string(algorithm)), algorithm);
  }
  for (const Schedule schedule : {Schedule::kSerial, Schedule::kOverlap, Schedule::kPriority}) {
    EXPECT_EQ(schedule_from_string(to_string(schedule)), schedule);
  }
  try {
    (void)schedule_from_string("overlapped");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.detail().expected, "one of serial, overlap, priority");
  }
  EXPECT_EQ(to_string(Collective::kReduceScatter), "reduce_scatter");
  EXPECT_EQ(to_string(ReduceOp::kMean), "mean");
  EXPECT_EQ(to_string(RecordKind::kWait), "wait");
  EXPECT_EQ(to_string(Lane::kCommunication), "communication");
}

TEST(Summary, RatiosWithoutMeaningAreAbsent) {
  Summary summary;
  summary.step = Seconds(2);
  summary.compute = Seconds(2);
  EXPECT_FALSE(summary.hidden_ratio());
  EXPECT_FALSE(summary.overlap_degree());
  EXPECT_FALSE(summary.communication_ratio());
  EXPECT_FALSE(summary.bound_gap_ratio());
  const std::string text = to_json(summary);
  for (const std::string_view key : {"first_launch_s",
                                     "communication_end_s",
                                     "hidden_ratio",
                                     "overlap_degree",
                                     "communication_ratio",
                                     "bound_s",
                                     "bound_gap_ratio",
                                     "samples_per_s",
                                     "scaling_efficiency"}) {
    EXPECT_NE(text.find("\"" + std::string(key) + "\": null"), std::string::npos) << key;
  }
}

TEST(Summary, RatiosFollowTheirFormulas) {
  Summary summary;
  summary.step = Seconds(5);
  summary.compute = Seconds(4);
  summary.communication = Seconds(2);
  summary.exposed = Seconds(0.5);
  summary.bound = Seconds(4);
  EXPECT_DOUBLE_EQ(*summary.hidden_ratio(), 0.75);
  EXPECT_DOUBLE_EQ(*summary.overlap_degree(), 0.9);
  EXPECT_DOUBLE_EQ(*summary.communication_ratio(), 2.0 / 6.0);
  EXPECT_DOUBLE_EQ(*summary.bound_gap_ratio(), 0.25);
}

TEST(Summary, SharesOfTheExposedTimeNeverExceedIt) {
  Summary summary;
  summary.exposed = Seconds(1);
  summary.buckets.resize(2);
  EXPECT_DOUBLE_EQ(*summary.exposed_ratio(summary.buckets[0]), 0.0);
  summary.buckets[0].exposed_share = Seconds(0.5);
  EXPECT_DOUBLE_EQ(*summary.exposed_ratio(summary.buckets[0]), 0.5);
  summary.buckets[1].exposed_share = Seconds(1.5);  // medians need not sum to the median
  EXPECT_DOUBLE_EQ(*summary.exposed_ratio(summary.buckets[0]), 0.25);
  EXPECT_DOUBLE_EQ(*summary.exposed_ratio(summary.buckets[1]), 0.75);
  EXPECT_FALSE(Summary{}.exposed_ratio(BucketSummary{}));
}

TEST(Summary, JsonHasTheKeysOfTheContract) {
  const std::string text = to_json(Summary{});
  for (const std::string_view key : {"step_s",
                                     "step_p10_s",
                                     "step_p90_s",
                                     "compute_s",
                                     "communication_s",
                                     "exposed_s",
                                     "launches"}) {
    EXPECT_NE(text.find("\"" + std::string(key) + "\": 0.0"), std::string::npos) << key;
  }
}

}  // namespace
}  // namespace stretto
