// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/validate.hpp"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/simulate/measurements.hpp"
#include "stretto/simulate/training_step.hpp"

namespace stretto {
namespace {

const std::string kDirectory = STRETTO_VALIDATION_DIR;

bool have_data() {
  return std::filesystem::exists(kDirectory + "/train_vtrain_single_node.csv");
}

TEST(Measurements, ReadsColumnsByNameAndSkipsComments) {
  const Measurements table("# source: x, y\nname,size\n\"a, \"\"b\"\"\",1.5\r\n\nc,-2\n",
                           "test.csv");
  ASSERT_EQ(table.size(), 2U);
  EXPECT_EQ(table.text(0, "name"), "a, \"b\"");
  EXPECT_EQ(table.number(0, "size"), 1.5);
  EXPECT_EQ(table.whole(1, "size"), -2);
}

TEST(Measurements, ErrorsNameFileAndLine) {
  const auto where = [](auto&& action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kParse);
      return error.detail().where;
    }
    return std::string("no error");
  };
  EXPECT_EQ(where([] { Measurements("# only\n", "f.csv"); }), "f.csv");
  EXPECT_EQ(where([] { Measurements("#\na,b\n1\n", "f.csv"); }), "f.csv, line 3");
  EXPECT_EQ(where([] { Measurements("a,b\n1,\"2\n", "f.csv"); }), "f.csv, line 2");
  const Measurements table("a,b\n#\n1.5,nan\n99999999999,\n", "f.csv");
  EXPECT_EQ(where([&] { (void)table.number(0, "b"); }), "f.csv, line 3, column b");
  EXPECT_EQ(where([&] { (void)table.whole(0, "a"); }), "f.csv, line 3, column a");
  EXPECT_EQ(where([&] { (void)table.whole(1, "a"); }), "f.csv, line 4, column a");
  EXPECT_EQ(where([&] { (void)table.number(1, "b"); }), "f.csv, line 4, column b");
  EXPECT_EQ(where([&] { (void)table.number(0, "c"); }), "f.csv");
  try {
    (void)read_measurements("no/such/file.csv");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  }
}

RC_GTEST_PROP(InterpolateAffine, IsExactOnOneLineAndAtEveryPoint, ()) {
  const double latency = *rc::gen::inRange(0, 100);
  const double rate = *rc::gen::inRange(1, 100);
  std::vector<CurvePoint> line;
  std::vector<CurvePoint> any;
  std::int64_t size = 0;
  for (int i = 0; i < 5; ++i) {
    size += *rc::gen::inRange(1, 1000);
    line.push_back({Bytes(size), Seconds(latency + rate * static_cast<double>(size))});
    any.push_back({Bytes(size), Seconds(*rc::gen::inRange(1, 1000))});
  }
  const Bytes asked(*rc::gen::inRange(line.front().size.count(), 2 * size));
  const double expected = latency + rate * static_cast<double>(asked.count());
  RC_ASSERT(std::abs(interpolate_affine(line, asked).count() / expected - 1.0) < 1e-9);
  for (const CurvePoint& point : any) {
    RC_ASSERT(interpolate_affine(any, point.size) == point.time);
  }
  RC_ASSERT(interpolate_affine(any, Bytes(asked.count() + size)) >= any.back().time);
  RC_ASSERT(interpolate_affine(any, Bytes(0)) == any.front().time);
}

TEST(Calibrate, FindsTheConstantsThatMadeTheTimes) {
  DeviceModel truth = device_preset("a100-80g");
  truth.gemm_efficiency = 0.7;
  truth.memory_efficiency = 0.9;
  truth.launch = Seconds(30e-6);
  const Machine machine = machine_from_spec("2@200GB/s,5us");
  std::vector<MeasuredStep> steps;
  for (const int hidden : {512, 1024, 4096}) {
    for (const int micro_batch : {1, 4}) {
      MeasuredStep step;
      step.shape.layers = 4;
      step.shape.hidden = hidden;
      step.shape.heads = 8;
      step.shape.sequence = 1024;
      step.shape.vocab = 1024;
      step.layout.tensor = 2;
      step.layout.micro_batch = micro_batch;
      step.layout.global_batch = micro_batch;
      step.time = simulate_training(step.shape, step.layout, truth, machine).step;
      steps.push_back(step);
    }
  }
  const DeviceModel found = calibrate(device_preset("a100-80g"), machine, steps);
  EXPECT_NEAR(found.gemm_efficiency, 0.7, 0.007);
  EXPECT_NEAR(found.memory_efficiency, 0.9, 0.009);
  EXPECT_NEAR(found.launch.count(), 30e-6, 0.3e-6);
  EXPECT_THROW((void)calibrate(truth, machine, {}), Error);
}

