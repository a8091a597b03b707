// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/device.hpp"
#include "stretto/simulate/measurements.hpp"
#include "stretto/simulate/training_step.hpp"
#include "stretto/simulate/transformer.hpp"
#include "stretto/simulate/validate.hpp"

namespace stretto {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kSingleNode = "train_vtrain_single_node.csv";
constexpr std::string_view kMultiNode = "train_vtrain_multi_node.csv";
constexpr std::string_view kTable5 = "train_seqpar_table5.csv";
constexpr std::string_view kCurves = "allreduce_lut_a100.csv";

constexpr int kRanksPerNode = 8;
// GPT-2's vocabulary of 50 257, padded to a multiple of 128 tensor ranks as Megatron-LM does.
constexpr int kVocabulary = 51200;
// Stated by the vTrain repository, per node and direction.
constexpr BytesPerSecond kVtrainNetwork(100e9);
// Selene: 8 HDR InfiniBand cards of 200 Gbit/s per node (Narayanan et al. 2021, arXiv:2104.04473).
constexpr BytesPerSecond kSeleneNetwork(200e9);
// Assumed, for both levels; curves hold within a node.
constexpr Seconds kMessageLatency = 5us;

std::string path_of(const std::string& directory, std::string_view file) {
  return directory + "/" + std::string(file);
}

/// The columns that all step tables share.
MeasuredStep read_step(const Measurements& table, std::size_t row) {
  MeasuredStep step;
  step.shape.layers = table.whole(row, "layers");
  step.shape.hidden = table.whole(row, "hidden");
  step.shape.heads = table.whole(row, "heads");
  step.shape.sequence = table.whole(row, "seq");
  step.shape.vocab = kVocabulary;
  step.layout.data = table.whole(row, "dp");
  step.layout.tensor = table.whole(row, "tp");
  step.layout.pipeline = table.whole(row, "pp");
  step.layout.micro_batch = table.whole(row, "micro_batch");
  step.layout.global_batch = table.whole(row, "global_batch");
  return step;
}

std::vector<MeasuredStep> multi_node_steps(const std::string& directory) {
  const Measurements table = read_measurements(path_of(directory, kMultiNode));
  std::vector<MeasuredStep> steps;
  for (std::size_t row = 0; row < table.size(); ++row) {
    MeasuredStep step = read_step(table, row);
    step.layout.recompute = Recompute::kFull;
    step.time = Seconds(table.number(row, "iteration_ms") * 1e-3);
    steps.push_back(step);
  }
  return steps;
}

std::vector<MeasuredStep> table5_steps(const std::string& directory) {
  const Measurements table = read_measurements(path_of(directory, kTable5));
  std::vector<MeasuredStep> steps;
  for (std::size_t row = 0; row < table.size(); ++row) {
    MeasuredStep step = read_step(table, row);
    const bool full = table.text(row, "recompute") == "full";
    step.layout.recompute = full ? Recompute::kFull : Recompute::kAttention;
    step.layout.sequence_parallel = table.text(row, "mode") == "seqsel";
    step.layout.virtual_stages = table.whole(row, "vp");
    if (step.layout.virtual_stages > 1) {
      step.layout.schedule = PipelineSchedule::kInterleaved;
    }
    step.time = Seconds(table.number(row, "iteration_s"));
    steps.push_back(step);
  }
  return steps;
}

int most_nodes(std::span<const MeasuredStep> steps) {
  int nodes = 1;
  for (const MeasuredStep& step : steps) {
    nodes = std::max(nodes, step.layout.ranks() / kRanksPerNode);
  }
  return nodes;
}

std::vector<double> predict(std::span<const MeasuredStep> steps,
                            const DeviceModel& device,
                            const Machine& machine) {
  std::vector<double> predicted;
  for (const MeasuredStep& step : steps) {
    predicted.push_back(simulate_training(step.shape, step.layout, device, machine).step.count());
  }
  return predicted;
}

/// Ranks of the values, ties by order of appearance.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return values[a] < values[b];
  });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    ranks[order[i]] = static_cast<double>(i);
  }
  return ranks;
}

