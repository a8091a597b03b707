// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stretto/base/buffer.hpp"
#include "stretto/run/session.hpp"

namespace stretto {

/// Gradients whose mean over all ranks is known, so that a replay can tell that its communication
/// works. All values are small whole numbers, exact in every floating type; the filling is equal on
/// all ranks, so that it stays what it is from step to step.
class SampledGradients {
 public:
  /// Fills all gradients of `session`.
  /// @throws Error kInvalidArgument if one is not of a floating type.
  SampledGradients(const Session& session, int rank, int ranks);

  /// Writes the samples of one tensor for this step.
  void stamp(std::size_t tensor, std::uint32_t step);
  /// After the reduction: looks at the samples of all tensors and one neighbour of each.
  /// @throws Error kMismatch naming the first element that is wrong.
  void verify(std::uint32_t step);
  [[nodiscard]] std::int64_t values_checked() const noexcept { return values_checked_; }

 private:
  void expect(std::size_t tensor, std::size_t element, float value, std::uint32_t step);

  const Session& session_;
  int rank_;
  int ranks_;
  std::vector<std::vector<std::size_t>> samples_;  ///< Per tensor.
  std::int64_t values_checked_ = 0;
};

}  // namespace stretto
