// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stretto/data/timeline.hpp"

/// Private to trace/: not installed.
namespace stretto::detail {

/// Makes the buckets of an imported timeline the same on all ranks. They are numbered by position
/// in the step; in a step in which ranks have other collectives, or in another order, they get
/// their numbers by process group and sequence number, by order in the group where there is none,
/// and by order among their kind where there is no group. The lowest rank keeps its numbers; what
/// it has not is numbered behind.
/// @return notes: how many are not on all ranks of their group.
std::vector<std::string> match_buckets(Timeline& timeline);

}  // namespace stretto::detail
