// SPDX-License-Identifier: Apache-2.0
// Formats that are not PyTorch's: what each says, what it does not, and what is left of broken
// ones. All samples but the collected Nsight exports are made here.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stretto/analyze/devices.hpp"
#include "stretto/base/error.hpp"
#include "stretto/trace/nccl_tests.hpp"
#include "stretto/trace/trace.hpp"
#include "trace/export.hpp"

namespace stretto {
namespace {

using nlohmann::json;
using ::testing::UnitTest;

/// A folder of this test's own, gone with it.
class Formats : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("formats_") + UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] std::filesystem::path at(const std::string& name) const { return folder_ / name; }

  [[nodiscard]] static std::string bytes_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const std::filesystem::path& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path folder_;
};

using Nsys = Formats;
using Horovod = Formats;
using Inspector = Formats;
using NcclTests = Formats;

/// What an Error says, all on one line; empty if there is none.
template <typename Call>
std::string error_of(Call call, ErrorCode code = ErrorCode::kParse) {
  try {
    (void)call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return {};
}

bool has_note(const TraceFile& file, std::string_view part) {
  return std::any_of(file.notes.begin(), file.notes.end(), [&](const std::string& note) {
    return note.find(part) != std::string::npos;
  });
}

std::vector<Record> of_kind(const Trace& trace, RecordKind kind) {
  std::vector<Record> records;
  std::copy_if(trace.timeline.records.begin(),
               trace.timeline.records.end(),
               std::back_inserter(records),
               [&](const Record& record) { return record.kind == kind; });
  return records;
}

const std::string& name_of(const Trace& trace, const Record& record) {
  return trace.timeline.names.at(record.name);
}

TraceReadOptions salvaging() {
  TraceReadOptions options;
  options.salvage = true;
  return options;
}

// --- Nsight Systems

std::filesystem::path shared_traces() {
  const char* other = std::getenv("STRETTO_SHARED_TRACES");
  return other != nullptr ? std::filesystem::path(other)
                          : std::filesystem::path(STRETTO_SHARED_TRACES_DIR);
}

class NsysReference : public ::testing::TestWithParam<const char*> {};

void expect_same(const DeviceTotals& found, const json& expected) {
  const std::vector<std::pair<const char*, std::int64_t>> values = {
      {"n_comm", found.communication_count},
      {"n_compute", found.compute_count},
      {"n_copy", found.copy_count},
      {"streams", found.streams},
      {"comm_streams", found.communication_streams},
      {"comm_ns", found.communication_ns},
      {"comm_sum_ns", found.communication_sum_ns},
      {"compute_ns", found.compute_ns},
      {"compute_sum_ns", found.compute_sum_ns},
      {"exposed_ns", found.exposed_ns},
      {"exposed_xs_ns", found.exposed_other_streams_ns},
      {"exposed_incl_memcpy_ns", found.exposed_beside_copies_ns},
      {"hidden_ns", found.hidden_ns},
      {"device_span_ns", found.span_ns},
      {"idle_ns", found.idle_ns}};
  int compared = 0;
  for (const auto& [key, value] : values) {
    if (expected.contains(key)) {
      EXPECT_EQ(value, expected.at(key).get<std::int64_t>()) << key;
      ++compared;
    }
  }
  EXPECT_GE(compared, 7);
}

TEST_P(NsysReference, EqualsTheReferenceToTheNanosecond) {
  const std::filesystem::path path = shared_traces() / GetParam();
  std::ifstream lines(shared_traces() / "REFERENCE.jsonl");
  if (!std::filesystem::exists(path) || !lines) {
    GTEST_SKIP() << "no " << path << " (STRETTO_SHARED_TRACES names another folder)";
  }
  json expected;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(GetParam()) != std::string::npos) {
      expected = json::parse(line).at("devices");
    }
  }
  ASSERT_FALSE(expected.empty());
  const Trace trace = read_traces({path});
  EXPECT_EQ(trace.files[0].format, "nsys");
  EXPECT_EQ(trace.files[0].lost, 0U);
  EXPECT_GT(trace.timeline.origin_unix_ns, 1'600'000'000'000'000'000);
  std::map<std::string, DeviceTotals> all;
  std::map<std::string, DeviceTotals> linked;
  for (const DeviceTotals& device : device_totals(trace.timeline)) {
    EXPECT_TRUE(all.emplace(std::to_string(device.device), device).second);
  }
  for (const DeviceTotals& device : device_totals(trace.timeline, DeviceRows::kLinked)) {
    linked.emplace(std::to_string(device.device), device);
  }
  ASSERT_EQ(all.size(), expected.size());
  for (const auto& [device, values] : expected.items()) {
    SCOPED_TRACE("device " + device);
    expect_same(all.at(device), values);
    // Where all rows are linked the reference does not say it twice.
    expect_same(linked.at(device), values.contains("linked") ? values.at("linked") : values);
  }
}

