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
    return below.time + Seconds(seconds_per_byte_beyond(points) *
                                static_cast<double>((size - below.size).count()));
  }
  const double part = std::log(ratio(size, below.size)) / std::log(ratio(above->size, below.size));
  return below.time * std::pow(above->time / below.time, part);
}

/// Those with a formula or a curve of their own.
std::vector<Algorithm> known_algorithms(const Machine& group,
                                        std::span<const CostLevel> levels,
                                        Collective collective) {
  std::vector<Algorithm> known = detail::candidates(levels, collective);
  for (int a = 1; a <= static_cast<int>(kLastAlgorithm); ++a) {
    const auto algorithm = static_cast<Algorithm>(a);
    if (std::find(known.begin(), known.end(), algorithm) == known.end() &&
        find_curve(group, collective, algorithm) != nullptr) {
      known.push_back(algorithm);
    }
  }
  return known;
}

/// Whether kAuto may take it. kDirect sends P - 1 messages at once for one latency, as Stretto's
/// own communicators do and the libraries of clusters do not: a machine planned for them must not
/// count on it.
bool in_auto(Algorithm algorithm, std::size_t known) {
  return algorithm != Algorithm::kDirect || known == 1;
}

[[noreturn]] void reject(const Machine& group,
                         std::span<const CostLevel> levels,
                         Collective collective,
                         Algorithm algorithm) {
  std::vector<std::string_view> names;
  for (const Algorithm candidate : known_algorithms(group, levels, collective)) {
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

/// What counts for an algorithm: a curve, else a formula; neither for kAuto without a curve.
struct Price {
  const CollectiveCurve* curve = nullptr;
  std::optional<LevelCost> formula;
};

Price price_of(const Machine& group,
               std::span<const CostLevel> levels,
               Collective collective,
               Algorithm algorithm) {
  if (const CollectiveCurve* own = find_curve(group, collective, algorithm)) {
    return {own, {}};
  }
  std::optional<LevelCost> formula = detail::level_cost(levels, collective, algorithm);
  const bool cheapest =
      algorithm == Algorithm::kAuto && !known_algorithms(group, levels, collective).empty();
  if (!formula && !cheapest) {
    reject(group, levels, collective, algorithm);
  }
  return {find_curve(group, collective, Algorithm::kAuto), formula};
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
  const Price price = price_of(group, levels, collective, algorithm);
  if (size <= Bytes(0) || levels.empty()) {
    return Seconds(0);
  }
  if (price.curve != nullptr) {
    return on_curve(price.curve->points, size);
  }
  if (price.formula) {
    return (*price.formula)(size);
  }
  const std::vector<AlgorithmCost> costs = compare_algorithms(group, collective, size);
  return std::find_if(
             costs.begin(),
             costs.end(),
             [&](const AlgorithmCost& cost) { return in_auto(cost.algorithm, costs.size()); })
      ->time;
}

std::vector<AlgorithmCost> compare_algorithms(const Machine& group,
                                              Collective collective,
                                              Bytes size) {
  const std::vector<CostLevel> levels = detail::cost_levels(group);
  std::vector<Algorithm> algorithms = known_algorithms(group, levels, collective);
  if (find_curve(group, collective, Algorithm::kAuto) != nullptr) {
    algorithms.insert(algorithms.begin(), Algorithm::kAuto);
  }
  if (algorithms.empty()) {
    reject(group, levels, collective, Algorithm::kAuto);
  }
  const bool free = size <= Bytes(0) || levels.empty();
  std::vector<AlgorithmCost> costs;
  for (const Algorithm algorithm : algorithms) {
    AlgorithmCost cost{algorithm, Seconds(0), group.basis};
    if (const CollectiveCurve* curve = find_curve(group, collective, algorithm)) {
      cost.basis = Basis::kMeasured;
      cost.time = on_curve(curve->points, size);
    } else {
      cost.time = (*detail::level_cost(levels, collective, algorithm))(size);
    }
    cost.time = free ? Seconds(0) : cost.time;
    costs.push_back(cost);
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
  const Price price = price_of(group, levels, collective, algorithm);
  if (levels.empty()) {
    return {};
  }
  if (price.curve != nullptr) {
    return ExchangeTime(price.curve->points);
  }
  if (price.formula) {
    return price.formula->is_line() ? ExchangeTime(std::vector<CostLine>{price.formula->line})
                                    : ExchangeTime(sample(group, collective, algorithm, most));
  }
  std::vector<CostLine> lines;
  const std::vector<Algorithm> known = known_algorithms(group, levels, collective);
  for (const Algorithm candidate : known) {
    if (!in_auto(candidate, known.size())) {
      continue;
    }
    if (find_curve(group, collective, candidate) != nullptr) {
      return ExchangeTime(sample(group, collective, algorithm, most));
    }
    const LevelCost one = *detail::level_cost(levels, collective, candidate);
    if (one.is_line()) {
      lines.push_back(one.line);
    }
  }
  return ExchangeTime(std::move(lines));
}

}  // namespace stretto
