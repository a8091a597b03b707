// SPDX-License-Identifier: Apache-2.0
// What marks steps, what belongs to them, and which files are of which rank.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/trace/trace.hpp"
#include "trace/trace_text.hpp"

namespace stretto {
namespace {

using testing::KinetoText;

constexpr const char* kAllReduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)";

Trace read(const KinetoText& text, const TraceReadOptions& options = {}) {
  return read_trace_text(text.text(), "trace.json", options);
}

std::vector<Record> of_kind(const Trace& trace, RecordKind kind) {
  std::vector<Record> found;
  std::copy_if(trace.timeline.records.begin(),
               trace.timeline.records.end(),
               std::back_inserter(found),
               [&](const Record& record) { return record.kind == kind; });
  std::sort(found.begin(), found.end(), [](const Record& a, const Record& b) {
    return a.begin_ns < b.begin_ns;
  });
  return found;
}

struct Step {
  std::uint32_t number;
  std::int64_t begin_us;
  std::int64_t end_us;
  friend bool operator==(const Step&, const Step&) = default;
  friend void PrintTo(const Step& step, std::ostream* out) {  // NOLINT(*-naming): GoogleTest's
    *out << step.number << " [" << step.begin_us << ", " << step.end_us << ")";
  }
};

/// Times in the traces below begin at 100 us: the first record of each.
constexpr std::int64_t kOriginUs = 100;

std::vector<Step> steps(const Trace& trace) {
  std::vector<Step> found;
  for (const Record& record : of_kind(trace, RecordKind::kStep)) {
    found.push_back(
        {record.step, record.begin_ns / 1000 + kOriginUs, record.end_ns / 1000 + kOriginUs});
  }
  return found;
}

/// Host steps of 100 us each; the device lags behind them. Two collectives per step.
KinetoText ddp(int count, const std::string& mark = "ProfilerStep#") {
  KinetoText text;
  for (int i = 0; i < count; ++i) {
    const std::int64_t at = 100 + 100 * i;
    const int link = 10 * i;
    if (!mark.empty()) {
      text.annotation(mark + std::to_string(5 + i), at, 100);
    } else if (i == 0) {
      text.annotation("first record", at, 1);
    }
    text.launch(at + 10, 2, 1, link + 1)
        .launch(at + 20, 2, 1, link + 2)
        .launch(at + 25, 2, 1, link + 3)
        .launch(at + 30, 2, 1, link + 4)
        .launch(at + 40, 2, 1, link + 5)
        .kernel("gemm", at + 15, 35, 7, link + 1)
        .kernel("gemm", at + 50, 20, 7, link + 2)
        .kernel(kAllReduce, at + 71, 29, 20, link + 3)
        .kernel("gemm", at + 70, 20, 7, link + 4)
        .kernel(kAllReduce, at + 100, 12, 20, link + 5);
  }
  return text;
}

TEST(Steps, ProfilerStepsAsTheDeviceSeesThem) {
  const Trace trace = read(ddp(3));
  EXPECT_EQ(trace.files[0].steps_from, "ProfilerStep");
  // A step lasts until the last of what was launched in it has ended.
  EXPECT_EQ(steps(trace), (std::vector<Step>{{5, 100, 212}, {6, 212, 312}, {7, 312, 412}}));
  EXPECT_EQ(trace.timeline.steps_total, 3U);
  // Of each step: by launch, though each step's second collective begins where the next one's host
  // step does.
  std::map<std::uint32_t, int> collectives;
  for (const Record& record : of_kind(trace, RecordKind::kCommunication)) {
    ++collectives[record.step];
  }
  EXPECT_EQ(collectives, (std::map<std::uint32_t, int>{{5, 2}, {6, 2}, {7, 2}}));
  for (const Record& record : of_kind(trace, RecordKind::kEnqueue)) {
    EXPECT_EQ(record.step, 5U + static_cast<std::uint32_t>(record.begin_ns / 100'000));
  }
}

TEST(Steps, ReadyAndLaunchedOfEachCollective) {
  const Trace trace = read(ddp(2));
  const auto us = [](const std::vector<Record>& records) {
    std::vector<std::int64_t> times;
    for (const Record& record : records) {
      EXPECT_EQ(record.begin_ns, record.end_ns);
      EXPECT_EQ(record.lane, Lane::kCommunication);
      times.push_back(record.begin_ns / 1000 + kOriginUs);
    }
    return times;
  };
  // Handed over by the host, and all that was launched before it on the device is over: the first
  // waits for two multiplications of three.
  EXPECT_EQ(us(of_kind(trace, RecordKind::kLaunched)),
            (std::vector<std::int64_t>{125, 140, 225, 240}));
  EXPECT_EQ(us(of_kind(trace, RecordKind::kReady)),
            (std::vector<std::int64_t>{170, 190, 270, 290}));
  std::vector<std::uint32_t> order;
  for (const Record& record : of_kind(trace, RecordKind::kCommunication)) {
    order.push_back(record.sequence);
    EXPECT_EQ(record.bucket, record.sequence);
  }
  EXPECT_EQ(order, (std::vector<std::uint32_t>{0, 1, 0, 1}));
  // The instants carry the same numbers as their collective.
  for (const RecordKind kind : {RecordKind::kReady, RecordKind::kLaunched}) {
    const std::vector<Record> instants = of_kind(trace, kind);
    for (std::size_t i = 0; i < instants.size(); ++i) {
      EXPECT_EQ(instants[i].sequence, order[i]);
      EXPECT_EQ(instants[i].step, 5U + i / 2);
    }
  }
}

TEST(Steps, AStepWithoutWorkForTheDeviceIsNone) {
  KinetoText text = ddp(2);
  text.annotation("ProfilerStep#7", 300, 100).annotation("ProfilerStep#8", 400, 100);
  text.launch(410, 2, 1, 81).kernel(kAllReduce, 420, 10, 20, 81);
  text.launch(415, 2, 1, 82).kernel(kAllReduce, 430, 10, 20, 82);
  EXPECT_EQ(steps(read(text)), (std::vector<Step>{{5, 100, 212}, {6, 212, 312}, {8, 312, 440}}));
}

TEST(Steps, WorkLaunchedBeforeTheFirstIsNotItsOwn) {
  KinetoText text;
  text.annotation("first record", 100, 1).launch(110, 2, 1, 1).kernel("gemm", 115, 105, 7, 1);
  text.annotation("ProfilerStep#1", 200, 100).launch(210, 2, 1, 2).kernel("gemm", 230, 30, 7, 2);
  const Trace trace = read(text);
  EXPECT_EQ(steps(trace), (std::vector<Step>{{1, 220, 260}}));
  const std::vector<Record> kernels = of_kind(trace, RecordKind::kCompute);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].step, kNoId);
  EXPECT_EQ(kernels[1].step, 1U);
}

TEST(Steps, RowsWithoutALaunchCountAndAreSaid) {
  KinetoText text = ddp(2);
  text.kernel("gemm", 150, 5, 9, 4000)
      .kernel("gemm", 160, 5, 9, -1)
      .kernel("gemm", 5000, 5, 9, 4001);
  const Trace trace = read(text);
  EXPECT_EQ(trace.files[0].unlinked, 3U);
  EXPECT_EQ(of_kind(trace, RecordKind::kCompute).size(), 9U);
  std::size_t outside = 0;
  for (const Record& record : of_kind(trace, RecordKind::kCompute)) {
    outside += record.step == kNoId ? 1 : 0;
    if (record.link == kNoId && record.begin_ns < 100'000) {
      EXPECT_EQ(record.step, 5U) << "by its time, for want of a launch";
    }
  }
  EXPECT_EQ(outside, 1U);
  EXPECT_EQ(steps(trace).size(), 2U);
}

TEST(Steps, HostCallsThatLeadNowhereAreNotKept) {
  KinetoText text = ddp(2);
  text.launch(150, 2, 1, 5000);  // of a kernel that is not in the file
  for (const char* call : {"cudaStreamIsCapturing", "cudaEventQuery", "hipGetDevice"}) {
    text.slice("cuda_runtime", call, "150", "1", "1", R"("correlation": 2)");
  }
  EXPECT_EQ(of_kind(read(text), RecordKind::kEnqueue).size(), 10U);
}

TEST(Steps, MarksWithoutASingleLinkedRow) {
  KinetoText text;
  text.annotation("ProfilerStep#1", 100, 100).annotation("ProfilerStep#2", 200, 100);
  text.kernel("gemm", 110, 50, 7, 1).kernel("gemm", 210, 50, 7, 2);
  const Trace trace = read(text);
  EXPECT_EQ(steps(trace), (std::vector<Step>{{0, 110, 260}}));
  EXPECT_EQ(trace.files[0].steps_from, "");
  ASSERT_EQ(trace.files[0].notes.size(), 1U);
  EXPECT_NE(trace.files[0].notes[0].find("launch"), std::string::npos) << trace.files[0].notes[0];
  // All of the file is in that one step, the marks themselves too.
  for (const Record& record : trace.timeline.records) {
    EXPECT_TRUE(record.step == 0 || record.step == kNoId) << record.step;
  }
}

TEST(Steps, TheLastOneCutOffIsLeftOutOfTheSteps) {
  KinetoText text = ddp(3);
  text.annotation("ProfilerStep#8", 400, 100)
      .launch(410, 2, 1, 91)
      .kernel("gemm", 420, 10, 7, 91)
      .launch(425, 2, 1, 92)
      .kernel(kAllReduce, 430, 10, 20, 92);
  const Trace trace = read(text);
  EXPECT_EQ(steps(trace).size(), 3U);
  ASSERT_EQ(trace.files[0].notes.size(), 1U);
  for (const char* part : {"ProfilerStep#8", "1 collectives", "have 2", "cut off"}) {
    EXPECT_NE(trace.files[0].notes[0].find(part), std::string::npos) << trace.files[0].notes[0];
  }
  // Steps that differ anyway say nothing of the last.
  text = ddp(2);
  text.annotation("ProfilerStep#7", 300, 100).launch(310, 2, 1, 91).kernel("gemm", 320, 10, 7, 91);
  text.annotation("ProfilerStep#8", 400, 100).launch(410, 2, 1, 92).kernel("gemm", 420, 10, 7, 92);
  EXPECT_EQ(steps(read(text)).size(), 4U);
}

TEST(Steps, OptimizersMarkThemForWantOfBetter) {
  KinetoText text = ddp(3, "");
  for (int i = 0; i < 3; ++i) {
    text.annotation("Optimizer.step#SGD.step", 170 + 100 * i, 20);
  }
  const Trace trace = read(text);
  EXPECT_EQ(trace.files[0].steps_from, "ends of optimizer steps");
  // From the end of one to the end of the next: 190, 290, 390.
  EXPECT_EQ(steps(trace), (std::vector<Step>{{0, 212, 312}, {1, 312, 412}}));
}

TEST(Steps, RangesNamedStep) {
  EXPECT_EQ(read(ddp(2, "train_step ")).files[0].steps_from, "ranges named step or iteration");
  EXPECT_EQ(steps(read(ddp(2, "Iteration #"))), (std::vector<Step>{{5, 100, 212}, {6, 212, 312}}));
  EXPECT_EQ(read(ddp(2, "stepwise ")).files[0].steps_from, "");
  EXPECT_EQ(read(ddp(2, "first step ")).files[0].steps_from, "");
}

TEST(Steps, AnExpressionMarksThem) {
  TraceReadOptions options;
  options.step_expression = "^batch [0-9]+$";
  const Trace trace = read(ddp(2, "batch "), options);
  EXPECT_EQ(steps(trace), (std::vector<Step>{{5, 100, 212}, {6, 212, 312}}));
  EXPECT_NE(trace.files[0].steps_from.find("^batch [0-9]+$"), std::string::npos);
  // It replaces the usual marks.
  const Trace none = read(ddp(2), options);
  EXPECT_EQ(none.files[0].steps_from, "");
  ASSERT_FALSE(none.files[0].notes.empty());
  EXPECT_NE(none.files[0].notes[0].find("no range matches --step-regex"), std::string::npos)
      << none.files[0].notes[0];
  options.step_expression = "batch (";
  try {
    (void)read(ddp(2), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("batch ("), std::string::npos) << error.what();
  }
}

TEST(Steps, OnlyTheOutermostOfNestedMarks) {
  TraceReadOptions options;
  options.step_expression = "batch";
  KinetoText text = ddp(2, "batch ");
  text.annotation("batch 5 inner", 110, 20).annotation("batch 6 inner", 200, 50);
  EXPECT_EQ(steps(read(text, options)), (std::vector<Step>{{5, 100, 212}, {6, 212, 312}}));
}

TEST(Steps, NumbersThatDoNotGrowAreReplaced) {
  KinetoText text = ddp(2, "step ");
  text.annotation("step 5", 300, 100);
  text.launch(310, 2, 1, 91).kernel(kAllReduce, 315, 5, 20, 91);
  text.launch(311, 2, 1, 92).kernel(kAllReduce, 320, 10, 20, 92);
  EXPECT_EQ(steps(read(text)), (std::vector<Step>{{0, 100, 212}, {1, 212, 312}, {2, 312, 330}}));
}

TEST(Steps, NoMarksMakeOneStepAndSaySo) {
  const Trace trace = read(ddp(3, ""));
  EXPECT_EQ(trace.files[0].steps_from, "");
  EXPECT_EQ(steps(trace), (std::vector<Step>{{0, 115, 412}}));
  ASSERT_EQ(trace.files[0].notes.size(), 1U);
  EXPECT_NE(trace.files[0].notes[0].find("--step-regex"), std::string::npos);
  EXPECT_EQ(of_kind(trace, RecordKind::kLaunched).size(), 6U);
}

TEST(Steps, AHostOnlyTraceHasTheHostsSteps) {
  KinetoText text;
  for (int i = 0; i < 2; ++i) {
    text.annotation("ProfilerStep#" + std::to_string(i), 100 + 100 * i, 100)
        .slice("cpu_op", "aten::mm", std::to_string(110 + 100 * i), "30", "1")
        .slice("user_annotation", "gloo:all_reduce", std::to_string(130 + 100 * i), "50", "2");
  }
  const Trace trace = read(text);
  EXPECT_EQ(steps(trace), (std::vector<Step>{{0, 100, 200}, {1, 200, 300}}));
  const std::vector<Record> communication = of_kind(trace, RecordKind::kCommunication);
  ASSERT_EQ(communication.size(), 2U);
  EXPECT_EQ(communication[0].lane, Lane::kHost);
  EXPECT_EQ(communication[0].collective, Collective::kAllReduce);
  EXPECT_EQ(communication[1].step, 1U);
  EXPECT_EQ(communication[1].sequence, 0U);
}

/// Two calls that c10d takes at once; the threads of gloo begin the second when the first is over.
KinetoText two_on_threads(std::string_view dims, std::string_view type) {
  const std::string args =
      R"("Input Dims": )" + std::string(dims) + R"(, "Input type": )" + std::string(type);
  KinetoText text;
  text.annotation("ProfilerStep#0", 100, 100)
      .slice("cpu_op", "c10d::allreduce_", "110", "1", "1")
      .slice("cpu_op", "c10d::allreduce_", "112", "1", "1")
      .slice("cpu_op", "c10d::broadcast_", "114", "1", "1")
      .slice("user_annotation", "gloo:all_reduce", "150", "20", "2", args)
      .slice("user_annotation", "gloo:all_reduce", "120", "30", "2", args);
  return text;
}

TEST(Steps, CollectivesOfTheHostAreReadyWhenTheyAreCalled) {
  const Trace trace = read(two_on_threads("[]", "[]"));
  const std::vector<Record> ready = of_kind(trace, RecordKind::kReady);
  std::vector<Record> communication = of_kind(trace, RecordKind::kCommunication);
  ASSERT_EQ(ready.size(), 2U);
  ASSERT_EQ(communication.size(), 2U);
  std::sort(communication.begin(), communication.end(), [](const Record& a, const Record& b) {
    return a.begin_ns < b.begin_ns;
  });
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(ready[i].link, communication[i].link);
    EXPECT_EQ(ready[i].step, 0U);
    EXPECT_EQ(ready[i].lane, Lane::kHost);
  }
  EXPECT_EQ(ready[1].begin_ns - ready[0].begin_ns, 2000);
  EXPECT_EQ(communication[0].begin_ns - ready[0].begin_ns, 10000);
}

