// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <span>

#include "stretto/base/error.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/device.hpp"
#include "stretto/simulate/training_step.hpp"
#include "stretto/simulate/validate.hpp"

namespace stretto {
namespace {

// An error of this size pulls half as much as a small one does for its size.
constexpr double kKnee = 0.05;

using Constants = std::array<double, 3>;  // in logarithms

DeviceModel with(DeviceModel device, const Constants& constants) {
  device.gemm_efficiency = std::exp(constants[0]);
  device.memory_efficiency = std::exp(constants[1]);
  device.launch = Seconds(std::exp(constants[2]));
  return device;
}

/// No efficiency above 1.
bool possible(const Constants& constants) {
  return constants[0] <= 0.0 && constants[1] <= 0.0;
}

double loss(const DeviceModel& device,
            const Machine& machine,
            std::span<const MeasuredStep> steps) {
  double sum = 0.0;
  for (const MeasuredStep& step : steps) {
    const Seconds time = simulate_training(step.shape, step.layout, device, machine).step;
    const double error = std::log(time / step.time) / kKnee;
    sum += std::sqrt(1.0 + error * error);
  }
  return sum / static_cast<double>(steps.size());
}

}  // namespace

DeviceModel calibrate(DeviceModel device,
                      const Machine& machine,
                      std::span<const MeasuredStep> steps) {
  if (steps.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {.message = "nothing to calibrate on",
                 .where = "calibrate",
                 .found = "no steps",
                 .expected = "one or more",
                 .help = {}});
  }
  Constants best = {std::log(0.8), std::log(0.8), std::log(50e-6)};
  double least = loss(with(device, best), machine, steps);
  for (double step = std::log(1.2); step > 0.001; step /= 2.0) {
    for (bool better = true; better;) {
      better = false;
      for (double& constant : best) {
        for (const double move : {step, -step}) {
          const double before = constant;
          constant += move;
          const double tried = possible(best) ? loss(with(device, best), machine, steps) : least;
          if (tried < least) {
            least = tried;
            better = true;
          } else {
            constant = before;
          }
        }
      }
    }
  }
  DeviceModel calibrated = with(std::move(device), best);
  calibrated.basis = Basis::kMeasured;
  return calibrated;
}

}  // namespace stretto
