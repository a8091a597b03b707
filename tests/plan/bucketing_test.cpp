// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/bucketing.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/plan/bound.hpp"

namespace stretto {
namespace {

constexpr double kClose = 1e-12;

/// Sizes of a few MB and times of a few ms, with bursts and pauses, some without bytes.
std::vector<ReadyBytes> some_gradients(std::size_t most, bool empty_ones = true) {
  const auto count = *rc::gen::inRange<std::size_t>(1, most + 1);
  std::vector<ReadyBytes> gradients;
  double at = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    at += *rc::gen::element(0, 0, 1, 10, 100, 1000) * 1e-5;
    const auto size = *rc::gen::inRange<std::int64_t>(empty_ones ? 0 : 1, 4000);
    gradients.push_back({Seconds(at), Bytes(size * 1000)});
  }
  return gradients;
}

CostLine some_line() {
  return {Seconds(*rc::gen::inRange(0, 3000) * 1e-6), *rc::gen::inRange(1, 4000) * 1e-12, {}};
}

/// Any monotone function: a line, some lines, a curve.
ExchangeTime some_cost() {
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      return ExchangeTime(std::vector<CostLine>{some_line()});
    case 1:
      return ExchangeTime({some_line(), some_line(), some_line()});
    default:
      break;
  }
  std::vector<CurvePoint> points;
  std::int64_t size = 500;
  double time = 1e-5;
  for (int i = 0; i < 6; ++i) {
    points.push_back({Bytes(size), Seconds(time)});
    size *= *rc::gen::inRange(2, 20);
    time *= *rc::gen::inRange(10, 200) * 0.1;
  }
  return ExchangeTime(std::span<const CurvePoint>(points));
}

/// Calls `visit` with every contiguous cut of `count` gradients.
template <typename Visit>
void all_cuts(std::size_t count, Visit visit) {
  for (std::uint32_t mask = 0; mask < (1U << (count - 1)); ++mask) {
    std::vector<std::size_t> ends;
    for (std::size_t i = 1; i < count; ++i) {
      if ((mask >> (i - 1) & 1U) != 0) {
        ends.push_back(i);
      }
    }
    ends.push_back(count);
    visit(ends);
  }
}

double brute_force(std::span<const ReadyBytes> gradients, const ExchangeTime& cost) {
  double least = INFINITY;
  all_cuts(gradients.size(), [&](const std::vector<std::size_t>& ends) {
    least = std::min(least, communication_end(gradients, ends, cost).count());
  });
  return least;
}

/// MG-WFBP (Shi et al. 2019, arXiv:1811.11141, algorithm 1): a gradient joins the bucket before it
/// when the stream is busy as it becomes ready, or is free again for less than one latency.
double merged_greedily(std::span<const ReadyBytes> gradients, const CostLine& line) {
  double end = 0.0;  // of the bucket before the open one
  double open_ready = gradients[0].ready.count();
  double open_bytes = static_cast<double>(gradients[0].bytes.count());
  const auto close = [&] {
    return std::max(end, open_ready) + line.latency.count() + open_bytes * line.seconds_per_byte;
  };
  for (std::size_t i = 1; i < gradients.size(); ++i) {
    const double ready = gradients[i].ready.count();
    const double begin = std::max(end, open_ready);
    if (begin > ready || ready - begin < line.latency.count()) {
      open_ready = ready;
      open_bytes += static_cast<double>(gradients[i].bytes.count());
    } else {
      end = close();
      open_ready = ready;
      open_bytes = static_cast<double>(gradients[i].bytes.count());
    }
  }
  return close();
}

RC_GTEST_PROP(EarliestBuckets, EqualsBruteForceOverAllCuts, ()) {
  for (int k = 0; k < 30; ++k) {  // of each of the 100 that RapidCheck makes: 3000
    const std::vector<ReadyBytes> gradients = some_gradients(k == 0 ? 16 : 11);
    const ExchangeTime cost = some_cost();
    const Bucketing best = earliest_buckets(gradients, cost);
    RC_ASSERT(std::abs(best.communication_end.count() - brute_force(gradients, cost)) <= kClose);
    RC_ASSERT(best.communication_end == Seconds(0) ||
              communication_end(gradients, best.ends, cost) == best.communication_end);
  }
}

