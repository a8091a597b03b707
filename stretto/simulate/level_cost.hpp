// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/cost_formulas.hpp"

/// The formulas over the levels of a machine. Private to simulate/; derived in docs/costs.md.
namespace stretto::detail {

/// A level with more than one member.
struct CostLevel {
  int members = 1;
  double inside = 1.0;  ///< Ranks in one member: they share its link.
  LinkCost whole;       ///< The member's link when one of its ranks uses it.
  LinkCost share;       ///< One rank's share of it when all do.
  double in_switch_efficiency = 0.0;
};

/// Innermost first; empty for one rank.
[[nodiscard]] std::vector<CostLevel> cost_levels(const Machine& machine);

/// What one algorithm takes: a line, or what depends on the number of segments or chunks, and so on
/// the size.
struct LevelCost {
  CostLine line;
  std::optional<cost::Pipeline> pipeline;
  /// Of what goes over several levels in level_chunks(n) chunks: per byte, what does not overlap
  /// with the slowest level in one chunk of them.
  double unchunked_seconds_per_byte = 0.0;
  [[nodiscard]] Seconds operator()(Bytes size) const {
    if (pipeline) {
      return cost::pipeline_time(*pipeline, size);
    }
    const double exposed = unchunked_seconds_per_byte * static_cast<double>(size.count());
    return line(size) + Seconds(exposed / level_chunks(size));
  }
  [[nodiscard]] bool is_line() const noexcept {
    return !pipeline && unchunked_seconds_per_byte == 0.0;
  }
};

/// Nothing if the algorithm does not do this collective on these levels. kAuto does none.
[[nodiscard]] std::optional<LevelCost> level_cost(std::span<const CostLevel> levels,
                                                  Collective collective,
                                                  Algorithm algorithm);

/// The algorithms worth comparing for a collective on these levels, in the order of the
/// enumerators.
[[nodiscard]] std::vector<Algorithm> candidates(std::span<const CostLevel> levels,
                                                Collective collective);

/// 8 sizes per factor of 2, rounded to whole bytes: 1, .. and `most`, at least 1, last.
[[nodiscard]] std::vector<Bytes> sample_sizes(Bytes most);

}  // namespace stretto::detail
