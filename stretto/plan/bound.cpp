// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/bound.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
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
  bool switches_add = false;  // on this level or outside of it
  for (std::size_t l = machine.levels.size(); l-- > 0;) {
    const Level& level = machine.levels[l];
    if (level.group_size == 1) {
      continue;  // nobody to talk to: no message crosses this level
    }
    members *= level.group_size;
    outward_capacity += members * level.bandwidth.value();
    switches_add = switches_add || level.in_switch_efficiency > 0.0;
    // At the end points 2(K-1) n bytes leave the K groups; where switches add, K n: each once.
    const double sent =
        switches_add ? std::min(members, 2.0 * (members - 1.0)) : 2.0 * (members - 1.0);
    cost.seconds_per_byte = std::max(cost.seconds_per_byte, sent / outward_capacity);
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

std::vector<CostLine> exchange_floor(const ExchangeTime& cost, Bytes total, int streams) {
  if (streams == 1 || cost.lines().empty()) {
    return cost.lower_lines(total);
  }
  CostLine least = cost.lines().front();
  for (const CostLine& line : cost.lines()) {
    least.latency = std::min(least.latency, line.latency);
    least.seconds_per_byte = std::min(least.seconds_per_byte, line.seconds_per_byte);
  }
  return {least};
}

Seconds release_bound(std::span<const ReadyBytes> gradients, std::span<const CostLine> floor) {
  Seconds bound{};
  for (const CostLine& line : floor) {
    bound = std::max(
        bound, in_iteration_bound(gradients, Seconds(0), {line.latency, line.seconds_per_byte}));
  }
  return bound;
}

std::vector<Bound> in_iteration_bounds(std::span<const ReadyBytes> gradients,
                                       Seconds compute_end,
                                       std::span<const CostLine> floor) {
  return {{"compute", compute_end, "compute takes what the profile says"},
          {"release and bandwidth",
           std::max(compute_end, release_bound(gradients, floor)),
           "every gradient is exchanged whole in its own iteration, at this cost per byte"}};
}

namespace {

/// 1 | r_j, preemption, q_j | Cmax by largest delivery time first, which is optimal (Horn 1974).
double delivered(const std::vector<double>& release,
                 const std::vector<double>& length,
                 const std::vector<double>& delivery) {
  std::vector<std::size_t> by_release(release.size());
  std::iota(by_release.begin(), by_release.end(), std::size_t{0});
  std::sort(by_release.begin(), by_release.end(), [&](std::size_t a, std::size_t b) {
    return release[a] < release[b];
  });
  std::vector<double> left = length;
  const auto less_urgent = [&](std::size_t a, std::size_t b) { return delivery[a] < delivery[b]; };
  std::vector<std::size_t> open;
  double at = 0.0;
  double latest = 0.0;
  std::size_t next = 0;
  while (next < by_release.size() || !open.empty()) {
    if (open.empty()) {
      at = std::max(at, release[by_release[next]]);
    }
    while (next < by_release.size() && release[by_release[next]] <= at) {
      open.push_back(by_release[next++]);
      std::push_heap(open.begin(), open.end(), less_urgent);
    }
    const std::size_t job = open.front();
    const double until_next = next < by_release.size() ? release[by_release[next]] - at
                                                       : std::numeric_limits<double>::infinity();
    if (left[job] <= until_next) {
      at += left[job];
      latest = std::max(latest, at + delivery[job]);
      std::pop_heap(open.begin(), open.end(), less_urgent);
      open.pop_back();
    } else {
      left[job] -= until_next;
      at += until_next;
    }
  }
  return latest;
}

}  // namespace

std::vector<Bound> cross_iteration_bounds(std::span<const GradientUse> gradients,
                                          Seconds compute,
                                          std::span<const CostLine> floor) {
  std::vector<double> release;
  std::vector<double> delivery;
  std::vector<double> bytes;
  double total = 0.0;
  for (const GradientUse& gradient : gradients) {
    if (gradient.bytes > Bytes(0)) {
      release.push_back(gradient.ready.count());
      delivery.push_back(gradient.before.count());
      bytes.push_back(static_cast<double>(gradient.bytes.count()));
      total += bytes.back();
    }
  }
  Seconds wire = compute;
  Seconds cycle = compute;
  Seconds window = compute;
  for (const CostLine& line : floor) {
    std::vector<double> length;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      length.push_back(line.seconds_per_byte * bytes[i]);
      cycle = std::max(cycle, Seconds(release[i] + delivery[i] + length[i]) + line.latency);
    }
    // Without the latency, which the next step's exchanges may overlap.
    wire = std::max(wire, Seconds(line.seconds_per_byte * total));
    if (!bytes.empty()) {
      window = std::max(window, line.latency + Seconds(delivered(release, length, delivery)));
    }
  }
  return {{"compute", compute, "compute takes what the profile says"},
          {"wire", wire, "every gradient crosses the wire once per step, at this cost per byte"},
          {"cycle",
           cycle,
           "parameters are updated before they are used again, backward in the profile's order"},
          {"delivery",
           window,
           "the same for all gradients at once, on one wire that may be interrupted anywhere"}};
}

}  // namespace stretto
