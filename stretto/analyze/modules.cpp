// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/modules.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "stretto/analyze/activity.hpp"
#include "stretto/analyze/shares.hpp"
#include "stretto/analyze/steps.hpp"
#include "stretto/base/statistics.hpp"

namespace stretto {
namespace {

using detail::Activities;
using detail::Activity;
using detail::RankStep;
using detail::Step;

constexpr std::string_view kFsdp1 = "FullyShardedDataParallel.";

/// Rank and, where it matters, host thread.
using Place = std::pair<std::uint32_t, std::uint32_t>;

struct Range {
  Interval when;
  std::size_t module;
};

/// A collective, and where and when the host asked for it.
struct Asked {
  const Record* collective;
  std::int64_t at_ns;
};

std::uint64_t key_of(std::uint32_t rank, std::uint32_t link) {
  return (std::uint64_t{rank} << 32U) | link;
}

class Attribution {
 public:
  explicit Attribution(const Timeline& timeline) : timeline_(timeline), activities_(timeline) {
    find_ranges();
    if (!names_.empty()) {
      find_collectives();
      match();
    }
  }

  [[nodiscard]] const Activities& activities() const noexcept { return activities_; }
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  /// Index into names; names.size() for a collective in no range.
  [[nodiscard]] std::size_t module_of(const Record& collective) const {
    const auto found = modules_.find(&collective);
    return found == modules_.end() ? names_.size() : found->second;
  }

 private:
  void find_ranges() {
    std::unordered_map<std::uint32_t, std::size_t> known;  // name -> module, ~0 for none
    std::map<std::string, std::size_t> modules;
    for (const Record& record : timeline_.records) {
      if (record.kind != RecordKind::kAnnotation || record.name >= timeline_.names.size()) {
        continue;
      }
      const auto [place, added] = known.try_emplace(record.name, ~std::size_t{0});
      if (added) {
        if (std::string module = module_of_range(timeline_.names[record.name]); !module.empty()) {
          const auto [entry, first] = modules.try_emplace(module, names_.size());
          if (first) {
            names_.push_back(std::move(module));
          }
          place->second = entry->second;
        }
      }
      if (place->second != ~std::size_t{0}) {
        ranges_[place_of(record)].push_back({{record.begin_ns, record.end_ns}, place->second});
      }
    }
    for (auto& [place, list] : ranges_) {
      std::sort(list.begin(), list.end(), [](const Range& a, const Range& b) {
        return std::tuple(a.when.begin_ns, -a.when.end_ns) <
               std::tuple(b.when.begin_ns, -b.when.end_ns);
      });
    }
  }

  /// Gloo's threads are not the program's, so that of a rank without devices none tells.
  [[nodiscard]] Place place_of(const Record& host) const {
    return {host.rank, activities_.has_device(host.rank) ? host.stream : kNoId};
  }

  void find_collectives() {
    std::unordered_map<std::uint64_t, std::vector<const Record*>> linked;
    for (const Record& record : timeline_.records) {
      if (record.kind == RecordKind::kCommunication && record.link != kNoId) {
        linked[key_of(record.rank, record.link)].push_back(&record);
      }
    }
    for (const Record& record : timeline_.records) {
      const bool device = activities_.has_device(record.rank);
      if (record.kind == RecordKind::kCommunication && !device && record.link == kNoId) {
        asked_[place_of(record)].push_back({&record, record.begin_ns});
      }
      const bool asks = record.kind == (device ? RecordKind::kEnqueue : RecordKind::kReady);
      if (!asks || record.link == kNoId) {
        continue;
      }
      const auto found = linked.find(key_of(record.rank, record.link));
      if (found == linked.end()) {
        continue;
      }
      for (const Record* collective : found->second) {
        asked_[place_of(record)].push_back({collective, record.begin_ns});
      }
    }
  }

  void match() {
    for (auto& [place, list] : asked_) {
      const auto ranges = ranges_.find(place);
      if (ranges == ranges_.end()) {
        continue;
      }
      std::sort(list.begin(), list.end(), [](const Asked& a, const Asked& b) {
        return a.at_ns < b.at_ns;
      });
      std::vector<const Range*> open;  // by begin: the last is the innermost
      auto next = ranges->second.begin();
      for (const Asked& asked : list) {
        for (; next != ranges->second.end() && next->when.begin_ns <= asked.at_ns; ++next) {
          open.push_back(&*next);
        }
        std::erase_if(open, [&](const Range* range) { return range->when.end_ns < asked.at_ns; });
        if (!open.empty()) {
          modules_.try_emplace(asked.collective, open.back()->module);
        }
      }
    }
  }

