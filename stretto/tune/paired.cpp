// SPDX-License-Identifier: Apache-2.0
#include "stretto/tune/paired.hpp"

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

namespace stretto {
namespace {

/// Probability that |t| stays below `t`: Abramowitz and Stegun, "Handbook of Mathematical
/// Functions", 26.7.3 and 26.7.4, a finite sum for whole degrees of freedom.
double within(std::size_t degrees, double t) {
  const double theta = std::atan(t / std::sqrt(static_cast<double>(degrees)));
  const double cosine = std::cos(theta);
  const bool odd = degrees % 2 == 1;
  double term = odd ? cosine : 1.0;
  double sum = degrees == 1 ? 0.0 : term;
  for (std::size_t k = odd ? 3 : 2; k < degrees; k += 2) {
    const auto numerator = static_cast<double>(k - 1);
    term *= cosine * cosine * numerator / static_cast<double>(k);
    sum += term;
  }
  return odd ? 2.0 / std::numbers::pi * (theta + std::sin(theta) * sum) : std::sin(theta) * sum;
}

}  // namespace

double student_quantile(std::size_t degrees, double p) {
  if (p < 0.5) {
    return -student_quantile(degrees, 1.0 - p);
  }
  const double inside = 2.0 * p - 1.0;
  double low = 0.0;
  double high = 1.0;
  while (within(degrees, high) < inside && high < 1e12) {
    high *= 2.0;
  }
  for (int i = 0; i < 100; ++i) {
    const double middle = 0.5 * (low + high);
    (within(degrees, middle) < inside ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

PairedGain paired_gain(std::span<const double> log_ratios, double confidence) {
  const auto count = static_cast<double>(log_ratios.size());
  if (log_ratios.empty()) {
    return {
        std::numeric_limits<double>::quiet_NaN(), 0.0, std::numeric_limits<double>::infinity(), 0};
  }
  const double mean = std::accumulate(log_ratios.begin(), log_ratios.end(), 0.0) / count;
  if (log_ratios.size() == 1) {
    return {std::exp(mean), 0.0, std::numeric_limits<double>::infinity(), 1};
  }
  double squares = 0.0;
  for (const double value : log_ratios) {
    squares += (value - mean) * (value - mean);
  }
  const double error = std::sqrt(squares / (count - 1.0) / count);
  const double half = student_quantile(log_ratios.size() - 1, 0.5 + confidence / 2.0) * error;
  return {std::exp(mean), std::exp(mean - half), std::exp(mean + half), log_ratios.size()};
}

}  // namespace stretto