/// How well layouts are put in order.
struct Ordering {
  double correlation = 0.0;  ///< Spearman's.
  double regret = 0.0;       ///< Measured time of the layout chosen, over the best, minus 1.
};

Ordering ordering(const std::vector<double>& predicted, const std::vector<double>& measured) {
  const std::vector<double> a = ranks_of(predicted);
  const std::vector<double> b = ranks_of(measured);
  double squares = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += (a[i] - b[i]) * (a[i] - b[i]);
  }
  const auto n = static_cast<double>(a.size());
  const auto chosen = std::min_element(predicted.begin(), predicted.end()) - predicted.begin();
  const double best = *std::min_element(measured.begin(), measured.end());
  return {1.0 - 6.0 * squares / (n * (n * n - 1.0)),
          measured[static_cast<std::size_t>(chosen)] / best - 1.0};
}

std::string percent(double ratio) {
  const auto tenths = std::llround(std::abs(ratio) * 1000.0);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

/// Mean over the groups of at least 4 layouts of one model, batch and number of ranks.
std::string ordering_note(std::span<const MeasuredStep> steps,
                          const std::vector<double>& predicted) {
  std::map<std::tuple<int, int, int, int>, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const MeasuredStep& step = steps[i];
    groups[{step.shape.hidden, step.shape.layers, step.layout.ranks(), step.layout.global_batch}]
        .push_back(i);
  }
  int count = 0;
  Ordering mean;
  for (const auto& group : groups) {
    if (group.second.size() < 4) {
      continue;
    }
    std::vector<double> times;
    std::vector<double> measured;
    for (const std::size_t i : group.second) {
      times.push_back(predicted[i]);
      measured.push_back(steps[i].time.count());
    }
    const Ordering one = ordering(times, measured);
    mean.correlation += one.correlation;
    mean.regret += one.regret;
    ++count;
  }
  if (count == 0) {
    return {};
  }
  return "; of " + std::to_string(count) + " choices of a layout: Spearman's rank correlation " +
         percent(mean.correlation / count) + ", time lost by the layout chosen " +
         percent(mean.regret / count);
}

ValidationRow compare(std::string series,
                      std::span<const MeasuredStep> steps,
                      const std::vector<double>& predicted,
                      double target) {
  ValidationRow row;
  row.series = std::move(series);
  row.rows = static_cast<int>(steps.size());
  row.test_rows = row.rows;
  row.target = target;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double error = std::abs(predicted[i] / steps[i].time.count() - 1.0);
    row.mean_error += error / row.test_rows;
    row.worst_error = std::max(row.worst_error, error);
  }
  row.note = ordering_note(steps, predicted);
  return row;
}

bool calibrated_on(const TransformerShape& shape) {
  return (shape.hidden == 1024 && shape.layers == 24) ||
         (shape.hidden == 2048 && shape.layers == 12);
}

bool there(const std::string& directory, std::string_view file, ValidationRow& row) {
  row.series = file;
  if (std::filesystem::exists(path_of(directory, file)) &&
      std::filesystem::exists(path_of(directory, kCurves))) {
    return true;
  }
  row.note = "not in the directory, or " + std::string(kCurves) + " is not";
  return false;
}

ValidationRow validate_single_node(const std::string& directory, const DeviceModel& device) {
  ValidationRow row;
  if (!there(directory, kSingleNode, row)) {
    return row;
  }
  const std::vector<MeasuredStep> steps = vtrain_single_node_steps(directory);
  std::vector<MeasuredStep> test;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(test), [](const MeasuredStep& step) {
    return !calibrated_on(step.shape);
  });
  const Machine node = a100_nodes(directory, 1, kVtrainNetwork);
  row = compare(std::string(kSingleNode), test, predict(test, device, node), 0.08);
  row.rows = static_cast<int>(steps.size());
  row.calibration_rows = static_cast<int>(calibration_part(steps).size());
  row.note = "tested on the architectures without calibration rows" + row.note;
  return row;
}