INSTANTIATE_TEST_SUITE_P(Files,
                         NsysReference,
                         ::testing::Values("nsysai_2gpu_before.sqlite",
                                           "nsysai_h100_2gpu_1s.sqlite",
                                           "nsysai_tiny.sqlite",
                                           "pipit_cloverleaf_a100.sqlite"));

TEST_F(Nsys, ReadsANewExport) {
  write_export(at("new.sqlite"), new_schema() + R"sql(
    INSERT INTO StringIds VALUES (1, 'gemm<float>(int)'), (2, 'gemm'), (3, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL'),
      (4, 'cudaLaunchKernel'), (5, 'iteration 7'), (6, 'aten::add, op_id = 12');
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 300, 0, 7, 11, 0x1000005000000, 1, 2);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (200, 450, 0, 8, 12, 0x1000005000000, 3, 3);
    INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (500, 600, 0, 7, 13, 0x1000005000000, 4096, 1);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (50, 60, 0x1000005000005, 11, 4), (70, 80, 0x1000005000005, 12, 4),
      (90, 95, 0x1000005000005, 14, 4);
    INSERT INTO NVTX_EVENTS VALUES (40, 700, 59, 0x1000005000005, NULL, 5, NULL),
      (41, 45, 59, 0x1000005000005, NULL, 6, NULL), (42, 46, 59, 0x1000005000005, 'aten::mul, op_id = 13', NULL, NULL),
      (43, NULL, 34, 0x1000005000005, 'a mark', NULL, NULL);
    INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1779782330176752435);
  )sql");
  const Trace trace = read_traces({at("new.sqlite")});
  ASSERT_EQ(device_totals(trace.timeline).size(), 1U);
  const DeviceTotals totals = device_totals(trace.timeline)[0];
  EXPECT_EQ(totals.communication_ns, 250);
  EXPECT_EQ(totals.exposed_ns, 150);
  EXPECT_EQ(totals.copy_count, 1);
  EXPECT_EQ(trace.files[0].unlinked, 1U);  // the copy
  EXPECT_EQ(trace.files[0].base_ns, 1779782330176752435);
  // Time 0 is the first begin, by whole microseconds of the file: here its own 0.
  EXPECT_EQ(trace.timeline.origin_unix_ns, 1779782330176752435);
  // The full name, not the short one; of two launches each leads to its kernel, the third nowhere.
  EXPECT_EQ(name_of(trace, of_kind(trace, RecordKind::kCompute).at(0)), "gemm<float>(int)");
  EXPECT_EQ(of_kind(trace, RecordKind::kEnqueue).size(), 2U);
  EXPECT_EQ(of_kind(trace, RecordKind::kCopy).at(0).bytes, 4096);
  // Operators are no annotations, and make no names.
  ASSERT_EQ(of_kind(trace, RecordKind::kAnnotation).size(), 1U);
  EXPECT_EQ(trace.files[0].steps_from, "ranges named step or iteration");
  EXPECT_EQ(of_kind(trace, RecordKind::kStep).at(0).step, 7U);
  for (const std::string& name : trace.timeline.names) {
    EXPECT_EQ(name.find("op_id"), std::string::npos) << name;
  }
}

TEST_F(Nsys, ReadsAnOldExportThatLacksColumns) {
  // As of 2019: no demangled names, no process, no session time.
  write_export(at("old.sqlite"), R"sql(
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, "end" INT, deviceId INT, streamId INT, correlationId INT, shortName INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, "end" INT, globalTid INT, correlationId INT, nameId INT);
    CREATE TABLE EXPORT_META_DATA (name TEXT, value TEXT);
    INSERT INTO StringIds VALUES (1, 'gemm');
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 1, 7, 3, 1), (30, 45, 1, 7, 4, 9);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 0x1000005000005, 3, 8);
  )sql");
  const Trace trace = read_traces({at("old.sqlite")});
  const auto kernels = of_kind(trace, RecordKind::kCompute);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(name_of(trace, kernels[0]), "gemm");
  EXPECT_EQ(kernels[0].device, 1U);
  EXPECT_NE(kernels[0].link, kNoId);
  EXPECT_EQ(kernels[1].link, kNoId);
  EXPECT_TRUE(has_note(trace.files[0], "1 kernels have no name"));
  EXPECT_EQ(trace.files[0].base_ns, 0);
}

