// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/buckets.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "stretto/analyze/shares.hpp"
#include "stretto/base/intervals.hpp"
#include "stretto/base/statistics.hpp"

namespace stretto::detail {
namespace {

using Series = std::vector<double>;

Seconds median_of(const Series& ns) {
  return Seconds(median(ns) / 1e9);
}

/// One bucket on one rank in one step. Times from the step's begin; -1 = not recorded.
struct BucketOnRank {
  Collective collective = Collective::kNone;
  std::int64_t bytes = 0;
  std::int64_t ready_ns = -1;
  std::int64_t ready_at_best_ns = 0;
  std::int64_t hidden_before_ns = 0;
  std::int64_t started_at_best_ns = 0;
  std::int64_t ended_at_best_ns = 0;
  std::int64_t launched_ns = -1;
  std::int64_t started_ns = -1;
  std::int64_t ended_ns = -1;
  std::int64_t exposed_ns = 0;
  double exposed_share_ns = 0.0;
  std::int64_t duration_ns = 0;
  std::int64_t compute_left_ns = -1;
  WaitedFor waited_for = WaitedFor::kUnknown;
  std::uint32_t stream = kNoId;
  bool on_device = false;                                        // of a trace
  bool on_host = false;                                          // of a trace
  std::map<std::uint32_t, std::vector<Interval>> communication;  // by device
};

/// The smaller of those that are known.
std::int64_t earlier(std::int64_t a, std::int64_t b) {
  return a < 0 ? b : b < 0 ? a : std::min(a, b);
}

/// Buckets of records that say none, from those of the same link that do.
std::unordered_map<std::uint32_t, std::uint32_t> buckets_by_link(const RankStep& rank) {
  std::unordered_map<std::uint32_t, std::uint32_t> by_link;
  for (const Record* record : rank.records) {
    if (record->link != kNoId && record->bucket != kNoId) {
      by_link[record->link] = record->bucket;
    }
  }
  return by_link;
}

void collect(const RankStep& rank, std::map<std::uint32_t, BucketOnRank>& buckets) {
  const auto by_link = buckets_by_link(rank);
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
      // Halves of an all_reduce that travel apart.
      const bool halves = bucket.collective == Collective::kReduceScatter &&
                          record->collective == Collective::kAllGather;
      bucket.collective = halves ? Collective::kAllReduce : record->collective;
      bucket.stream = record->stream;
      bucket.on_device = bucket.on_device || record->device != kNoId;
      bucket.on_host = bucket.on_host || record->lane == Lane::kHost;
      bucket.started_ns = earlier(bucket.started_ns, at_ns);
      // Of a run or a simulation it may reach into the next step; a trace is cut at its marks.
      const bool whole = record->device == kNoId && record->lane != Lane::kHost;
      bucket.ended_ns = std::max(
          bucket.ended_ns,
          whole ? record->end_ns - rank.window.begin_ns : rank.since_begin_ns(record->end_ns));
      bucket.duration_ns += record->end_ns - record->begin_ns;
      bucket.communication[record->device].push_back(
          whole ? Interval{record->begin_ns, record->end_ns} : rank.clip(*record));
    }
  }
  std::erase_if(buckets, [](const auto& entry) { return entry.second.communication.empty(); });
}

/// Of what held the begin of each back, the last to be over.
void find_reasons(std::map<std::uint32_t, BucketOnRank>& buckets) {
  std::vector<BucketOnRank*> by_start;
  by_start.reserve(buckets.size());
  for (auto& [id, bucket] : buckets) {
    by_start.push_back(&bucket);
  }
  std::stable_sort(by_start.begin(), by_start.end(), [](const auto* a, const auto* b) {
    return a->started_ns < b->started_ns;
  });
  std::map<std::uint32_t, std::int64_t> stream_free;
  for (BucketOnRank* bucket : by_start) {
    const auto [free, first] = stream_free.try_emplace(bucket->stream, -1);
    if (bucket->ready_ns >= 0 || bucket->launched_ns >= 0) {
      // In doubt what could not be helped: gradients, then the line, then the host.
      const std::array candidates = {
          std::pair(bucket->ready_ns, WaitedFor::kGradients),
          std::pair(free->second <= bucket->started_ns ? free->second : -1,
                    WaitedFor::kEarlierCommunication),
          std::pair(bucket->launched_ns, WaitedFor::kLaunch)};
      bucket->waited_for =
          std::max_element(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
            return a.first < b.first;
          })->second;
    }
    free->second = std::max(free->second, bucket->ended_ns);
  }
}

