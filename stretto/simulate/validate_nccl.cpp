// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/simulate/measurements.hpp"
#include "stretto/simulate/nccl_model.hpp"
#include "stretto/simulate/validate.hpp"

namespace stretto {
namespace {

constexpr double kTarget = 0.10;
constexpr std::string_view kFile = "nccl_allreduce.csv";

struct NamedSystem {
  std::string_view series;
  NcclSystem system;
};

NcclSystem with_sharp(NcclSystem system) {
  system.network_adds = true;
  return system;
}

NcclSystem with_simple_only(NcclSystem system) {
  system.simple_only = true;
  return system;
}

/// The systems behind the series of the file, as its columns describe them. The series whose GPU is
/// unknown is left out. Cards by instance type: p4de 4 x 100 Gbit/s, p5 32 x 100. On p4de AWS's
/// plugin leaves NCCL the protocol Simple only (github.com/aws/aws-ofi-nccl at a21f4dfd,
/// src/platform-aws.c, which skips that on p5). The latency it announces there, 75 us on both, is
/// not taken: docs/costs.md.
std::vector<NamedSystem> systems() {
  constexpr BytesPerSecond kEfaCard(12.5e9);
  const NcclHardware p4de{GpuArchitecture::kAmpere, 12, false, 4, kEfaCard};
  const NcclHardware p5{GpuArchitecture::kHopper, 18, true, 32, kEfaCard};
  const NcclHardware gb200{GpuArchitecture::kBlackwell, 18, true, 0, BytesPerSecond(0)};
  return {{"aws_p4de_2x8", with_simple_only(nccl_system(p4de, 2, 8))},
          {"aws_p5_1x8_batch", nccl_system("h100", 1)},
          {"aws_p5_2x8_eks_2023", nccl_system(p5, 2, 8)},
          {"coreweave_gb200_1rack", nccl_system(gb200, 1, 72)},
          {"coreweave_h100_sharp", with_sharp(nccl_system("h100", 12))},
          {"mleng_a100_1x8", nccl_system("a100", 1)},
          {"mleng_b200_1x8", nccl_system("b200", 1)},
          {"mleng_h200_1x8", nccl_system("h200", 1)}};
}

struct MeasuredExchange {
  Bytes size{};
  Seconds time{};
};

std::map<std::string, std::vector<MeasuredExchange>, std::less<>> read_series(
    const std::string& path) {
  const Measurements table = read_measurements(path);
  std::map<std::string, std::vector<MeasuredExchange>, std::less<>> result;
  for (std::size_t row = 0; row < table.size(); ++row) {
    result[table.text(row, "series")].push_back(
        {Bytes(static_cast<std::int64_t>(table.number(row, "size_bytes"))),
         Seconds(table.number(row, "time_us_oop") * 1e-6)});
  }
  return result;
}

double error_of(const NcclSystem& system, const MeasuredExchange& point) {
  const NcclPrediction prediction = predict_nccl(system, Collective::kAllReduce, point.size);
  return std::abs(prediction.time / point.time - 1.0);
}

void add_error(ValidationRow& row, double error) {
  row.mean_error += (error - row.mean_error) / ++row.test_rows;
  row.worst_error = std::max(row.worst_error, error);
}

/// The overhead of a call that makes the smallest size right: NCCL's constants do not know what a
/// benchmark's host takes to launch.
NcclSystem with_overhead(NcclSystem system, const MeasuredExchange& smallest) {
  const Seconds modelled = predict_nccl(system, Collective::kAllReduce, smallest.size).time;
  system.overhead = std::max(Seconds(0), smallest.time - modelled);
  return system;
}

}  // namespace

std::vector<ValidationRow> validate_nccl(const std::string& directory) {
  ValidationRow alone;
  ValidationRow overhead;
  alone.series = "NCCL constants alone: " + std::string(kFile);
  overhead.series = "NCCL constants + overhead of the smallest size: " + std::string(kFile);
  alone.target = kTarget;
  overhead.target = kTarget;
  const std::string path = directory + "/" + std::string(kFile);
  if (!std::filesystem::exists(path)) {
    alone.note = "not in the directory";
    return {alone};
  }
  auto series = read_series(path);
  std::vector<ValidationRow> parts;
  for (const NamedSystem& named : systems()) {
    auto& points = series[std::string(named.series)];
    if (points.empty()) {
      continue;
    }
    std::sort(
        points.begin(), points.end(), [](const auto& a, const auto& b) { return a.size < b.size; });
    const NcclSystem measured = with_overhead(named.system, points.front());
    ValidationRow part;
    part.series = "  " + std::string(named.series);
    for (std::size_t i = 0; i < points.size(); ++i) {
      add_error(alone, error_of(named.system, points[i]));
      if (i > 0) {
        add_error(overhead, error_of(measured, points[i]));
        add_error(part, error_of(measured, points[i]));
      }
    }
    part.rows = static_cast<int>(points.size());
    part.calibration_rows = 1;
    alone.rows += part.rows;
    overhead.rows += part.rows;
    ++overhead.calibration_rows;
    parts.push_back(part);
  }
  alone.note = "nothing calibrated; the series of an unknown GPU is left out";
  std::vector<ValidationRow> rows = {alone, overhead};
  rows.insert(rows.end(), parts.begin(), parts.end());
  return rows;
}

}  // namespace stretto