TEST(Steps, CallsAndRowsThatDoNotBelongTogetherGiveNoReady) {
  KinetoText more = two_on_threads("[]", "[]");
  more.slice("cpu_op", "c10d::allreduce_", "116", "1", "1");
  EXPECT_TRUE(of_kind(read(more), RecordKind::kReady).empty());
  KinetoText early = two_on_threads("[]", "[]");
  early.slice("user_annotation", "gloo:broadcast", "105", "5", "2");  // begins before its call
  EXPECT_EQ(of_kind(read(early), RecordKind::kReady).size(), 2U);
}

TEST(Steps, ShapesOfAHostRowGiveItsBytes) {
  const auto bytes = [](std::string_view dims, std::string_view type) {
    return of_kind(read(two_on_threads(dims, type)), RecordKind::kCommunication).at(0).bytes;
  };
  EXPECT_EQ(bytes("[[262656]]", R"(["float"])"), 1050624);
  EXPECT_EQ(bytes("[[3, 5], [2]]", R"(["c10::BFloat16", "c10::BFloat16"])"), 34);
  EXPECT_EQ(bytes("[[]]", R"(["long int"])"), 8);  // a scalar
  // Unknown is 0: types that differ or are not known, lists of tensors, counts that do not agree.
  EXPECT_EQ(bytes("[[3], [2]]", R"(["float", "double"])"), 0);
  EXPECT_EQ(bytes("[[3]]", R"(["c10::Anything"])"), 0);
  EXPECT_EQ(bytes("[[[3]]]", R"(["TensorList"])"), 0);
  EXPECT_EQ(bytes("[[[3]]]", R"(["float"])"), 0);
  EXPECT_EQ(bytes("[[3]]", "[]"), 0);
  EXPECT_EQ(bytes("[[9223372036854775807, 9223372036854775807]]", R"(["float"])"), 0);
  EXPECT_EQ(bytes("[[-3]]", R"(["float"])"), 0);
  EXPECT_EQ(bytes("12", "true"), 0);
}