RC_GTEST_PROP(EarliestBuckets, NoSetOfGradientsInAnyOrderEndsEarlier, ()) {
  // Every partition of 6 gradients into sets, sets by their release.
  const std::vector<ReadyBytes> gradients = some_gradients(6, false);
  const ExchangeTime cost(std::vector<CostLine>{some_line()});
  const std::size_t count = gradients.size();
  std::vector<std::size_t> set_of(count, 0);
  double least = INFINITY;
  const auto evaluate = [&] {
    std::vector<ReadyBytes> sets(count);
    for (std::size_t i = 0; i < count; ++i) {
      sets[set_of[i]].bytes += gradients[i].bytes;
      sets[set_of[i]].ready = std::max(sets[set_of[i]].ready, gradients[i].ready);
    }
    std::sort(sets.begin(), sets.end(), [](const ReadyBytes& a, const ReadyBytes& b) {
      return a.ready < b.ready;
    });
    double at = 0.0;
    for (const ReadyBytes& set : sets) {
      if (set.bytes > Bytes(0)) {
        at = std::max(at, set.ready.count()) + cost(set.bytes).count();
      }
    }
    least = std::min(least, at);
  };
  for (std::size_t code = 0, codes = 46656; code < codes; ++code) {  // 6^6
    std::size_t rest = code;
    bool counted = true;
    for (std::size_t i = 0; i < 6; ++i, rest /= 6) {
      if (i < count) {
        set_of[i] = rest % 6;
        counted = counted && set_of[i] < count;
      } else {
        counted = counted && rest % 6 == 0;
      }
    }
    if (counted) {
      evaluate();
    }
  }
  RC_ASSERT(earliest_buckets(gradients, cost).communication_end.count() <= least + kClose);
}

RC_GTEST_PROP(EarliestBuckets, NeverLaterThanGreedyMerging, ()) {
  const std::vector<ReadyBytes> gradients = some_gradients(200, false);
  const CostLine line = some_line();
  const ExchangeTime cost(std::vector<CostLine>{line});
  RC_ASSERT(earliest_buckets(gradients, cost).communication_end.count() <=
            merged_greedily(gradients, line) + kClose);
}

RC_GTEST_PROP(EarliestBuckets, LinesAndTheSameAsACurveAgree, ()) {
  // A curve is scanned in quadratic time, lines in linear time: one cost, both ways.
  const std::vector<ReadyBytes> gradients = some_gradients(60, false);
  const double per_byte = *rc::gen::inRange(1, 4000) * 1e-12;
  const ExchangeTime lines(std::vector<CostLine>{{Seconds(0), per_byte, {}}});
  const std::vector<CurvePoint> points = {{Bytes(1), Seconds(per_byte)}};
  const ExchangeTime curve{std::span<const CurvePoint>(points)};
  const double a = earliest_buckets(gradients, lines).communication_end.count();
  const double b = earliest_buckets(gradients, curve).communication_end.count();
  RC_ASSERT(std::abs(a - b) <= 1e-9 * a);
}

RC_GTEST_PROP(EarliestBuckets, NeverBeforeTheBound, ()) {
  const std::vector<ReadyBytes> gradients = some_gradients(40);
  const ExchangeTime cost = some_cost();
  const double end = earliest_buckets(gradients, cost).communication_end.count();
  Bytes total;
  for (const ReadyBytes& gradient : gradients) {
    total += gradient.bytes;
  }
  RC_ASSERT(release_bound(gradients, exchange_floor(cost, total, 1)).count() <= end * (1 + 1e-9));
}

RC_GTEST_PROP(FewestBuckets, EqualsBruteForceInNumberAndKeepsTheDeadline, ()) {
  const std::vector<ReadyBytes> gradients = some_gradients(10, false);
  const ExchangeTime cost = some_cost();
  const double least = brute_force(gradients, cost);
  const double deadline = least * (1.0 + *rc::gen::inRange(0, 30) * 0.01) + 1e-12;
  std::size_t fewest = gradients.size();
  all_cuts(gradients.size(), [&](const std::vector<std::size_t>& ends) {
    if (communication_end(gradients, ends, cost).count() <= deadline) {
      fewest = std::min(fewest, ends.size());
    }
  });
  const Bucketing cut = fewest_buckets(gradients, cost, Seconds(deadline));
  RC_ASSERT(cut.ends.size() == fewest);
  RC_ASSERT(cut.communication_end.count() <= deadline);
}

