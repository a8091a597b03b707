// SPDX-License-Identifier: Apache-2.0
// What a trace says, from the text of the trace on: buckets, collectives across ranks, diagnoses.
#include "stretto/analyze/explain.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "analyze/timeline_builder.hpp"
#include "stretto/base/error.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/report/explanation.hpp"
#include "stretto/trace/trace.hpp"
#include "trace/trace_text.hpp"

namespace stretto {
namespace {

using testing::KinetoText;

std::string metadata(std::int64_t elements, int ranks) {
  return R"(, "Collective name": "allreduce", "In msg nelems": )" + std::to_string(elements) +
         R"(, "Out msg nelems": )" + std::to_string(elements) +
         R"(, "dtype": "Float", "Group size": )" + std::to_string(ranks) +
         R"(, "Process Group Name": "0", "Process Group Ranks": "[0, 1]")";
}

constexpr const char* kAllReduce =
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)";

/// Three steps of 1000 us. Backward computes until 600; bucket 0 is ready at 300 and launched at
/// once, bucket 1 is ready at 600, launched before, and begins when bucket 0 has ended. `late`: the
/// rank's collectives begin that much later, and end with the others'.
KinetoText ddp(int rank, std::int64_t late) {
  KinetoText trace;
  trace.member(R"("distributedInfo": {"backend": "nccl", "rank": )" + std::to_string(rank) +
               R"(, "world_size": 2})");
  int id = 1;
  for (int step = 0; step < 3; ++step) {
    const std::int64_t at = 10'000 + 1000 * step;
    trace.annotation("ProfilerStep#" + std::to_string(step + 5), at - 500, 990);
    const auto launched = [&](const char* name,
                              std::int64_t launch,
                              std::int64_t begin,
                              std::int64_t length,
                              int stream,
                              const std::string& more = "") {
      trace.launch(launch, 2, 1, id);
      trace.kernel(name, begin, length, stream, id, more);
      ++id;
    };
    launched("forward", at - 400, at, 100, 7);
    launched("backward_2", at - 390, at + 100, 200, 7);
    launched(kAllReduce, at + 310, at + 320 + late, 380 - late, 20, metadata(1'000'000, 2));
    launched("backward_1", at + 315, at + 300, 300, 7);
    launched(kAllReduce, at + 320, at + 700, 200, 20, metadata(500'000, 2));
    launched("optimizer", at + 325, at + 900, 100, 7);
  }
  return trace;
}

Trace two_ranks(std::int64_t late) {
  // As read_traces does for two files.
  Trace first = read_trace_text(ddp(0, 0).text(), "rank0.json");
  const Trace second = read_trace_text(ddp(1, late).text(), "rank1.json");
  std::vector<std::uint32_t> names;
  for (const std::string& name : second.timeline.names) {
    names.push_back(first.timeline.name_id(name));
  }
  const auto calls = static_cast<std::uint32_t>(first.timeline.calls.size());
  for (CollectiveCall call : second.timeline.calls) {
    call.group = names[call.group];
    call.members = names[call.members];
    first.timeline.calls.push_back(call);
  }
  for (Record record : second.timeline.records) {
    record.name = names[record.name];
    record.call += record.call == kNoId ? 0 : calls;
    first.timeline.records.push_back(record);
  }
  return first;
}

const Diagnosis* find(const Explanation& explanation, const std::string& id) {
  for (const Diagnosis& diagnosis : explanation.diagnoses) {
    if (diagnosis.id == id) {
      return &diagnosis;
    }
  }
  return nullptr;
}

constexpr double kUs = 1e-6;

TEST(Explain, BucketsOfAKnownStep) {
  const Trace trace = read_trace_text(ddp(0, 0).text(), "rank0.json");
  const Explanation explanation = explain(trace.timeline);
  ASSERT_TRUE(explanation.summary);
  const Summary& s = *explanation.summary;
  EXPECT_EQ(s.steps, 3U);
  EXPECT_NEAR(s.step.count(), 1000 * kUs, 1e-12);
  EXPECT_NEAR(s.compute.count(), 700 * kUs, 1e-12);
  EXPECT_NEAR(s.communication.count(), 580 * kUs, 1e-12);
  EXPECT_NEAR(s.exposed.count(), 300 * kUs, 1e-12);  // 600 to 900
  ASSERT_EQ(s.buckets.size(), 2U);
  EXPECT_EQ(s.buckets[0].bytes, Bytes(4'000'000));
  EXPECT_EQ(s.buckets[0].collective, Collective::kAllReduce);
  EXPECT_NEAR(s.buckets[0].ready.value().count(), 300 * kUs, 1e-12);
  EXPECT_NEAR(s.buckets[0].launched.count(), 310 * kUs, 1e-12);
  EXPECT_NEAR(s.buckets[0].started.count(), 320 * kUs, 1e-12);
  EXPECT_NEAR(s.buckets[0].ended.count(), 700 * kUs, 1e-12);
  EXPECT_NEAR(s.buckets[0].exposed.count(), 100 * kUs, 1e-12);
  EXPECT_EQ(s.buckets[0].waited_for, WaitedFor::kLaunch);
  // 380 on the wire, 300 of compute until the last gradients: 80 could not be hidden.
  EXPECT_NEAR(s.buckets[0].compute_left.value().count(), 300 * kUs, 1e-12);
  EXPECT_NEAR(s.buckets[1].compute_left.value().count(), 0.0, 1e-12);
  EXPECT_NEAR(s.buckets[1].ready.value().count(), 600 * kUs, 1e-12);
  EXPECT_NEAR(s.buckets[1].started.count(), 700 * kUs, 1e-12);
  EXPECT_NEAR(s.buckets[1].exposed.count(), 200 * kUs, 1e-12);
  EXPECT_EQ(s.buckets[1].waited_for, WaitedFor::kEarlierCommunication);
  EXPECT_FALSE(s.bound) << "one rank of two: the shortest of three calls may be waiting";
}

TEST(Explain, WaitingIsToldFromTransferWhenAllRanksAreThere) {
  const Explanation explanation = explain(two_ranks(100).timeline);
  const CollectiveReport& report = explanation.collectives;
  EXPECT_EQ(report.matched, 6);
  EXPECT_EQ(report.unmatched, 0);
  ASSERT_EQ(report.kinds.size(), 2U);
  EXPECT_EQ(report.kinds[0].bytes, Bytes(4'000'000));
  EXPECT_EQ(report.kinds[0].group, "0");
  EXPECT_EQ(report.kinds[0].count, 3);
  EXPECT_NEAR(report.kinds[0].transfer.count(), 280 * kUs, 1e-12);
  EXPECT_NEAR(report.kinds[0].duration_most.count(), 380 * kUs, 1e-12);
  EXPECT_NEAR(report.kinds[0].total.count(), 3 * 330 * kUs, 1e-12);
  // bus bandwidth of two ranks: factor 2 (2 - 1) / 2
  EXPECT_NEAR(report.kinds[0].bus_bandwidth->value(), 4e6 / 280e-6, 1.0);
  ASSERT_EQ(report.ranks.size(), 2U);
  EXPECT_EQ(report.ranks[0].rank, 1U);
  EXPECT_EQ(report.ranks[0].last, 3);
  EXPECT_NEAR(report.ranks[0].made_others_wait.count(), 300 * kUs, 1e-12);
  EXPECT_NEAR(report.ranks[0].waited.count(), 0.0, 1e-12);
  EXPECT_NEAR(report.ranks[1].waited.count(), 300 * kUs, 1e-12);
}

TEST(Explain, TheBoundIsThatOfTheFittedCosts) {
  const Explanation explanation = explain(two_ranks(100).timeline);
  ASSERT_TRUE(explanation.fitted);
  // 4 MB in 280 us and 2 MB in 200 us: 120 us and 25 GB/s.
  EXPECT_NEAR(explanation.fitted->cost.latency.count(), 120 * kUs, 1e-9);
  EXPECT_NEAR(explanation.fitted->cost.seconds_per_byte, 40e-12, 1e-16);
  // Something of bucket 1 is ready at 600 and no sooner, and takes a latency: not before 720. Idle
  // and optimizer stay: 700 without exposed communication.
  ASSERT_TRUE(explanation.summary->bound);
  EXPECT_NEAR(explanation.summary->bound->count(), 720 * kUs, 1e-9);
  EXPECT_NEAR(explanation.least_exposed()->count(), 20 * kUs, 1e-9);
  ASSERT_TRUE(explanation.certificate);
  EXPECT_NEAR(explanation.certificate->exposed_bound.count(), 20 * kUs, 1e-9);
  EXPECT_LE(explanation.certificate->exposed_best, explanation.certificate->exposed_model);
}

/// Every gradient is all-reduced before the next is computed: 100 us compute, 100 us exposed.
KinetoText in_line(const std::string& metadata_of_each) {
  KinetoText trace;
  trace.member(R"("distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2})");
  int id = 1;
  for (int step = 0; step < 3; ++step) {
    const std::int64_t at = 10'000 + 1000 * step;
    trace.annotation("ProfilerStep#" + std::to_string(step), at - 500, 990);
    for (int layer = 0; layer < 5; ++layer) {
      trace.launch(at - 400 + 10 * layer, 2, 1, id);
      trace.kernel("backward", at + 200 * layer, 100, 7, id++);
      trace.launch(at - 395 + 10 * layer, 2, 1, id);
      trace.kernel(kAllReduce, at + 200 * layer + 100, 100, 7, id++, metadata_of_each);
    }
  }
  return trace;
}

TEST(Explain, WhatWaitedForCommunicationCouldHaveBeenReadyBefore) {
  // 1 MB in 100 us each; five of them, ready at best at 100, 200, ... 500.
  AnalyzeOptions options;
  options.cost = ExchangeCost{Seconds(0), 100e-6 / 1e6};
  const Trace trace = read_trace_text(in_line(metadata(250'000, 2)).text(), "rank0.json");
  const Explanation explanation = explain(trace.timeline, options);
  ASSERT_TRUE(explanation.summary->bound);
  EXPECT_NEAR(explanation.summary->step.count(), 1000 * kUs, 1e-12);
  EXPECT_NEAR(explanation.summary->buckets[4].ready.value().count(), 900 * kUs, 1e-12)
      << "as it was";
  EXPECT_NEAR(explanation.summary->bound->count(), 600 * kUs, 1e-12);
  EXPECT_NEAR(explanation.least_exposed()->count(), 100 * kUs, 1e-12);
  const StepProfile profile = step_profile_of_trace(trace.timeline);
  EXPECT_NEAR(profile.tensors[4].ready.count(), 500 * kUs, 1e-12);
  EXPECT_NEAR(profile.compute_end.count(), 500 * kUs, 1e-12);
}

TEST(Explain, NoBoundWhereSizesAreNotRecorded) {
  AnalyzeOptions options;
  options.cost = ExchangeCost{Seconds(0), 1e-9};
  const Explanation explanation =
      explain(read_trace_text(in_line("").text(), "rank0.json").timeline, options);
  EXPECT_FALSE(explanation.summary->bound);
  EXPECT_FALSE(explanation.least_exposed());
}

TEST(Explain, AMachineThatIsSlowerThanTheRecordingIsSaid) {
  AnalyzeOptions options;
  options.machine = machine_from_spec("2@1kB/s,1s");
  const Trace trace = read_trace_text(in_line(metadata(250'000, 2)).text(), "rank0.json");
  const Explanation slow = explain(trace.timeline, options);
  ASSERT_EQ(slow.notes.size(), 1U);
  EXPECT_NE(slow.notes[0].find("cannot be quicker than the step that was recorded"),
            std::string::npos)
      << slow.notes[0];
  options.machine = machine_from_spec("2@100GB/s,1us");
  EXPECT_TRUE(explain(trace.timeline, options).notes.empty());
}

TEST(Explain, ABucketOfTwoDevicesIsHiddenByEachItsOwn) {
  KinetoText trace;
  const std::string first = R"(, "device": 0)";
  const std::string second = R"(, "device": 1)";
  trace.kernel("gemm", 0, 10, 7, 1, first).kernel(kAllReduce, 10, 10, 20, 2, first);
  trace.kernel("gemm", 0, 30, 7, 3, second).kernel(kAllReduce, 15, 10, 20, 4, second);
  const Explanation explanation = explain(read_trace_text(trace.text(), "t.json").timeline);
  ASSERT_EQ(explanation.devices.size(), 2U);
  ASSERT_EQ(explanation.summary->buckets.size(), 1U);
  EXPECT_NEAR(explanation.summary->buckets[0].exposed.count(), 5 * kUs, 1e-12);
  EXPECT_NEAR(explanation.summary->exposed.count(), 5 * kUs, 1e-12);
}

TEST(Explain, NoRecordedExchangeIsQuickerThanTheFittedCost) {
  CollectiveReport report;
  for (const auto& [bytes, seconds] : std::vector<std::pair<std::int64_t, double>>{
           {1000, 0.010}, {2000, 0.011}, {3000, 0.004}, {4000, 0.013}, {8000, 0.020}}) {
    CollectiveSummary kind;
    kind.collective = Collective::kAllReduce;
    kind.bytes = Bytes(bytes);
    kind.transfer = Seconds(seconds);
    kind.matched = true;
    report.kinds.push_back(kind);
  }
  const auto fitted = fit_exchange(report);
  ASSERT_TRUE(fitted);
  for (const CollectiveSummary& kind : report.kinds) {
    EXPECT_LE(fitted->cost.latency.count() +
                  fitted->cost.seconds_per_byte * static_cast<double>(kind.bytes.count()),
              kind.transfer.count() + 1e-12);
  }
  EXPECT_GT(fitted->cost.seconds_per_byte, 0.0);
}

CollectiveSummary matched_kind(Collective collective,
                               std::int64_t bytes,
                               double seconds,
                               std::int64_t count = 1) {
  CollectiveSummary kind;
  kind.collective = collective;
  kind.bytes = Bytes(bytes);
  kind.transfer = Seconds(seconds);
  kind.count = count;
  kind.matched = true;
  return kind;
}

/// Gathers and scatters are halves of an all_reduce of 2 ms + 2 ns per byte.
TEST(Explain, HalvesOfAnAllReduceAreFittedWhereTheyCarryTheBytes) {
  CollectiveReport report;
  report.kinds = {matched_kind(Collective::kAllGather, 500'000, 1.5e-3, 8),
                  matched_kind(Collective::kReduceScatter, 1'000'000, 2e-3, 4),
                  matched_kind(Collective::kReduceScatter, 3'000'000, 4e-3),
                  matched_kind(Collective::kAllReduce, 8, 2e-3 + 16e-9, 100)};
  const auto fitted = fit_exchange(report);
  ASSERT_TRUE(fitted);
  EXPECT_TRUE(fitted->of_halves);
  EXPECT_EQ(fitted->sizes, 4U);
  EXPECT_NEAR(fitted->cost.latency.count(), 2e-3, 1e-9);
  EXPECT_NEAR(fitted->cost.seconds_per_byte, 2e-9, 1e-15);
  // Of gathers alone nobody knows whether they are gradients; a few scatters change nothing.
  report.kinds = {matched_kind(Collective::kAllGather, 500'000, 1.5e-3, 8),
                  matched_kind(Collective::kAllGather, 5'000'000, 6e-3, 8)};
  EXPECT_FALSE(fit_exchange(report));
  report.kinds = {matched_kind(Collective::kAllReduce, 1'000'000, 1e-3),
                  matched_kind(Collective::kAllReduce, 2'000'000, 2e-3),
                  matched_kind(Collective::kReduceScatter, 500'000, 9e-3)};
  ASSERT_TRUE(fit_exchange(report));
  EXPECT_FALSE(fit_exchange(report)->of_halves);
  EXPECT_NEAR(fit_exchange(report)->cost.seconds_per_byte, 1e-9, 1e-15);
}

TEST(Explain, ClocksThatDisagreeAreBroughtTogether) {
  Trace trace = two_ranks(0);
  for (Record& record : trace.timeline.records) {
    if (record.rank == 1) {
      record.begin_ns += 5'000'000;
      record.end_ns += 5'000'000;
    }
  }
  const std::vector<std::string> notes = align_clocks(trace.timeline);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("rank 1 ends the same collectives 5.000 ms later"), std::string::npos)
      << notes[0];
  ASSERT_EQ(trace.timeline.clocks.size(), 1U);
  EXPECT_EQ(trace.timeline.clocks[0].offset_ns, -5'000'000);
  EXPECT_EQ(trace.timeline.clocks[0].residual_ns, 0);
  EXPECT_TRUE(align_clocks(trace.timeline).empty());
}

/// Ten collectives of two ranks in a group of their own, by each rank's clock.
void add_group(Timeline& timeline,
               const char* name,
               std::pair<std::uint32_t, std::int64_t> one,
               std::pair<std::uint32_t, std::int64_t> other) {
  CollectiveCall call;
  call.group = timeline.name_id(name);
  call.members = timeline.name_id("");
  call.group_size = 2;
  timeline.calls.push_back(call);
  for (int i = 0; i < 10; ++i) {
    for (const auto& [rank, clock_ns] : {one, other}) {
      Record record;
      record.kind = RecordKind::kCommunication;
      record.lane = Lane::kCommunication;
      record.collective = Collective::kAllReduce;
      record.name = call.group;
      record.rank = rank;
      record.device = rank;
      record.call = static_cast<std::uint32_t>(timeline.calls.size() - 1);
      record.begin_ns = 1'000'000 * i + clock_ns;
      record.end_ns = record.begin_ns + 1000;
      timeline.records.push_back(record);
    }
  }
}

TEST(Explain, ClocksAreComparedOverRanksOfOtherGroups) {
  constexpr std::int64_t kMs = 1'000'000;
  Timeline timeline;
  add_group(timeline, "a", {0, 0}, {1, 5 * kMs});
  add_group(timeline, "b", {1, 5 * kMs}, {2, 8 * kMs});
  add_group(timeline, "c", {6, 0}, {7, 2 * kMs});
  timeline.clocks.push_back({2, 100, 0});
  const std::vector<std::string> notes = align_clocks(timeline);
  ASSERT_EQ(notes.size(), 4U);
  EXPECT_NE(notes[1].find("rank 2 ends the same collectives 8.000 ms later than rank 0"),
            std::string::npos)
      << notes[1];
  EXPECT_NE(notes[2].find("rank 6 has no collective with the ranks before it"), std::string::npos)
      << notes[2];
  for (const Record& record : timeline.records) {
    EXPECT_EQ(record.begin_ns % kMs, 0) << record.rank;
    EXPECT_LT(record.end_ns, 10 * kMs) << record.rank;
  }
  ASSERT_EQ(timeline.clocks.size(), 3U);
  EXPECT_EQ(timeline.clocks[0].offset_ns, 100 - 8 * kMs) << "the one it had, moved on";
}

TEST(Explain, OneRankTwiceIsNoMatch) {
  Timeline timeline;
  add_group(timeline, "a", {0, 0}, {1, 0});
  timeline.records.resize(3);
  timeline.records[1].rank = 0;  // 0, 0: the same number twice
  timeline.records[2].rank = 1;  // another number
  timeline.calls[0].sequence = 5;
  timeline.calls.push_back(timeline.calls[0]);
  timeline.calls[1].sequence = 6;
  timeline.records[2].call = 1;
  const CollectiveReport report = report_collectives(timeline);
  EXPECT_EQ(report.matched, 0);
  EXPECT_EQ(report.unmatched, 2);
}

TEST(Explain, ManySizesAreFittedInTime) {
  CollectiveReport report;
  for (std::int64_t i = 1; i <= 20'000; ++i) {
    CollectiveSummary kind;
    kind.collective = Collective::kAllReduce;
    kind.bytes = Bytes(1000 * i);
    kind.matched = true;
    kind.transfer = Seconds(1e-6 * static_cast<double>(10 + i));
    report.kinds.push_back(kind);
  }
  const auto fitted = fit_exchange(report);
  ASSERT_TRUE(fitted);
  EXPECT_EQ(fitted->sizes, 20'000U);
  EXPECT_NEAR(fitted->cost.latency.count(), 10 * kUs, 1e-9);
  EXPECT_NEAR(fitted->cost.seconds_per_byte, 1e-9, 1e-13);
}

TEST(Explain, GroupsThatDoNotAgreeAreLeftAlone) {
  Trace trace = two_ranks(0);
  std::erase_if(trace.timeline.records, [](const Record& record) {
    return record.rank == 1 && record.kind == RecordKind::kCommunication &&
           record.bytes == 2'000'000 && record.step == 7;
  });
  const CollectiveReport report = report_collectives(trace.timeline);
  EXPECT_EQ(report.matched, 0);
  EXPECT_EQ(report.unmatched, 6);
  ASSERT_EQ(report.notes.size(), 1U);
  EXPECT_NE(report.notes[0].find("rank 1 has 5 calls in process group '0', rank 0 has 6"),
            std::string::npos)
      << report.notes[0];
  EXPECT_TRUE(report.ranks.empty());
}

/// Four stages that pass something on: the k-th call of one is not the k-th of the next.
Timeline pipeline(std::int64_t stage_us) {
  Timeline timeline;
  timeline.world_size = 4;
  const std::uint32_t name = timeline.name_id("ncclDevKernel_SendRecv");
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    for (std::int64_t k = 0; k < 20; ++k) {
      Record record;
      record.name = name;
      record.rank = rank;
      record.device = 0;
      record.stream = 20;
      record.kind = RecordKind::kCommunication;
      record.lane = Lane::kCommunication;
      record.collective = Collective::kSendRecv;
      record.begin_ns = 1000 * (1000 * k + stage_us * rank * (k % 3));
      record.end_ns = record.begin_ns + 100'000;
      timeline.records.push_back(record);
    }
  }
  return timeline;
}

TEST(Explain, SendsOfAPipelineAreNotOneCollective) {
  const CollectiveReport report = report_collectives(pipeline(300));
  EXPECT_EQ(report.matched, 0);
  EXPECT_EQ(report.unmatched, 20);
  ASSERT_EQ(report.notes.size(), 1U);
  EXPECT_NE(report.notes[0].find("different pairs"), std::string::npos) << report.notes[0];
  // An all_to_all of send and receive kernels does end together.
  EXPECT_EQ(report_collectives(pipeline(0)).matched, 20);
}

TEST(Explain, WithoutCommunicationNothingIsZero) {
  KinetoText trace;
  trace.launch(0, 1, 1, 1).kernel("gemm", 10, 100, 7, 1);
  const Explanation explanation = explain(read_trace_text(trace.text(), "t.json").timeline);
  EXPECT_FALSE(explanation.has_communication());
  EXPECT_FALSE(explanation.steps_marked);
  EXPECT_FALSE(explanation.summary->hidden_ratio());
  EXPECT_TRUE(explanation.collectives.kinds.empty());
}

TEST(Diagnoses, AStragglerIsNamed) {
  const Explanation late = explain(two_ranks(200).timeline);
  const Diagnosis* straggler = find(late, "straggler");
  ASSERT_NE(straggler, nullptr);
  EXPECT_NE(straggler->finding.find("rank 1"), std::string::npos);
  EXPECT_EQ(find(explain(two_ranks(0).timeline), "straggler"), nullptr);
}

TEST(Diagnoses, AStragglerIsNamedWithoutDevicesToo) {
  Timeline timeline = two_ranks(200).timeline;
  std::erase_if(timeline.records, [](const Record& record) {
    return record.kind != RecordKind::kStep && record.kind != RecordKind::kCommunication;
  });
  for (Record& record : timeline.records) {
    if (record.kind == RecordKind::kCommunication) {
      record.lane = Lane::kHost;
      record.device = kNoId;
    }
  }
  const Explanation explanation = explain(timeline);
  ASSERT_TRUE(explanation.host_only);
  EXPECT_NE(find(explanation, "straggler"), nullptr);
}

TEST(Diagnoses, PatternsAddUpToTheExposedTime) {
  KinetoText trace;
  trace.kernel(kAllReduce, 0, 100, 20, 1).kernel(kAllReduce, 0, 100, 21, 2);
  const Explanation explanation = explain(read_trace_text(trace.text(), "t.json").timeline);
  ASSERT_NE(find(explanation, "pattern"), nullptr);
  const std::string& evidence = find(explanation, "pattern")->evidence;
  EXPECT_EQ(evidence, "2 all_reduce in the whole recording, exposed 100.0 us") << "not 200";
}

TEST(Diagnoses, ShareOfTheStep) {
  const Explanation explanation = explain(two_ranks(0).timeline);  // 300 of 1000 us: not above
  EXPECT_EQ(find(explanation, "communication_share"), nullptr);
  KinetoText exposed;
  exposed.kernel("gemm", 0, 100, 7, 1).kernel(kAllReduce, 100, 100, 20, 2);
  const Explanation half = explain(read_trace_text(exposed.text(), "t.json").timeline);
  const Diagnosis* share = find(half, "communication_share");
  ASSERT_NE(share, nullptr);
  EXPECT_EQ(share->weight, Diagnosis::Weight::kFirst);
  EXPECT_NE(share->threshold.find("30.0 %"), std::string::npos);
}

TEST(Diagnoses, CommunicationOnTheComputeStream) {
  KinetoText trace;
  trace.kernel("gemm", 0, 100, 7, 1).kernel(kAllReduce, 100, 50, 7, 2);
  const Explanation one = explain(read_trace_text(trace.text(), "t.json").timeline);
  ASSERT_NE(find(one, "one_stream"), nullptr);
  EXPECT_EQ(find(explain(two_ranks(0).timeline), "one_stream"), nullptr);
}

TEST(Diagnoses, ManySmallCollectives) {
  KinetoText trace;
  for (int i = 0; i < 30; ++i) {
    trace.kernel(kAllReduce, 100 * i, 11, 20, i + 1);
  }
  trace.kernel("gemm", 0, 3000, 7, 99);
  const Explanation small = explain(read_trace_text(trace.text(), "t.json").timeline);
  ASSERT_NE(find(small, "latency_bound"), nullptr);
  EXPECT_EQ(find(explain(two_ranks(0).timeline), "latency_bound"), nullptr);
}

TEST(Diagnoses, ComputeThatRunsSlowerBesideCommunication) {
  const auto trace_of = [](std::int64_t beside) {
    KinetoText trace;
    const std::string shape = R"(, "grid": [64, 1, 1])";
    for (int i = 0; i < 6; ++i) {
      trace.kernel("gemm", 1000 * i, 100, 7, 2 * i + 1, shape);
      trace.kernel("gemm", 1000 * i + 500, beside, 7, 2 * i + 2, shape);
      trace.kernel(kAllReduce, 1000 * i + 450, 400, 20, 100 + i);
    }
    return explain(read_trace_text(trace.text(), "t.json").timeline);
  };
  const Explanation slowed = trace_of(150);
  ASSERT_TRUE(slowed.slowdown);
  EXPECT_NEAR(slowed.slowdown->factor, 1.5, 1e-9);
  EXPECT_NEAR(slowed.slowdown->extra.count(), 6 * 50 * kUs, 1e-12);
  EXPECT_NE(find(slowed, "slowed_compute"), nullptr);
  EXPECT_EQ(find(trace_of(105), "slowed_compute"), nullptr);
}

/// The second gemm of a step is another layer's and takes 120 us whatever runs beside it, which is
/// always communication; the first takes 100 alone and 105 beside it.
TEST(Diagnoses, WhatComputeWouldBeWithoutItsSlowdown) {
  const std::string shape = R"(, "grid": [64, 1, 1], "block": [256, 1, 1])";
  const auto slowdown = [&](std::int64_t beside) {
    KinetoText trace;
    for (int i = 0; i < 6; ++i) {
      const std::int64_t at = 1000 * (i + 1);
      trace.annotation("ProfilerStep#" + std::to_string(i), at, 990);
      for (int id = 3 * i; id < 3 * i + 3; ++id) {
        trace.launch(at + 1 + id % 3, 1, 1, id + 1);
      }
      trace.kernel("gemm", at + 10, 100, 7, 3 * i + 1, shape);
      trace.kernel("gemm", at + 500, beside, 7, 3 * i + 2, shape);
      trace.kernel(kAllReduce, at + 450, 400, 20, 3 * i + 3);
    }
    return explain(read_trace_text(trace.text(), "t.json").timeline).slowdown;
  };
  const auto slowed = slowdown(150);
  ASSERT_TRUE(slowed);
  EXPECT_DOUBLE_EQ(slowed->believed(), 1.5);
  EXPECT_NEAR(slowed->compute_without.value().count(), 200 * kUs, 1e-12);
  const auto chance = slowdown(104);
  ASSERT_TRUE(chance);
  EXPECT_FALSE(chance->compute_without);
  EXPECT_EQ(chance->believed(), 1.0);
}

TEST(Diagnoses, KernelsAreComparedAtTheSamePositionOfTheStep) {
  const auto measured = [](int steps, bool whole) {
    KinetoText trace;
    const std::string shape = R"(, "grid": [64, 1, 1])";
    int id = 1;
    for (int step = 0; step < steps; ++step) {
      const std::int64_t at = 10'000 + 1000 * step;
      const bool beside = step % 2 == 1;
      trace.annotation("ProfilerStep#" + std::to_string(step), at - 500, 990);
      const auto run = [&](const char* name, std::int64_t begin, std::int64_t length, int stream) {
        trace.launch(at - 400 + id % 50, 1, 1, id);
        trace.kernel(name, at + begin, length, stream, id++, shape);
      };
      if (whole || step > 0) {  // else one run less than in the other steps
        run("gemm", 0, beside ? 105 : 100, 7);
      }
      run("gemm", 500, 120, 7);
      run(kAllReduce, beside ? 0 : 450, beside ? 700 : 250, 20);
      run("end", 900, 50, 7);
    }
    return explain(read_trace_text(trace.text(), "t.json").timeline).slowdown;
  };
  for (const bool whole : {true, false}) {
    const auto slowdown = measured(13, whole);
    ASSERT_TRUE(slowdown);
    EXPECT_EQ(slowdown->kernels, 1U);
    EXPECT_EQ(slowdown->same_position, 1U);
    EXPECT_NEAR(slowdown->factor, 1.05, 1e-9);
    EXPECT_NEAR(slowdown->extra.count(), 6 * 5 * kUs, 1e-12);
  }
}

TEST(Diagnoses, SlowedKernelsThatHardlyCountAreNotNamed) {
  KinetoText trace;
  const std::string shape = R"(, "grid": [64, 1, 1])";
  trace.kernel("all else", 100'000, 90'000, 7, 99);
  for (int i = 0; i < 6; ++i) {
    trace.kernel("gemm", 1000 * i, 100, 7, 2 * i + 1, shape);
    trace.kernel("gemm", 1000 * i + 500, 150, 7, 2 * i + 2, shape);
    trace.kernel(kAllReduce, 1000 * i + 450, 400, 20, 100 + i);
  }
  const Explanation explanation = explain(read_trace_text(trace.text(), "t.json").timeline);
  ASSERT_TRUE(explanation.slowdown);
  EXPECT_EQ(find(explanation, "slowed_compute"), nullptr) << "300 us of 91.5 ms";
}

/// 12 all_reduces of 100 us and 12 of 400, all in the open, then some compute.
KinetoText uneven(const std::string& more, std::int64_t compute) {
  KinetoText trace;
  trace.kernel("gemm", 12'000, compute, 7, 99);
  for (int i = 0; i < 24; ++i) {
    trace.kernel(kAllReduce, 500 * i, i % 6 == 0 ? 400 : 100, 20, i + 1, more);
  }
  return trace;
}

TEST(Diagnoses, OnlyCollectivesOfOneSizeCanBeUneven) {
  const Explanation sized =
      explain(read_trace_text(uneven(metadata(1'000'000, 2), 1000).text(), "t.json").timeline);
  ASSERT_NE(find(sized, "uneven_collectives"), nullptr);
  EXPECT_EQ(find(sized, "uneven_collectives")->weight, Diagnosis::Weight::kCause);
  const Explanation unsized = explain(read_trace_text(uneven("", 1000).text(), "t.json").timeline);
  EXPECT_EQ(find(unsized, "uneven_collectives"), nullptr);
}

TEST(Diagnoses, WhatExplainsLittleIsANote) {
  const Explanation explanation =
      explain(read_trace_text(uneven(metadata(1'000'000, 2), 1'000'000).text(), "t.json").timeline);
  ASSERT_NE(find(explanation, "uneven_collectives"), nullptr);
  EXPECT_EQ(find(explanation, "uneven_collectives")->weight, Diagnosis::Weight::kNote);
}

TEST(Diagnoses, CopiesAreNotIdleness) {
  const auto trace_of = [](const char* category) {
    KinetoText trace;
    trace.kernel("gemm", 0, 50, 7, 1).kernel(kAllReduce, 50, 5, 20, 2);
    trace.slice(category, "Memcpy HtoD", "55", "40", "7", R"("device": 0, "stream": 7)");
    trace.kernel("gemm", 95, 5, 7, 3);
    return explain(read_trace_text(trace.text(), "t.json").timeline);
  };
  EXPECT_EQ(find(trace_of("gpu_memcpy"), "host_bound"), nullptr);
  EXPECT_NE(find(trace_of("cpu_op"), "host_bound"), nullptr);
}

/// A step of 1000 us in which a collective of 300 us is ready at 100, and launched at `launch`.
Explanation launched_at(std::int64_t launch) {
  KinetoText trace;
  for (int step = 0; step < 3; ++step) {
    const std::int64_t at = 10'000 + 1000 * step;
    trace.annotation("ProfilerStep#" + std::to_string(step), at - 50, 990);
    trace.launch(at - 40, 2, 1, 10 * step + 1);
    trace.kernel("gemm", at, 100, 7, 10 * step + 1);
    trace.launch(at + launch, 2, 1, 10 * step + 2);
    trace.kernel(kAllReduce, at + launch + 5, 300, 20, 10 * step + 2);
    trace.launch(at + launch + 10, 2, 1, 10 * step + 3);
    trace.kernel("optimizer", at + 900, 90, 7, 10 * step + 3);
  }
  return explain(read_trace_text(trace.text(), "t.json").timeline);
}

TEST(Diagnoses, ALateLaunchIsOneThatCostsMuch) {
  EXPECT_NE(find(launched_at(500), "late_launch"), nullptr);
  const Explanation soon = launched_at(110);
  EXPECT_EQ(soon.summary->buckets[0].waited_for, WaitedFor::kLaunch);
  EXPECT_EQ(find(soon, "late_launch"), nullptr) << "10 of 300 us";
}

TEST(Diagnoses, HostRowsThatOnlyHandOverAreNotSmallCollectives) {
  KinetoText trace;
  for (int i = 0; i < 30; ++i) {
    trace.slice("cpu_op", "nccl:all_reduce", std::to_string(100 * i), "11", "1");
  }
  const Explanation explanation = explain(read_trace_text(trace.text(), "t.json").timeline);
  ASSERT_TRUE(explanation.host_only);
  ASSERT_TRUE(explanation.has_communication());
  EXPECT_EQ(find(explanation, "latency_bound"), nullptr);
}

TEST(Diagnoses, AStreamOfNothingButOneKernelIsAskedAbout) {
  KinetoText trace;
  trace.kernel("gemm", 0, 1000, 7, 1).kernel("my::moe_dispatch", 100, 300, 23, 2);
  trace.kernel(kAllReduce, 1000, 10, 20, 3);
  const Explanation explanation = explain(read_trace_text(trace.text(), "t.json").timeline);
  const Diagnosis* unknown = find(explanation, "unknown_stream");
  ASSERT_NE(unknown, nullptr);
  EXPECT_NE(unknown->finding.find("my::moe_dispatch"), std::string::npos);
  TraceReadOptions told;
  told.rules.add_expression("moe_dispatch");
  const Explanation after = explain(read_trace_text(trace.text(), "t.json", told).timeline);
  EXPECT_EQ(find(after, "unknown_stream"), nullptr);
  EXPECT_EQ(after.devices[0].communication_count, 2);
}

TEST(Diagnoses, AKernelNamedLikeAnExchangeIsAskedAbout) {
  KinetoText trace;
  trace.kernel("gemm", 0, 100, 7, 1).kernel("my_fancy_AllGather_kernel", 100, 300, 7, 2);
  const Explanation explanation = explain(read_trace_text(trace.text(), "t.json").timeline);
  const Diagnosis* unknown = find(explanation, "unknown_kernel");
  ASSERT_NE(unknown, nullptr);
  EXPECT_NE(unknown->finding.find("my_fancy_AllGather_kernel"), std::string::npos);
  EXPECT_NE(unknown->advice.find("--comm-regex"), std::string::npos);
}

TEST(Diagnoses, ComputeThatOnlyMovesData) {
  KinetoText trace;
  trace.kernel("void at::native::vectorized_elementwise_kernel<4, Add>", 0, 600, 7, 1);
  trace.kernel("ampere_sgemm_128x64_tn", 600, 400, 7, 2);
  const auto is_said = [](const KinetoText& text) {
    const Explanation all = explain(read_trace_text(text.text(), "t.json").timeline);
    return find(all, "memory_bandwidth_bound") != nullptr;
  };
  EXPECT_TRUE(is_said(trace));
  trace.kernel("ampere_sgemm_128x64_tn", 1000, 400, 7, 3);
  EXPECT_FALSE(is_said(trace));
}

TEST(Diagnoses, CollectivesThatBecomeSlower) {
  const auto drifts = [](int later_us) {
    KinetoText trace;
    for (int i = 0; i < 20; ++i) {
      trace.kernel("gemm", 10'000 * i, 500, 7, 2 * i + 1);
      trace.kernel(
          kAllReduce,
          10'000 * i + 500,
          i < 10 ? 4000 : later_us,
          20,
          2 * i + 2,
          R"(, "Collective name": "allreduce", "In msg nelems": 1000000, "dtype": "Float")");
    }
    const Explanation all = explain(read_trace_text(trace.text(), "t.json").timeline);
    const Diagnosis* found = find(all, "slower_later");
    return found == nullptr ? std::string() : found->evidence;
  };
  EXPECT_NE(drifts(7000).find("4.000 ms in the first half, 7.000 ms in the second"),
            std::string::npos)
      << drifts(7000);
  EXPECT_EQ(drifts(5000), "");
}

TEST(Explain, StepsThatNotEveryRankHasAreSaid) {
  testing::TimelineBuilder builder(2);
  for (std::uint32_t step = 1; step <= 5; ++step) {
    builder.step(step, 0, 10.0 * step, 10).compute(RecordKind::kBackward, "b", 0, 5);
    builder.bucket(0, 1024, 5, 5, 9);
    builder.step(step + 2, 1, 10.0 * step, 10).compute(RecordKind::kBackward, "b", 0, 5);
    builder.bucket(0, 1024, 5, 5, 9);
  }
  const Explanation explanation = explain(builder.timeline());
  EXPECT_EQ(explanation.summary->steps, 3U);
  const auto said = [&](std::string_view part) {
    return std::any_of(
        explanation.notes.begin(), explanation.notes.end(), [&](const std::string& note) {
          return note.find(part) != std::string::npos;
        });
  };
  EXPECT_TRUE(said("4 of 7 steps are in no median"));
}

TEST(Explain, RanksWithoutAStepInCommonAreNamed) {
  testing::TimelineBuilder builder(2);
  builder.step(1, 0, 0, 10).compute(RecordKind::kBackward, "b", 0, 5);
  builder.step(7, 1, 0, 10).compute(RecordKind::kBackward, "b", 0, 5);
  try {
    (void)analyze(builder.timeline());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.detail().found, "rank 0 has steps 1 to 1, rank 1 has steps 7 to 7");
  }
}

TEST(Diagnoses, AFatLastBucket) {
  testing::TimelineBuilder builder(1);
  for (std::uint32_t step = 0; step < 3; ++step) {
    builder.step(step, 0, 100.0 * step, 90)
        .compute(RecordKind::kBackward, "b", 0, 50)
        .bucket(0, 10 << 20, 20, 20, 40)
        .bucket(1, 25 << 20, 50, 50, 90);
  }
  const Explanation explanation = explain(builder.timeline());
  const Diagnosis* fat = find(explanation, "fat_last_bucket");
  ASSERT_NE(fat, nullptr);
  EXPECT_NE(fat->advice.find("bucket_cap_mb=6"), std::string::npos) << fat->advice;
}

TEST(Explain, TimeThatBucketsShareIsCountedOnce) {
  testing::TimelineBuilder builder(1);
  for (std::uint32_t step = 0; step < 3; ++step) {
    builder.step(step, 0, 100.0 * step, 100)
        .compute(RecordKind::kBackward, "b", 0, 50)
        .bucket(0, 10 << 20, 40, 40, 80)
        .bucket(1, 10 << 20, 50, 60, 90);
  }
  const Explanation explanation = explain(builder.timeline());
  const Summary& s = *explanation.summary;
  EXPECT_NEAR(s.exposed.count(), 40e-3, 1e-12);
  EXPECT_NEAR(s.buckets[0].exposed.count(), 30e-3, 1e-12);
  EXPECT_NEAR(s.buckets[1].exposed.count(), 30e-3, 1e-12);
  EXPECT_NEAR(s.buckets[0].exposed_share.count(), 20e-3, 1e-12) << "10 alone, half of 20";
  EXPECT_NEAR(s.buckets[1].exposed_share.count(), 20e-3, 1e-12);
  EXPECT_NEAR(s.exposed_ratio(s.buckets[0]).value(), 0.5, 1e-12);
  const std::string text = verdict(explanation);
  EXPECT_NE(text.find("the largest part of it (50.0 %) in bucket 0 of 2"), std::string::npos)
      << text;
}

TEST(Explain, SharesOfRanksThatLackABucketCountAsZero) {
  testing::TimelineBuilder builder(2);
  builder.step(0, 0, 0, 100).compute(RecordKind::kBackward, "b", 0, 50);
  builder.bucket(0, 1 << 20, 50, 50, 70).bucket(1, 1 << 20, 70, 70, 100);
  builder.step(0, 1, 0, 100).compute(RecordKind::kBackward, "b", 0, 50);
  builder.bucket(0, 1 << 20, 50, 50, 70);
  const Summary s = *explain(builder.timeline()).summary;
  EXPECT_NEAR(s.exposed.count(), 35e-3, 1e-12);
  EXPECT_NEAR(s.buckets[0].exposed_share.count(), 20e-3, 1e-12);
  EXPECT_NEAR(s.buckets[1].exposed_share.count(), 15e-3, 1e-12);
  EXPECT_NEAR(s.buckets[1].exposed.count(), 30e-3, 1e-12) << "of the rank that has it";
}

TEST(Explain, WhenARowWasReadyIsNotMadeUp) {
  KinetoText host;
  host.slice("user_annotation", "gloo:all_reduce", "100", "50", "9");
  KinetoText device;
  device.launch(10, 1, 1, 1).kernel("gemm", 20, 30, 7, 1);
  device.kernel(kAllReduce, 60, 30, 20, 2);  // its launch is not in the file
  for (const KinetoText* trace : {&host, &device}) {
    const Explanation explanation = explain(read_trace_text(trace->text(), "t.json").timeline);
    ASSERT_EQ(explanation.summary->buckets.size(), 1U);
    EXPECT_FALSE(explanation.summary->buckets[0].ready);
    EXPECT_NE(to_json(explanation).find(R"("ready_s":null)"), std::string::npos);
    const std::string text = text_table(explanation, {}, Per::kBucket);
    const std::string row = text.substr(text.find('\n') + 1);
    EXPECT_EQ(row.substr(0, row.find(" us")).find_first_of('?'), row.find('?')) << text;
  }
}

TEST(Explain, AWholeRecordingIsNotCalledAStep) {
  KinetoText trace;
  trace.launch(10, 1, 1, 1).kernel("gemm", 20, 30, 7, 1);
  trace.launch(12, 1, 1, 2).kernel(kAllReduce, 60, 30, 20, 2);
  const std::string text =
      text_explanation(explain(read_trace_text(trace.text(), "t.json").timeline));
  EXPECT_EQ(text.find("per step"), std::string::npos) << text;
  EXPECT_NE(text.find("30.00 us in the whole recording"), std::string::npos) << text;
}

TEST(Diagnoses, CopiesOfBucketsExplainNothingWithoutCommunication) {
  const auto weight = [](bool communicates) {
    KinetoText trace;
    trace.annotation("torch::distributed::reducer::copy_bucket_to_grad", 10, 20);
    trace.annotation("torch.distributed.ddp.reducer::copy_bucket_to_grad", 10, 20);
    trace.launch(10, 1, 1, 1).kernel("gemm", 20, 30, 7, 1);
    if (communicates) {
      trace.launch(12, 1, 1, 2).kernel(kAllReduce, 60, 30, 20, 2);
    }
    const Explanation explanation = explain(read_trace_text(trace.text(), "t.json").timeline);
    const Diagnosis* copies = find(explanation, "bucket_copies");
    EXPECT_NE(copies, nullptr);
    return copies == nullptr ? Diagnosis::Weight::kFirst : copies->weight;
  };
  EXPECT_EQ(weight(true), Diagnosis::Weight::kCause);
  EXPECT_EQ(weight(false), Diagnosis::Weight::kNote);
}

TEST(TraceProfile, BucketsStandForGradients) {
  const Trace trace = read_trace_text(ddp(0, 0).text(), "rank0.json");
  const StepProfile profile = step_profile_of_trace(trace.timeline);
  EXPECT_EQ(profile.basis, Basis::kMeasured);
  EXPECT_TRUE(profile.beside_communication);
  ASSERT_EQ(profile.tensors.size(), 2U);
  EXPECT_EQ(profile.tensors[0].bytes(), Bytes(4'000'000));
  EXPECT_NEAR(profile.tensors[1].ready.count(), 600 * kUs, 1e-12);
  EXPECT_NEAR(profile.compute_end.count(), 700 * kUs, 1e-12);
}

TEST(TraceProfile, WithoutTheSlowdownOfCommunication) {
  // In ddp() compute runs beside communication from 320 to 600: 280, of which a slow-down of 1.4
  // made 80.
  const Trace trace = read_trace_text(ddp(0, 0).text(), "rank0.json");
  const StepProfile profile = step_profile_of_trace(trace.timeline, 1.4);
  EXPECT_FALSE(profile.beside_communication);
  EXPECT_EQ(profile.compute_slowdown, 1.4);
  EXPECT_NEAR(profile.tensors[0].ready.count(), 300 * kUs, 1e-12) << "before any communication";
  EXPECT_NEAR(profile.tensors[1].ready.count(), 520 * kUs, 1e-12);
  EXPECT_NEAR(profile.compute_end.count(), 620 * kUs, 1e-12);
  // The simulator puts it back: the recorded step again.
  ExchangeCosts costs;
  costs.all_reduce =
      ExchangeTime(std::vector<CostLine>{{Seconds(40 * kUs), 80 * kUs / 1e6, Algorithm::kAuto}});
  costs.ranks = 2;
  costs.compute_slowdown = profile.compute_slowdown;
  const SimulateOptions options;
  Plan recorded;
  recorded.tensors = tensors_of(profile);
  recorded.buckets = {{DType::kF32, 0, 1'000'000, 0, Algorithm::kAuto},
                      {DType::kF32, 1'000'000, 1'500'000, 0, Algorithm::kAuto}};
  const Seconds step = simulate(profile, costs, recorded, options).step;
  // Bucket 0 takes 360 from 300 on, bucket 1 200 after it, the optimizer 100.
  EXPECT_NEAR(step.count(), 960 * kUs, 1e-9);
  EXPECT_THROW((void)step_profile_of_trace(trace.timeline, 0.9), Error);
}

TEST(TraceProfile, WithoutSizesItSaysSo) {
  KinetoText trace;
  trace.kernel("gemm", 0, 100, 7, 1).kernel(kAllReduce, 100, 50, 20, 2);
  const Trace read = read_trace_text(trace.text(), "t.json");
  try {
    (void)step_profile_of_trace(read.timeline);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(error.detail().found.find("1 collectives per step"), std::string::npos);
  }
}

TEST(StepNumbers, OneRowPerStepAndRank) {
  const Trace trace = read_trace_text(ddp(0, 0).text(), "rank0.json");
  const std::vector<StepNumbers> steps = step_numbers(trace.timeline);
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[0].name, "ProfilerStep#5");
  EXPECT_EQ(steps[2].step, 7U);
  EXPECT_NEAR(steps[1].exposed.count(), 300 * kUs, 1e-12);
  EXPECT_EQ(steps[1].launches, 2);
}

}  // namespace
}  // namespace stretto
