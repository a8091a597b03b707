// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stretto {

/// Half-open [begin, end). Empty when end <= begin.
struct Interval {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  friend constexpr bool operator==(const Interval&, const Interval&) = default;
};

/// A set of points in time: sorted, disjoint, non-touching, non-empty intervals. All exposed-time
/// arithmetic is this algebra on integers; nothing is rounded.
///
/// exposed communication = unite(communication) minus unite(compute).
class IntervalSet {
 public:
  IntervalSet() = default;
  /// Any intervals in any order, overlapping or empty: their union. O(n log n); O(n) when sorted.
  explicit IntervalSet(std::vector<Interval> intervals);

  [[nodiscard]] std::span<const Interval> intervals() const noexcept { return intervals_; }
  [[nodiscard]] bool empty() const noexcept { return intervals_.empty(); }
  /// Total length.
  [[nodiscard]] std::int64_t measure_ns() const noexcept;
  /// Length of the part inside [begin, end), without building it.
  [[nodiscard]] std::int64_t measure_within_ns(Interval window) const noexcept;

  /// Those that have a part inside [begin, end); not clipped.
  [[nodiscard]] std::span<const Interval> within(Interval window) const noexcept;

  friend bool operator==(const IntervalSet&, const IntervalSet&) = default;

 private:
  std::vector<Interval> intervals_;
};

/// Each is linear in the number of intervals.
[[nodiscard]] IntervalSet unite(const IntervalSet& a, const IntervalSet& b);
[[nodiscard]] IntervalSet intersect(const IntervalSet& a, const IntervalSet& b);
/// Points of `a` that are not in `b`.
[[nodiscard]] IntervalSet subtract(const IntervalSet& a, const IntervalSet& b);

}  // namespace stretto