TEST_F(Nsys, TwoProcessesWithEqualCorrelationIdsAreTwoRanks) {
  write_export(at("two.sqlite"), new_schema() + R"sql(
    INSERT INTO StringIds VALUES (1, 'gemm'), (4, 'cudaLaunchKernel');
    -- The later process comes first, and both use id 11; only the first has the launch of its 12.
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 300, 1, 7, 11, 0x1000009000000, 1, 1), (310, 320, 1, 7, 12, 0x1000009000000, 1, 1);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (150, 250, 0, 7, 11, 0x1000005000000, 1, 1), (310, 330, 0, 7, 12, 0x1000005000000, 1, 1);
    INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 2, 0, 7, 1, 0x1000007000000, 10, 2);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (50, 60, 0x1000009000009, 11, 4), (10, 20, 0x1000005000005, 11, 4),
      (30, 35, 0x1000005000005, 12, 4), (30, 35, 0x1000003000003, 12, 4);
  )sql");
  const Trace trace = read_traces({at("two.sqlite")});
  EXPECT_EQ(trace.files[0].rank_count, 2U);
  EXPECT_EQ(trace.timeline.world_size, 2U);
  const auto all = device_totals(trace.timeline);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(std::tuple(all[0].rank, all[0].device, all[0].compute_ns), std::tuple(0U, 0U, 120));
  EXPECT_EQ(std::tuple(all[1].rank, all[1].device, all[1].compute_ns), std::tuple(1U, 1U, 210));
  const auto linked = device_totals(trace.timeline, DeviceRows::kLinked);
  EXPECT_EQ(linked.at(0).compute_ns, 120);
  EXPECT_EQ(linked.at(1).compute_ns, 200);  // id 12 of the other process is another
  EXPECT_EQ(trace.files[0].unlinked, 1U);
  EXPECT_TRUE(has_note(trace.files[0], "process 7 has no kernels: its 1 copies"));
  // Two such files: the second one's ranks go on where the first one's end.
  std::filesystem::copy_file(at("two.sqlite"), at("two_rank1.sqlite"));
  const Trace both = read_traces({at("two.sqlite"), at("two_rank1.sqlite")});
  EXPECT_EQ(device_totals(both.timeline).size(), 4U);
  EXPECT_EQ(both.files[1].rank, 2U);
}

TEST_F(Nsys, GivesKernelsTheBytesOfNcclsOwnRanges) {
  write_export(at("payload.sqlite"),
               new_schema() + R"sql(
    CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INT, schemaId INT, idx INT, type INT, name TEXT, "offset" INT);
    INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (1, 16777223, 0, 18, 'NCCL communicator ID', NULL),
      (1, 16777223, 1, 22, 'Message size [bytes]', 8), (1, 16777218, 0, 18, 'NCCL communicator ID', NULL),
      (1, 16777218, 1, 5, 'No. of ranks', 8), (1, 16777226, 0, 18, 'NCCL communicator ID', NULL),
      (1, 16777226, 1, 22, 'Message size [bytes]', 8), (1, 16777226, 2, 5, 'Peer rank', 16);
    INSERT INTO StringIds VALUES (1, 'gemm'), (3, 'ncclDevKernel_SendRecv'), (4, 'cudaLaunchKernelExC'),
      (5, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL'), (6, 'ncclDevKernel_ReduceScatter_Sum_f32_RING_LL');
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 300, 0, 7, 11, 0x1000005000000, 5, 5),
      (400, 500, 0, 7, 12, 0x1000005000000, 6, 6), (600, 700, 0, 7, 13, 0x1000005000000, 3, 3),
      (800, 900, 0, 7, 14, 0x1000005000000, 5, 5), (901, 902, 0, 7, 15, 0x1000005000000, 5, 5);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (52, 53, 0x1000005000005, 11, 4), (62, 63, 0x1000005000005, 12, 4),
      (77, 78, 0x1000005000005, 13, 4), (82, 83, 0x1000005000005, 14, 4), (84, 85, 0x1000005000005, 15, 4);
  )sql" + nccl_range(10, 20, "ncclCommInitRank", 16777218, 0xbeef, {{8, 4, 4}}) +
                   nccl_range(50, 55, "nccl:all_reduce", 0, 0, {}) +
                   nccl_range(51, 54, "ncclAllReduce", 16777223, 0xbeef, {{8, 8, 4096}}) +
                   nccl_range(61, 64, "ncclReduceScatter", 16777223, 0xbeef, {{8, 8, 1000}}) +
                   nccl_range(70, 71, "ncclGroupStart", 0, 0, {}) +
                   nccl_range(72, 73, "ncclSend", 16777226, 0xbeef, {{8, 8, 300}, {16, 4, 1}}) +
                   nccl_range(74, 75, "ncclRecv", 16777226, 0xbeef, {{8, 8, 200}, {16, 4, 2}}) +
                   nccl_range(76, 79, "ncclGroupEnd", 0, 0, {}) +
                   nccl_range(81, 86, "ncclAllReduce", 16777223, 0xbeef, {{8, 8, 77}}));
  const Trace trace = read_traces({at("payload.sqlite")});
  const auto kernels = of_kind(trace, RecordKind::kCommunication);
  ASSERT_EQ(kernels.size(), 5U);
  EXPECT_EQ(kernels[0].bytes, 4096);
  EXPECT_EQ(kernels[1].bytes, 4000);  // of all four ranks
  EXPECT_EQ(kernels[2].bytes, 300);   // both directions at once
  EXPECT_EQ(kernels[2].collective, Collective::kSendRecv);
  EXPECT_EQ(kernels[3].bytes, 0);  // two kernels in one range: nothing says which moved what
  EXPECT_EQ(kernels[4].bytes, 0);
  const CollectiveCall& call = trace.timeline.calls.at(kernels[1].call);
  EXPECT_EQ(call.group_size, 4U);
  EXPECT_EQ(call.in_elements, 4000);
  EXPECT_EQ(call.out_elements, 1000);
  EXPECT_EQ(trace.timeline.names.at(call.group), "0xbeef");
  EXPECT_EQ(trace.files[0].world_size, 4U);
  // The ranges are no communication of their own.
  EXPECT_TRUE(host_totals(trace.timeline).empty());
  ASSERT_EQ(of_kind(trace, RecordKind::kAnnotation).size(), 1U);  // PyTorch's
}

