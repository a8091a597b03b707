// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/sampling.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <string>

#include "stretto/base/error.hpp"
#include "stretto/base/statistics.hpp"

namespace stretto {
namespace {

void check(const StopRule& rule) {
  if (rule.least < 1 || rule.most < rule.least || !(rule.precision >= 0.0) ||
      !(rule.budget >= Seconds(0))) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"the rule when to stop measuring cannot be met",
         "iterations",
         "least " + std::to_string(rule.least) + ", most " + std::to_string(rule.most) +
             ", precision " + std::to_string(rule.precision) + ", budget " + format(rule.budget),
         "1 <= least <= most, precision and budget of zero or more",
         ""});
  }
}

/// Half the width of the interval between two order statistics around the median.
double half_width(const std::vector<double>& sorted) {
  constexpr double kNormal95 = 1.959964;
  const auto n = static_cast<double>(sorted.size());
  const double reach = kNormal95 * std::sqrt(n) / 2;
  const auto at = [&](double rank) {
    const double last = n - 1;
    return sorted[static_cast<std::size_t>(std::clamp(rank, 0.0, last))];
  };
  // Ranks counted from 1: floor(n/2 - reach) and ceil(n/2 + 1 + reach); from 0, one less.
  return (at(std::ceil(n / 2 + reach)) - at(std::floor(n / 2 - reach) - 1)) / 2;
}

double reduced(Communicator& communicator, double value, ReduceOp op) {
  std::vector<double> one = {value};
  communicator.all_reduce(view(std::span(one)), op).wait();
  return one[0];
}

}  // namespace

Spread spread_of(const std::vector<double>& seconds) {
  Spread spread;
  if (seconds.empty()) {
    return spread;
  }
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  spread.samples = static_cast<int>(sorted.size());
  spread.median = Seconds(quantile(sorted, 0.5));
  spread.p10 = Seconds(quantile(sorted, 0.1));
  spread.p90 = Seconds(quantile(sorted, 0.9));
  spread.least = Seconds(sorted.front());
  spread.most = Seconds(sorted.back());
  if (spread.median > Seconds(0)) {
    spread.confidence_ratio = half_width(sorted) / spread.median.count();
  }
  return spread;
}

double sum_over_ranks(Communicator& communicator, double value) {
  return reduced(communicator, value, ReduceOp::kSum);
}

double highest_over_ranks(Communicator& communicator, double value) {
  return reduced(communicator, value, ReduceOp::kMax);
}

Sampled sample(Communicator& communicator,
               const StopRule& rule,
               const std::function<Taken()>& take,
               const std::function<double(std::span<const Taken>)>& combine) {
  check(rule);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  Sampled result;
  int round = rule.least;
  for (;;) {
    // Every rank fills its own places, the rest is zero: the sum is all of them, on all ranks.
    std::vector<double> times(static_cast<std::size_t>(round) * ranks * 2 + 1, 0.0);
    for (std::size_t i = 0; i < static_cast<std::size_t>(round); ++i) {
      const Taken mine = take();
      times[(i * ranks + rank) * 2] = mine.begin;
      times[(i * ranks + rank) * 2 + 1] = mine.end;
    }
    times.back() = Seconds(Clock::now() - begin).count() / static_cast<double>(ranks);
    communicator.all_reduce(view(std::span(times))).wait();
    for (std::size_t i = 0; i < static_cast<std::size_t>(round); ++i) {
      std::vector<Taken> taken(ranks);
      for (std::size_t r = 0; r < ranks; ++r) {
        taken[r] = {times[(i * ranks + r) * 2], times[(i * ranks + r) * 2 + 1]};
      }
      result.seconds.push_back(combine(taken));
    }
    result.spread = spread_of(result.seconds);
    result.settled = result.spread.confidence_ratio <= rule.precision;
    const int left = rule.most - result.spread.samples;
    if (result.settled || left <= 0 || times.back() >= rule.budget.count()) {
      return result;
    }
    // Half as many again: few exchanges between rounds, and little more than what is needed.
    round = std::min(left, std::max(rule.least, result.spread.samples / 2));
  }
}

}  // namespace stretto
