// SPDX-License-Identifier: Apache-2.0
// Rows that come as a begin and an end: ph B and E of a thread, b and e of an id.
#include <algorithm>
#include <cstdint>
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

/// One half of a pair. Categories stand at begins only: ends may leave them out.
std::string half(const std::string& ph,
                 const std::string& name,
                 const std::string& ts,
                 const std::string& more) {
  return R"({"ph": ")" + ph + R"(", "pid": 0, "ts": )" + ts +
         (name.empty() ? "" : R"(, "name": ")" + name + '"') + ", " + more + "}";
}

std::string begin(const std::string& name, const std::string& ts, int thread) {
  return half("B",
              name,
              ts,
              R"("cat": "kernel", "tid": )" + std::to_string(thread) +
                  R"(, "args": {"device": 0, "stream": )" + std::to_string(thread) + "}");
}
std::string end(const std::string& name, const std::string& ts, int thread) {
  return half("E", name, ts, R"("tid": )" + std::to_string(thread));
}

struct Row {
  std::string name;
  std::int64_t begin_ns, end_ns;
  std::uint32_t stream;
  RecordKind kind;
  auto operator<=>(const Row&) const = default;
};

std::vector<Row> device_rows(const Trace& trace) {
  std::vector<Row> rows;
  for (const Record& record : trace.timeline.records) {
    if (record.lane != Lane::kHost && record.device != kNoId && record.kind != RecordKind::kStep) {
      rows.push_back({trace.timeline.names[record.name],
                      record.begin_ns + trace.zero_ns,
                      record.end_ns + trace.zero_ns,
                      record.stream,
                      record.kind});
    }
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

Trace read(const KinetoText& text, const TraceReadOptions& options = {}) {
  return read_trace_text(text.text(), "trace.json", options);
}

bool has_pair_note(const Trace& trace) {
  return std::any_of(
      trace.files[0].notes.begin(), trace.files[0].notes.end(), [](const std::string& note) {
        return note.find("never") != std::string::npos;
      });
}

TEST(Pairs, NestByThreadAndKeepNanoseconds) {
  const Trace trace = read(KinetoText()
                               .event(begin("outer", "10.001", 7))
                               .event(begin(kAllReduce, "12", 8))  // another stream between them
                               .event(begin("inner", "11.500", 7))
                               .event(end("", "12.750", 7))  // ends may have no name
                               .event(end("outer", "20.002", 7))
                               .event(end(kAllReduce, "15", 8)));
  const std::vector<Row> expected = {{"inner", 11500, 12750, 7, RecordKind::kCompute},
                                     {kAllReduce, 12000, 15000, 8, RecordKind::kCommunication},
                                     {"outer", 10001, 20002, 7, RecordKind::kCompute}};
  EXPECT_EQ(device_rows(trace), expected);
  EXPECT_FALSE(has_pair_note(trace));
  EXPECT_EQ(trace.files[0].events, 6U);
}

TEST(Pairs, AnEndOfAnOuterOneLeavesTheInnerUnended) {
  const Trace trace = read(KinetoText()
                               .event(begin("outer", "10", 7))
                               .event(begin("lost", "11", 7))
                               .event(end("outer", "20", 7))
                               .event(end("nobody", "21", 7)));
  EXPECT_EQ(device_rows(trace),
            (std::vector<Row>{{"outer", 10000, 20000, 7, RecordKind::kCompute}}));
  ASSERT_FALSE(trace.files[0].notes.empty());
  EXPECT_NE(trace.files[0].notes[0].find("1 never end and 1 never began"), std::string::npos)
      << trace.files[0].notes[0];
}

TEST(Pairs, OfIdsNeedTheSameCategory) {
  const std::string args = R"(, "args": {"device": 0, "stream": 7}, "tid": )";
  const auto async = [&](const char* ph, const char* id, const char* ts, const char* cat) {
    return half(
        ph, "gemm", ts, R"("cat": ")" + std::string(cat) + R"(", "id": )" + id + args + "7");
  };
  const Trace trace = read(KinetoText()
                               .event(async("b", "1", "10", "kernel"))
                               .event(async("b", "\"0x2\"", "11", "kernel"))
                               .event(async("e", "1", "14", "other"))  // of another category
                               .event(async("e", "\"0x2\"", "13", "kernel"))
                               .event(async("e", "1", "15", "kernel")));
  EXPECT_EQ(device_rows(trace),
            (std::vector<Row>{{"gemm", 10000, 15000, 7, RecordKind::kCompute},
                              {"gemm", 11000, 13000, 7, RecordKind::kCompute}}));
  EXPECT_TRUE(has_pair_note(trace));
}

TEST(Pairs, HostRowsAndStepsToo) {
  const Trace trace =
      read(KinetoText()
               .event(half("B", "ProfilerStep#1", "0", R"("cat": "user_annotation", "tid": 1)"))
               .event(half("B", "gloo:all_reduce", "5", R"("cat": "user_annotation", "tid": 2)"))
               .event(half("E", "gloo:all_reduce", "9", R"("tid": 2)"))
               .event(half("E", "ProfilerStep#1", "100", R"("tid": 1)")));
  EXPECT_EQ(trace.files[0].steps_from, "ProfilerStep");
  EXPECT_EQ(std::count_if(trace.timeline.records.begin(),
                          trace.timeline.records.end(),
                          [](const Record& record) {
                            return record.kind == RecordKind::kCommunication &&
                                   record.end_ns - record.begin_ns == 4000;
                          }),
            1);
}

TEST(Pairs, PythonFramesEndTheirOwn) {
  const Trace trace =
      read(KinetoText()
               .event(begin("gemm", "10", 7))
               .event(half("B", "f.py(1): f", "11", R"("cat": "python_function", "tid": 7)"))
               .event(end("", "12", 7))
               .event(end("", "20", 7)));
  EXPECT_EQ(device_rows(trace),
            (std::vector<Row>{{"gemm", 10000, 20000, 7, RecordKind::kCompute}}));
}

TEST(Pairs, AnEndThatIsNoTimeIsAFault) {
  KinetoText text;
  text.event(begin("gemm", "10", 7)).event(end("gemm", "\"soon\"", 7)).event(begin("x", "30", 7));
  EXPECT_THROW((void)read(text), Error);
  TraceReadOptions options;
  options.salvage = true;
  const Trace trace = read(text, options);
  EXPECT_EQ(trace.files[0].lost, 1U);
  EXPECT_TRUE(device_rows(trace).empty());
}

TEST(Pairs, OpenOnesAreNotKeptWithoutLimit) {
  KinetoText text;
  const std::string name(1 << 16U, 'x');
  for (int i = 0; i < 200; ++i) {
    text.event(begin(name, std::to_string(i), 7));
  }
  text.event(end(name, "300", 7));
  const Trace trace = read(text);
  EXPECT_EQ(device_rows(trace).size(), 1U);
  ASSERT_FALSE(trace.files[0].notes.empty());
  EXPECT_NE(trace.files[0].notes[0].find("199 never end"), std::string::npos)
      << trace.files[0].notes[0];
}

/// What MTIA's profiler writes of two rows on the device.
KinetoText mtia_text() {
  KinetoText text;
  text.slice("mtia_runtime", "runFunction - job_prep", "1", "2", "1", R"("correlation": 18)")
      .slice("mtia_ccp_events",
             "fc-dtype_Float",
             "10",
             "5",
             "408",
             R"("correlation": 18, "stream": 102, "column": "0", "row": "0")")
      .slice("mtia_ccp_events",
             "dma_request",
             "12",
             "8",
             "801",
             R"("direction": "DEVICE_TO_HOST", "size": 16, "sqid": 1)");
  return text;
}

/// Its collectives have rows on the host only: a device without communication would say that
/// nothing is exposed.
TEST(Mtia, ItsRowsAreNoDeviceThatNeverCommunicates) {
  const Trace trace = read(mtia_text());
  EXPECT_TRUE(device_rows(trace).empty());
  ASSERT_EQ(trace.files[0].notes.size(), 1U);
  EXPECT_NE(trace.files[0].notes[0].find("2 rows of MTIA's devices"), std::string::npos)
      << trace.files[0].notes[0];
}

TEST(Mtia, CopiesAndKernelsOfOneCategoryWhereTheyCount) {
  TraceReadOptions options;
  options.rows_without_collectives = true;
  const Trace trace = read(mtia_text(), options);
  EXPECT_EQ(device_rows(trace),
            (std::vector<Row>{{"dma_request", 12000, 20000, 801, RecordKind::kCopy},
                              {"fc-dtype_Float", 10000, 15000, 102, RecordKind::kCompute}}));
  for (const Record& record : trace.timeline.records) {
    EXPECT_EQ(record.bytes, record.kind == RecordKind::kCopy ? 16 : 0);
    EXPECT_TRUE(record.kind != RecordKind::kCompute || record.link == 18U);
  }
}

}  // namespace
}  // namespace stretto
