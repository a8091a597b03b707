// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <vector>

#include "stretto/plan/bound.hpp"
#include "stretto/plan/problem.hpp"

namespace stretto::detail {
namespace {

std::vector<GradientUse> gradient_uses(const StepProfile& profile, double factor) {
  std::vector<Seconds> before(std::max<std::size_t>(1, profile.forward.size()));
  Seconds at = profile.forward_end;  // what is left of the forward pass
  for (std::size_t l = 0; l < profile.forward.size(); ++l) {
    before[l] = factor * std::max(Seconds(0), at);
    at -= profile.forward[l].forward;
  }
  if (profile.forward.empty()) {
    before[0] = factor * at;
  }
  const std::vector<std::size_t> layer_of = layers_of_tensors(profile);
  std::vector<GradientUse> uses;
  for (std::size_t i = 0; i < profile.tensors.size(); ++i) {
    const ProfileTensor& tensor = profile.tensors[i];
    uses.push_back({factor * std::max(Seconds(0), tensor.ready - profile.forward_end),
                    before[layer_of[i]],
                    tensor.bytes()});
  }
  return uses;
}

/// Gradients are reduce-scattered and parameters all-gathered over one wire in every step.
Bound wire_bound(const Problem& problem,
                 const ExchangeCosts& costs,
                 const SimulateOptions& options) {
  // Without the latency of lines, which streams may overlap.
  const auto on_wire = [&](const ExchangeTime& cost) {
    Seconds least{};
    for (const CostLine& line : exchange_floor(cost, problem.total, 0)) {
      least =
          std::max(least, line(problem.total) - (cost.lines().empty() ? Seconds(0) : line.latency));
    }
    return least;
  };
  const bool parameters = options.sharding == Sharding::kParameters;
  const int gathers = parameters ? 2 * options.accumulate : 1;
  // ZeRO-1 and 2 gather after the update, so nothing is on the wire before the first gradient.
  const Seconds begin =
      parameters || problem.gradients.empty() ? Seconds(0) : problem.gradients.front().ready;
  return {"wire",
          begin + on_wire(costs.reduce_scatter) + gathers * on_wire(costs.all_gather),
          "gradients are reduce-scattered once and parameters gathered before each use, in this "
          "iteration, on one wire"};
}

}  // namespace

std::vector<Bound> bounds_of(const StepProfile& profile,
                             const Problem& problem,
                             const ExchangeCosts& costs,
                             const SimulateOptions& options) {
  const std::vector<CostLine> floor =
      exchange_floor(gradient_cost(costs, options), problem.total, options.streams);
  const Seconds update = problem.update / (options.sharding == Sharding::kNone ? 1 : costs.ranks);
  if (options.schedule == Schedule::kPriority) {
    std::vector<Bound> bounds = cross_iteration_bounds(
        gradient_uses(profile, slowest(options)), problem.compute_end + update, floor);
    if (options.accumulate > 1) {
      // The wire may carry a step's gradients while the next one's earlier passes run.
      std::erase_if(bounds, [](const Bound& bound) {
        return bound.name == "cycle" || bound.name == "delivery";
      });
    }
    return bounds;
  }
  std::vector<Bound> bounds = in_iteration_bounds(problem.gradients, problem.compute_end, floor);
  if (options.sharding != Sharding::kNone) {
    bounds.push_back(wire_bound(problem, costs, options));
  }
  bounds[0].step += update;
  // The last exchange is followed by its own part of the optimizer, or all of it.
  if (!problem.optimizer_follows) {
    bounds[1].step += update;
  } else {
    bounds[1].step = std::max(bounds[1].step, bounds[0].step);
  }
  return bounds;
}

}  // namespace stretto::detail
