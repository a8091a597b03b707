// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/comm/communicator.hpp"

namespace stretto {

/// What repeated measurements of one thing say.
struct Spread {
  Seconds median{};
  Seconds p10{};
  Seconds p90{};
  Seconds least{};
  Seconds most{};
  /// Half the width of the 95 % confidence interval of the median, over the median. Of order
  /// statistics (David and Nagaraja, "Order Statistics", 2003, section 7.1), so it assumes nothing
  /// about the distribution; it does assume that samples are independent, and so does not see that
  /// the machine was slower as a whole today.
  double confidence_ratio = 0.0;
  int samples = 0;
};
[[nodiscard]] Spread spread_of(const std::vector<double>& seconds);

/// When there are enough samples: not before `least`; then as soon as Spread::confidence_ratio is
/// at most `precision`, or at `most` samples, or when `budget` is spent.
struct StopRule {
  int least = 20;
  int most = 1000;
  double precision = 0.02;
  Seconds budget{2.0};
};

struct Sampled {
  std::vector<double> seconds;
  Spread spread;
  bool settled = false;  ///< Stopped because the precision was reached.
};

/// What one rank saw of one sample, in seconds. Where only the difference counts `begin` is 0; else
/// both are on CLOCK_MONOTONIC, which the ranks of one host share.
struct Taken {
  double begin = 0.0;
  double end = 0.0;
  [[nodiscard]] double duration() const noexcept { return end - begin; }
};

/// Collective. Calls `take` on every rank as often as the rule wants; `combine` makes one number of
/// what all ranks saw of one sample (index = rank). All ranks stop at the same sample and return
/// the same.
/// @throws Error kInvalidArgument: a rule that nothing can satisfy.
[[nodiscard]] Sampled sample(Communicator& communicator,
                             const StopRule& rule,
                             const std::function<Taken()>& take,
                             const std::function<double(std::span<const Taken>)>& combine);

/// Collective: the sum, or the highest, over all ranks.
[[nodiscard]] double sum_over_ranks(Communicator& communicator, double value);
[[nodiscard]] double highest_over_ranks(Communicator& communicator, double value);

}  // namespace stretto
