// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace stretto {

/// The q-quantile (0 <= q <= 1) with linear interpolation between order statistics (Hyndman and
/// Fan, "Sample quantiles in statistical packages", 1996, type 7). NaN for no values.
/// Takes its argument by value because it reorders it.
[[nodiscard]] double quantile(std::vector<double> values, double q);

[[nodiscard]] inline double median(std::vector<double> values) {
  return quantile(static_cast<std::vector<double>&&>(values), 0.5);
}

}  // namespace stretto