TEST_F(Nsys, OnlyTheMainThreadMarksSteps) {
  write_export(at("threads.sqlite"), new_schema() + R"sql(
    INSERT INTO StringIds VALUES (1, 'gemm');
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 300, 0, 7, 11, 0x1000005000000, 1, 1);
    INSERT INTO NVTX_EVENTS VALUES (40, 700, 59, 0x1000005000005, 'step 1', NULL, NULL), (45, 50, 59, 0x1000005000006, 'step 9', NULL, NULL);
  )sql");
  const Trace trace = read_traces({at("threads.sqlite")});
  ASSERT_EQ(of_kind(trace, RecordKind::kAnnotation).size(), 1U);
  EXPECT_EQ(name_of(trace, of_kind(trace, RecordKind::kAnnotation)[0]), "step 1");
}

TEST_F(Nsys, SaysWhatIsMissing) {
  write_export(at("graphs.sqlite"), new_schema() + R"sql(
    CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, "end" INT);
    INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1, 2), (3, 4);
    DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL;
  )sql");
  const Trace trace = read_traces({at("graphs.sqlite")});
  EXPECT_TRUE(has_note(trace.files[0], "2 launches of CUDA graphs"));
  EXPECT_TRUE(has_note(trace.files[0], "no kernels in it"));
  EXPECT_TRUE(device_totals(trace.timeline).empty());
}

TEST_F(Nsys, ReadsFromADirectoryThatCannotBeWrittenAndWhenPacked) {
  write_export(at("a file?with#marks%20.sqlite"), new_schema() + R"sql(
    PRAGMA journal_mode = WAL;
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 300, 0, 7, 11, 0x1000005000000, 1, 1);
  )sql");
  const std::string bytes = bytes_of(at("a file?with#marks%20.sqlite"));
  ASSERT_EQ(bytes[18], 2) << "SQLite did not keep the log's version";
  std::filesystem::permissions(
      at(""), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_EQ(device_totals(read_traces({at("a file?with#marks%20.sqlite")}).timeline).size(), 1U);
  EXPECT_EQ(device_totals(read_trace_text(bytes, "packed").timeline).size(), 1U);
}

TEST_F(Nsys, CorruptPagesAreAFaultAndWhatWasReadIsUsed) {
  std::string rows;
  for (int i = 0; i < 2000; ++i) {
    rows += (i == 0 ? "(" : ", (") + std::to_string(1000 + 10 * i) + ", " +
            std::to_string(1004 + 10 * i) + ", 0, 7, 11, 0x1000005000000, 1, 1)";
  }
  write_export(at("whole.sqlite"),
               new_schema() + "INSERT INTO StringIds VALUES (1, 'gemm');" +
                   "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES " + rows + ";");
  std::string bytes = bytes_of(at("whole.sqlite"));
  // Pages in the middle of the kernels become noise.
  constexpr std::size_t kPage = 4096;
  ASSERT_GT(bytes.size(), 20 * kPage);
  std::fill(bytes.begin() + 15 * kPage, bytes.begin() + 17 * kPage, '\xa5');
  write(at("broken.sqlite"), bytes);
  const std::string message = error_of([&] { return read_traces({at("broken.sqlite")}); });
  EXPECT_NE(message.find("broken.sqlite, row "), std::string::npos) << message;
  EXPECT_NE(message.find("CUPTI_ACTIVITY_KIND_KERNEL: SQLite says: "), std::string::npos)
      << message;
  EXPECT_NE(message.find("--salvage"), std::string::npos) << message;
  const Trace trace = read_traces({at("broken.sqlite")}, salvaging());
  ASSERT_TRUE(trace.files[0].fault);
  const std::int64_t kept = device_totals(trace.timeline).at(0).compute_count;
  EXPECT_GT(kept, 100);
  EXPECT_LT(kept, 2000);
  EXPECT_EQ(trace.files[0].fault->offset, static_cast<std::uint64_t>(kept) + 1);
  // Cut off: the same, or nothing if the schema is gone.
  for (const std::size_t size : {std::size_t{100}, 3 * kPage, 12 * kPage + 77}) {
    SCOPED_TRACE(size);
    write(at("broken.sqlite"), bytes.substr(0, size));
    EXPECT_FALSE(error_of([&] { return read_traces({at("broken.sqlite")}); }).empty());
    try {
      EXPECT_TRUE(read_traces({at("broken.sqlite")}, salvaging()).files[0].fault);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("nothing of a trace can be used"),
                std::string::npos);
    }
  }
}