/// Of each device's part what that device did not hide, alone and shared with other buckets; mean
/// over the rank's devices.
void measure_exposed(const RankStep& rank,
                     const Activities& activities,
                     std::map<std::uint32_t, BucketOnRank>& buckets) {
  struct Device {
    std::vector<BucketOnRank*> buckets;
    std::vector<IntervalSet> communication;
  };
  std::map<std::uint32_t, Device> devices;
  for (auto& [id, bucket] : buckets) {
    for (auto& [number, pieces] : bucket.communication) {
      devices[number].buckets.push_back(&bucket);
      devices[number].communication.emplace_back(std::move(pieces));
    }
  }
  const auto count = static_cast<std::int64_t>(activities.of(rank.rank).size());
  for (const auto& [number, device] : devices) {
    const Activity* activity = activities.find(rank.rank, number);
    if (activity == nullptr) {  // of a rank without devices, which is one
      activity = &activities.of(rank.rank).front();
    }
    const std::vector<double> shares_ns =
        exposed_shares_ns(device.communication, activity->compute);
    for (std::size_t i = 0; i < device.buckets.size(); ++i) {
      BucketOnRank& bucket = *device.buckets[i];
      bucket.exposed_share_ns += shares_ns[i] / static_cast<double>(count);
      for (const Interval& piece : device.communication[i].intervals()) {
        bucket.exposed_ns +=
            piece.end_ns - piece.begin_ns - activity->compute.measure_within_ns(piece);
      }
    }
  }
  for (auto& [id, bucket] : buckets) {
    bucket.exposed_ns /= count;
  }
}

/// The compute between each exchange of gradients and the last: that which comes then, the
/// optimizer's, needs them all.
void measure_compute_left(const RankStep& rank,
                          const Activities& activities,
                          std::map<std::uint32_t, BucketOnRank>& buckets) {
  const auto known_ns = [](const BucketOnRank& bucket) {
    return bucket.ready_ns >= 0 ? bucket.ready_ns : bucket.launched_ns;
  };
  std::int64_t last_ns = 0;
  for (const auto& [id, bucket] : buckets) {
    if (is_gradient_exchange(bucket.collective)) {
      last_ns = std::max(last_ns, known_ns(bucket));
    }
  }
  for (auto& [id, bucket] : buckets) {
    if (is_gradient_exchange(bucket.collective)) {
      const std::int64_t begin_ns = rank.window.begin_ns;
      bucket.compute_left_ns = activities.within_ns(
          rank.rank, &Activity::compute, {begin_ns + known_ns(bucket), begin_ns + last_ns});
    }
  }
}

std::map<std::uint32_t, BucketOnRank> measure(const RankStep& rank, const Activities& activities) {
  std::map<std::uint32_t, BucketOnRank> buckets;
  collect(rank, buckets);
  find_reasons(buckets);
  measure_exposed(rank, activities, buckets);
  for (auto& [id, bucket] : buckets) {
    const bool handed_over = bucket.launched_ns >= 0;
    if (!handed_over) {
      bucket.launched_ns = bucket.started_ns;
    }
    if (bucket.ready_ns < 0 && handed_over && !bucket.on_device && !bucket.on_host) {
      // Of a run, part of a tensor whose kReady stands with another bucket: handed over when ready.
      bucket.ready_ns = bucket.launched_ns;
    }
    const auto at_best_ns = [&](std::int64_t at_ns) {
      const std::int64_t begin_ns = rank.window.begin_ns;
      const Interval before{begin_ns, begin_ns + at_ns};
      return at_ns - activities.within_ns(rank.rank, &Activity::exposed, before);
    };
    bucket.started_at_best_ns = at_best_ns(bucket.started_ns);
    bucket.ended_at_best_ns = at_best_ns(bucket.ended_ns);
    // A row of the host begins when it is asked for or, at the latest, when a thread is free;
    // without its launch a row of a device may have stood in line for long.
    const std::int64_t latest_ns = bucket.ready_ns >= 0 ? bucket.ready_ns
                                   : !bucket.on_device  ? bucket.launched_ns
                                                        : -1;
    if (latest_ns >= 0) {
      const std::int64_t begin_ns = rank.window.begin_ns;
      const Interval before{begin_ns, begin_ns + latest_ns};
      const std::int64_t exposed_ns = activities.within_ns(rank.rank, &Activity::exposed, before);
      bucket.ready_at_best_ns = latest_ns - exposed_ns;
      bucket.hidden_before_ns =
          activities.within_ns(rank.rank, &Activity::communication, before) - exposed_ns;
    }
  }
  measure_compute_left(rank, activities, buckets);
  return buckets;
}

struct BucketSeries {
  Collective collective = Collective::kNone;
  std::int64_t bytes = 0;
  Series ready, ready_at_best, hidden_before, started_at_best, ended_at_best, launched, started,
      ended, exposed, exposed_share, transfer, compute_left;
  std::array<std::size_t, 4> reasons{};  // times each WaitedFor was it
};

/// All ranks' numbers of one step.
struct BucketInStep {
  BucketOnRank latest;
  std::int64_t shortest_ns = 0;
  std::int64_t compute_left_ns = -1;
  std::int64_t exposed_sum_ns = 0;
  double exposed_share_sum_ns = 0.0;
  double ranks = 0.0;
};

