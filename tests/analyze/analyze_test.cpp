// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/analyze.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "analyze/timeline_builder.hpp"
#include "stretto/base/error.hpp"

namespace stretto {
namespace {

using testing::TimelineBuilder;

constexpr double kMs = 1e-3;

/// Two ranks; rank 1 starts later on the clock and is slower by `late` ms in backward.
void add_step(TimelineBuilder& builder, std::uint32_t step, double late) {
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const double slow = rank == 1 ? late : 0.0;
    builder.step(step, rank, step * 100.0 + rank * 7.0, 60 + late)
        .compute(RecordKind::kForward, "fc1", 0, 10)
        .compute(RecordKind::kBackward, "fc2", 10, 20)
        .ready("fc2.w", 4000, 0, 20)
        .compute(RecordKind::kBackward, "fc1", 20, 40 + slow)
        .ready("fc1.w", 1000, 1, 40 + slow)
        .bucket(0, 4000, 20.5, 21, 35)
        .bucket(1, 1000, 41 + slow, 41 + slow, 51 + late)
        .compute(RecordKind::kWait, "wait", 40 + slow, 51 + late)
        .compute(RecordKind::kOptimizer, "sgd", 51 + late, 58 + late);
  }
}

Timeline three_steps() {
  TimelineBuilder builder(2);
  for (std::uint32_t step = 0; step < 3; ++step) {
    add_step(builder, step, step);
  }
  return builder.timeline();
}

TEST(Analyze, WhatACodecDidIsPartOfItsExchangesAndOfNothingElse) {
  TimelineBuilder with(2);
  TimelineBuilder without(2);
  for (std::uint32_t step = 0; step < 3; ++step) {
    add_step(with, step, 0);
    add_step(without, step, 0);
    if (step == 0) {
      continue;  // travelled as it was
    }
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const double late = rank * 2.0;
      with.step(step, rank, step * 100.0 + rank * 7.0, 60)
          .codec(0, "encode int8", 20, 23)  // from 21 on, where the exchange begins
          .codec(0, "encode int8", 24, 25)
          .codec(0, "decode int8", 24.5, 28 + late)
          .codec(1, "encode topk:0.01", 41, 44)
          .codec(1, "decode topk:0.01", 50, 51);
    }
  }
  const Summary summary = analyze(with.timeline());
  ASSERT_EQ(summary.codecs.size(), 2U);
  const CodecSummary& int8 = summary.codecs[0];
  EXPECT_EQ(int8.codec, "int8");
  EXPECT_EQ(int8.exchanges, 1.0);
  EXPECT_EQ(int8.bytes, Bytes(4000));
  EXPECT_NEAR(int8.exchange.count(), 14 * kMs, 1e-9);
  EXPECT_NEAR(int8.encode.count(), 3 * kMs, 1e-9);
  EXPECT_NEAR(int8.decode.count(), 4.5 * kMs, 1e-9);  // 3.5 and 5.5
  EXPECT_NEAR(int8.wire.count(), 7 * kMs, 1e-9);      // 14 - 2 - 4 and 14 - 2 - 6
  EXPECT_EQ(summary.codecs[1].codec, "topk:0.01");
  EXPECT_NEAR(summary.codecs[1].wire.count(), 6 * kMs, 1e-9);
  Summary rest = summary;
  rest.codecs.clear();
  EXPECT_EQ(to_json(rest), to_json(analyze(without.timeline())));
}