/// The preset's constants are what calibrate() makes of the calibration part, here of a tenth of it
/// to be quick.
TEST(Calibrate, PresetIsAsCalibrated) {
  if (!have_data()) {
    GTEST_SKIP() << "no measurements in " << kDirectory;
  }
  const auto part = calibration_part(vtrain_single_node_steps(kDirectory));
  std::vector<MeasuredStep> tenth;
  for (std::size_t i = 0; i < part.size(); i += 10) {
    tenth.push_back(part[i]);
  }
  const Machine node = a100_nodes(kDirectory, 1, BytesPerSecond(100e9));
  const DeviceModel preset = device_preset("a100-80g");
  const DeviceModel found = calibrate(preset, node, tenth);
  EXPECT_NEAR(found.gemm_efficiency / preset.gemm_efficiency, 1.0, 0.05);
  EXPECT_NEAR(found.memory_efficiency / preset.memory_efficiency, 1.0, 0.05);
  EXPECT_NEAR(found.launch / preset.launch, 1.0, 0.05);
}

TEST(Validate, MissingFilesAreSaid) {
  const auto rows = validate("no/such/directory");
  ASSERT_EQ(rows.size(), 10U);
  for (const ValidationRow& row : rows) {
    EXPECT_EQ(row.test_rows, 0) << row.series;
    EXPECT_NE(row.note.find("not in the directory"), std::string::npos) << row.series;
  }
}

/// The accuracy this had when it was written, rounded up: a guard against changes. docs/layouts.md
/// reports it.
TEST(Validate, PredictsPublishedMeasurements) {
  if (!have_data()) {
    GTEST_SKIP() << "no measurements in " << kDirectory;
  }
  struct Reached {
    std::string series;
    int test_rows;
    double mean;
    double worst;
  };
  const std::vector<Reached> reached = {
      {"curve: nccl_allreduce.csv", 77, 0.047, 0.39},
      {"curve: allreduce_lut_a100.csv", 2560, 0.004, 0.16},
      {"curve: allreduce_lut_v100.csv", 2560, 0.002, 0.13},
      {"curve: galvatron_allreduce_alltoall_1node.csv", 20, 0.043, 0.16},
      {"NCCL constants alone: nccl_allreduce.csv", 137, 0.301, 0.71},
      {"NCCL constants + overhead of the smallest size: nccl_allreduce.csv", 129, 0.14, 0.57},
      {"train_vtrain_single_node.csv", 680, 0.065, 0.32},
      {"train_vtrain_multi_node.csv", 73, 0.095, 0.49},
      {"train_seqpar_table5.csv", 6, 0.0355, 0.09},
      {"train_megatron_sc21_table2.csv", 3, 0.05, 0.06},
      {"train_megatron_core_h100.csv", 6, 0.055, 0.12},
  };
  const auto rows = validate(kDirectory);
  for (const Reached& goal : reached) {
    const ValidationRow* found = nullptr;
    for (const ValidationRow& row : rows) {
      if (row.series == goal.series) {
        found = &row;
      }
    }
    ASSERT_NE(found, nullptr) << goal.series;
    EXPECT_EQ(found->test_rows, goal.test_rows) << goal.series;
    EXPECT_LE(found->mean_error, goal.mean) << goal.series;
    EXPECT_LE(found->worst_error, goal.worst) << goal.series;
    EXPECT_GT(found->mean_error, 0.0) << goal.series;
  }
}

}  // namespace
}  // namespace stretto
