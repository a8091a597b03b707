// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/analyze.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stretto/analyze/activity.hpp"
#include "stretto/analyze/buckets.hpp"
#include "stretto/analyze/codecs.hpp"
#include "stretto/analyze/steps.hpp"
#include "stretto/base/error.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/plan/bound.hpp"

namespace stretto {
namespace {

using detail::Activities;
using detail::Activity;
using detail::RankStep;
using detail::Step;

/// One value per step; what stands in a Summary is a quantile of them.
using Series = std::vector<double>;

Seconds from_ns(double ns) {
  return Seconds(ns / 1e9);
}
Seconds median_of(const Series& ns) {
  return from_ns(median(ns));
}

struct NumbersOnRank {
  std::int64_t step_ns = 0;
  std::int64_t compute_ns = 0;
  std::int64_t communication_ns = 0;
  std::int64_t exposed_ns = 0;
  std::int64_t first_launch_ns = -1;
  std::int64_t communication_end_ns = -1;
  std::int64_t launches = 0;
};

std::int64_t earlier(std::int64_t a, std::int64_t b) {
  return a < 0 ? b : b < 0 ? a : std::min(a, b);
}

NumbersOnRank measure(const RankStep& rank, const Activities& activities) {
  NumbersOnRank numbers;
  for (const Record* record : rank.records) {
    if (record->kind == RecordKind::kCommunication) {
      numbers.communication_end_ns =
          std::max(numbers.communication_end_ns, record->end_ns - rank.window.begin_ns);
      ++numbers.launches;
    }
    if (record->kind == RecordKind::kLaunched || record->kind == RecordKind::kCommunication) {
      numbers.first_launch_ns =
          earlier(numbers.first_launch_ns, rank.since_begin_ns(record->begin_ns));
    }
  }
  numbers.step_ns = rank.window.end_ns - rank.window.begin_ns;
  numbers.compute_ns = activities.within_ns(rank.rank, &Activity::compute, rank.window);
  numbers.communication_ns = activities.within_ns(rank.rank, &Activity::communication, rank.window);
  numbers.exposed_ns = activities.within_ns(rank.rank, &Activity::exposed, rank.window);
  return numbers;
}

struct RankSeries {
  Series step, compute, communication, exposed;

  void add(const NumbersOnRank& numbers) {
    step.push_back(static_cast<double>(numbers.step_ns));
    compute.push_back(static_cast<double>(numbers.compute_ns));
    communication.push_back(static_cast<double>(numbers.communication_ns));
    exposed.push_back(static_cast<double>(numbers.exposed_ns));
  }
};

/// Gathers all steps of all ranks.
class Gathered {
 public:
  Gathered(const std::vector<Step>& steps, const Activities& activities) {
    for (const Step& step : steps) {
      add(step, activities);
    }
  }

  void fill(Summary& summary) const {
    summary.step = median_of(means_.step);
    summary.step_p10 = from_ns(quantile(means_.step, 0.1));
    summary.step_p90 = from_ns(quantile(means_.step, 0.9));
    summary.compute = median_of(means_.compute);
    summary.communication = median_of(means_.communication);
    summary.exposed = median_of(means_.exposed);
    summary.launches = median(launches_);
    if (!first_launch_.empty()) {
      summary.first_launch = median_of(first_launch_);
    }
    if (!communication_end_.empty()) {
      summary.communication_end = median_of(communication_end_);
    }
    for (const auto& [rank, series] : ranks_) {
      summary.per_rank.push_back({rank,
                                  median_of(series.step),
                                  median_of(series.compute),
                                  median_of(series.communication),
                                  median_of(series.exposed)});
    }
  }

 private:
  void add(const Step& step, const Activities& activities) {
    std::vector<NumbersOnRank> numbers;
    numbers.reserve(step.ranks.size());
    for (const RankStep& rank : step.ranks) {
      numbers.push_back(measure(rank, activities));
      ranks_[rank.rank].add(numbers.back());
    }
    const auto mean = [&](std::int64_t NumbersOnRank::*field) {
      double sum = 0.0;
      for (const NumbersOnRank& n : numbers) {
        sum += static_cast<double>(n.*field);
      }
      return sum / static_cast<double>(numbers.size());
    };
    means_.step.push_back(mean(&NumbersOnRank::step_ns));
    means_.compute.push_back(mean(&NumbersOnRank::compute_ns));
    means_.communication.push_back(mean(&NumbersOnRank::communication_ns));
    means_.exposed.push_back(mean(&NumbersOnRank::exposed_ns));
    launches_.push_back(mean(&NumbersOnRank::launches));
    std::int64_t first_launch_ns = -1;
    std::int64_t communication_end_ns = -1;
    for (const NumbersOnRank& n : numbers) {
      first_launch_ns = earlier(first_launch_ns, n.first_launch_ns);
      communication_end_ns = std::max(communication_end_ns, n.communication_end_ns);
    }
    if (communication_end_ns >= 0) {
      first_launch_.push_back(static_cast<double>(first_launch_ns));
      communication_end_.push_back(static_cast<double>(communication_end_ns));
    }
  }

