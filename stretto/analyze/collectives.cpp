// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/collectives.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "stretto/analyze/all_to_all.hpp"
#include "stretto/analyze/matching.hpp"
#include "stretto/base/statistics.hpp"

namespace stretto {
namespace {

using detail::MatchedCall;

Seconds from_ns(double ns) {
  return Seconds(ns / 1e9);
}

using Kind = std::tuple<Collective, std::uint32_t, std::uint32_t, std::int64_t>;

/// Collective, its name if that is all there is, group, bytes.
Kind kind_of(const Timeline& timeline, const Record& record) {
  const std::uint32_t group = record.call == kNoId ? kNoId : timeline.calls[record.call].group;
  const std::uint32_t name = record.collective == Collective::kNone ? record.name : kNoId;
  return {record.collective, name, group, record.bytes};
}

struct KindSeries {
  std::vector<double> durations_ns;
  std::vector<double> transfers_ns;
  std::map<std::uint32_t, std::int64_t> total_ns;  // by rank
  std::uint32_t group_size = 0;
  std::uint32_t name = 0;
};

/// NCCL tests, doc/PERFORMANCE.md.
double bus_factor(Collective collective, std::uint32_t ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::kAllReduce:
      return 2.0 * (n - 1.0) / n;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return (n - 1.0) / n;
    default:
      return 1.0;
  }
}

bool factor_needs_ranks(Collective collective) {
  return bus_factor(collective, 2) != 1.0 || collective == Collective::kAllReduce;
}

CollectiveSummary summarize(const Timeline& timeline, const Kind& kind, KindSeries& series) {
  CollectiveSummary summary;
  summary.collective = std::get<0>(kind);
  summary.name = timeline.names[series.name];
  const std::uint32_t group = std::get<2>(kind);
  summary.group = group == kNoId ? std::string() : timeline.names[group];
  summary.group_size = series.group_size;
  summary.bytes = Bytes(std::get<3>(kind));
  summary.count =
      static_cast<std::int64_t>(std::llround(static_cast<double>(series.durations_ns.size()) /
                                             static_cast<double>(series.total_ns.size())));
  summary.duration_least = from_ns(quantile(series.durations_ns, 0.0));
  summary.duration_median = from_ns(quantile(series.durations_ns, 0.5));
  summary.duration_p90 = from_ns(quantile(series.durations_ns, 0.9));
  summary.duration_most = from_ns(quantile(series.durations_ns, 1.0));
  double total_ns = 0.0;
  for (const auto& [rank, ns] : series.total_ns) {
    total_ns += static_cast<double>(ns);
  }
  summary.total = from_ns(total_ns / static_cast<double>(series.total_ns.size()));
  summary.matched = !series.transfers_ns.empty();
  summary.transfer =
      summary.matched ? from_ns(median(series.transfers_ns)) : summary.duration_least;
  if (summary.bytes > Bytes(0) && summary.transfer.count() > 0.0) {
    const double rate = static_cast<double>(summary.bytes.count()) / summary.transfer.count();
    summary.algorithm_bandwidth = BytesPerSecond(rate);
    if (summary.group_size > 1 || !factor_needs_ranks(summary.collective)) {
      summary.bus_bandwidth =
          BytesPerSecond(rate * bus_factor(summary.collective, summary.group_size));
    }
  }
  return summary;
}

std::vector<RankWaiting> waiting_of(const std::vector<MatchedCall>& calls) {
  std::map<std::uint32_t, RankWaiting> ranks;
  for (const MatchedCall& call : calls) {
    const Record* last = call.records.front();
    std::int64_t longest_ns = 0;
    for (const Record* record : call.records) {
      const std::int64_t duration_ns = record->end_ns - record->begin_ns;
      RankWaiting& rank = ranks[record->rank];
      rank.rank = record->rank;
      rank.waited += from_ns(static_cast<double>(duration_ns - call.transfer_ns()));
      longest_ns = std::max(longest_ns, duration_ns - call.transfer_ns());
      if (record->begin_ns > last->begin_ns) {
        last = record;
      }
    }
    ++ranks[last->rank].last;
    ranks[last->rank].made_others_wait += from_ns(static_cast<double>(longest_ns));
  }
  std::vector<RankWaiting> list;
  list.reserve(ranks.size());
  for (const auto& [number, rank] : ranks) {
    list.push_back(rank);
  }
  std::stable_sort(list.begin(), list.end(), [](const RankWaiting& a, const RankWaiting& b) {
    return a.made_others_wait > b.made_others_wait;
  });
  return list;
}

}  // namespace