TEST(Analyze, NumbersOfAKnownRun) {
  const Summary summary = analyze(three_steps(), {.samples_per_step = 610});
  // The median step is step 1: late by 1 ms.
  EXPECT_EQ(summary.steps, 3U);
  EXPECT_EQ(summary.ranks, 2U);
  EXPECT_NEAR(summary.step.count(), 61 * kMs, 1e-9);
  EXPECT_NEAR(summary.step_p10.count(), 60.2 * kMs, 1e-9);
  EXPECT_NEAR(summary.step_p90.count(), 61.8 * kMs, 1e-9);
  EXPECT_NEAR(summary.compute.count(), 47.5 * kMs, 1e-9);        // 47 and 48
  EXPECT_NEAR(summary.communication.count(), 24.5 * kMs, 1e-9);  // 14 + 11 and 14 + 10
  EXPECT_NEAR(summary.exposed.count(), 10.5 * kMs, 1e-9);        // 41..52 and 42..52
  EXPECT_NEAR(summary.first_launch->count(), 20.5 * kMs, 1e-9);
  EXPECT_NEAR(summary.communication_end->count(), 52 * kMs, 1e-9);
  EXPECT_DOUBLE_EQ(summary.launches, 2.0);
  EXPECT_NEAR(*summary.samples_per_s, 10'000, 1e-3);
  EXPECT_NEAR(*summary.scaling_efficiency, 47.5 / 61, 1e-9);
  EXPECT_FALSE(summary.bound);
}

TEST(Analyze, BucketsTakeTheLatestRank) {
  const Summary summary = analyze(three_steps());
  ASSERT_EQ(summary.buckets.size(), 2U);
  EXPECT_EQ(summary.buckets[1].bucket, 1U);
  EXPECT_EQ(summary.buckets[1].bytes, Bytes(1000));
  EXPECT_NEAR(summary.buckets[1].ready.value().count(), 41 * kMs, 1e-9);  // rank 1
  EXPECT_NEAR(summary.buckets[1].launched.count(), 42 * kMs, 1e-9);       // rank 1
  EXPECT_NEAR(summary.buckets[1].ended.count(), 52 * kMs, 1e-9);
  EXPECT_NEAR(summary.buckets[1].exposed.count(), 10.5 * kMs, 1e-9);
  EXPECT_NEAR(summary.buckets[0].exposed.count(), 0.0, 1e-12);
}

TEST(Analyze, RanksStandForThemselves) {
  const Summary summary = analyze(three_steps());
  ASSERT_EQ(summary.per_rank.size(), 2U);
  EXPECT_EQ(summary.per_rank[1].rank, 1U);
  EXPECT_NEAR(summary.per_rank[0].compute.count(), 47 * kMs, 1e-9);
  EXPECT_NEAR(summary.per_rank[1].compute.count(), 48 * kMs, 1e-9);
  EXPECT_NEAR(summary.per_rank[0].exposed.count(), 11 * kMs, 1e-9);
  EXPECT_NEAR(summary.per_rank[1].exposed.count(), 10 * kMs, 1e-9);
}

TEST(Analyze, BoundComesFromReadyTensors) {
  // 2 ranks: beta = 1/B. 5000 bytes after 20 ms at 0.2 MB/s take 25 ms, 1000 after 41 ms 5 ms.
  const Summary summary = analyze(three_steps(), {.machine = machine_from_spec("2@200kB/s,1ms")});
  EXPECT_NEAR(summary.bound->count(), std::max({47.5, 20 + 1 + 25.0, 41 + 1 + 5.0}) * kMs, 1e-9);
  // Half the bandwidth: the release of the first tensor decides.
  const Summary slow = analyze(three_steps(), {.machine = machine_from_spec("2@140kB/s,1ms")});
  EXPECT_NEAR(slow.bound->count(), (20 + 1 + 5000 / 140.0) * kMs, 1e-9);
}

TEST(Analyze, BoundIsNeverAboveTheStep) {
  const Summary summary = analyze(three_steps(), {.machine = machine_from_spec("2@1kB/s,1s")});
  EXPECT_EQ(*summary.bound, summary.step);
  EXPECT_DOUBLE_EQ(*summary.bound_gap_ratio(), 0.0);
}

// Two steps of 130 ms on one of two ranks whose forward pass waits for what the one before left.
Timeline across_steps() {
  TimelineBuilder builder(2);
  for (std::uint32_t step = 0; step < 2; ++step) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      builder.step(step, rank, step * 130.0, 130)
          .compute(RecordKind::kForward, "fc1", 40, 45)
          .compute(RecordKind::kForward, "fc2", 75, 80)
          .compute(RecordKind::kBackward, "fc2", 80, 90)
          .ready("fc2.w", 4000, 0, 90)
          .compute(RecordKind::kBackward, "fc1", 90, 110)
          .ready("fc1.w", 1000, 1, 110)
          .bucket(0, 4000, 90, 90, 190)
          .bucket(1, 1000, 110, 110, 150);
    }
  }
  return builder.timeline();
}