ValidationRow validate_whole(const std::string& directory,
                             std::string_view file,
                             std::vector<MeasuredStep> (*read)(const std::string&),
                             BytesPerSecond network,
                             double target,
                             const DeviceModel& device) {
  ValidationRow row;
  if (!there(directory, file, row)) {
    return row;
  }
  const std::vector<MeasuredStep> steps = read(directory);
  const Machine machine = a100_nodes(directory, most_nodes(steps), network);
  row = compare(std::string(file), steps, predict(steps, device, machine), target);
  row.note = "nothing calibrated on it" + row.note;
  return row;
}

}  // namespace

std::vector<MeasuredStep> vtrain_single_node_steps(const std::string& directory) {
  const Measurements table = read_measurements(path_of(directory, kSingleNode));
  std::vector<MeasuredStep> steps;
  for (std::size_t row = 0; row < table.size(); ++row) {
    MeasuredStep step = read_step(table, row);
    // The profile has Adam's kernel alone: 20 ps per parameter, 28 bytes at 1.4 TB/s.
    step.layout.optimizer_bytes_per_parameter = kFusedAdamBytes;
    step.time = Seconds(table.number(row, "iteration_ms") * 1e-3);
    steps.push_back(step);
  }
  return steps;
}

Machine a100_nodes(const std::string& directory, int nodes, BytesPerSecond between) {
  Machine machine = machine_with_curves(path_of(directory, kCurves), nodes, between);
  machine.name = "A100 nodes";
  return machine;
}

Machine machine_with_curves(const std::string& path, int nodes, BytesPerSecond between) {
  const Measurements table = read_measurements(path);
  std::map<int, CollectiveCurve> curves;
  for (std::size_t row = 0; row < table.size(); ++row) {
    const int ranks = table.whole(row, "ranks");
    CollectiveCurve& curve = curves[ranks];
    curve.ranks = ranks;
    curve.points.push_back({Bytes(static_cast<std::int64_t>(table.number(row, "size_bytes"))),
                            Seconds(table.number(row, "time_us_oop") * 1e-6)});
  }
  Machine machine;
  machine.name = "nodes of 8";
  machine.basis = Basis::kMeasured;
  machine.source = path;
  Level node{.name = "node", .group_size = kRanksPerNode, .latency = kMessageLatency};
  for (const auto& entry : curves) {
    machine.curves.push_back(entry.second);
  }
  const CurvePoint& largest = machine.curves.back().points.back();
  const int ranks = machine.curves.back().ranks;
  node.bandwidth = BytesPerSecond(2.0 * (ranks - 1) / ranks *
                                  static_cast<double>(largest.size.count()) / largest.time.count());
  machine.levels.push_back(node);
  if (nodes > 1) {
    machine.levels.push_back(
        {.name = "network", .group_size = nodes, .latency = kMessageLatency, .bandwidth = between});
  }
  return machine;
}

std::vector<MeasuredStep> calibration_part(std::span<const MeasuredStep> steps) {
  std::vector<MeasuredStep> part;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(part), [](const MeasuredStep& step) {
    return calibrated_on(step.shape);
  });
  return part;
}

std::vector<ValidationRow> validate_steps(const std::string& directory) {
  const DeviceModel device = device_preset("a100-80g");
  return {validate_single_node(directory, device),
          validate_whole(directory, kMultiNode, multi_node_steps, kVtrainNetwork, 0.12, device),
          validate_whole(directory, kTable5, table5_steps, kSeleneNetwork, 0.0365, device)};
}

std::vector<ValidationRow> validate(const std::string& directory) {
  std::vector<ValidationRow> rows = validate_collectives(directory);
  for (const auto& part :
       {validate_nccl(directory), validate_steps(directory), validate_rates(directory)}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace stretto