TEST_F(Nsys, RowsWithoutTimesAreLost) {
  write_export(at("nulls.sqlite"), R"sql(
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, "end" INT, deviceId INT);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0), (NULL, 20, 0), (30, 'late', 0), (9223372036854775807, 5, 0), (50, 40, 0);
  )sql");
  const std::string message = error_of([&] { return read_traces({at("nulls.sqlite")}); });
  EXPECT_NE(message.find("row 2"), std::string::npos) << message;
  EXPECT_NE(message.find("a row without a start and an end"), std::string::npos) << message;
  const Trace trace = read_traces({at("nulls.sqlite")}, salvaging());
  EXPECT_EQ(trace.files[0].lost, 3U);
  EXPECT_EQ(trace.files[0].negative, 1U);
  EXPECT_EQ(device_totals(trace.timeline).at(0).compute_ns, 10);
}

TEST_F(Nsys, OtherDatabasesAndUnexportedReportsAreRefused) {
  write_export(at("other.sqlite"),
               "CREATE TABLE experiments (id INT); CREATE TABLE runs (id INT);");
  const std::string message = error_of([&] { return read_traces({at("other.sqlite")}); });
  EXPECT_NE(message.find("experiments, runs"), std::string::npos) << message;
  write(at("report.nsys-rep"), std::string("\x01\x02\x03 no text", 11));
  const std::string advice = error_of([&] { return read_traces({at("report.nsys-rep")}); });
  EXPECT_NE(advice.find("nsys export --type sqlite"), std::string::npos) << advice;
}

TEST_F(Nsys, ViewsInTheirPlaceAreNotRun) {
  write_export(at("view.sqlite"), R"sql(
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
    CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS "end", 0 AS deviceId;
  )sql");
  const Trace trace = read_traces({at("view.sqlite")});
  EXPECT_TRUE(has_note(trace.files[0], "no kernels in it"));
}

// --- Horovod