CollectiveReport report_collectives(const Timeline& timeline) {
  CollectiveReport report;
  const detail::Matching matching = detail::match_collectives(timeline);
  report.notes = matching.notes;
  report.matched = static_cast<std::int64_t>(matching.calls.size());
  report.unmatched = matching.unmatched;
  std::map<Kind, KindSeries> kinds;
  for (const Record* record : detail::counted_collectives(timeline)) {
    KindSeries& series = kinds[kind_of(timeline, *record)];
    series.name = record->name;
    const std::int64_t duration_ns = record->end_ns - record->begin_ns;
    series.durations_ns.push_back(static_cast<double>(duration_ns));
    series.total_ns[record->rank] += duration_ns;
    const std::uint32_t said = record->call == kNoId ? 0 : timeline.calls[record->call].group_size;
    series.group_size = std::max(series.group_size, said != 0 ? said : timeline.world_size);
  }
  for (const MatchedCall& call : matching.calls) {
    kinds[kind_of(timeline, *call.records.front())].transfers_ns.push_back(
        static_cast<double>(call.transfer_ns()));
  }
  for (auto& [kind, series] : kinds) {
    report.kinds.push_back(summarize(timeline, kind, series));
  }
  std::stable_sort(
      report.kinds.begin(),
      report.kinds.end(),
      [](const CollectiveSummary& a, const CollectiveSummary& b) { return a.total > b.total; });
  report.all_to_all = detail::all_to_all_balance(timeline, matching);
  if (!matching.calls.empty()) {
    report.ranks = waiting_of(matching.calls);
  }
  return report;
}

namespace {

double bytes_of(const CollectiveReport& report, Collective collective) {
  double bytes = 0.0;
  for (const CollectiveSummary& kind : report.kinds) {
    bytes += kind.collective == collective
                 ? static_cast<double>(kind.count) * static_cast<double>(kind.bytes.count())
                 : 0.0;
  }
  return bytes;
}

}  // namespace

double FittedExchange::share_of(Collective collective) const noexcept {
  switch (collective) {
    case Collective::kAllReduce:
      return 1.0;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return of_halves ? 0.5 : 0.0;
    default:
      return 0.0;
  }
}

std::optional<FittedExchange> fit_exchange(const CollectiveReport& report) {
  constexpr std::int64_t kCallsWithoutMatch = 10;
  constexpr std::size_t kMostPoints = 512;
  struct Point {
    double bytes;
    double seconds;
  };
  FittedExchange fitted;
  // A few small all_reduces (norms, losses) say nothing of megabytes that travel in another way.
  fitted.of_halves =
      bytes_of(report, Collective::kReduceScatter) > bytes_of(report, Collective::kAllReduce);
  std::map<std::int64_t, std::vector<double>> by_size;
  for (const CollectiveSummary& kind : report.kinds) {
    // The shortest of a few calls on one rank still holds waiting for the others.
    const bool believable = kind.matched || kind.count >= kCallsWithoutMatch;
    const double share = fitted.share_of(kind.collective);
    if (share > 0.0 && believable && kind.bytes > Bytes(0) && kind.transfer.count() > 0.0) {
      by_size[kind.bytes.count()].push_back(kind.transfer.count() / share);
    }
  }
  std::vector<Point> points;
  points.reserve(by_size.size());
  for (auto& [bytes, seconds] : by_size) {
    points.push_back(
        {static_cast<double>(bytes), *std::min_element(seconds.begin(), seconds.end())});
  }
  if (points.size() < 2 || points.back().bytes < 2.0 * points.front().bytes) {
    return std::nullopt;
  }
  if (points.size() > kMostPoints) {  // slopes are one for each pair
    std::vector<Point> some;
    for (std::size_t i = 0; i < kMostPoints; ++i) {
      some.push_back(points[i * (points.size() - 1) / (kMostPoints - 1)]);
    }
    points = std::move(some);
  }
  std::vector<double> slopes;
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = i + 1; j < points.size(); ++j) {
      slopes.push_back((points[j].seconds - points[i].seconds) /
                       (points[j].bytes - points[i].bytes));
    }
  }
  fitted.sizes = by_size.size();
  fitted.cost.seconds_per_byte = std::max(0.0, median(std::move(slopes)));
  std::vector<double> intercepts;
  intercepts.reserve(points.size());
  for (const Point& point : points) {
    intercepts.push_back(point.seconds - fitted.cost.seconds_per_byte * point.bytes);
  }
  // No exchange that was recorded may be quicker than its cost: bounds stand on it.
  fitted.cost.latency =
      Seconds(std::max(0.0, *std::min_element(intercepts.begin(), intercepts.end())));
  for (const Point& point : points) {
    fitted.cost.seconds_per_byte =
        std::min(fitted.cost.seconds_per_byte,
                 std::max(0.0, point.seconds - fitted.cost.latency.count()) / point.bytes);
  }
  std::vector<double> errors;
  for (const Point& point : points) {
    const double predicted =
        fitted.cost.latency.count() + fitted.cost.seconds_per_byte * point.bytes;
    errors.push_back(std::abs(predicted / point.seconds - 1.0));
  }
  if (points.size() > 2) {
    fitted.median_error = median(std::move(errors));
  }
  return fitted;
}

}  // namespace stretto
