// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace stretto {

/// How much quicker one setting is than another, of trials run in pairs.
struct PairedGain {
  /// 1.25: a quarter more steps in the same time. Geometric mean over the pairs; NaN for no pair.
  double ratio = 0.0;
  /// Confidence interval of it; 0 and infinity with fewer than two pairs, which bound nothing.
  double low = 0.0;
  double high = 0.0;
  std::size_t pairs = 0;
};

/// The gain that `log_ratios` speak for: of each pair, log(step of the reference / step of the
/// other). The interval is Student's for paired differences (Student, "The probable error of a
/// mean", Biometrika 6, 1908), on logarithms, because step times differ by factors.
[[nodiscard]] PairedGain paired_gain(std::span<const double> log_ratios, double confidence);

/// The p-quantile of Student's t distribution, 0 < p < 1, with 1 degree of freedom or more.
[[nodiscard]] double student_quantile(std::size_t degrees, double p);

}  // namespace stretto
