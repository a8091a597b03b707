// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "stretto/base/units.hpp"

namespace stretto {

/// Compute to measure communication beside: products of small matrices that together fill about a
/// megabyte, real arithmetic on real memory, so that whatever takes the processor or its caches
/// away slows it down. One per thread.
class ComputeLoad {
 public:
  /// Finds out how fast this processor is: takes a tenth of a second. Call it on all ranks at once,
  /// for they share the processor when it counts, too.
  ComputeLoad();

  /// Work that takes this long alone, in whole products; at least one.
  [[nodiscard]] std::int64_t work_for(Seconds alone) const noexcept;
  void run(std::int64_t products) noexcept;
  /// A value of the result, so that nobody can leave the work out.
  [[nodiscard]] float result() const noexcept { return sums_.front(); }

 private:
  void multiply(std::size_t which) noexcept;

  std::vector<float> left_;
  std::vector<float> right_;
  std::vector<float> sums_;
  std::size_t next_ = 0;
  double products_per_s_ = 1.0;
};

}  // namespace stretto
