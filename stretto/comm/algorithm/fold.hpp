// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>

#include "stretto/comm/exchange.hpp"

namespace stretto::detail {

/// Any number of ranks as a power of two: of the first 2 (P - Q), Q the largest power of two up to
/// P, each odd one leaves its share to its even neighbour and is idle. R. Thakur, R. Rabenseifner
/// and W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, section 4.5,
/// doi:10.1177/1094342005051521.
class Fold {
 public:
  explicit Fold(const Exchange& exchange) noexcept
      : rank_(exchange.rank),
        members_(static_cast<int>(std::bit_floor(static_cast<unsigned>(exchange.size)))),
        extra_(exchange.size - members_) {}

  /// Q.
  [[nodiscard]] int members() const noexcept { return members_; }
  /// Ranks that are idle.
  [[nodiscard]] int extra() const noexcept { return extra_; }
  [[nodiscard]] bool idle() const noexcept { return has_neighbour() && rank_ % 2 == 1; }
  [[nodiscard]] bool has_neighbour() const noexcept { return rank_ < 2 * extra_; }
  [[nodiscard]] int neighbour() const noexcept { return rank_ ^ 1; }
  /// This rank among the members; of an idle one, its neighbour's.
  [[nodiscard]] int id() const noexcept { return has_neighbour() ? rank_ / 2 : rank_ - extra_; }
  [[nodiscard]] int rank_of(int id) const noexcept { return id < extra_ ? 2 * id : id + extra_; }

 private:
  int rank_;
  int members_;
  int extra_;
};

}  // namespace stretto::detail
