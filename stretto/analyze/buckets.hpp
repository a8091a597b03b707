// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stretto/analyze/activity.hpp"
#include "stretto/analyze/steps.hpp"
#include "stretto/data/summary.hpp"

/// Private to analyze/: not installed.
namespace stretto::detail {

/// What happened to each bucket, in order of its number.
[[nodiscard]] std::vector<BucketSummary> summarize_buckets(const std::vector<Step>& steps,
                                                           const Activities& activities);

}  // namespace stretto::detail
