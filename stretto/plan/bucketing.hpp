// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/plan/bound.hpp"
#include "stretto/simulate/exchange_time.hpp"

/// Optimal buckets, exactly. Gradients 1..L become ready at r_1 <= ... <= r_L; a bucket of some of
/// them can begin when the last of them is ready and the one before has ended (one stream), and
/// takes T(its bytes). With S_j the bytes up to j:
///
///   E[j] = min over i < j of  max(E[i], r_j) + T(S_j - S_i)
///
/// is the least over all buckets of neighbours in ready order. When T is one line nothing else is
/// quicker: putting each gradient into the first bucket that begins late enough for it makes every
/// later one smaller (proof in docs/bounds.md).
namespace stretto {

struct Bucketing {
  std::vector<std::size_t> ends;  ///< Bucket b holds gradients [ends[b-1], ends[b]).
  Seconds communication_end{};    ///< 0 if there is nothing to exchange.
};

/// When the last bucket of a given cut ends.
/// @throws Error kInvalidArgument: gradients out of order, ends that do not increase up to their
///         number.
[[nodiscard]] Seconds communication_end(std::span<const ReadyBytes> gradients,
                                        std::span<const std::size_t> ends,
                                        const ExchangeTime& cost);

/// The least possible end of communication, and of the cuts that reach it the one whose every
/// prefix ends as early as it can. O(L) per line of the cost; O(L^2) for a curve.
/// @throws Error kInvalidArgument: gradients that are not in ready order, negative bytes or times.
[[nodiscard]] Bucketing earliest_buckets(std::span<const ReadyBytes> gradients,
                                         const ExchangeTime& cost);

/// Of the cuts that end by `deadline`, one with the fewest buckets; that of earliest_buckets() if
/// none does. O(K L) per line for K buckets; O(K L^2) for a curve.
[[nodiscard]] Bucketing fewest_buckets(std::span<const ReadyBytes> gradients,
                                       const ExchangeTime& cost,
                                       Seconds deadline);

/// The best of the cuts into buckets of equally many gradients each (the last may have fewer): what
/// a rule "so many layers per bucket" can reach. Sizes whose release bound is no better than what
/// was found are not looked at.
struct EvenBuckets {
  std::size_t gradients_each = 0;  ///< The largest of the best; 0 without gradients.
  Seconds communication_end{};
};
[[nodiscard]] EvenBuckets best_even_buckets(std::span<const ReadyBytes> gradients,
                                            const CostLine& cost);

/// The cut with the least end of step when every bucket is followed by `update_s_per_byte` of
/// optimizer on its bytes, bucket by bucket, after `compute_end`. To one part in 10^9: bisection on
/// the end, each try O(L log L) per line of the cost; O(L^2) for a curve.
struct UpdatedBucketing {
  Bucketing bucketing;
  Seconds step_end{};
};
[[nodiscard]] UpdatedBucketing buckets_before_update(std::span<const ReadyBytes> gradients,
                                                     const ExchangeTime& cost,
                                                     Seconds compute_end,
                                                     double update_s_per_byte);

}  // namespace stretto