/// Two tensors fused into one exchange, then one alone; as Horovod 0.28 writes it.
constexpr std::string_view kHorovod = R"([
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1700000000000000}},
{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad.a"}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 100, "pid": 1},
{"ph": "X", "name": "0", "ts": 100, "pid": 1, "dur": 0},
{"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "grad.b"}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 101, "pid": 2},
{"ph": "X", "name": "1", "ts": 130, "pid": 1, "dur": 0},
{"ph": "E", "ts": 150, "pid": 1},
{"ph": "E", "ts": 151, "pid": 2},
{"ph": "i", "name": "CYCLE_START", "ts": 152, "s": "g"},
{"ph": "B", "name": "ALLREDUCE", "ts": 160, "pid": 1},
{"ph": "B", "name": "ALLREDUCE", "ts": 160, "pid": 2},
{"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 161, "pid": 1},
{"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 161, "pid": 2},
{"ph": "E", "ts": 170, "pid": 1},
{"ph": "E", "ts": 170, "pid": 2},
{"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 171, "pid": 1},
{"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 172, "pid": 2},
{"ph": "E", "ts": 200, "pid": 1},
{"ph": "E", "ts": 201, "pid": 2},
{"ph": "E", "ts": 210, "pid": 1, "args": {"dtype": "float32", "shape": "[64, 3]"}},
{"ph": "E", "ts": 211, "pid": 2, "args": {"dtype": "float16", "shape": "[10]"}},
{"ph": "B", "name": "BROADCAST", "ts": 300, "pid": 1},
{"ph": "B", "name": "MPI_BCAST", "ts": 301, "pid": 1},
{"ph": "E", "ts": 320, "pid": 1},
{"ph": "E", "ts": 321, "pid": 1, "args": {"dtype": "float32", "shape": "[]"}}
)";

TEST_F(Horovod, ExchangesAreRecordsOfAllTheirTensors) {
  const Trace trace = read_trace_text(kHorovod, "timeline.json");
  const TraceFile& file = trace.files[0];
  EXPECT_EQ(file.format, "horovod");
  EXPECT_FALSE(file.fault) << file.fault->what;
  EXPECT_EQ(file.backend, "nccl");
  EXPECT_EQ(file.world_size, 2U);
  EXPECT_EQ(trace.timeline.origin_unix_ns, 1'700'000'000'000'000'000 + 171'000);
  const auto exchanges = of_kind(trace, RecordKind::kCommunication);
  ASSERT_EQ(exchanges.size(), 2U);
  EXPECT_EQ(exchanges[0].end_ns - exchanges[0].begin_ns, 30'000);
  EXPECT_EQ(exchanges[0].bytes, 64 * 3 * 4 + 10 * 2);
  EXPECT_EQ(exchanges[0].collective, Collective::kAllReduce);
  EXPECT_EQ(exchanges[1].collective, Collective::kBroadcast);
  EXPECT_EQ(exchanges[1].bytes, 4);
  EXPECT_EQ(exchanges[1].sequence, 1U);
  EXPECT_EQ(host_totals(trace.timeline).at(0).communication_ns, 49'000);
  EXPECT_TRUE(has_note(file, "holds no compute"));
  EXPECT_TRUE(has_note(file, "2 exchanges of 3 tensors"));
  EXPECT_TRUE(has_note(file, "0.051 ms"));  // negotiation: 100 to 151
  EXPECT_TRUE(has_note(file, "is not closed"));
  // Closed, as newer ones are, it is the same.
  const Trace closed = read_trace_text(std::string(kHorovod) + "]", "timeline.json");
  EXPECT_EQ(closed.timeline.records.size(), trace.timeline.records.size());
  EXPECT_FALSE(has_note(closed.files[0], "is not closed"));
}

TEST_F(Horovod, EndsWithoutBeginsAndBeginsWithoutEndsAreLeftOut) {
  const Trace trace = read_trace_text(R"([
    {"ph": "E", "ts": 5, "pid": 1},
    {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 10, "pid": 1},
    {"ph": "E", "ts": 11, "pid": 1},
    {"ph": "B", "name": "ALLREDUCE", "ts": 12, "pid": 1},
    {"ph": "B", "name": "GLOO_ALLREDUCE", "ts": 13, "pid": 1},
    )",
                                      "cut");
  EXPECT_TRUE(of_kind(trace, RecordKind::kCommunication).empty());
  EXPECT_TRUE(has_note(trace.files[0], "1 exchanges had not ended"));
  EXPECT_TRUE(has_note(trace.files[0], "1 phases have no begin"));
}

TEST_F(Horovod, AnEventThatIsCutOffIsAFault) {
  const std::string cut(kHorovod.substr(0, kHorovod.size() - 30));
  EXPECT_NE(
      error_of([&] { return read_trace_text(cut, "cut"); }).find("the text ends inside event"),
      std::string::npos);
  const Trace trace = read_trace_text(cut, "cut", salvaging());
  EXPECT_EQ(trace.files[0].lost, 1U);
  EXPECT_EQ(of_kind(trace, RecordKind::kCommunication).size(), 2U);
  const std::string odd = R"([{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": "noon", "pid": 1},
    {"ph": "E", "ts": 4, "pid": 1}])";
  EXPECT_NE(error_of([&] { return read_trace_text(odd, "odd"); }).find("'noon'"),
            std::string::npos);
}

// --- NCCL Inspector

std::string inspector_line(int rank, int sequence, std::int64_t written_us, std::string_view more) {
  return R"({"header": {"id": "0x7f8c496ae9f661", "rank": )" + std::to_string(rank) +
         R"(, "n_ranks": 8, "nnodes": 1}, "metadata": {"inspector_output_format_version": "v4.0", )"
         R"("dump_timestamp_us": )" +
         std::to_string(written_us) +
         R"(, "hostname": "node", "pid": 9}, "coll_perf": {"coll": "AllReduce", "coll_sn": )" +
         std::to_string(sequence) +
         R"(, "coll_msg_size_bytes": 1000, "coll_exec_time_us": 40, "coll_timing_source": "kernel_gpu", )"
         R"("coll_algobw_gbs": 0.025, "coll_busbw_gbs": 0.04375)" +
         std::string(more) + "}}\n";
}

TEST_F(Inspector, WithoutStartTimesOperationsEndWhenTheyWereWritten) {
  const std::string text = inspector_line(2, 7, 1'748'030'377'748'202, "") +
                           inspector_line(2, 8, 1'748'030'377'748'202, "") +
                           inspector_line(2, 12, 1'748'030'377'749'000, "");
  const Trace trace = read_trace_text(text, "inspector.log");
  const TraceFile& file = trace.files[0];
  EXPECT_EQ(file.format, "nccl-inspector");
  EXPECT_EQ(std::tuple(file.rank, file.rank_from, file.world_size, file.backend),
            std::tuple(2U, "metadata", 8U, "nccl"));
  const auto operations = of_kind(trace, RecordKind::kCommunication);
  ASSERT_EQ(operations.size(), 3U);
  // The first two were written together: one after the other, the later one ending then.
  EXPECT_EQ(operations[0].end_ns, operations[1].begin_ns);
  EXPECT_EQ(trace.timeline.origin_unix_ns + operations[1].end_ns, 1'748'030'377'748'202'000);
  EXPECT_EQ(trace.timeline.origin_unix_ns + operations[2].end_ns, 1'748'030'377'749'000'000);
  EXPECT_EQ(operations[2].end_ns - operations[2].begin_ns, 40'000);
  EXPECT_EQ(operations[0].rank, 2U);
  EXPECT_EQ(operations[0].bytes, 1000);
  EXPECT_EQ(operations[0].collective, Collective::kAllReduce);
  const CollectiveCall& call = trace.timeline.calls.at(operations[2].call);
  EXPECT_EQ(std::tuple(call.sequence, call.group_size, trace.timeline.names.at(call.group)),
            std::tuple(12, 8U, "0x7f8c496ae9f661"));
  EXPECT_TRUE(has_note(file, "3 of 3 operations have no start time"));
  EXPECT_TRUE(has_note(file, "3 operations that NCCL ran were not recorded"));  // 9, 10, 11
  EXPECT_TRUE(has_note(file, "records no compute"));
}

TEST_F(Inspector, VerboseLogsHaveStartTimesAndNewOnesOneHeaderForMany) {
  // v4.3, indented as the documentation shows it.
  const Trace trace = read_trace_text(R"(
{"header": {"id": "0xa", "rank": 1, "n_ranks": 4, "nnodes": 1},
 "metadata": {"inspector_output_format_version": "v4.3", "dump_timestamp_us": 1752867229999999},
 "dump_stats": {"coll_records": 1, "coll_dropped_since_last_dump": 5, "p2p_records": 1}}
{"coll_perf": {
   "coll": "ReduceScatter", "coll_algo": "RING", "coll_sn": 1231, "coll_msg_size_bytes": 100,
   "coll_exec_time_us": 41057.5, "coll_timing_source": "kernel_cpu",
   "event_trace_ts": {"coll_start_ts": 1752867229235059, "kernel_events": [
      {"channel_id": 0, "kernel_start_ts": 1752867229235181, "kernel_stop_ts": 1752867229275811},
      {"channel_id": 1, "kernel_start_ts": 1752867229235180, "kernel_stop_ts": 0},
      {"channel_id": 2, "kernel_start_ts": 0}]}}}
{"p2p_perf": {"p2p": "Send", "p2p_sn": 8, "p2p_peer": 3, "p2p_msg_size_bytes": 524288, "p2p_exec_time_us": 50}}
{"proxy_trace": {"record_type": "proxy_op"}}
)",
                                      "inspector.log");
  const auto operations = of_kind(trace, RecordKind::kCommunication);
  ASSERT_EQ(operations.size(), 2U);
  EXPECT_EQ(trace.timeline.origin_unix_ns + operations[0].begin_ns, 1'752'867'229'235'180'000);
  EXPECT_EQ(operations[0].end_ns - operations[0].begin_ns, 41'057'500);
  EXPECT_EQ(operations[0].bytes, 400);  // of all four ranks
  EXPECT_EQ(operations[1].collective, Collective::kSend);
  EXPECT_EQ(trace.timeline.calls.at(operations[1].call).peer, 3);
  EXPECT_EQ(trace.files[0].rank, 1U);
  EXPECT_TRUE(has_note(trace.files[0], "1 of 2 operations have no start time"));
  EXPECT_TRUE(has_note(trace.files[0], "were timed by the host"));
  EXPECT_TRUE(has_note(trace.files[0], "5 operations that NCCL ran were not recorded"));
}

TEST_F(Inspector, TheRankIsThatInTheLargestCommunicator) {
  const std::string small =
      R"({"header": {"id": "0xb", "rank": 0, "n_ranks": 2}, "metadata": {"dump_timestamp_us": 1000}, )"
      R"("coll_perf": {"coll": "AllGather", "coll_sn": 1, "coll_exec_time_us": 4}})"
      "\n";
  const Trace one = read_trace_text(small + inspector_line(5, 1, 2000, ""), "one");
  EXPECT_EQ(one.files[0].rank, 5U);
  for (const Record& record : one.timeline.records) {
    EXPECT_EQ(record.rank, 5U);
  }
  // A process with two devices has two ranks in it.
  const Trace two =
      read_trace_text(inspector_line(0, 1, 2000, "") + inspector_line(1, 1, 2000, ""), "two");
  EXPECT_EQ(device_totals(two.timeline).size(), 2U);
  EXPECT_EQ(two.files[0].rank_count, 2U);
}

TEST_F(Inspector, BrokenLinesCostThemselvesOnly) {
  const std::string good = inspector_line(0, 1, 2000, "");
  const std::string bad = good.substr(0, good.size() / 2) + "\n";
  const std::string empty = R"({"header": {}, "coll_perf": {"coll": "AllReduce"}})"
                            "\n";
  const std::string text = good + bad + good + "noise\n" + empty + good;
  EXPECT_FALSE(error_of([&] { return read_trace_text(text, "broken"); }).empty());
  const Trace trace = read_trace_text(text, "broken", salvaging());
  ASSERT_TRUE(trace.files[0].fault);
  EXPECT_EQ(of_kind(trace, RecordKind::kCommunication).size(), 3U);
  EXPECT_EQ(trace.files[0].lost, 3U);
  const std::string cut = good + good.substr(0, 100);
  EXPECT_NE(error_of([&] { return read_trace_text(cut, "cut"); }).find("does not end"),
            std::string::npos);
  EXPECT_EQ(of_kind(read_trace_text(cut, "cut", salvaging()), RecordKind::kCommunication).size(),
            1U);
}

// --- NCCL tests

constexpr std::string_view kNcclTests = R"({"version":3,"start_time":"2026-03-01 10:00:00",
"args":["/opt/build/all_reduce_perf","-b","8","-e","16","-J","out.json"],"env":["PATH=/bin"],"nccl_version":22809,
"config":{"nthreads":1,"ngpus":8,"minimum_bytes":8,"iterations":20,"devices":[{"rank":0,"device":0}]},
"results":[
{"size":8,"count":2,"type":"float","redop":"sum","root":"    -1",
 "out_of_place":{"time":12.500000,"alg_bw":0.000640,"bus_bw":0.001120,"nwrong":0.000000},
 "in_place":{"cpu_time":11.000000,"alg_bw":"nan","bus_bw":0.001273,"nwrong":null},"actual_iterations":20,"experiment_name":""},
{"size":16,"count":4,"type":"bfloat16","redop":"sum","root":"    -1","out_of_place":null,
 "in_place":{"time":20.000000,"alg_bw":0.000800,"bus_bw":0.001400,"nwrong":null}}],
"out_of_bounds":{"count":0,"okay":"true"},"average_bus_bandwidth":{"bandwidth":0.001,"okay":"unchecked"}}
)";

TEST_F(NcclTests, RowsAreWhatWasMeasured) {
  const std::vector<NcclTestRow> rows = read_nccl_tests(kNcclTests, "out.json");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].collective, Collective::kAllReduce);
  EXPECT_EQ(rows[0].name, "all_reduce_perf");
  EXPECT_EQ(rows[0].ranks, 8U);
  EXPECT_EQ(rows[0].size_bytes, 8);
  EXPECT_FALSE(rows[0].in_place);
  EXPECT_DOUBLE_EQ(rows[0].time.count(), 12.5e-6);
  EXPECT_DOUBLE_EQ(rows[0].algorithm_bandwidth_bytes_per_s, 0.64e6);
  EXPECT_DOUBLE_EQ(rows[0].bus_bandwidth_bytes_per_s, 1.12e6);
  EXPECT_EQ(rows[0].wrong, 0);
  EXPECT_TRUE(rows[1].in_place);
  EXPECT_EQ(std::tuple(rows[1].size_bytes, rows[1].dtype, rows[1].wrong),
            std::tuple(16, "bfloat16", -1));
}

TEST_F(NcclTests, IsNoTraceAndSaysSo) {
  const std::string message = error_of([] { return read_trace_text(kNcclTests, "out.json"); });
  EXPECT_NE(message.find("holds no timeline"), std::string::npos) << message;
  EXPECT_NE(message.find("--machine"), std::string::npos) << message;
}

TEST_F(NcclTests, ACurveOfOneTypeAndEachSizeOnce) {
  const CollectiveCurve curve = curve_of(read_nccl_tests(kNcclTests, "out.json"), "out.json");
  EXPECT_EQ(curve.collective, Collective::kAllReduce);
  EXPECT_EQ(curve.ranks, 8);
  ASSERT_EQ(curve.points.size(), 1U) << "bfloat16 is another curve";
  EXPECT_EQ(curve.points[0].size, Bytes(8));
  EXPECT_DOUBLE_EQ(curve.points[0].time.count(), 12.5e-6);

  std::vector<NcclTestRow> rows = read_nccl_tests(kNcclTests, "out.json");
  rows[1].dtype = "float";
  rows.push_back(rows[1]);
  rows[2].size_bytes = 8;  // in place, which training does
  rows[2].time = Seconds(9e-6);
  const CollectiveCurve both = curve_of(rows, "out.json");
  ASSERT_EQ(both.points.size(), 2U);
  EXPECT_DOUBLE_EQ(both.points[0].time.count(), 9e-6);
  EXPECT_EQ(both.points[1].size, Bytes(16));
}

TEST_F(NcclTests, WhatIsNoCurveIsRefused) {
  const auto refused = [](std::vector<NcclTestRow> rows, std::string_view part) {
    const std::string message =
        error_of([&] { return curve_of(rows, "out.json"); }, ErrorCode::kInvalidArgument);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("out.json"), std::string::npos) << message;
  };
  std::vector<NcclTestRow> rows = read_nccl_tests(kNcclTests, "out.json");
  refused({}, "no row");
  rows[0].ranks = 1;
  refused(rows, "1 rank");
  rows[0].ranks = 0;
  refused(rows, "no number of ranks");
  rows[0].collective = Collective::kNone;
  refused(rows, "all_reduce_perf");
  rows[0] = rows[1];
  rows.resize(1);
  rows[0].wrong = 5;
  refused(rows, "5 wrong elements at 16 B");
  rows[0].time = Seconds(0);
  refused(rows, "above zero");
}

TEST_F(NcclTests, FaultsSayWhere) {
  const std::string text(kNcclTests);
  const auto fails_with = [&](std::string_view part, const std::string& broken) {
    const std::string message = error_of([&] { return read_nccl_tests(broken, "out.json"); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  fails_with("cut off", text.substr(0, text.size() / 2));
  fails_with("cut off", "");
  fails_with("no \"results\"", "{}");
  fails_with("without a size", R"({"results": [{"type": "float"}]})");
  fails_with("out.json at byte 12", R"({"results": 7})");
  fails_with("an object", R"({"results": ["x"]})");
}

}  // namespace
}  // namespace stretto
