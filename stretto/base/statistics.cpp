// SPDX-License-Identifier: Apache-2.0
#include "stretto/base/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <vector>

namespace stretto {

double quantile(std::vector<double> values, double q) {
  if (values.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double position = std::clamp(q, 0.0, 1.0) * static_cast<double>(values.size() - 1);
  const auto index = static_cast<std::ptrdiff_t>(std::floor(position));
  const double fraction = position - std::floor(position);
  const auto lower = std::next(values.begin(), index);
  std::nth_element(values.begin(), lower, values.end());
  if (fraction == 0.0) {
    return *lower;
  }
  const double upper = *std::min_element(std::next(lower), values.end());
  return *lower + fraction * (upper - *lower);
}

}  // namespace stretto
