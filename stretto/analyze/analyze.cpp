// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/analyze.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stretto/analyze/steps.hpp"
#include "stretto/base/error.hpp"
#include "stretto/base/intervals.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/plan/bound.hpp"

namespace stretto {
namespace {

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

/// One bucket on one rank in one step. Times from the step's begin; -1 = not recorded.
struct BucketOnRank {
  std::int64_t bytes = 0;
  std::int64_t ready_ns = -1;
  std::int64_t launched_ns = -1;
  std::int64_t ended_ns = -1;
  std::int64_t exposed_ns = 0;
  std::vector<Interval> communication;
};

struct NumbersOnRank {
  std::int64_t step_ns = 0;
  std::int64_t compute_ns = 0;
  std::int64_t communication_ns = 0;
  std::int64_t exposed_ns = 0;
  std::int64_t first_launch_ns = -1;
  std::int64_t communication_end_ns = -1;
  std::int64_t launches = 0;
  std::map<std::uint32_t, BucketOnRank> buckets;
};

std::int64_t earlier(std::int64_t a, std::int64_t b) {
  return a < 0 ? b : b < 0 ? a : std::min(a, b);
}

/// kReady records name their bucket directly or by the link they share with its other records.
std::unordered_map<std::uint32_t, std::uint32_t> buckets_by_link(const RankStep& rank) {
  std::unordered_map<std::uint32_t, std::uint32_t> buckets;
  for (const Record* record : rank.records) {
    if (record->kind != RecordKind::kReady && record->link != kNoId && record->bucket != kNoId) {
      buckets.emplace(record->link, record->bucket);
    }
  }
  return buckets;
}

std::map<std::uint32_t, BucketOnRank> measure_buckets(const RankStep& rank,
                                                      const IntervalSet& compute) {
  const std::unordered_map<std::uint32_t, std::uint32_t> by_link = buckets_by_link(rank);
  std::map<std::uint32_t, BucketOnRank> buckets;
  for (const Record* record : rank.records) {
    std::uint32_t id = record->bucket;
    if (id == kNoId && record->kind == RecordKind::kReady) {
      const auto linked = by_link.find(record->link);
      id = linked == by_link.end() ? kNoId : linked->second;
    }
    if (id == kNoId) {
      continue;
    }
    const std::int64_t at_ns = rank.since_begin_ns(record->begin_ns);
    if (record->kind == RecordKind::kReady) {
      buckets[id].ready_ns = std::max(buckets[id].ready_ns, at_ns);
    } else if (record->kind == RecordKind::kLaunched) {
      buckets[id].launched_ns = earlier(buckets[id].launched_ns, at_ns);
    } else if (record->kind == RecordKind::kCommunication) {
      BucketOnRank& bucket = buckets[id];
      bucket.bytes = std::max(bucket.bytes, record->bytes);
      bucket.ended_ns = std::max(bucket.ended_ns, rank.since_begin_ns(record->end_ns));
      bucket.communication.push_back(rank.clip(*record));
    }
  }
  std::erase_if(buckets, [](const auto& entry) { return entry.second.communication.empty(); });
  for (auto& [id, bucket] : buckets) {
    const IntervalSet communication(std::move(bucket.communication));
    for (const Interval& piece : communication.intervals()) {
      bucket.exposed_ns += piece.end_ns - piece.begin_ns - compute.measure_within_ns(piece);
    }
    if (bucket.launched_ns < 0) {
      bucket.launched_ns = communication.empty()
                               ? bucket.ended_ns
                               : rank.since_begin_ns(communication.intervals().front().begin_ns);
    }
    if (bucket.ready_ns < 0) {  // part of a tensor whose kReady stands with another bucket
      bucket.ready_ns = bucket.launched_ns;
    }
  }
  return buckets;
}

NumbersOnRank measure(const RankStep& rank) {
  NumbersOnRank numbers;
  std::vector<Interval> compute_pieces;
  std::vector<Interval> communication_pieces;
  for (const Record* record : rank.records) {
    if (is_compute(record->kind)) {
      compute_pieces.push_back(rank.clip(*record));
    } else if (record->kind == RecordKind::kCommunication) {
      communication_pieces.push_back(rank.clip(*record));
      numbers.communication_end_ns =
          std::max(numbers.communication_end_ns, rank.since_begin_ns(record->end_ns));
      ++numbers.launches;
    }
    if (record->kind == RecordKind::kLaunched || record->kind == RecordKind::kCommunication) {
      numbers.first_launch_ns =
          earlier(numbers.first_launch_ns, rank.since_begin_ns(record->begin_ns));
    }
  }
  const IntervalSet compute(std::move(compute_pieces));
  const IntervalSet communication(std::move(communication_pieces));
  numbers.step_ns = rank.window.end_ns - rank.window.begin_ns;
  numbers.compute_ns = compute.measure_ns();
  numbers.communication_ns = communication.measure_ns();
  numbers.exposed_ns = subtract(communication, compute).measure_ns();
  numbers.buckets = measure_buckets(rank, compute);
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

struct BucketSeries {
  std::int64_t bytes = 0;
  Series ready, launched, ended, exposed;
};

/// Gathers all steps of all ranks.
class Gathered {
 public:
  explicit Gathered(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      add(step);
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
    for (const auto& [id, series] : buckets_) {
      summary.buckets.push_back({id,
                                 Bytes(series.bytes),
                                 median_of(series.ready),
                                 median_of(series.launched),
                                 median_of(series.ended),
                                 median_of(series.exposed)});
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
  void add(const Step& step) {
    std::vector<NumbersOnRank> numbers;
    numbers.reserve(step.ranks.size());
    for (const RankStep& rank : step.ranks) {
      numbers.push_back(measure(rank));
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
    add_buckets(numbers);
  }

  void add_buckets(const std::vector<NumbersOnRank>& numbers) {
    std::map<std::uint32_t, BucketOnRank> all;
    std::map<std::uint32_t, double> ranks_with;
    for (const NumbersOnRank& n : numbers) {
      for (const auto& [id, bucket] : n.buckets) {
        BucketOnRank& sum = all[id];
        sum.bytes = std::max(sum.bytes, bucket.bytes);
        sum.ready_ns = std::max(sum.ready_ns, bucket.ready_ns);
        sum.launched_ns = std::max(sum.launched_ns, bucket.launched_ns);
        sum.ended_ns = std::max(sum.ended_ns, bucket.ended_ns);
        sum.exposed_ns += bucket.exposed_ns;
        ranks_with[id] += 1.0;
      }
    }
    for (const auto& [id, sum] : all) {
      BucketSeries& series = buckets_[id];
      series.bytes = std::max(series.bytes, sum.bytes);
      series.ready.push_back(static_cast<double>(sum.ready_ns));
      series.launched.push_back(static_cast<double>(sum.launched_ns));
      series.ended.push_back(static_cast<double>(sum.ended_ns));
      series.exposed.push_back(static_cast<double>(sum.exposed_ns) / ranks_with.at(id));
    }
  }

  RankSeries means_;
  Series launches_;
  Series first_launch_;
  Series communication_end_;
  std::map<std::uint32_t, RankSeries> ranks_;
  std::map<std::uint32_t, BucketSeries> buckets_;
};

/// From tensors where their sizes were recorded, else from buckets.
Seconds bound_of(const std::vector<Step>& steps, const Summary& summary, const Machine& machine) {
  std::vector<ReadyBytes> gradients;
  for (const auto& [name, tensor] : detail::ready_times(steps)) {
    if (tensor.bytes > 0) {
      gradients.push_back({from_ns(tensor.ready_ns), Bytes(tensor.bytes)});
    }
  }
  if (gradients.empty()) {
    for (const BucketSummary& bucket : summary.buckets) {
      gradients.push_back({bucket.ready, bucket.bytes});
    }
  }
  return in_iteration_bound(gradients, summary.compute, least_exchange_cost(machine));
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

Summary analyze(const Timeline& timeline, const AnalyzeOptions& options) {
  const std::vector<Step> steps = detail::whole_steps(timeline);
  Summary summary;
  summary.steps = static_cast<std::uint32_t>(steps.size());
  summary.ranks = static_cast<std::uint32_t>(steps.front().ranks.size());
  Gathered(steps).fill(summary);
  if (options.machine) {
    check_ranks(timeline, *options.machine);
    // A machine slower than the real one must not make a step quicker than its bound.
    summary.bound = std::min(bound_of(steps, summary, *options.machine), summary.step);
  }
  if (options.samples_per_step > 0) {
    summary.samples_per_s = static_cast<double>(options.samples_per_step) / summary.step.count();
  }
  summary.scaling_efficiency = options.one_rank_step.value_or(summary.compute) / summary.step;
  return summary;
}

}  // namespace stretto
