// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/device_steps.hpp"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/analyze/devices.hpp"
#include "stretto/report/explanation.hpp"

namespace stretto {
namespace {

Record on_device(RecordKind kind,
                 std::uint32_t device,
                 std::uint32_t step,
                 std::int64_t begin_ns,
                 std::int64_t end_ns) {
  Record record;
  record.kind = kind;
  record.lane = kind == RecordKind::kCommunication ? Lane::kCommunication : Lane::kCompute;
  record.device = device;
  record.step = step;
  record.begin_ns = begin_ns;
  record.end_ns = end_ns;
  return record;
}

Record mark(std::uint32_t step, std::int64_t begin_ns, std::int64_t end_ns) {
  Record record = on_device(RecordKind::kStep, kNoId, step, begin_ns, end_ns);
  record.lane = Lane::kStep;
  return record;
}

Timeline two_devices() {
  constexpr auto kComm = RecordKind::kCommunication;
  Timeline timeline;
  timeline.names = {"s"};
  timeline.records = {mark(0, 0, 100),
                      mark(1, 100, 200),
                      on_device(RecordKind::kCompute, 0, 0, 10, 40),
                      on_device(kComm, 0, 0, 30, 60),
                      on_device(kComm, 0, 0, 50, 70),  // beside the other
                      on_device(RecordKind::kCopy, 0, 0, 65, 90),
                      on_device(kComm, 0, 0, 95, 110),  // reaches into the next
                      on_device(RecordKind::kCompute, 1, 0, 0, 100),
                      on_device(RecordKind::kCopy, 2, 1, 150, 160)};
  return timeline;
}

TEST(DeviceSteps, OfTwoDevicesByHand) {
  const std::vector<DeviceStep> rows = device_steps(two_devices());
  const auto of = [&](std::uint32_t step, std::uint32_t device) {
    return *std::find_if(rows.begin(), rows.end(), [&](const DeviceStep& row) {
      return row.step == step && row.device == device;
    });
  };
  ASSERT_EQ(rows.size(), 6U);
  const DeviceStep first = of(0, 0);
  EXPECT_EQ(first.name, "s");
  EXPECT_EQ(first.length_ns, 100);
  EXPECT_EQ(first.compute_ns, 30);
  EXPECT_EQ(first.communication_ns, 40 + 5);
  EXPECT_EQ(first.communication_sum_ns, 30 + 20 + 5);
  EXPECT_EQ(first.hidden_ns, 10);
  EXPECT_EQ(first.exposed_ns, 35);
  EXPECT_EQ(first.exposed_copies_ns, 20);
  EXPECT_EQ(first.idle_ns, 10 + 5);
  EXPECT_EQ(first.collectives, 3);
  const DeviceStep next = of(1, 0);
  EXPECT_EQ(next.communication_ns, 10);
  EXPECT_EQ(next.communication_sum_ns, 10);
  EXPECT_EQ(next.idle_ns, 90);
  EXPECT_EQ(next.collectives, 0);
  EXPECT_EQ(of(0, 1).compute_ns, 100);
  EXPECT_EQ(of(0, 1).idle_ns, 0);
  EXPECT_EQ(of(1, 2).exposed_copies_ns, 10);
}

/// Kind, begin, length.
using Drawn = std::vector<std::tuple<std::uint8_t, std::uint8_t, std::uint8_t>>;

RC_GTEST_PROP(DeviceSteps, OneStepOverAllIsTheWholeRecording, (const Drawn& drawn)) {
  Timeline timeline;
  timeline.names = {"s"};
  for (const auto& [kind, begin, length] : drawn) {
    constexpr RecordKind kKinds[] = {
        RecordKind::kCompute, RecordKind::kCommunication, RecordKind::kCopy};
    timeline.records.push_back(on_device(kKinds[kind % 3], 3, 0, begin, begin + 1 + length % 50));
  }
  RC_PRE(!drawn.empty());
  const DeviceTotals whole = device_totals(timeline).at(0);
  std::int64_t begin_ns = timeline.records[0].begin_ns;
  for (const Record& record : timeline.records) {
    begin_ns = std::min(begin_ns, record.begin_ns);
  }
  timeline.records.push_back(mark(0, begin_ns, begin_ns + whole.span_ns));
  const std::vector<DeviceStep> rows = device_steps(timeline);
  RC_ASSERT(rows.size() == 1U);
  RC_ASSERT(rows[0].compute_ns == whole.compute_ns);
  RC_ASSERT(rows[0].communication_ns == whole.communication_ns);
  RC_ASSERT(rows[0].communication_sum_ns == whole.communication_sum_ns);
  RC_ASSERT(rows[0].exposed_ns == whole.exposed_ns);
  RC_ASSERT(rows[0].hidden_ns == whole.hidden_ns);
  RC_ASSERT(rows[0].exposed_copies_ns == whole.exposed_copies_ns);
  RC_ASSERT(rows[0].idle_ns == whole.idle_ns);
}

/// A step cut in two has the parts of what it had.
RC_GTEST_PROP(DeviceSteps, PartsAddUp, (const Drawn& drawn, std::uint8_t cut)) {
  Timeline timeline;
  timeline.names = {"s"};
  for (const auto& [kind, begin, length] : drawn) {
    constexpr RecordKind kKinds[] = {
        RecordKind::kCompute, RecordKind::kCommunication, RecordKind::kCopy};
    timeline.records.push_back(on_device(kKinds[kind % 3], 3, 0, begin, begin + 1 + length));
  }
  RC_PRE(!drawn.empty());
  Timeline parts = timeline;
  timeline.records.push_back(mark(0, 0, 512));
  parts.records.push_back(mark(0, 0, 1 + cut));
  parts.records.push_back(mark(1, 1 + cut, 512));
  const DeviceStep whole = device_steps(timeline).at(0);
  const std::vector<DeviceStep> two = device_steps(parts);
  RC_ASSERT(two.size() == 2U);
  for (const auto field : {&DeviceStep::compute_ns,
                           &DeviceStep::communication_ns,
                           &DeviceStep::communication_sum_ns,
                           &DeviceStep::exposed_ns,
                           &DeviceStep::hidden_ns,
                           &DeviceStep::exposed_copies_ns,
                           &DeviceStep::idle_ns}) {
    RC_ASSERT((two[0].*field + two[1].*field) == (whole.*field));
    RC_ASSERT((two[0].*field >= 0 && two[1].*field >= 0));
  }
}

TEST(DeviceSteps, TextAndCsvHaveOneRowEach) {
  const std::vector<DeviceStep> rows = device_steps(two_devices());
  const std::string csv = csv_table({}, rows, Per::kStep);
  EXPECT_EQ(csv.substr(0, csv.find('\n')),
            "step,name,rank,device,begin_s,length_s,compute_s,communication_s,communication_sum_s,"
            "exposed_s,hidden_s,exposed_copies_s,idle_s,collectives\r");
  EXPECT_NE(csv.find("\r\n0,s,0,0,0,1e-07,3e-08,4.5e-08,5.5e-08,3.5e-08,1e-08,2e-08,1.5e-08,3\r\n"),
            std::string::npos)
      << csv;
  const std::string text = text_table({}, rows, Per::kStep);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7);
  EXPECT_NE(text.find("idle"), std::string::npos);
}

}  // namespace
}  // namespace stretto
