// SPDX-License-Identifier: Apache-2.0
// What is passed over, cannot be linked or is given twice is said.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "stretto/base/error.hpp"
#include "stretto/trace/trace.hpp"
#include "trace/trace_text.hpp"

namespace stretto {
namespace {

using testing::KinetoText;

constexpr const char* kSendRecv = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)";

Trace read(const KinetoText& text, const TraceReadOptions& options = {}) {
  return read_trace_text(text.text(), "trace.json", options);
}

bool is_said(const std::vector<std::string>& notes, std::string_view part) {
  return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
    return note.find(part) != std::string::npos;
  });
}

bool says(const Trace& trace, std::string_view part) {
  return is_said(trace.files.at(0).notes, part);
}

TEST(Unread, RowsInPairsThatAreNone) {
  const Trace trace = read(KinetoText()
                               .kernel("gemm", 10, 5, 7, 1)
                               .event(R"({"ph": "B", "name": "a", "pid": 0, "tid": 7, "ts": 20})")
                               .event(R"({"ph": "E", "name": "a", "pid": 0, "tid": 8, "ts": 30})")
                               .event(R"({"ph": "e", "name": "a", "pid": 0, "id": 1, "ts": 40})"));
  EXPECT_TRUE(says(trace, "1 never end and 2 never began: these are not counted"));
}

TEST(Unread, RowsWithoutTimeStretchNoStep) {
  const Trace trace = read(KinetoText()
                               .kernel("gemm", 1'000'000, 50, 7, 1)
                               .kernel("lost", 0, 0, 7, 2)
                               .kernel("lost", 0, 0, 7, 3));
  EXPECT_TRUE(says(trace, "2 device rows have neither time nor duration"));
  for (const Record& record : trace.timeline.records) {
    if (record.kind == RecordKind::kStep) {
      EXPECT_EQ(record.end_ns - record.begin_ns, 50'000);
    }
  }
}

TEST(Unread, CategoriesWhereNoDeviceIsRead) {
  KinetoText text;
  for (int i = 0; i < 100; ++i) {
    text.slice("hpu_op", "pe_exe", std::to_string(10 * i), "5", "7", R"("device": 0)");
  }
  EXPECT_TRUE(says(read(text), "'hpu_op': 100"));
  text.kernel("gemm", 10, 5, 7, 1);
  EXPECT_FALSE(says(read(text), "hpu_op"));
}

TEST(Unread, KernelsTheProfilerLost) {
  KinetoText text;
  for (int i = 0; i < 100; ++i) {
    text.launch(10 * i, 2, 1, i);
    if (i < 41) {
      text.kernel("gemm", 10 * i + 5, 5, 7, i);
    }
  }
  EXPECT_TRUE(says(read(text), "59 of 100 kernel launches have no kernel in the file"));
  KinetoText whole;
  for (int i = 0; i < 100; ++i) {  // the end of a recording cuts some off
    whole.launch(10 * i, 2, 1, i);
    if (i < 95) {
      whole.kernel("gemm", 10 * i + 5, 5, 7, i);
    }
  }
  EXPECT_FALSE(says(read(whole), "kernel launches"));
}

TEST(Links, CorrelationsOfAnySizeLink) {
  KinetoText text;
  text.annotation("ProfilerStep#1", 0, 100);
  for (const char* id : {"4294967297", "9007199254740993", "4294967295", "2147483648"}) {
    text.slice(
        "cuda_runtime", "cudaLaunchKernel", "10", "1", "1", R"("correlation": )" + std::string(id));
    text.slice("kernel",
               "gemm",
               "20",
               "5",
               "7",
               R"("device": 0, "stream": 7, "correlation": )" + std::string(id));
  }
  const Trace trace = read(text);
  EXPECT_EQ(trace.files[0].unlinked, 0U);
  EXPECT_EQ(trace.files[0].steps_from, "ProfilerStep");
  std::vector<std::uint32_t> links;
  for (const Record& record : trace.timeline.records) {
    if (record.kind == RecordKind::kCompute) {
      EXPECT_NE(record.link, kNoId);
      links.push_back(record.link);
    }
  }
  std::sort(links.begin(), links.end());
  EXPECT_EQ(std::unique(links.begin(), links.end()) - links.begin(), 4);
}

TEST(Links, TheRowAroundALaunchTellsKindAndSize) {
  const Trace trace =
      read(KinetoText()
               .slice("user_annotation",
                      "nccl:all_to_all",
                      "10",
                      "20",
                      "1",
                      R"("Input Dims": [[6144]], "Input type": ["float"])")
               .slice("cuda_runtime", "cudaLaunchKernel", "15", "2", "1", R"("correlation": 1)")
               .kernel(kSendRecv, 40, 30, 7, 1)
               .slice("cuda_runtime", "cudaLaunchKernel", "50", "2", "1", R"("correlation": 2)")
               .kernel(kSendRecv, 80, 30, 7, 2));  // outside of any row
  std::vector<Record> kernels;
  for (const Record& record : trace.timeline.records) {
    if (record.kind == RecordKind::kCommunication && record.lane != Lane::kHost) {
      kernels.push_back(record);
    }
  }
  ASSERT_EQ(kernels.size(), 2U);
  std::sort(kernels.begin(), kernels.end(), [](const Record& a, const Record& b) {
    return a.begin_ns < b.begin_ns;
  });
  EXPECT_EQ(kernels[0].collective, Collective::kAllToAll);
  EXPECT_EQ(kernels[0].bytes, 6144 * 4);
  EXPECT_EQ(kernels[1].bytes, 0);
}

TEST(Steps, OfTwoTheLastMayBeCutOff) {
  const Trace trace = read(KinetoText()
                               .annotation("ProfilerStep#1", 0, 100)
                               .annotation("ProfilerStep#2", 100, 100)
                               .launch(10, 1, 1, 1)
                               .launch(20, 1, 1, 2)
                               .launch(110, 1, 1, 3)
                               .kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 30, 5, 7, 1)
                               .kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 40, 5, 7, 2)
                               .kernel("gemm", 120, 5, 8, 3));
  EXPECT_TRUE(says(trace, "the last of its two steps has 0 collectives, the first 2"));
}

