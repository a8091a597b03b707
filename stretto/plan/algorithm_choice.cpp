// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/algorithm_choice.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "stretto/base/units.hpp"
#include "stretto/simulate/collective_cost.hpp"

namespace stretto {
namespace {

/// 8 to a factor of 2, `most` last.
std::vector<Bytes> sizes_up_to(Bytes most) {
  std::vector<Bytes> sizes;
  for (int i = 0;; ++i) {
    const Bytes size(std::llround(std::exp2(i / 8.0)));
    if (size >= most) {
      break;
    }
    if (sizes.empty() || size > sizes.back()) {
      sizes.push_back(size);
    }
  }
  sizes.push_back(std::max(most, Bytes(1)));
  return sizes;
}

bool has_curve(const Machine& machine, Collective collective, Algorithm algorithm) {
  return std::any_of(
      machine.curves.begin(), machine.curves.end(), [&](const CollectiveCurve& curve) {
        return curve.collective == collective && curve.algorithm == algorithm &&
               curve.ranks == machine.ranks();
      });
}

/// The prices that count, cheapest first.
std::vector<AlgorithmCost> prices(const Machine& machine,
                                  Collective collective,
                                  std::span<const Algorithm> algorithms,
                                  Bytes size) {
  std::vector<AlgorithmCost> found;
  for (const AlgorithmCost& cost : compare_algorithms(machine, collective, size)) {
    const bool measured = has_curve(machine, collective, cost.algorithm);
    const bool bound = !measured && (cost.algorithm == Algorithm::kLeader ||
                                     cost.algorithm == Algorithm::kDoubleBinaryTree);
    const bool own_choice = cost.algorithm == Algorithm::kAuto && measured;
    if (own_choice || (!bound && std::find(algorithms.begin(), algorithms.end(), cost.algorithm) !=
                                     algorithms.end())) {
      found.push_back(cost);
    }
  }
  return found;
}

}  // namespace

AlgorithmTable algorithm_table(const Machine& machine,
                               Collective collective,
                               std::span<const Algorithm> algorithms,
                               Bytes most) {
  AlgorithmTable table;
  if (machine.ranks() < 2) {
    return table;
  }
  for (const Bytes size : sizes_up_to(most)) {
    const std::vector<AlgorithmCost> costs = prices(machine, collective, algorithms, size);
    if (costs.empty()) {
      return {};
    }
    // What was chosen for the size before stays unless another is clearly better: some are equal.
    constexpr double kClearly = 1.005;
    const auto same = std::find_if(costs.begin(), costs.end(), [&](const AlgorithmCost& cost) {
      return !table.rules.empty() && cost.algorithm == table.rules.back().algorithm;
    });
    if (same != costs.end() && same->time <= kClearly * costs.front().time) {
      table.rules.back().up_to = size;
      table.rules.back().time = same->time;
    } else {
      table.rules.push_back({collective, size, costs.front().algorithm, costs.front().time});
    }
  }
  return table;
}

ExchangeTime table_time(const Machine& machine,
                        Collective collective,
                        const AlgorithmTable& table,
                        Bytes most) {
  std::vector<CurvePoint> points;
  for (const Bytes size : sizes_up_to(most)) {
    points.push_back(
        {size, collective_time(machine, collective, table.choose(collective, size), size)});
  }
  return ExchangeTime(std::move(points));
}

std::string explain(const Machine& machine,
                    const AlgorithmTable& table,
                    std::span<const Algorithm> algorithms) {
  std::string text;
  for (const AlgorithmRule& rule : table.rules) {
    const auto basis = [&](Algorithm algorithm) {
      return has_curve(machine, rule.collective, algorithm) ? "measured" : "by formula";
    };
    text += fmt::format("{} up to {:>9}: {} takes {} there ({})",
                        to_string(rule.collective),
                        format(rule.up_to),
                        to_string(rule.algorithm),
                        format(rule.time),
                        basis(rule.algorithm));
    const std::vector<AlgorithmCost> costs =
        prices(machine, rule.collective, algorithms, rule.up_to);
    const auto next = std::find_if(costs.begin(), costs.end(), [&](const AlgorithmCost& cost) {
      return cost.algorithm != rule.algorithm;
    });
    if (next != costs.end()) {
      text += fmt::format(", {} would take {} ({})",
                          to_string(next->algorithm),
                          format(next->time),
                          basis(next->algorithm));
    }
    text += "\n";
  }
  return text;
}

}  // namespace stretto
