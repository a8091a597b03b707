// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/group.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

[[noreturn]] void reject(const Machine& machine,
                         std::string message,
                         std::string found,
                         std::string expected) {
  throw Error(ErrorCode::kInvalidArgument,
              {std::move(message),
               "machine " + machine.name,
               std::move(found),
               std::move(expected),
               "Sizes and strides of groups must divide the machine's levels, innermost first"});
}

}  // namespace

Machine group_view(const Machine& machine, int size, int stride, int concurrent) {
  if (size < 1 || stride < 1 || size > machine.ranks() / stride) {
    reject(machine,
           "a group of ranks does not fit the machine",
           std::to_string(size) + " ranks, " + std::to_string(stride) + " apart",
           "at least 1, and at most " + std::to_string(machine.ranks()) + " in all");
  }
  if (concurrent < 1 || concurrent > stride) {
    reject(machine,
           "that many groups cannot run side by side",
           std::to_string(concurrent),
           "from 1 to the stride, " + std::to_string(stride));
  }
  Machine view = machine;
  view.levels.clear();
  int members_left = size;
  int step = stride;   // between two members, counted in members of this level
  int inside = 1;      // ranks of the machine in one member of this level,
  int own_inside = 1;  // and how many of them are the group's
  for (const Level& level : machine.levels) {
    const bool steps_over = step >= level.group_size;
    const int members =
        steps_over ? 1 : std::min(members_left, std::max(1, level.group_size / step));
    const bool even = steps_over ? step % level.group_size == 0
                                 : level.group_size % step == 0 && members_left % members == 0 &&
                                       level.group_size / step % members == 0;
    if (!even && members_left > 1) {
      reject(
          machine,
          "a group of ranks does not divide the machine evenly",
          std::to_string(size) + " ranks, " + std::to_string(stride) + " apart",
          "parts that divide the " + std::to_string(level.group_size) + " of level " + level.name);
    }
    if (members > 1) {
      Level own = level;
      own.group_size = members;
      const int sharing = std::min(concurrent, std::max(1, inside / own_inside));
      own.bandwidth = BytesPerSecond(level.bandwidth.value() / sharing);
      view.levels.push_back(std::move(own));
    }
    inside *= level.group_size;
    own_inside *= members;
    members_left /= members;
    step = steps_over ? step / level.group_size : 1;
  }
  if (view.levels.empty()) {
    view.levels.push_back(machine.levels.front());
    view.levels.front().group_size = 1;
  }
  if (size != machine.ranks()) {
    view.name += " (" + std::to_string(size) + " ranks, " + std::to_string(stride) + " apart)";
  }
  std::erase_if(view.curves,
                [&](const CollectiveCurve& curve) { return stride != 1 || curve.ranks > size; });
  return view;
}

}  // namespace stretto