TEST(Salvage, OfNothingIsAFault) {
  TraceReadOptions options;
  options.salvage = true;
  for (const char* text : {"garbage", "", "{\"traceEvents\": [ {\"ph\""}) {
    try {
      (void)read_trace_text(text, "trace.json", options);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kParse) << text;
    }
  }
  EXPECT_TRUE(
      is_said(read_trace_text("[]", "trace.json", options).files[0].notes, "it holds no events"));
}

class Given : public ::testing::Test {
 protected:
  Given()
      : folder_(std::filesystem::temp_directory_path() /
                ("stretto-given-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Given() override { std::filesystem::remove_all(folder_); }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;

  std::string write(const std::string& name) {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path) << KinetoText().kernel("gemm", 10, 5, 7, 1).text();
    return path.string();
  }

  std::filesystem::path folder_;
};

TEST_F(Given, TwiceIsRefused) {
  const std::string path = write("a.json");
  std::filesystem::create_symlink(path, folder_ / "b.json");
  try {
    (void)read_traces({path, (folder_ / "b.json").string()});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("b.json"), std::string::npos);
  }
}

TEST_F(Given, APatternThatCameQuoted) {
  write("x10.json");
  write("x9.json");
  write("y1.json");
  const auto found = find_traces({(folder_ / "x*.json").string()});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].filename(), "x9.json");
  EXPECT_THROW((void)find_traces({(folder_ / "z*.json").string()}), Error);
}

TEST_F(Given, RanksByOrderAreSaid) {
  const Trace trace = read_traces({write("a.json"), write("b.json")});
  EXPECT_TRUE(is_said(trace.notes, "2 of 2 files do not say which rank"));
  EXPECT_FALSE(
      is_said(read_traces({write("rank0.json"), write("rank1.json")}).notes, "do not say"));
}

}  // namespace
}  // namespace stretto
