// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/as_hta.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "stretto/base/intervals.hpp"

namespace stretto {
namespace {

constexpr std::int64_t kMicrosecond = 1000;

/// One device row, with what decides whether HTA keeps it.
struct Row {
  Interval when;
  std::uint32_t name = 0;
  RecordKind kind = RecordKind::kCompute;
  std::optional<std::int64_t> launched_ns;
};

struct Rank {
  std::vector<Row> rows;
  std::vector<Interval> profiler_steps;
  std::unordered_map<std::uint32_t, std::int64_t> launches;  // by link
};

bool begins_with_any(std::string_view name, std::initializer_list<std::string_view> heads) {
  return std::any_of(
      heads.begin(), heads.end(), [&](std::string_view head) { return name.starts_with(head); });
}

bool contains_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  });
}

// Its patterns, matched from the begin of a name.
bool is_communication_for_hta(std::string_view name) {
  return begins_with_any(name, {"nccl", "hip", "hccl"}) || contains_any(name, {"ncclKernel"});
}
bool is_compute_for_hta(std::string_view name) {
  const std::size_t cuda = name.find("cuda");
  const bool launches =
      name.starts_with("cuda") && name.find("LaunchKernel", cuda) != std::string_view::npos;
  return !launches && !is_communication_for_hta(name) &&
         !begins_with_any(name,
                          {"Stream Wait Event",
                           "runFunction",
                           "job_exe",
                           "packet",
                           "pe_exe",
                           "cpum_exe_subgraph",
                           "collective_subgraph_execution"}) &&
         !contains_any(name, {"Memcpy", "Memset", "dma", "Sync"});
}

/// Its rounding, in its arithmetic: microseconds as doubles, which at Unix times are a quarter of
/// one apart.
Interval rounded_inwards(Interval when, std::int64_t zero_ns) {
  const auto us = [](std::int64_t ns) {
    return static_cast<double>(static_cast<long double>(ns) / 1000.0L);
  };
  const double begin = us(when.begin_ns + zero_ns);
  const double end = begin + us(when.end_ns - when.begin_ns);
  return {std::llround(std::ceil(begin)) * kMicrosecond,
          std::llround(std::floor(end)) * kMicrosecond};
}

struct Choice {
  bool hta_names = false;
  bool rounded = false;
  std::int64_t zero_ns = 0;
  std::int64_t launched_before_ns = std::numeric_limits<std::int64_t>::max();
  bool linked_only = false;
};

HtaNumbers count(const Rank& rank, const Timeline& timeline, const Choice& choice) {
  HtaNumbers numbers;
  std::vector<Interval> communication;
  std::vector<Interval> compute;
  std::vector<Interval> all;
  Interval hull{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
  for (const Row& row : rank.rows) {
    if (choice.linked_only && (!row.launched_ns || *row.launched_ns >= choice.launched_before_ns)) {
      continue;
    }
    Interval when = row.when;
    if (choice.rounded) {
      when = rounded_inwards(when, choice.zero_ns);
    }
    ++numbers.rows;
    hull.begin_ns = std::min(hull.begin_ns, when.begin_ns);
    hull.end_ns = std::max(hull.end_ns, when.end_ns);
    all.push_back(when);
    const std::string_view name = timeline.names[row.name];
    const bool communicates =
        choice.hta_names ? is_communication_for_hta(name) : row.kind == RecordKind::kCommunication;
    const bool computes =
        choice.hta_names ? is_compute_for_hta(name) : row.kind == RecordKind::kCompute;
    if (communicates) {
      communication.push_back(when);
    } else if (computes) {
      compute.push_back(when);
    }
  }
  if (numbers.rows == 0) {
    return numbers;
  }
  const IntervalSet communicating(std::move(communication));
  const IntervalSet computing(std::move(compute));
  numbers.communication_ns = communicating.measure_ns();
  numbers.compute_ns = computing.measure_ns();
  numbers.overlapped_ns = intersect(communicating, computing).measure_ns();
  numbers.kernel_time_ns = hull.end_ns - hull.begin_ns;
  numbers.idle_ns = numbers.kernel_time_ns - IntervalSet(std::move(all)).measure_ns();
  return numbers;
}

std::map<std::uint32_t, Rank> ranks_of(const Timeline& timeline) {
  std::map<std::uint32_t, Rank> ranks;
  for (const Record& record : timeline.records) {
    if (record.kind == RecordKind::kEnqueue && record.link != kNoId) {
      ranks[record.rank].launches.try_emplace(record.link, record.begin_ns);
    } else if (record.kind == RecordKind::kAnnotation &&
               timeline.names[record.name].starts_with("ProfilerStep")) {
      ranks[record.rank].profiler_steps.push_back({record.begin_ns, record.end_ns});
    }
  }
  for (const Record& record : timeline.records) {
    const bool device = record.lane != Lane::kHost && record.device != kNoId &&
                        (record.kind == RecordKind::kCompute || record.kind == RecordKind::kCopy ||
                         record.kind == RecordKind::kCommunication);
    if (device) {
      Rank& rank = ranks[record.rank];
      Row row{{record.begin_ns, record.end_ns}, record.name, record.kind, std::nullopt};
      if (const auto launch = rank.launches.find(record.link); launch != rank.launches.end()) {
        row.launched_ns = launch->second;
      }
      rank.rows.push_back(row);
    }
  }
  return ranks;
}

}  // namespace

std::optional<double> HtaNumbers::overlap_percent() const {
  if (communication_ns == 0) {
    return std::nullopt;
  }
  return 100.0 * static_cast<double>(overlapped_ns) / static_cast<double>(communication_ns);
}

std::vector<AsHta> as_hta(const Timeline& timeline, std::int64_t zero_ns) {
  std::vector<AsHta> result;
  for (auto& [number, rank] : ranks_of(timeline)) {
    if (rank.rows.empty()) {
      continue;
    }
    AsHta hta;
    hta.rank = number;
    Choice choice;
    choice.zero_ns = zero_ns;
    hta.stages.push_back(
        {"exact, all rows, as this program counts", count(rank, timeline, choice)});
    choice.hta_names = true;
    hta.stages.push_back({"with the kernel names that HTA knows", count(rank, timeline, choice)});
    Choice with_last = choice;
    if (rank.profiler_steps.size() >= 2) {
      std::sort(rank.profiler_steps.begin(),
                rank.profiler_steps.end(),
                [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
      choice.linked_only = true;
      choice.launched_before_ns = rank.profiler_steps.back().end_ns;
      hta.stages.push_back(
          {"without rows whose launch is not recorded", count(rank, timeline, choice)});
      with_last = choice;
      choice.launched_before_ns = rank.profiler_steps.back().begin_ns;
      hta.stages.push_back({"without the last ProfilerStep", count(rank, timeline, choice)});
    }
    const bool fractions = std::any_of(rank.rows.begin(), rank.rows.end(), [](const Row& row) {
      return row.when.begin_ns % kMicrosecond != 0 || row.when.end_ns % kMicrosecond != 0;
    });
    if (fractions) {
      choice.rounded = true;
      with_last.rounded = true;
      hta.stages.push_back(
          {"with each row rounded inwards to whole us", count(rank, timeline, choice)});
    }
    hta.with_last_step = count(rank, timeline, with_last);
    result.push_back(std::move(hta));
  }
  return result;
}

}  // namespace stretto
