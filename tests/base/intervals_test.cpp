// SPDX-License-Identifier: Apache-2.0
#include "stretto/base/intervals.hpp"

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace stretto {

namespace {

bool is_canonical(const IntervalSet& set) {
  std::int64_t last_end = -1;
  for (const Interval& i : set.intervals()) {
    if (i.begin_ns <= last_end || i.end_ns <= i.begin_ns) {
      return false;
    }
    last_end = i.end_ns;
  }
  return true;
}

// The oracle: a set of points as bits.
constexpr std::size_t kPoints = 64;
using Points = std::bitset<kPoints>;

using Pairs = std::vector<std::pair<std::uint8_t, std::uint8_t>>;

std::vector<Interval> to_intervals(const Pairs& pairs) {
  std::vector<Interval> intervals;
  for (const auto& [begin, end] : pairs) {
    intervals.push_back({begin % std::int64_t{kPoints}, end % std::int64_t{kPoints}});
  }
  return intervals;
}

Points points_of(const std::vector<Interval>& intervals) {
  Points points;
  for (const Interval& i : intervals) {
    for (std::int64_t p = i.begin_ns; p < i.end_ns; ++p) {
      points.set(static_cast<std::size_t>(p));
    }
  }
  return points;
}

Points points_of(const IntervalSet& set) {
  return points_of(std::vector<Interval>(set.intervals().begin(), set.intervals().end()));
}

std::int64_t count(const Points& points) {
  return static_cast<std::int64_t>(points.count());
}

RC_GTEST_PROP(Intervals, ConstructorIsTheUnion, (const Pairs& pairs)) {
  const std::vector<Interval> intervals = to_intervals(pairs);
  const IntervalSet set(intervals);
  RC_ASSERT(is_canonical(set));
  RC_ASSERT(points_of(set) == points_of(intervals));
  RC_ASSERT(set.measure_ns() == count(points_of(intervals)));
  RC_ASSERT(set.empty() == points_of(intervals).none());
}

RC_GTEST_PROP(Intervals, AlgebraIsThatOfSets, (const Pairs& left, const Pairs& right)) {
  const IntervalSet a(to_intervals(left));
  const IntervalSet b(to_intervals(right));
  const IntervalSet both = intersect(a, b);
  const IntervalSet only_a = subtract(a, b);
  const IntervalSet either = unite(a, b);
  RC_ASSERT(is_canonical(both) && is_canonical(only_a) && is_canonical(either));
  RC_ASSERT(points_of(both) == (points_of(a) & points_of(b)));
  RC_ASSERT(points_of(only_a) == (points_of(a) & ~points_of(b)));
  RC_ASSERT(points_of(either) == (points_of(a) | points_of(b)));
  RC_ASSERT(a.measure_ns() == both.measure_ns() + only_a.measure_ns());
  RC_ASSERT(either == unite(only_a, b));
}

RC_GTEST_PROP(Intervals,
              MeasureWithinIsTheMeasureOfTheIntersection,
              (const Pairs& pairs, std::uint8_t begin, std::uint8_t end)) {
  const IntervalSet set(to_intervals(pairs));
  const Interval window{begin % std::int64_t{kPoints}, end % std::int64_t{kPoints}};
  RC_ASSERT(set.measure_within_ns(window) == intersect(set, IntervalSet({window})).measure_ns());
}

TEST(Intervals, WithinAreThoseThatReachIn) {
  const IntervalSet set({{0, 2}, {4, 6}, {8, 10}});
  ASSERT_EQ(set.within({1, 5}).size(), 2U);
  EXPECT_EQ(set.within({1, 5})[1], (Interval{4, 6}));
  EXPECT_TRUE(set.within({2, 4}).empty());
  EXPECT_TRUE(set.within({10, 20}).empty());
  EXPECT_EQ(set.within({-5, 50}).size(), 3U);
}

TEST(Intervals, TouchingIntervalsBecomeOne) {
  const IntervalSet set({{5, 7}, {1, 3}, {3, 5}, {9, 9}, {8, 2}});
  ASSERT_EQ(set.intervals().size(), 1U);
  EXPECT_EQ(set.intervals()[0], (Interval{1, 7}));
}

TEST(Intervals, OneHoleMayCutSeveralPieces) {
  const IntervalSet rest =
      subtract(IntervalSet({{0, 4}, {6, 10}, {12, 14}}), IntervalSet({{3, 13}}));
  EXPECT_EQ(rest, IntervalSet({{0, 3}, {13, 14}}));
}

}  // namespace
}  // namespace stretto