TEST(Analyze, AcrossIterationsTheBoundIsThatOfTheCycle) {
  AnalyzeOptions options{.machine = machine_from_spec("2@50kB/s,1ms")};
  // From the end of the forward pass: fc2.w is ready after 10 ms and takes 80, fc1.w after 30 and
  // takes 20, first, since it is read first; then come 1 ms of latency and the layer fc2.
  const Summary summary = analyze(across_steps(), options);
  EXPECT_NEAR(summary.bound->count(), (10 + 20 + 20 + 60 + 1 + 5) * kMs, 1e-9);
  // Fast: compute is left, and one message of fc1.w, which is ready last and read first.
  options.machine = machine_from_spec("2@1GB/s,1us");
  EXPECT_NEAR(analyze(across_steps(), options).bound->count(), 40.002 * kMs, 1e-9);
}

TEST(Analyze, WhatReachesIntoTheNextStepBelongsToItsBucket) {
  const Summary summary = analyze(across_steps());
  ASSERT_EQ(summary.buckets.size(), 2U);
  EXPECT_NEAR(summary.buckets[0].ended.count(), 190 * kMs, 1e-9);
  EXPECT_NEAR(summary.communication_end->count(), 190 * kMs, 1e-9);
  // Of 90..190: under backward to 110, alone to 130; in the next step alone but for 170..175, of
  // which the last step knows nothing.
  EXPECT_NEAR(summary.buckets[0].exposed.count(), (20 + (55 + 60) / 2.0) * kMs, 1e-9);
}

TEST(Analyze, BoundComesFromBucketsIfTensorsHaveNoSize) {
  Timeline timeline = three_steps();
  for (Record& record : timeline.records) {
    if (record.kind == RecordKind::kReady) {
      record.bytes = 0;
    }
  }
  const AnalyzeOptions options{.machine = machine_from_spec("2@140kB/s,1ms")};
  EXPECT_EQ(*analyze(timeline, options).bound, *analyze(three_steps(), options).bound);
  // Nor do they have ready records: launched times stand in.
  std::erase_if(timeline.records, [](const Record& r) { return r.kind == RecordKind::kReady; });
  EXPECT_NEAR(analyze(timeline, options).bound->count(), (20.5 + 1 + 5000 / 140.0) * kMs, 1e-9);
}

TEST(Analyze, AnotherMachineIsAnError) {
  EXPECT_THROW((void)analyze(three_steps(), {.machine = machine_from_spec("4@1GB/s,0")}), Error);
}

TEST(Analyze, OneRankRunGivesTheEfficiency) {
  const Summary summary = analyze(three_steps(), {.one_rank_step = Seconds(0.0305)});
  EXPECT_NEAR(*summary.scaling_efficiency, 0.5, 1e-9);
}

TEST(Analyze, WithoutCommunicationThereIsNothingToHide) {
  TimelineBuilder builder(1);
  builder.step(0, 0, 0, 10).compute(RecordKind::kForward, "f", 1, 9);
  const Summary summary = analyze(builder.timeline());
  EXPECT_NEAR(summary.step.count(), 10 * kMs, 1e-9);
  EXPECT_EQ(summary.communication, Seconds(0));
  EXPECT_FALSE(summary.first_launch);
  EXPECT_FALSE(summary.communication_end);
  EXPECT_FALSE(summary.hidden_ratio());
  EXPECT_TRUE(summary.buckets.empty());
}

TEST(Analyze, StepsThatARankLacksAreLeftOut) {
  Timeline timeline = three_steps();
  std::erase_if(timeline.records, [](const Record& r) {
    return r.kind == RecordKind::kStep && r.rank == 1 && r.step == 2;
  });
  const Summary summary = analyze(timeline);
  EXPECT_EQ(summary.steps, 2U);
  EXPECT_NEAR(summary.step.count(), 60.5 * kMs, 1e-9);
}

