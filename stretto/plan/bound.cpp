// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/bound.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace stretto {

ExchangeCost least_exchange_cost(const Machine& machine) {
  // From the outermost level inwards, because a group may route around its own link through the
  // levels outside it: what they can carry counts for every level inside them.
  ExchangeCost cost;
  double members = 1.0;           // of this level, machine-wide
  double outward_capacity = 0.0;  // bytes per second that all of them together can send
  bool outermost = true;
  for (std::size_t l = machine.levels.size(); l-- > 0;) {
    const Level& level = machine.levels[l];
    if (level.group_size == 1) {
      continue;  // nobody to talk to: no message crosses this level
    }
    members *= level.group_size;
    outward_capacity += members * level.bandwidth.value();
    cost.seconds_per_byte =
        std::max(cost.seconds_per_byte, 2.0 * (members - 1.0) / outward_capacity);
    if (outermost) {
      cost.latency = level.latency;
      outermost = false;
    }
  }
  return cost;
}

Seconds in_iteration_bound(std::span<const ReadyBytes> gradients,
                           Seconds compute_end,
                           ExchangeCost cost) {
  std::vector<ReadyBytes> latest_first(gradients.begin(), gradients.end());
  std::erase_if(latest_first, [](const ReadyBytes& g) { return g.bytes <= Bytes(0); });
  std::sort(latest_first.begin(), latest_first.end(), [](const ReadyBytes& a, const ReadyBytes& b) {
    return a.ready > b.ready;
  });
  Seconds bound = compute_end;
  Bytes from_here_on;
  for (const ReadyBytes& gradient : latest_first) {
    from_here_on += gradient.bytes;
    bound =
        std::max(bound,
                 gradient.ready + cost.latency +
                     Seconds(cost.seconds_per_byte * static_cast<double>(from_here_on.count())));
  }
  return bound;
}

}  // namespace stretto
