// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/validate_buckets.hpp"

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
#include "stretto/data/machine.hpp"
#include "stretto/data/models.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/simulate/measurements.hpp"
#include "stretto/simulate/simulate.hpp"

namespace stretto {
namespace {

constexpr std::string_view kFile = "train_pytorch_ddp_bucket.csv";
constexpr std::string_view kCurves = "allreduce_lut_v100.csv";
constexpr std::string_view kSlowdown = "galvatron_overlap_coefficient.csv";
constexpr std::string_view kModel = "resnet50";
constexpr std::string_view kPercentile = "p75";
constexpr int kRanksPerNode = 8;
constexpr BytesPerSecond kNetwork(50e9);  // 4 x 100 Gbit/s per machine

/// Seconds per iteration by (GPUs, cap in MiB).
using Times = std::map<std::pair<int, int>, double>;

Times read_times(const std::string& path) {
  const Measurements table = read_measurements(path);
  Times times;
  for (std::size_t row = 0; row < table.size(); ++row) {
    if (table.text(row, "model") == kModel && table.text(row, "percentile") == kPercentile &&
        table.text(row, "bucket_cap_mb") != "no ddp") {
      times[{table.whole(row, "gpus"), table.whole(row, "bucket_cap_mb")}] =
          table.number(row, "sec_per_iter");
    }
  }
  return times;
}

Machine v100_nodes(const std::string& directory, int ranks) {
  Machine machine = machine_with_curves(directory + "/" + std::string(kCurves),
                                        (ranks + kRanksPerNode - 1) / kRanksPerNode,
                                        kNetwork);
  machine.levels.front().group_size = std::min(ranks, kRanksPerNode);
  const Measurements slowdown = read_measurements(directory + "/" + std::string(kSlowdown));
  machine.compute_slowdown = slowdown.number(0, "value");
  return machine;
}

/// The model's step, made to take `compute` in all.
StepProfile profile_taking(Seconds compute) {
  AssumedDevice device;
  const StepProfile any = profile_from_model_json(model_json(kModel), kModel, device);
  device.flops_per_s *= any.compute_end / compute;
  return profile_from_model_json(model_json(kModel), kModel, device);
}

Seconds predict(const std::string& directory, Seconds compute, int ranks, int cap_mib) {
  const StepProfile profile = profile_taking(compute);
  const Bytes cap = Bytes(std::int64_t{cap_mib} << 20);
  const Plan plan = ddp_plan(tensors_of(profile), cap, std::min(cap, Bytes(1 << 20)));
  SimulateOptions options;
  options.optimizer_per_bucket = false;
  options.recorded_ranks = 0;
  return simulate(profile, v100_nodes(directory, ranks), plan, options).step;
}

}  // namespace

std::vector<ValidationRow> validate_buckets(const std::string& directory) {
  ValidationRow row;
  row.series = kFile;
  for (const std::string_view file : {kFile, kCurves, kSlowdown}) {
    if (!std::filesystem::exists(directory + "/" + std::string(file))) {
      row.note = std::string(file) + " is not in the directory";
      return {row};
    }
  }
  const Times times = read_times(directory + "/" + std::string(kFile));
  row.rows = static_cast<int>(times.size());
  int choices = 0;
  int right = 0;
  for (const auto& [key, large] : times) {
    const int ranks = key.first;
    const auto small = times.find({ranks, 1});
    if (key.second != 25 || small == times.end()) {
      continue;
    }
    if (ranks == 1) {
      row.calibration_rows += 2;
      continue;
    }
    std::vector<Seconds> predicted;
    for (const auto& [cap, measured] : {std::pair(25, large), std::pair(1, small->second)}) {
      const Seconds compute(times.at({1, cap}));
      predicted.push_back(predict(directory, compute, ranks, cap));
      const double error = std::abs(predicted.back().count() / measured - 1.0);
      row.mean_error += (error - row.mean_error) / ++row.test_rows;
      row.worst_error = std::max(row.worst_error, error);
    }
    ++choices;
    right += (predicted[0] < predicted[1]) == (large < small->second) ? 1 : 0;
  }
  row.note = "ResNet-50; compute from the 1-GPU rows; the quicker of 25 and 1 MiB found in " +
             std::to_string(right) + " of " + std::to_string(choices);
  return {row};
}

}  // namespace stretto