void add_step(const Step& step,
              const Activities& activities,
              std::map<std::uint32_t, BucketSeries>& series) {
  std::map<std::uint32_t, BucketInStep> all;
  for (const RankStep& rank : step.ranks) {
    for (const auto& [id, bucket] : measure(rank, activities)) {
      BucketInStep& sum = all[id];
      sum.shortest_ns =
          sum.ranks == 0.0 ? bucket.duration_ns : std::min(sum.shortest_ns, bucket.duration_ns);
      sum.compute_left_ns = earlier(sum.compute_left_ns, bucket.compute_left_ns);
      sum.latest.collective = bucket.collective;
      sum.latest.bytes = std::max(sum.latest.bytes, bucket.bytes);
      sum.latest.ready_ns = std::max(sum.latest.ready_ns, bucket.ready_ns);
      if (bucket.ready_at_best_ns >= sum.latest.ready_at_best_ns) {
        sum.latest.ready_at_best_ns = bucket.ready_at_best_ns;
        sum.latest.hidden_before_ns = bucket.hidden_before_ns;
      }
      sum.latest.started_at_best_ns =
          std::max(sum.latest.started_at_best_ns, bucket.started_at_best_ns);
      sum.latest.ended_at_best_ns = std::max(sum.latest.ended_at_best_ns, bucket.ended_at_best_ns);
      sum.latest.launched_ns = std::max(sum.latest.launched_ns, bucket.launched_ns);
      sum.latest.started_ns = std::max(sum.latest.started_ns, bucket.started_ns);
      sum.latest.ended_ns = std::max(sum.latest.ended_ns, bucket.ended_ns);
      sum.exposed_sum_ns += bucket.exposed_ns;
      sum.exposed_share_sum_ns += bucket.exposed_share_ns;
      sum.ranks += 1.0;
      ++series[id].reasons[static_cast<std::size_t>(bucket.waited_for)];
    }
  }
  for (const auto& [id, sum] : all) {
    BucketSeries& bucket = series[id];
    bucket.collective = sum.latest.collective;
    bucket.bytes = std::max(bucket.bytes, sum.latest.bytes);
    if (sum.latest.ready_ns >= 0) {
      bucket.ready.push_back(static_cast<double>(sum.latest.ready_ns));
    }
    bucket.ready_at_best.push_back(static_cast<double>(sum.latest.ready_at_best_ns));
    bucket.hidden_before.push_back(static_cast<double>(sum.latest.hidden_before_ns));
    bucket.started_at_best.push_back(static_cast<double>(sum.latest.started_at_best_ns));
    bucket.ended_at_best.push_back(static_cast<double>(sum.latest.ended_at_best_ns));
    bucket.launched.push_back(static_cast<double>(sum.latest.launched_ns));
    bucket.started.push_back(static_cast<double>(sum.latest.started_ns));
    bucket.ended.push_back(static_cast<double>(sum.latest.ended_ns));
    bucket.exposed.push_back(static_cast<double>(sum.exposed_sum_ns) / sum.ranks);
    // Of all ranks, whether they have it or not, so that shares sum up.
    bucket.exposed_share.push_back(sum.exposed_share_sum_ns /
                                   static_cast<double>(step.ranks.size()));
    bucket.transfer.push_back(static_cast<double>(sum.shortest_ns));
    if (sum.compute_left_ns >= 0) {
      bucket.compute_left.push_back(static_cast<double>(sum.compute_left_ns));
    }
  }
}

}  // namespace

Buckets summarize_buckets(const std::vector<Step>& steps, const Activities& activities) {
  std::map<std::uint32_t, BucketSeries> series;
  for (const Step& step : steps) {
    add_step(step, activities, series);
  }
  Buckets buckets;
  buckets.summaries.reserve(series.size());
  for (auto& [id, bucket] : series) {
    BucketSummary summary;
    summary.bucket = id;
    summary.collective = bucket.collective;
    summary.bytes = Bytes(bucket.bytes);
    if (!bucket.ready.empty()) {
      summary.ready = median_of(bucket.ready);
    }
    summary.launched = median_of(bucket.launched);
    summary.started = median_of(bucket.started);
    summary.ended = median_of(bucket.ended);
    summary.exposed = median_of(bucket.exposed);
    bucket.exposed_share.resize(steps.size(), 0.0);
    summary.exposed_share = median_of(bucket.exposed_share);
    summary.transfer = median_of(bucket.transfer);
    if (!bucket.compute_left.empty()) {
      summary.compute_left = median_of(bucket.compute_left);
    }
    const auto* const most = std::max_element(bucket.reasons.begin() + 1, bucket.reasons.end());
    summary.waited_for =
        *most == 0 ? WaitedFor::kUnknown : static_cast<WaitedFor>(most - bucket.reasons.begin());
    buckets.summaries.push_back(summary);
    buckets.ready_at_best.push_back(median_of(bucket.ready_at_best));
    buckets.hidden_before.push_back(median_of(bucket.hidden_before));
    buckets.started_at_best.push_back(median_of(bucket.started_at_best));
    buckets.ended_at_best.push_back(median_of(bucket.ended_at_best));
  }
  return buckets;
}

}  // namespace stretto::detail
