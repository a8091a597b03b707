// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"

namespace stretto {

/// One level of the machine, seen from below: `group_size` members (ranks, or groups of the level
/// inside) exchange messages over links of this kind.
struct Level {
  std::string name;
  int group_size = 1;
  Seconds latency{};           ///< Per message, however small.
  BytesPerSecond bandwidth{};  ///< Per direction: of each rank on the innermost level; of each
                               ///< group, shared by its ranks, on outer ones.
};

/// How a machine communicates. Ranks are numbered innermost first: with levels of 4 and 2, ranks
/// 0-3 share a node.
struct Machine {
  std::string name;           ///< Preset, file or the spec it was read from.
  std::vector<Level> levels;  ///< Innermost first. Never empty.

  /// Product of the group sizes.
  [[nodiscard]] int ranks() const noexcept;
  /// Index of the level a message between two ranks crosses: the outermost on which they differ.
  /// -1 when a == b.
  [[nodiscard]] int level_between(int rank_a, int rank_b) const noexcept;
};

/// The text form used everywhere: `4@5Gbit/s,50us`, or several levels, counts outermost first and
/// levels innermost first: `2x4@intra=20GB/s,2us@inter=1Gbit/s,50us` is 2 nodes of 4.
/// @throws Error kInvalidArgument saying which part is wrong and what would be right.
[[nodiscard]] Machine machine_from_spec(std::string_view spec);

/// Schema `stretto.machine/1`.
[[nodiscard]] std::string to_json(const Machine& machine);
/// @throws Error kParse; unknown keys are errors, since people write this file.
[[nodiscard]] Machine machine_from_json(std::string_view text, std::string_view where);

}  // namespace stretto