  RankSeries means_;
  Series launches_;
  Series first_launch_;
  Series communication_end_;
  std::map<std::uint32_t, RankSeries> ranks_;
};

/// From tensors where their sizes were recorded, else from buckets. Absent if there is
/// communication, but nothing says how much: that nothing must travel would be a wild guess.
std::optional<Seconds> bound_of(const std::vector<Step>& steps,
                                const detail::Buckets& buckets,
                                Seconds compute_end,
                                ExchangeCost cost) {
  std::vector<ReadyBytes> gradients;
  bool halves = false;
  for (const auto& [name, tensor] : detail::ready_times(steps)) {
    if (tensor.bytes > 0) {
      gradients.push_back({from_ns(tensor.ready_ns), Bytes(tensor.bytes)});
    }
  }
  if (gradients.empty()) {
    for (std::size_t i = 0; i < buckets.summaries.size(); ++i) {
      const BucketSummary& bucket = buckets.summaries[i];
      // A reduce_scatter is half an all_reduce. What else a trace holds (parameters that are
      // gathered, metrics, activations) may depend on later compute, and is left out: a bound may
      // be too low, never too high.
      if (bucket.collective == Collective::kReduceScatter) {
        halves = true;
        gradients.push_back({buckets.ready_at_best[i], Bytes(bucket.bytes.count() / 2)});
      } else if (bucket.collective == Collective::kAllReduce) {
        gradients.push_back({buckets.ready_at_best[i], bucket.bytes});
      }
    }
  }
  const auto is_sized = [](const BucketSummary& bucket) { return bucket.bytes > Bytes(0); };
  const bool said = std::any_of(gradients.begin(), gradients.end(), [](const ReadyBytes& gradient) {
    return gradient.bytes > Bytes(0);
  });
  if (!said && !buckets.summaries.empty() &&
      std::none_of(buckets.summaries.begin(), buckets.summaries.end(), is_sized)) {
    return std::nullopt;
  }
  if (halves) {
    cost.latency *= 0.5;  // of half an all_reduce; of the bytes only half are counted
  }
  return in_iteration_bound(gradients, compute_end, cost);
}

/// Whether a run's or a simulation's exchanges reach into the next step. (A trace's collectives may
/// cross its marks for many reasons.)
bool reaches_across(const std::vector<Step>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const Step& step) {
    return std::any_of(step.ranks.begin(), step.ranks.end(), [](const RankStep& rank) {
      return std::any_of(rank.records.begin(), rank.records.end(), [&](const Record* record) {
        return record->kind == RecordKind::kCommunication && record->device == kNoId &&
               record->lane != Lane::kHost && record->end_ns > rank.window.end_ns;
      });
    });
  });
}

