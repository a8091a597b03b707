// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stretto/base/intervals.hpp"

/// Whose the exposed time is, where several communicate at once. Private to analyze/: not
/// installed.
namespace stretto::detail {

/// Of each owner's intervals the part that `compute` does not cover, in ns. An instant in which k
/// owners communicate counts 1/k to each, so that the shares sum to the measure of the union of all
/// intervals minus `compute`.
[[nodiscard]] std::vector<double> exposed_shares_ns(const std::vector<IntervalSet>& owners,
                                                    const IntervalSet& compute);

}  // namespace stretto::detail