  const Timeline& timeline_;
  Activities activities_;
  std::vector<std::string> names_;
  std::map<Place, std::vector<Range>> ranges_;
  std::map<Place, std::vector<Asked>> asked_;
  std::unordered_map<const Record*, std::size_t> modules_;
};

/// Module and kind of collective; those of no module share one kind.
using Owner = std::pair<std::size_t, Collective>;

struct Sums {
  double calls = 0.0;
  double bytes = 0.0;
  double total_ns = 0.0;
  double exposed_ns = 0.0;
};

/// One rank's part of a step, added to `sums`.
void add_rank(const RankStep& rank, const Attribution& modules, std::map<Owner, Sums>& sums) {
  const Activities& activities = modules.activities();
  const std::vector<Activity>& devices = activities.of(rank.rank);
  if (devices.empty()) {
    return;
  }
  const auto share = 1.0 / static_cast<double>(devices.size());
  std::map<std::uint32_t, std::map<std::pair<Owner, const Record*>, std::vector<Interval>>> pieces;
  for (const Record* record : rank.records) {
    if (record->kind != RecordKind::kCommunication) {
      continue;
    }
    const std::size_t module = modules.module_of(*record);
    const Owner owner{module,
                      module == modules.names().size() ? Collective::kNone : record->collective};
    Sums& sum = sums[owner];
    sum.calls += share;
    sum.bytes += share * static_cast<double>(record->bytes);
    sum.total_ns += share * static_cast<double>(record->end_ns - record->begin_ns);
    // Each collective shares by itself, as buckets do: a module's two at once are two.
    pieces[record->device][{owner, record}].push_back(rank.clip(*record));
  }
  for (auto& [number, by_owner] : pieces) {
    const Activity* activity = activities.find(rank.rank, number);
    std::vector<IntervalSet> sets;
    for (auto& [owner, list] : by_owner) {
      sets.emplace_back(std::move(list));
    }
    const std::vector<double> exposed_ns = detail::exposed_shares_ns(
        sets, activity == nullptr ? devices.front().compute : activity->compute);
    std::size_t i = 0;
    for (const auto& [owner, list] : by_owner) {
      sums[owner.first].exposed_ns += share * exposed_ns[i++];
    }
  }
}

}  // namespace

std::string module_of_range(std::string_view range) {
  if (range.starts_with(kFsdp1)) {
    return std::string(range);
  }
  if (!range.starts_with("FSDP::")) {
    return {};
  }
  constexpr std::string_view kFor = " for ";
  const std::size_t open = range.find(" (");
  const std::size_t close = range.rfind(')');
  if (open != std::string_view::npos && close != std::string_view::npos && close > open + 2) {
    return std::string(range.substr(open + 2, close - open - 2));
  }
  if (const std::size_t at = range.find(kFor);
      at != std::string_view::npos && at + kFor.size() < range.size()) {
    return std::string(range.substr(at + kFor.size()));
  }
  return "(root)";
}

std::vector<ModuleSummary> module_summaries(const Timeline& timeline) {
  const Attribution modules(timeline);
  if (modules.names().empty()) {
    return {};
  }
  const std::vector<Step> steps = detail::whole_steps(timeline, modules.activities());
  struct Series {
    std::vector<double> calls, bytes, total_ns, exposed_ns;
  };
  std::map<Owner, Series> series;
  for (const Step& step : steps) {
    std::map<Owner, Sums> sums;
    for (const RankStep& rank : step.ranks) {
      add_rank(rank, modules, sums);
    }
    const auto ranks = static_cast<double>(step.ranks.size());
    for (const auto& [owner, sum] : sums) {
      Series& all = series[owner];
      all.calls.push_back(sum.calls / ranks);
      all.bytes.push_back(sum.bytes / ranks);
      all.total_ns.push_back(sum.total_ns / ranks);
      all.exposed_ns.push_back(sum.exposed_ns / ranks);
    }
  }
  std::vector<ModuleSummary> summaries;
  for (auto& [owner, all] : series) {
    if (owner.first == modules.names().size()) {
      continue;
    }
    for (std::vector<double>* values : {&all.calls, &all.bytes, &all.total_ns, &all.exposed_ns}) {
      values->resize(steps.size(), 0.0);
    }
    summaries.push_back({modules.names()[owner.first],
                         owner.second,
                         median(std::move(all.calls)),
                         Bytes(std::llround(median(std::move(all.bytes)))),
                         Seconds(median(std::move(all.total_ns)) / 1e9),
                         Seconds(median(std::move(all.exposed_ns)) / 1e9)});
  }
  std::stable_sort(
      summaries.begin(), summaries.end(), [](const ModuleSummary& a, const ModuleSummary& b) {
        return std::pair(a.exposed_share, a.total) > std::pair(b.exposed_share, b.total);
      });
  return summaries;
}

}  // namespace stretto
