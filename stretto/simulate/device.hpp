// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"

namespace stretto {

/// What an accelerator computes with. Peaks are the makers' published figures; the three constants
/// below them are of the whole stack (device, libraries, framework) and come from `calibrate()` in
/// validate.hpp; docs/layouts.md says on what.
struct DeviceModel {
  std::string name;
  double peak_flops_per_s = 0.0;      ///< Dense, 16 bit in, on the tensor cores.
  BytesPerSecond memory_bandwidth{};  ///< Of the device's own memory.
  Bytes memory{};
  /// Output tiles of 128 x 128 it computes at once: two per multiprocessor. A matrix product takes
  /// whole rounds of them, and a last round that is not full costs as much (wave quantization;
  /// NVIDIA, "Matrix Multiplication Background", Deep Learning Performance documentation).
  int tiles_at_once = 216;

  double gemm_efficiency = 1.0;    ///< Of the peak, in full rounds of tiles.
  double memory_efficiency = 1.0;  ///< Of the memory bandwidth, in element-wise kernels.
  /// The least time of one kernel: what the framework takes to launch the next one.
  Seconds launch{};
  Basis basis = Basis::kAssumed;  ///< Of these three: kMeasured if calibrated on this device.
  std::string source;             ///< For people: where all of it comes from.
};

/// `a100-80g`, `v100-32g`, `h100-80g`. Only A100 is calibrated; the others assume its efficiencies.
/// @throws Error kInvalidArgument listing the known names.
[[nodiscard]] DeviceModel device_preset(std::string_view name);
[[nodiscard]] std::span<const std::string_view> device_preset_names() noexcept;

/// `batch` products of m x k by k x n matrices of 2 byte elements. Sizes may be fractions, where a
/// layout shares them between ranks.
struct Gemm {
  double m = 0.0;
  double n = 0.0;
  double k = 0.0;
  double batch = 1.0;
};
/// The largest of three: 2mnk*batch / (peak * efficiency * share of the tile rounds that is full);
/// the bytes of the three matrices at the effective memory bandwidth; one launch.
[[nodiscard]] Seconds gemm_time(const DeviceModel& device, const Gemm& gemm) noexcept;

/// `kernels` kernels that read and write `bytes` each, or take one launch each if that is more.
[[nodiscard]] Seconds elementwise_time(const DeviceModel& device,
                                       double bytes,
                                       int kernels = 1) noexcept;

}  // namespace stretto
