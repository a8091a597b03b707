// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/device.hpp"
#include "stretto/simulate/transformer.hpp"

namespace stretto {

/// How well one series of published measurements is predicted. Errors are |predicted / measured -
/// 1|, over the test rows only; nothing was calibrated on those.
struct ValidationRow {
  std::string series;
  int rows = 0;
  int calibration_rows = 0;
  int test_rows = 0;  ///< 0: the series is missing, and the note says so.
  double mean_error = 0.0;
  double worst_error = 0.0;
  double target = 0.0;  ///< For the mean; 0: none, a part of a series that has one.
  std::string note;
};

/// Reads the CSV files of `directory` and predicts each: collectives, then steps. A missing file
/// makes a row without test rows.
/// @throws Error kParse for a file that is there and not as expected.
[[nodiscard]] std::vector<ValidationRow> validate(const std::string& directory);

/// The parts of validate().
[[nodiscard]] std::vector<ValidationRow> validate_collectives(const std::string& directory);
[[nodiscard]] std::vector<ValidationRow> validate_nccl(const std::string& directory);
[[nodiscard]] std::vector<ValidationRow> validate_steps(const std::string& directory);
/// FLOP/s of published runs whose tables leave conditions open (micro-batch, schedule...), which
/// the notes state as assumed; without targets.
[[nodiscard]] std::vector<ValidationRow> validate_rates(const std::string& directory);

/// Time of an exchange read off measured points: affine in the size between two of them, as every
/// algorithm and protocol is for itself, beyond the last point on along the last piece (never below
/// its time), before the first its time. On wide nccl-tests series, with every second point left
/// out, this errs by 4.6 % on average, straight lines in log(size), log(time) by 5.3 %.
/// Points in increasing size, at least one.
[[nodiscard]] Seconds interpolate_affine(std::span<const CurvePoint> points, Bytes size);

/// A step that somebody measured.
struct MeasuredStep {
  TransformerShape shape;
  Layout layout;
  Seconds time{};
};

/// The vTrain single-node set (train_vtrain_single_node.csv) as layouts. It says that activations
/// are checkpointed, but only without recomputation do its times stay above what the device's peak
/// allows: from hidden 1024 to 2048 (8 samples, one rank) a layer's products grow by 2.5 TFLOP with
/// it and its time by 8.3 ms, which is 298 TFLOP/s of 312 before any other kernel.
[[nodiscard]] std::vector<MeasuredStep> vtrain_single_node_steps(const std::string& directory);
/// The nodes they ran on: machine_with_curves() of allreduce_lut_a100.csv.
[[nodiscard]] Machine a100_nodes(const std::string& directory, int nodes, BytesPerSecond between);

/// Nodes of 8 ranks with the measured all-reduce curves of a table (columns ranks, size_bytes,
/// time_us_oop) and the bandwidth that the largest size reaches; `nodes` of them over links of
/// `between` (a level of its own if above 1). Latencies of 5 us assumed.
[[nodiscard]] Machine machine_with_curves(const std::string& path,
                                          int nodes,
                                          BytesPerSecond between);

/// Fits the three constants gemm_efficiency, memory_efficiency and launch of `device`: coordinate
/// search in the logarithm of each, steps halved from 20 % to 0.1 %, on the mean of
/// sqrt(1 + (log(predicted / measured) / 0.05)^2), which outliers pull on less; no efficiency above
/// 1. Deterministic.
/// @throws Error kInvalidArgument: no steps.
[[nodiscard]] DeviceModel calibrate(DeviceModel device,
                                    const Machine& machine,
                                    std::span<const MeasuredStep> steps);

/// Of `steps`, what calibrate() is given: those of the architectures (hidden 1024, 24 layers) and
/// (hidden 2048, 12 layers). The other architectures are for testing.
[[nodiscard]] std::vector<MeasuredStep> calibration_part(std::span<const MeasuredStep> steps);

}  // namespace stretto