TEST(Steps, AnEmptyTraceHasNone) {
  const Trace trace = read(KinetoText());
  EXPECT_TRUE(trace.timeline.records.empty());
  EXPECT_EQ(trace.timeline.steps_total, 0U);
}

TEST(Steps, HostRecordsOfACallGiveItsMetadata) {
  KinetoText text;
  text.annotation("ProfilerStep#1", 100, 200)
      .slice("cpu_op",
             "record_param_comms",
             "120",
             "20",
             "1",
             R"("Collective name": "allreduce", "In msg nelems": 100, "Out msg nelems": 100,
                "Group size": 2, "dtype": "Float", "Process Group Name": "0", "Seq": 3)")
      .slice("cpu_op", "record_param_comms", "150", "20", "1", R"("Collective name": "wait")")
      .launch(125, 2, 1, 1)
      .launch(155, 2, 1, 2)
      .launch(125, 2, 2, 3)
      .kernel("ncclDevKernel_Generic(x)", 130, 20, 20, 1)
      .kernel("ncclDevKernel_Generic(x)", 160, 20, 20, 2)
      .kernel("ncclDevKernel_Generic(x)", 200, 20, 20, 3);
  const std::vector<Record> communication = of_kind(read(text), RecordKind::kCommunication);
  ASSERT_EQ(communication.size(), 3U);
  EXPECT_EQ(communication[0].bytes, 400);
  EXPECT_EQ(communication[0].collective, Collective::kAllReduce);
  EXPECT_NE(communication[0].call, kNoId);
  EXPECT_EQ(communication[1].call, kNoId) << "launched in a wait";
  EXPECT_EQ(communication[2].call, kNoId) << "launched on another thread";
}

