// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stretto/analyze/activity.hpp"
#include "stretto/analyze/steps.hpp"
#include "stretto/data/summary.hpp"

/// Private to analyze/: not installed.
namespace stretto::detail {

/// Collectives that carry gradients, where their size is known. In an all_gather parameters travel.
[[nodiscard]] constexpr bool is_gradient_exchange(Collective collective) noexcept {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
}

struct Buckets {
  std::vector<BucketSummary> summaries;  ///< In order of their numbers.
  /// The least that `ready` of each could be: without the exposed communication before it, which
  /// another schedule might hide. The step's begin where a trace does not say when it was ready.
  std::vector<Seconds> ready_at_best;
  /// Of that time, how long communication ran beside compute.
  std::vector<Seconds> hidden_before;
  /// When it began and ended, without the exposed communication before: how much else was
  /// done by then.
  std::vector<Seconds> started_at_best;
  std::vector<Seconds> ended_at_best;
};

[[nodiscard]] Buckets summarize_buckets(const std::vector<Step>& steps,
                                        const Activities& activities);

}  // namespace stretto::detail