/// When communication may reach into the next step. Times of the forward pass are without what it
/// waited for. A tensor is read where layers_of_tensors() says; what no record tells is left out.
std::optional<Seconds> cross_iteration_bound_of(const Timeline& timeline,
                                                const std::vector<Step>& steps,
                                                Seconds compute,
                                                ExchangeCost cost) {
  StepProfile shape;
  shape.forward = detail::forward_layers(timeline, steps);
  std::vector<double> forward_end_ns;
  std::vector<double> backward_end_ns;
  for (const Step& step : steps) {
    std::int64_t forward_ns = 0;
    std::int64_t backward_ns = 0;
    for (const RankStep& rank : step.ranks) {
      for (const Record* record : rank.records) {
        const std::int64_t end_ns = rank.since_begin_ns(record->end_ns);
        if (record->kind == RecordKind::kForward) {
          forward_ns = std::max(forward_ns, end_ns);
        } else if (record->kind == RecordKind::kReady) {
          backward_ns = std::max(backward_ns, end_ns);
        }
      }
    }
    forward_end_ns.push_back(static_cast<double>(forward_ns));
    backward_end_ns.push_back(static_cast<double>(backward_ns));
  }
  shape.forward_end = from_ns(median(forward_end_ns));
  shape.backward_end = from_ns(median(backward_end_ns));
  std::vector<GradientUse> uses;
  for (const auto& [name, tensor] : detail::ready_times(steps)) {
    if (tensor.bytes > 0 && name < timeline.names.size()) {
      shape.tensors.push_back({timeline.names[name], DType::kF32, {}, from_ns(tensor.ready_ns)});
      uses.push_back({std::max(Seconds(0), from_ns(tensor.ready_ns) - shape.forward_end),
                      {},
                      Bytes(tensor.bytes)});
    }
  }
  if (uses.empty()) {
    return std::nullopt;
  }
  std::vector<Seconds> before(std::max<std::size_t>(1, shape.forward.size()));
  Seconds left{};
  for (std::size_t l = shape.forward.size(); l-- > 0;) {
    left += shape.forward[l].forward;
    before[l] = left;
  }
  const std::vector<std::size_t> layers = layers_of_tensors(shape);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    uses[i].before = before[layers[i]];
  }
  const CostLine line{cost.latency, cost.seconds_per_byte};
  Seconds bound{};
  for (const Bound& each : cross_iteration_bounds(uses, compute, {&line, 1})) {
    bound = std::max(bound, each.step);
  }
  return bound;
}

void check_ranks(const Timeline& timeline, const Machine& machine) {
  if (timeline.world_size != 0 &&
      std::int64_t{timeline.world_size} != std::int64_t{machine.ranks()}) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the machine is not the one of this timeline",
                 machine.name,
                 std::to_string(machine.ranks()) + " ranks",
                 std::to_string(timeline.world_size),
                 {}});
  }
}

}  // namespace

std::vector<StepNumbers> step_numbers(const Timeline& timeline) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> names;
  for (const Record& record : timeline.records) {
    if (record.kind == RecordKind::kStep) {
      names.try_emplace({record.step, record.rank}, record.name);
    }
  }
  std::vector<StepNumbers> list;
  if (names.empty()) {
    return list;
  }
  const Activities activities(timeline);
  for (const Step& step : detail::whole_steps(timeline, activities)) {
    for (const RankStep& rank : step.ranks) {
      const NumbersOnRank numbers = measure(rank, activities);
      const auto seconds = [](std::int64_t ns) { return from_ns(static_cast<double>(ns)); };
      const std::uint32_t name = names[{step.number, rank.rank}];
      list.push_back({rank.rank,
                      step.number,
                      name < timeline.names.size() ? timeline.names[name] : std::string(),
                      seconds(rank.window.begin_ns),
                      seconds(numbers.step_ns),
                      seconds(numbers.compute_ns),
                      seconds(numbers.communication_ns),
                      seconds(numbers.exposed_ns),
                      numbers.launches});
    }
  }
  return list;
}

Summary analyze(const Timeline& timeline, const AnalyzeOptions& options) {
  const Activities activities(timeline);
  const std::vector<Step> steps = detail::whole_steps(timeline, activities);
  Summary summary;
  summary.steps = static_cast<std::uint32_t>(steps.size());
  summary.ranks = static_cast<std::uint32_t>(steps.front().ranks.size());
  Gathered(steps, activities).fill(summary);
  detail::Buckets buckets = detail::summarize_buckets(steps, activities);
  std::optional<ExchangeCost> cost = options.cost;
  if (options.machine) {
    check_ranks(timeline, *options.machine);
    cost = least_exchange_cost(*options.machine);
  }
  if (cost) {
    const Seconds compute_end =
        options.keep_idle ? summary.step - summary.exposed : summary.compute;
    // A machine slower than the real one must not make a step quicker than its bound.
    const auto bound = reaches_across(steps)
                           ? cross_iteration_bound_of(timeline, steps, compute_end, *cost)
                           : bound_of(steps, buckets, compute_end, *cost);
    if (bound) {
      summary.bound = std::min(*bound, summary.step);
    }
  }
  summary.buckets = std::move(buckets.summaries);
  summary.codecs = detail::summarize_codecs(timeline, steps);
  if (options.samples_per_step > 0) {
    summary.samples_per_s = static_cast<double>(options.samples_per_step) / summary.step.count();
  }
  summary.scaling_efficiency = options.one_rank_step.value_or(summary.compute) / summary.step;
  return summary;
}

}  // namespace stretto
