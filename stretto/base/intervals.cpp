// SPDX-License-Identifier: Apache-2.0
#include "stretto/base/intervals.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace stretto {

IntervalSet::IntervalSet(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& i) { return i.end_ns <= i.begin_ns; });
  const auto by_begin = [](const Interval& a, const Interval& b) {
    return a.begin_ns < b.begin_ns;
  };
  if (!std::is_sorted(intervals.begin(), intervals.end(), by_begin)) {
    std::sort(intervals.begin(), intervals.end(), by_begin);
  }
  // Merge in place: [0, merged) is the result so far.
  std::size_t merged = 0;
  for (const Interval& next : intervals) {
    if (merged > 0 && next.begin_ns <= intervals[merged - 1].end_ns) {
      intervals[merged - 1].end_ns = std::max(intervals[merged - 1].end_ns, next.end_ns);
    } else {
      intervals[merged++] = next;
    }
  }
  intervals.resize(merged);
  intervals_ = std::move(intervals);
}

std::int64_t IntervalSet::measure_ns() const noexcept {
  std::int64_t total = 0;
  for (const Interval& i : intervals_) {
    total += i.end_ns - i.begin_ns;
  }
  return total;
}

std::int64_t IntervalSet::measure_within_ns(Interval window) const noexcept {
  if (window.end_ns <= window.begin_ns) {
    return 0;
  }
  std::int64_t total = 0;
  auto it = std::partition_point(intervals_.begin(), intervals_.end(), [&](const Interval& i) {
    return i.end_ns <= window.begin_ns;
  });
  for (; it != intervals_.end() && it->begin_ns < window.end_ns; ++it) {
    total += std::min(it->end_ns, window.end_ns) - std::max(it->begin_ns, window.begin_ns);
  }
  return total;
}

std::span<const Interval> IntervalSet::within(Interval window) const noexcept {
  const auto first =
      std::partition_point(intervals_.begin(), intervals_.end(), [&](const Interval& i) {
        return i.end_ns <= window.begin_ns;
      });
  const auto last = std::partition_point(
      first, intervals_.end(), [&](const Interval& i) { return i.begin_ns < window.end_ns; });
  return {first, last};
}

IntervalSet unite(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> all;
  all.reserve(a.intervals().size() + b.intervals().size());
  std::merge(a.intervals().begin(),
             a.intervals().end(),
             b.intervals().begin(),
             b.intervals().end(),
             std::back_inserter(all),
             [](const Interval& x, const Interval& y) { return x.begin_ns < y.begin_ns; });
  return IntervalSet(std::move(all));
}

IntervalSet intersect(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> common;
  auto left = a.intervals().begin();
  auto right = b.intervals().begin();
  while (left != a.intervals().end() && right != b.intervals().end()) {
    common.push_back(
        {std::max(left->begin_ns, right->begin_ns), std::min(left->end_ns, right->end_ns)});
    if (left->end_ns < right->end_ns) {
      ++left;
    } else {
      ++right;
    }
  }
  return IntervalSet(std::move(common));
}

IntervalSet subtract(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> rest;
  auto hole = b.intervals().begin();
  const auto holes_end = b.intervals().end();
  for (Interval piece : a.intervals()) {
    while (hole != holes_end && hole->end_ns <= piece.begin_ns) {
      ++hole;
    }
    // The last hole may reach into the next piece, so it is not passed here.
    for (auto cut = hole; cut != holes_end && cut->begin_ns < piece.end_ns; ++cut) {
      rest.push_back({piece.begin_ns, cut->begin_ns});
      piece.begin_ns = std::max(piece.begin_ns, cut->end_ns);
      hole = cut;
    }
    rest.push_back(piece);
  }
  return IntervalSet(std::move(rest));
}

}  // namespace stretto