TEST(Analyze, NoWholeStepIsAnError) {
  Timeline timeline = three_steps();
  std::erase_if(timeline.records, [](const Record& r) { return r.kind == RecordKind::kStep; });
  try {
    (void)analyze(timeline);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_THROW((void)analyze(Timeline{}), Error);
}

TEST(Analyze, OrderOfRecordsDoesNotMatter) {
  Timeline timeline = three_steps();
  std::reverse(timeline.records.begin(), timeline.records.end());
  EXPECT_EQ(to_json(analyze(timeline)), to_json(analyze(three_steps())));
}

RC_GTEST_PROP(Analyze, ExposedIsCommunicationThatComputeDoesNotCover, ()) {
  // Against counting milliseconds one by one.
  constexpr int kLength = 40;
  TimelineBuilder builder(1);
  builder.step(0, 0, 13, kLength);
  std::vector<bool> compute(kLength);
  std::vector<bool> communication(kLength);
  const int count = *rc::gen::inRange(0, 6);
  for (int i = 0; i < count; ++i) {
    // May reach out of the step, where it does not count.
    const int begin = *rc::gen::inRange(-5, kLength);
    const int end = begin + *rc::gen::inRange(1, 15);
    const bool computes = *rc::gen::arbitrary<bool>();
    if (computes) {
      builder.compute(RecordKind::kCompute, "c", begin, end);
    } else {
      builder.bucket(static_cast<std::uint32_t>(i), 1, begin, begin, end);
    }
    for (int t = std::max(begin, 0); t < std::min(end, kLength); ++t) {
      (computes ? compute : communication)[static_cast<std::size_t>(t)] = true;
    }
  }
  int exposed = 0;
  for (std::size_t t = 0; t < kLength; ++t) {
    exposed += communication[t] && !compute[t] ? 1 : 0;
  }
  const Summary summary = analyze(builder.timeline());
  RC_ASSERT(std::abs(summary.exposed.count() - exposed * kMs) < 1e-9);
  RC_ASSERT(std::abs(summary.compute.count() -
                     static_cast<double>(std::count(compute.begin(), compute.end(), true)) * kMs) <
            1e-9);
}

StepProfile shape() {
  StepProfile profile;
  profile.model = "mlp";
  profile.batch = 32;
  profile.tensors = {{"fc1.w", DType::kF32, {250}, {}}, {"fc2.w", DType::kF32, {1000}, {}}};
  return profile;
}

TEST(MeasuredProfile, HasTheOrderAndTimesOfTheRun) {
  const StepProfile profile = step_profile(three_steps(), shape());
  EXPECT_EQ(profile.model, "mlp");
  EXPECT_EQ(profile.batch, 32);
  EXPECT_EQ(profile.basis, Basis::kMeasured);
  EXPECT_TRUE(profile.beside_communication);
  ASSERT_EQ(profile.tensors.size(), 2U);
  EXPECT_EQ(profile.tensors[0].name, "fc2.w");
  EXPECT_NEAR(profile.tensors[0].ready.count(), 20 * kMs, 1e-9);
  EXPECT_NEAR(profile.tensors[1].ready.count(), 41 * kMs, 1e-9);
  ASSERT_EQ(profile.forward.size(), 1U);
  EXPECT_NEAR(profile.forward[0].forward.count(), 10 * kMs, 1e-9);
  EXPECT_NEAR(profile.forward_end.count(), 10 * kMs, 1e-9);
  EXPECT_NEAR(profile.backward_end.count(), 41 * kMs, 1e-9);
  EXPECT_NEAR(profile.compute_end.count(), 48 * kMs, 1e-9);
  EXPECT_NO_THROW((void)step_profile_from_json(to_json(profile), "p"));
}

TEST(MeasuredProfile, TensorsThatWereNeverReadyAreNamed) {
  StepProfile more = shape();
  more.tensors.push_back({"fc3.w", DType::kF32, {1}, {}});
  try {
    (void)step_profile(three_steps(), more);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.detail().where, "tensor 'fc3.w'");
  }
}

}  // namespace
}  // namespace stretto
