// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/dtype.hpp"
#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"

namespace stretto {

/// One trainable tensor and the moment its gradient is complete.
struct ProfileTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  Seconds ready{};  ///< From the start of the step.
  [[nodiscard]] std::int64_t elements() const noexcept;
  [[nodiscard]] Bytes bytes() const noexcept;
};

/// Forward time of one layer, in forward order.
struct LayerTime {
  std::string name;
  Seconds forward{};
};

/// What one step of a model does on one rank, without communication.
struct StepProfile {
  std::string model;
  std::int64_t batch = 0;  ///< Samples per rank and step.
  Basis basis = Basis::kAssumed;
  std::string assumptions;            ///< For people: device rate, ratio of backward to forward...
  bool beside_communication = false;  ///< Times were taken while communication ran.
  /// How many times as long compute took while communication ran beside it, where that was
  /// measured; 1: it was not. Of a profile that is not beside_communication the times are without
  /// it.
  double compute_slowdown = 1.0;
  /// The optimizer came in one piece after the last exchange, as in the frameworks that write
  /// traces, and not bucket by bucket.
  bool optimizer_after_exchanges = false;
  std::vector<LayerTime> forward;
  Seconds forward_end{};               ///< Backward starts here.
  Seconds backward_end{};              ///< The last gradient is ready at or before this.
  Seconds compute_end{};               ///< The optimizer is done: a step with free communication.
  std::vector<ProfileTensor> tensors;  ///< In the order their gradients become ready.

  [[nodiscard]] Bytes bytes() const noexcept;
};

/// Of each tensor of the profile, the layer of `forward` that uses it first: the one whose name its
/// own begins with, else by the time of its gradient.
[[nodiscard]] std::vector<std::size_t> layers_of_tensors(const StepProfile& profile);

/// Schema `stretto.step_profile/1`.
[[nodiscard]] std::string to_json(const StepProfile& profile);
/// @throws Error kParse: not JSON, an unknown key (with the nearest known one), a missing key,
/// times
///         that go backwards.
[[nodiscard]] StepProfile step_profile_from_json(std::string_view text, std::string_view where);

/// What a device is assumed to do when only the model is known.
struct AssumedDevice {
  double flops_per_s = 50e12;  ///< Sustained, not peak.
  std::int64_t batch = 0;      ///< Samples per rank; 0 = the model table's own.
};

/// A profile from a model table (see models/README.md): forward time = 2 x multiply-adds / rate per
/// tensor, backward = 2 x forward, gradients ready in reverse order of use, tied tensors last.
/// Marked kAssumed, with the assumptions in words.
/// @throws Error kParse as step_profile_from_json; kInvalidArgument for a rate or batch below zero.
[[nodiscard]] StepProfile profile_from_model_json(std::string_view text,
                                                  std::string_view where,
                                                  AssumedDevice device);

}  // namespace stretto
