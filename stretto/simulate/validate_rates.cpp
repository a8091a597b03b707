// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/device.hpp"
#include "stretto/simulate/measurements.hpp"
#include "stretto/simulate/training_step.hpp"
#include "stretto/simulate/transformer.hpp"
#include "stretto/simulate/validate.hpp"

namespace stretto {
namespace {

struct MeasuredRate {
  TransformerShape shape;
  Layout layout;
  double flops_per_s = 0.0;  ///< Of one rank, model FLOPs as the source counts them.
};

/// A forward pass through the layers is 24 B s L h^2 (1 + s/(6h)); three such without
/// recomputation, four with, and 6 B s h V for the logits (Narayanan et al. 2021, section 5.1).
double model_flops(const MeasuredRate& rate) {
  const TransformerShape& shape = rate.shape;
  const double h = shape.hidden;
  const double tokens = static_cast<double>(rate.layout.global_batch) * shape.sequence;
  const double passes = rate.layout.recompute == Recompute::kFull ? 4.0 : 3.0;
  return tokens * (passes * 24.0 * shape.layers * h * h * (1.0 + shape.sequence / (6.0 * h)) +
                   6.0 * shape.vocab * h);
}

ValidationRow compare(std::string_view file,
                      const std::vector<MeasuredRate>& rates,
                      const DeviceModel& device,
                      std::string_view preset,
                      std::string note) {
  ValidationRow row;
  row.series = file;
  row.rows = static_cast<int>(rates.size());
  row.note = std::move(note);
  for (const MeasuredRate& rate : rates) {
    const int nodes = std::max(1, rate.layout.ranks() / 8);
    const Machine machine = machine_from_preset(std::string(preset) + "x" + std::to_string(nodes));
    const Seconds predicted = simulate_training(rate.shape, rate.layout, device, machine).step;
    const Seconds measured(model_flops(rate) / rate.flops_per_s / rate.layout.ranks());
    const double error = std::abs(predicted / measured - 1.0);
    row.mean_error += (error - row.mean_error) / ++row.test_rows;
    row.worst_error = std::max(row.worst_error, error);
  }
  return row;
}

/// GPT-3 (96 layers of 12 288) in groups of 8 tensor x 12 pipeline ranks.
std::vector<MeasuredRate> read_sc21(const Measurements& table) {
  std::vector<MeasuredRate> rates;
  for (std::size_t row = 0; row < table.size(); ++row) {
    if (table.text(row, "scheme") != "PTD" || table.text(row, "params_b") != "174.6") {
      continue;
    }
    MeasuredRate rate;
    rate.shape.layers = 96;
    rate.shape.hidden = 12288;
    rate.shape.heads = 96;
    rate.shape.sequence = 2048;
    rate.shape.vocab = 51200;
    rate.layout.tensor = 8;
    rate.layout.pipeline = table.whole(row, "model_parallel") / rate.layout.tensor;
    rate.layout.data = table.whole(row, "gpus") / table.whole(row, "model_parallel");
    rate.layout.micro_batch = table.whole(row, "micro_batch");
    rate.layout.global_batch = table.whole(row, "global_batch");
    rate.layout.recompute = Recompute::kFull;
    rate.flops_per_s = table.number(row, "tflops_per_gpu") * 1e12;
    rates.push_back(rate);
  }
  return rates;
}

std::vector<MeasuredRate> read_core_h100(const Measurements& table) {
  std::vector<MeasuredRate> rates;
  for (std::size_t row = 0; row < table.size(); ++row) {
    MeasuredRate rate;
    rate.shape.layers = table.whole(row, "layers");
    rate.shape.hidden = table.whole(row, "hidden");
    rate.shape.heads = table.whole(row, "heads");
    rate.shape.sequence = 4096;
    rate.shape.vocab = 131072;
    rate.layout.tensor = table.whole(row, "tp");
    rate.layout.pipeline = table.whole(row, "pp");
    rate.layout.data = table.whole(row, "dp");
    rate.layout.global_batch = table.whole(row, "global_batch");
    rate.layout.sequence_parallel = rate.layout.tensor > 1;
    rate.layout.fused_attention = true;
    rate.layout.overlap_gradients = true;
    rate.layout.zero_stage = 1;
    rate.flops_per_s = table.number(row, "tflops_per_gpu") * 1e12;
    rates.push_back(rate);
  }
  return rates;
}

}  // namespace

std::vector<ValidationRow> validate_rates(const std::string& directory) {
  constexpr std::string_view kSc21 = "train_megatron_sc21_table2.csv";
  constexpr std::string_view kCoreH100 = "train_megatron_core_h100.csv";
  std::vector<ValidationRow> rows(2);
  const auto path = [&](std::string_view file) { return directory + "/" + std::string(file); };
  rows[0].series = kSc21;
  rows[1].series = kCoreH100;
  for (ValidationRow& row : rows) {
    row.note = "not in the directory";
  }
  if (std::filesystem::exists(path(kSc21))) {
    rows[0] = compare(kSc21,
                      read_sc21(read_measurements(path(kSc21))),
                      device_preset("a100-80g"),
                      "dgx-a100",
                      "nothing calibrated on it; 175B with pipeline parallelism; the split into 8 "
                      "tensor x 12 pipeline ranks and the schedule (1F1B) are assumed");
  }
  if (std::filesystem::exists(path(kCoreH100))) {
    rows[1] = compare(kCoreH100,
                      read_core_h100(read_measurements(path(kCoreH100))),
                      device_preset("h100-80g"),
                      "dgx-h100",
                      "no constant calibrated on H100; micro-batch 1, 1F1B, fused attention and a "
                      "shared optimizer assumed; the source overlaps tensor-parallel exchanges, "
                      "which is not modelled");
  }
  return rows;
}

}  // namespace stretto
