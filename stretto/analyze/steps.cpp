// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/steps.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/base/statistics.hpp"

namespace stretto::detail {
namespace {

std::uint64_t key_of(const Record& record) {
  return (std::uint64_t{record.step} << 32U) | record.rank;
}

/// kStep records by step, then rank; one of each.
std::vector<const Record*> step_records(const Timeline& timeline) {
  std::vector<const Record*> records;
  for (const Record& record : timeline.records) {
    if (record.kind == RecordKind::kStep && record.end_ns > record.begin_ns) {
      records.push_back(&record);
    }
  }
  std::stable_sort(records.begin(), records.end(), [](const Record* a, const Record* b) {
    return key_of(*a) < key_of(*b);
  });
  records.erase(
      std::unique(records.begin(),
                  records.end(),
                  [](const Record* a, const Record* b) { return key_of(*a) == key_of(*b); }),
      records.end());
  return records;
}

std::size_t count_ranks(const std::vector<const Record*>& records) {
  std::vector<std::uint32_t> ranks;
  ranks.reserve(records.size());
  for (const Record* record : records) {
    ranks.push_back(record->rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return static_cast<std::size_t>(std::unique(ranks.begin(), ranks.end()) - ranks.begin());
}

/// `rank 0 has steps 1 to 5, rank 1 has steps 7 to 9`; of a few ranks.
std::string steps_by_rank(const Timeline& timeline, const std::vector<const Record*>& records) {
  constexpr std::size_t kMostRanks = 4;
  struct Range {
    const Record* first = nullptr;
    const Record* last = nullptr;
  };
  std::map<std::uint32_t, Range> ranks;
  for (const Record* record : records) {  // by step
    Range& range = ranks[record->rank];
    range.first = range.first == nullptr ? record : range.first;
    range.last = record;
  }
  std::string text;
  std::size_t named = 0;
  for (const auto& [rank, range] : ranks) {
    if (named++ == kMostRanks) {
      return text + ", ...";
    }
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " has ";
    if (range.first->name < timeline.names.size() &&
        timeline.names[range.first->name] == kWholeRecording) {
      text += "no marked step";
    } else {
      text +=
          "steps " + std::to_string(range.first->step) + " to " + std::to_string(range.last->step);
    }
  }
  return text;
}

/// Millions of kernels need not be pointed to.
bool is_listed(const Record& record, const Activities& activities) {
  switch (record.kind) {
    case RecordKind::kStep:
    case RecordKind::kCopy:
    case RecordKind::kEnqueue:
    case RecordKind::kAnnotation:
      return false;
    case RecordKind::kCompute:
      return record.device == kNoId && record.lane != Lane::kHost;
    default:
      return record.lane != Lane::kHost || !activities.has_device(record.rank);
  }
}

void distribute(const Timeline& timeline, const Activities& activities, std::vector<Step>& steps) {
  std::unordered_map<std::uint64_t, RankStep*> places;
  for (Step& step : steps) {
    for (RankStep& rank : step.ranks) {
      places.emplace((std::uint64_t{step.number} << 32U) | rank.rank, &rank);
    }
  }
  // Neighbours mostly belong together, so that few records need the look-up.
  std::uint64_t last_key = 0;
  RankStep* last = nullptr;
  bool first = true;
  for (const Record& record : timeline.records) {
    if (first || key_of(record) != last_key) {
      first = false;
      last_key = key_of(record);
      const auto place = places.find(last_key);
      last = place == places.end() ? nullptr : place->second;
    }
    if (last != nullptr && is_listed(record, activities)) {
      last->records.push_back(&record);
    }
  }
}

}  // namespace

Interval RankStep::clip(const Record& record) const noexcept {
  return {std::max(record.begin_ns, window.begin_ns), std::min(record.end_ns, window.end_ns)};
}

std::int64_t RankStep::since_begin_ns(std::int64_t at_ns) const noexcept {
  return std::clamp(at_ns, window.begin_ns, window.end_ns) - window.begin_ns;
}

std::vector<Step> whole_steps(const Timeline& timeline, const Activities& activities) {
  const std::vector<const Record*> records = step_records(timeline);
  const std::size_t ranks = count_ranks(records);
  std::vector<Step> steps;
  for (std::size_t begin = 0; begin < records.size();) {
    std::size_t end = begin;
    while (end < records.size() && records[end]->step == records[begin]->step) {
      ++end;
    }
    if (end - begin == ranks) {
      Step step{records[begin]->step, {}};
      for (std::size_t i = begin; i < end; ++i) {
        step.ranks.push_back({records[i]->rank, {records[i]->begin_ns, records[i]->end_ns}, {}});
      }
      steps.push_back(std::move(step));
    }
    begin = end;
  }
  if (steps.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"the timeline holds no whole step",
         {},
         records.empty() ? "no step in " + std::to_string(timeline.records.size()) + " records"
                         : steps_by_rank(timeline, records),
         "at least one step that every rank has recorded to its end",
         ranks > 1 ? "Record the same steps on all ranks, name them with --step-regex, or analyze "
                     "these ranks one by one"
                   : ""});
  }
  distribute(timeline, activities, steps);
  return steps;
}

std::map<std::uint32_t, TensorReady> ready_times(const std::vector<Step>& steps) {
  struct Seen {
    std::int64_t bytes = 0;
    std::vector<double> per_step;  // latest rank
    std::size_t last_step = ~std::size_t{0};
  };
  std::unordered_map<std::uint32_t, Seen> tensors;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    for (const RankStep& rank : steps[s].ranks) {
      for (const Record* record : rank.records) {
        if (record->kind != RecordKind::kReady) {
          continue;
        }
        Seen& seen = tensors[record->name];
        const auto ready = static_cast<double>(rank.since_begin_ns(record->begin_ns));
        seen.bytes = std::max(seen.bytes, record->bytes);
        if (seen.last_step != s) {
          seen.last_step = s;
          seen.per_step.push_back(ready);
        } else {
          seen.per_step.back() = std::max(seen.per_step.back(), ready);
        }
      }
    }
  }
  std::map<std::uint32_t, TensorReady> result;
  for (auto& [name, seen] : tensors) {
    result[name] = {median(std::move(seen.per_step)), seen.bytes};
  }
  return result;
}

std::vector<LayerTime> forward_layers(const Timeline& timeline, const std::vector<Step>& steps) {
  std::vector<std::uint32_t> order;
  std::unordered_map<std::uint32_t, std::vector<double>> series;
  for (const Step& step : steps) {
    std::unordered_map<std::uint32_t, double> sums;
    for (const RankStep& rank : step.ranks) {
      for (const Record* record : rank.records) {
        if (record->kind == RecordKind::kForward && record->name < timeline.names.size()) {
          const Interval inside = rank.clip(*record);
          sums[record->name] +=
              static_cast<double>(std::max<std::int64_t>(0, inside.end_ns - inside.begin_ns));
          if (series.try_emplace(record->name).second) {
            order.push_back(record->name);
          }
        }
      }
    }
    for (const auto& [name, sum] : sums) {
      series[name].push_back(sum / static_cast<double>(step.ranks.size()));
    }
  }
  std::vector<LayerTime> layers;
  layers.reserve(order.size());
  for (const std::uint32_t name : order) {
    layers.push_back({timeline.names[name], Seconds(median(series[name]) / 1e9)});
  }
  return layers;
}

}  // namespace stretto::detail