// --- Several files
// --------------------------------------------------------------------------------

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "stretto-trace-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

std::string of_rank(int rank) {
  return ddp(2)
      .member(R"("distributedInfo": {"backend": "nccl", "rank": )" + std::to_string(rank) +
              R"(, "world_size": 8})")
      .text();
}

TEST_F(Files, LinksToNowhereAreOtherEntries) {
  write("a.json", of_rank(0));
  std::filesystem::create_symlink("b.json", folder() / "b.json");  // to itself
  std::filesystem::create_symlink("nowhere.json", folder() / "c.json");
  EXPECT_EQ(find_traces({folder().string()}).size(), 1U);
}

TEST_F(Files, RanksComeFromMetadataThenNamesThenOrder) {
  const Trace trace = read_traces({write("a.json", of_rank(6)),
                                   write("job_rank3.json", ddp(2).text()),
                                   write("c.json", ddp(2).text()),
                                   write("Rank-04.json", ddp(2).text())});
  ASSERT_EQ(trace.files.size(), 4U);
  const std::vector<std::pair<std::uint32_t, std::string>> expected = {
      {6, "metadata"}, {3, "file name"}, {2, "order"}, {4, "file name"}};
  std::map<std::uint32_t, int> step_records;
  for (const Record& record : of_kind(trace, RecordKind::kStep)) {
    ++step_records[record.rank];
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(trace.files[i].rank, expected[i].first);
    EXPECT_EQ(trace.files[i].rank_from, expected[i].second);
    EXPECT_EQ(step_records[expected[i].first], 2) << "rank " << expected[i].first;
  }
  EXPECT_EQ(trace.timeline.world_size, 8U);
  EXPECT_EQ(trace.timeline.steps_total, 2U) << "the same steps on each rank";
}