RC_GTEST_PROP(BucketsBeforeUpdate, EqualsBruteForce, ()) {
  const std::vector<ReadyBytes> gradients = some_gradients(9, false);
  const ExchangeTime cost = some_cost();
  const double update = *rc::gen::inRange(0, 4000) * 1e-12;
  const double compute_end = gradients.back().ready.count() + *rc::gen::inRange(0, 100) * 1e-5;
  const auto step_end = [&](const std::vector<std::size_t>& ends) {
    double channel = 0.0;
    double updated = compute_end;
    std::size_t i = 0;
    for (const std::size_t end : ends) {
      Bytes bytes;
      Seconds ready{};
      for (; i < end; ++i) {
        bytes += gradients[i].bytes;
        ready = gradients[i].ready;
      }
      channel = std::max(channel, ready.count()) + cost(bytes).count();
      updated = std::max(updated, channel) + update * static_cast<double>(bytes.count());
    }
    return updated;
  };
  double least = INFINITY;
  all_cuts(gradients.size(),
           [&](const std::vector<std::size_t>& ends) { least = std::min(least, step_end(ends)); });
  const UpdatedBucketing best =
      buckets_before_update(gradients, cost, Seconds(compute_end), update);
  RC_ASSERT(std::abs(best.step_end.count() - least) <= 1e-7 * least);
  RC_ASSERT(step_end(best.bucketing.ends) <= least * (1 + 1e-7));
}

RC_GTEST_PROP(BestEvenBuckets, EqualsTryingEverySize, ()) {
  const std::vector<ReadyBytes> gradients = some_gradients(60, false);
  const CostLine line = some_line();
  const ExchangeTime cost(std::vector<CostLine>{line});
  double least = INFINITY;
  for (std::size_t size = 1; size <= gradients.size(); ++size) {
    std::vector<std::size_t> ends;
    for (std::size_t end = size; end < gradients.size(); end += size) {
      ends.push_back(end);
    }
    ends.push_back(gradients.size());
    least = std::min(least, communication_end(gradients, ends, cost).count());
  }
  const EvenBuckets best = best_even_buckets(gradients, line);
  RC_ASSERT(std::abs(best.communication_end.count() - least) <= kClose);
  RC_ASSERT(best.gradients_each >= 1);
  RC_ASSERT(best.gradients_each <= gradients.size());
}

TEST(EarliestBuckets, NothingToExchangeIsNoBucket) {
  const ExchangeTime cost(std::vector<CostLine>{{Seconds(1e-3), 1e-9, {}}});
  EXPECT_TRUE(earliest_buckets({}, cost).ends.empty());
  const std::vector<ReadyBytes> empty = {{Seconds(1), Bytes(0)}};
  EXPECT_TRUE(earliest_buckets(empty, cost).ends.empty());
  EXPECT_EQ(earliest_buckets(empty, cost).communication_end, Seconds(0));
}

TEST(EarliestBuckets, RefusesWhatCannotBe) {
  const ExchangeTime cost;
  const std::vector<ReadyBytes> backwards = {{Seconds(2), Bytes(1)}, {Seconds(1), Bytes(1)}};
  const std::vector<ReadyBytes> negative = {{Seconds(2), Bytes(-1)}};
  const std::vector<ReadyBytes> early = {{Seconds(-1), Bytes(1)}};
  for (const std::vector<ReadyBytes>& gradients : {backwards, negative, early}) {
    EXPECT_THROW((void)earliest_buckets(gradients, cost), Error);
  }
}

TEST(EarliestBuckets, MergesWhatBecomesReadyWhileTheStreamIsBusy) {
  // 1 ms each way of looking at it: three gradients of 1 MB at 1 GB/s, latency 1 ms.
  const ExchangeTime cost(std::vector<CostLine>{{Seconds(1e-3), 1e-9, {}}});
  const std::vector<ReadyBytes> gradients = {{Seconds(0), Bytes(1000000)},
                                             {Seconds(1e-3), Bytes(1000000)},
                                             {Seconds(2e-3), Bytes(1000000)}};
  const Bucketing best = earliest_buckets(gradients, cost);
  // [1][2 3]: 0-2 ms, 2-5 ms. One bucket: 2-6; three: 0-2, 2-4, 4-6.
  EXPECT_EQ(best.ends, (std::vector<std::size_t>{1, 3}));
  EXPECT_DOUBLE_EQ(best.communication_end.count(), 5e-3);
}

}  // namespace
}  // namespace stretto
