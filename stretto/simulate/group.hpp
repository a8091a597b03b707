// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stretto/data/machine.hpp"

namespace stretto {

/// The machine as a group of `size` ranks sees it whose members are `stride` ranks apart (ranks 0,
/// stride, 2 stride...; innermost first), while `concurrent` such groups, this one included, each
/// on other ranks of the same nodes, use the links at once. Levels on which the group has one
/// member are left out; where several groups share a level's link, each has its part of the
/// bandwidth.
///
/// On 4 nodes of 8: (8, 1) is one level of 8 ranks, a tensor-parallel group; (4, 8, 8) is 4 ranks
/// on the node level with an eighth of a node's bandwidth each: data parallelism beside it; (16, 2,
/// 2) is 4 ranks in each of 4 nodes.
///
/// Measured curves stay for groups of neighbours (stride 1) that are at least as large; no formula
/// scales a measurement.
/// @throws Error kInvalidArgument: the group does not fit the machine, does not divide its levels
/// evenly, or more groups than `stride` are to run at once.
[[nodiscard]] Machine group_view(const Machine& machine, int size, int stride, int concurrent = 1);

}  // namespace stretto