TEST_F(Files, TwoOfOneRankAreRefused) {
  try {
    (void)read_traces({write("a.json", of_rank(6)), write("b.json", of_rank(6))});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    for (const char* part : {"a.json", "b.json", "rank 6", "metadata"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST_F(Files, NamesAreSharedAndTimesHaveOneOrigin) {
  const auto with_base = [](int rank, const std::string& base) {
    return KinetoText()
        .member(R"("distributedInfo": {"rank": )" + std::to_string(rank) + "}")
        .member(R"("baseTimeNanoseconds": )" + base)
        .kernel("gemm", 100, 5, 7, 1)
        .text();
  };
  const Trace trace = read_traces({write("a.json", with_base(0, "1700000000000000000")),
                                   write("b.json", with_base(1, "1700000000000007000"))});
  const std::vector<Record> kernels = of_kind(trace, RecordKind::kCompute);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].begin_ns, 0);
  EXPECT_EQ(kernels[1].begin_ns, 7000);
  EXPECT_EQ(kernels[0].name, kernels[1].name);
  EXPECT_EQ(trace.timeline.origin_unix_ns, 1700000000000100000);
}

TEST_F(Files, AFaultNamesItsFile) {
  const std::filesystem::path good = write("a_rank0.json", ddp(2).text());
  const std::filesystem::path bad = write("b_rank1.json", ddp(2).text().substr(0, 500));
  try {
    (void)read_traces({good, bad});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("b_rank1.json, byte "), std::string::npos)
        << error.what();
  }
  TraceReadOptions options;
  options.salvage = true;
  const Trace trace = read_traces({good, bad}, options);
  EXPECT_FALSE(trace.files[0].fault);
  EXPECT_TRUE(trace.files[1].fault);
}

TEST_F(Files, FoundInFoldersByNumber) {
  for (const char* name : {"rank10.json",
                           "rank9.json.gz",
                           "rank1.pt.trace.json",
                           "rank02.json",
                           "notes.txt",
                           "sub/rank3.json",
                           ".json"}) {
    write(name, "[]");
  }
  std::vector<std::string> names;
  for (const std::filesystem::path& path : find_traces({folder().string()})) {
    names.push_back(path.filename().string());
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "rank1.pt.trace.json", "rank02.json", "rank9.json.gz", "rank10.json"}));
  // Files as they are named, in that order, whatever they are called.
  const std::vector<std::string> named = {(folder() / "notes.txt").string(),
                                          (folder() / "rank10.json").string()};
  const std::vector<std::filesystem::path> found = find_traces(named);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], named[0]);
  EXPECT_EQ(found[1], named[1]);
}

TEST_F(Files, NoneFoundIsSaid) {
  write("notes.txt", "");
  for (const auto& [name, part] :
       {std::pair(folder().string(), std::string("1 other entries")),
        std::pair((folder() / "missing").string(), std::string("no such trace"))}) {
    try {
      (void)find_traces({name});
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace stretto
