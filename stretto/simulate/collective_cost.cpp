// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/collective_cost.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/simulate/level_cost.hpp"

namespace stretto {
namespace {

using detail::CostLevel;
using detail::LevelCost;

const CollectiveCurve* find_curve(const Machine& group,
                                  Collective collective,
                                  Algorithm algorithm) {
  const auto found =
      std::find_if(group.curves.begin(), group.curves.end(), [&](const CollectiveCurve& curve) {
        return curve.collective == collective && curve.algorithm == algorithm &&
               curve.ranks == group.ranks() && !curve.points.empty();
      });
  return found == group.curves.end() ? nullptr : &*found;
}

Seconds on_curve(std::span<const CurvePoint> points, Bytes size) {
  const auto above = std::lower_bound(
      points.begin(), points.end(), size, [](const CurvePoint& point, Bytes bytes) {
        return point.size < bytes;
      });
  if (above == points.begin()) {
    return points.front().time;
  }
  const CurvePoint& below = *(above - 1);
  const auto ratio = [](Bytes a, Bytes b) {
    return static_cast<double>(a.count()) / static_cast<double>(b.count());
  };
  if (above == points.end()) {
    return below.time * ratio(size, below.size);
  }
  const double part = std::log(ratio(size, below.size)) / std::log(ratio(above->size, below.size));
  return below.time * std::pow(above->time / below.time, part);
}

[[noreturn]] void reject(const Machine& group,
                         std::span<const CostLevel> levels,
                         Collective collective,
                         Algorithm algorithm) {
  std::vector<std::string_view> names;
  for (const Algorithm candidate : detail::candidates(levels, collective)) {
    names.push_back(to_string(candidate));
  }
  const std::string asked =
      std::string(to_string(collective)) + " by " + std::string(to_string(algorithm));
  if (names.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"there is no price for this collective",
         "machine " + group.name,
         asked,
         "all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, send or recv",
         ""});
  }
  throw Error(ErrorCode::kInvalidArgument,
              {"the algorithm does not do this collective on this machine",
               "machine " + group.name,
               asked,
               "auto, or one of " + join(names),
               algorithm == Algorithm::kInSwitch && collective == Collective::kAllReduce
                   ? "No level of it has an in_switch_efficiency above 0"
                   : ""});
}

/// By formula, or nullopt for kAuto.
std::optional<LevelCost> formula(const Machine& group,
                                 std::span<const CostLevel> levels,
                                 Collective collective,
                                 Algorithm algorithm) {
  if (algorithm == Algorithm::kAuto && !detail::candidates(levels, collective).empty()) {
    return std::nullopt;
  }
  std::optional<LevelCost> cost = detail::level_cost(levels, collective, algorithm);
  if (!cost) {
    reject(group, levels, collective, algorithm);
  }
  return cost;
}

/// The curve that counts for an algorithm, if there is one.
const CollectiveCurve* curve_for(const Machine& group, Collective collective, Algorithm algorithm) {
  const CollectiveCurve* own = find_curve(group, collective, algorithm);
  return own != nullptr ? own : find_curve(group, collective, Algorithm::kAuto);
}

std::vector<CurvePoint> sample(const Machine& group,
                               Collective collective,
                               Algorithm algorithm,
                               Bytes most) {
  std::vector<CurvePoint> points;
  for (const Bytes size : detail::sample_sizes(most)) {
    points.push_back({size, collective_time(group, collective, algorithm, size)});
  }
  return points;
}

}  // namespace

Seconds collective_time(const Machine& group,
                        Collective collective,
                        Algorithm algorithm,
                        Bytes size) {
  const std::vector<CostLevel> levels = detail::cost_levels(group);
  const std::optional<LevelCost> cost = formula(group, levels, collective, algorithm);
  if (size <= Bytes(0) || levels.empty()) {
    return Seconds(0);
  }
  if (const CollectiveCurve* curve = curve_for(group, collective, algorithm)) {
    return on_curve(curve->points, size);
  }
  return cost ? (*cost)(size) : compare_algorithms(group, collective, size).front().time;
}

std::vector<AlgorithmCost> compare_algorithms(const Machine& group,
                                              Collective collective,
                                              Bytes size) {
  const std::vector<CostLevel> levels = detail::cost_levels(group);
  std::vector<AlgorithmCost> costs;
  const bool free = size <= Bytes(0) || levels.empty();
  const auto add_curve = [&](Algorithm algorithm) {
    const CollectiveCurve* curve = find_curve(group, collective, algorithm);
    if (curve != nullptr) {
      costs.push_back(
          {algorithm, free ? Seconds(0) : on_curve(curve->points, size), Basis::kMeasured});
    }
    return curve != nullptr;
  };
  add_curve(Algorithm::kAuto);
  for (const Algorithm algorithm : detail::candidates(levels, collective)) {
    if (!add_curve(algorithm)) {
      const LevelCost cost = *detail::level_cost(levels, collective, algorithm);
      costs.push_back({algorithm, free ? Seconds(0) : cost(size), group.basis});
    }
  }
  if (costs.empty()) {
    reject(group, levels, collective, Algorithm::kAuto);
  }
  std::stable_sort(costs.begin(), costs.end(), [](const AlgorithmCost& a, const AlgorithmCost& b) {
    return a.time < b.time;
  });
  return costs;
}

ExchangeTime exchange_time(const Machine& group,
                           Collective collective,
                           Algorithm algorithm,
                           Bytes most) {
  const std::vector<CostLevel> levels = detail::cost_levels(group);
  const std::optional<LevelCost> cost = formula(group, levels, collective, algorithm);
  if (levels.empty()) {
    return {};
  }
  if (const CollectiveCurve* curve = curve_for(group, collective, algorithm)) {
    return ExchangeTime(curve->points);
  }
  if (cost) {
    return cost->pipeline ? ExchangeTime(sample(group, collective, algorithm, most))
                          : ExchangeTime(std::vector<CostLine>{cost->line});
  }
  std::vector<CostLine> lines;
  for (const Algorithm candidate : detail::candidates(levels, collective)) {
    if (find_curve(group, collective, candidate) != nullptr) {
      return ExchangeTime(sample(group, collective, algorithm, most));
    }
    const LevelCost one = *detail::level_cost(levels, collective, candidate);
    if (!one.pipeline) {
      lines.push_back(one.line);
    }
  }
  return ExchangeTime(std::move(lines));
}

}  // namespace stretto
