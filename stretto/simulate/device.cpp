// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/device.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <string_view>

#include "stretto/base/error.hpp"
#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"

namespace stretto {
namespace {

using namespace std::chrono_literals;

// The calibrated constants, one table: rounded results of calibrate() on
// train_vtrain_single_node.csv, architectures (hidden 1024, 24 layers) and (hidden 2048, 12
// layers). tests/simulate/validate_test.cpp runs it again and compares.
constexpr double kGemmEfficiency = 0.855;
constexpr double kMemoryEfficiency = 0.644;
constexpr Seconds kLaunch = 57.5us;

constexpr std::string_view kAssumedConstants = "; efficiencies and launch time assumed as on A100";

constexpr std::array<std::string_view, 3> kNames = {"a100-80g", "v100-32g", "h100-80g"};

DeviceModel make(std::string_view name,
                 double peak,
                 double bandwidth,
                 std::int64_t memory_gb,
                 int multiprocessors,
                 std::string source) {
  DeviceModel device;
  device.name = name;
  device.peak_flops_per_s = peak;
  device.memory_bandwidth = BytesPerSecond(bandwidth);
  device.memory = Bytes(memory_gb * 1'000'000'000);
  device.tiles_at_once = 2 * multiprocessors;
  device.gemm_efficiency = kGemmEfficiency;
  device.memory_efficiency = kMemoryEfficiency;
  device.launch = kLaunch;
  device.source = std::move(source);
  return device;
}

}  // namespace

std::span<const std::string_view> device_preset_names() noexcept {
  return kNames;
}

DeviceModel device_preset(std::string_view name) {
  if (name == kNames[0]) {
    DeviceModel device =
        make(name,
             312e12,
             2.039e12,
             80,
             108,
             "NVIDIA A100 80GB SXM data sheet; calibrated on vTrain's single-node set");
    device.basis = Basis::kMeasured;
    return device;
  }
  if (name == kNames[1]) {
    return make(name,
                125e12,
                0.9e12,
                32,
                80,
                std::string("NVIDIA V100 SXM2 data sheet").append(kAssumedConstants));
  }
  if (name == kNames[2]) {
    return make(name,
                989e12,
                3.35e12,
                80,
                132,
                std::string("NVIDIA H100 SXM data sheet").append(kAssumedConstants));
  }
  throw Error(ErrorCode::kInvalidArgument,
              {.message = "no such device",
               .where = {},
               .found = std::string(name),
               .expected = "a100-80g, v100-32g or h100-80g",
               .help = "Fill a DeviceModel with the figures of yours"});
}

Seconds gemm_time(const DeviceModel& device, const Gemm& gemm) noexcept {
  constexpr double kTile = 128.0;
  const double slots = device.tiles_at_once;
  const double tiles = std::ceil(gemm.m / kTile) * std::ceil(gemm.n / kTile) * gemm.batch;
  const double full = tiles / (std::ceil(tiles / slots) * slots);
  const double flops = 2.0 * gemm.m * gemm.n * gemm.k * gemm.batch;
  const Seconds compute(flops / (device.peak_flops_per_s * device.gemm_efficiency * full));
  const double bytes = 2.0 * gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n);
  return std::max(compute, elementwise_time(device, bytes));
}

Seconds elementwise_time(const DeviceModel& device, double bytes, int kernels) noexcept {
  const Seconds one(bytes / (device.memory_bandwidth.value() * device.memory_efficiency));
  return kernels * std::max(one, device.launch);
}

}  // namespace stretto
