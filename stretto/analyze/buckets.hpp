// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stretto/analyze/activity.hpp"
#include "stretto/analyze/steps.hpp"
#include "stretto/data/summary.hpp"

/// Private to analyze/: not installed.
namespace stretto::detail {

struct Buckets {
  std::vector<BucketSummary> summaries;  ///< In order of their numbers.
  /// The least that `ready` of each could be: without the exposed communication before it, which
  /// another schedule might hide. The step's begin where a trace does not say when it was ready.
  std::vector<Seconds> ready_at_best;
  /// Of that time, how long communication ran beside compute.
  std::vector<Seconds> hidden_before;
};

[[nodiscard]] Buckets summarize_buckets(const std::vector<Step>& steps,
                                        const Activities& activities);

}  // namespace stretto::detail
