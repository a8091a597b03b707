// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "stretto/analyze/activity.hpp"
#include "stretto/report/html_parts.hpp"
#include "stretto/report/names.hpp"

namespace stretto::detail {
namespace {

using nlohmann::ordered_json;

/// Of one device, one kind of work: more than that at a time is not drawn, and said.
constexpr std::uint32_t kMostRows = 6;
constexpr std::size_t kMostNameBytes = 200;

/// What is drawn as one bar.
struct Bar {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::uint32_t what = 0;   ///< Index into the table of kinds and names.
  std::uint32_t count = 1;  ///< Records it stands for.
  const Record* record = nullptr;
};

enum class Band : std::uint8_t { kCompute, kWait, kCommunication, kCopy };

struct BandKey {
  std::uint32_t rank = 0;
  std::uint32_t device = kNoId;
  Band band = Band::kCompute;
  friend auto operator<=>(const BandKey&, const BandKey&) = default;
};

/// Bars that do not overlap, by time.
struct Row {
  BandKey key;
  std::vector<Bar> bars;
};

struct LeftOut {
  std::uint64_t host_rows = 0;  ///< What hosts did beside devices, and ranges.
  std::uint64_t crowded = 0;    ///< More at a time than there are rows.
  std::uint64_t merged = 0;     ///< Records that share a bar with others.
  std::int64_t gap_ns = 0;      ///< Bars nearer than that were made one.
};

/// Unsigned numbers, seven bits a byte, the lowest first.
class Numbers {
 public:
  void add(std::uint64_t value) {
    while (value >= 0x80U) {
      bytes_ += static_cast<char>(static_cast<unsigned char>((value & 0x7fU) | 0x80U));
      value >>= 7U;
    }
    bytes_ += static_cast<char>(static_cast<unsigned char>(value));
  }
  /// Of what may be unknown (0), or is taken as none where clocks made it negative.
  void add_distance(std::int64_t distance) {
    add(static_cast<std::uint64_t>(std::max<std::int64_t>(0, distance)) + 1U);
  }

  [[nodiscard]] std::string base64() const {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    text.reserve((bytes_.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes_.size(); i += 3) {
      const auto byte = [&](std::size_t k) {
        return i + k < bytes_.size()
                   ? static_cast<unsigned>(static_cast<unsigned char>(bytes_[i + k]))
                   : 0U;
      };
      const unsigned three = byte(0) << 16U | byte(1) << 8U | byte(2);
      text += kDigits[three >> 18U & 63U];
      text += kDigits[three >> 12U & 63U];
      text += i + 1 < bytes_.size() ? kDigits[three >> 6U & 63U] : '=';
      text += i + 2 < bytes_.size() ? kDigits[three & 63U] : '=';
    }
    return text;
  }

 private:
  std::string bytes_;
};

std::string_view word_of(Band band) {
  switch (band) {
    case Band::kCompute:
      return "compute";
    case Band::kWait:
      return "wait";
    case Band::kCommunication:
      return "communication";
    case Band::kCopy:
      break;
  }
  return "copy";
}

/// When a bucket's gradients were complete and when it was handed over, on one rank.
struct Before {
  std::int64_t ready_ns = std::numeric_limits<std::int64_t>::min();
  std::int64_t launched_ns = std::numeric_limits<std::int64_t>::min();
};

class Columns {
 public:
  explicit Columns(const Timeline& timeline) : timeline_(timeline), activities_(timeline) {
    collect();
    for (const auto& [rank, begin_end] : extent_) {
      begin_ns_ = std::min(begin_ns_, begin_end.begin_ns);
      end_ns_ = std::max(end_ns_, begin_end.end_ns);
    }
    if (extent_.empty() && steps_.empty()) {
      begin_ns_ = end_ns_ = 0;
    }
  }

  std::string write(std::size_t most) {
    merge_until(std::max<std::size_t>(most, 1));
    ordered_json ranks = ordered_json::array();
    for (const auto& [rank, extent] : extent_) {
      ordered_json rows = ordered_json::array();
      for (const Row& row : rows_) {
        if (row.key.rank == rank) {
          rows.push_back(row_json(row));
        }
      }
      ranks.push_back({{"rank", rank}, {"rows", std::move(rows)}, {"exposed", exposed_json(rank)}});
    }
    ordered_json kinds = ordered_json::array();
    for (const auto& [kind, name, collective] : kinds_) {
      kinds.push_back({to_string(kind), name, to_string(collective)});
    }
    return ordered_json{{"source", timeline_.source},
                        {"world_size", timeline_.world_size},
                        {"origin_unix_ns", std::to_string(timeline_.origin_unix_ns)},
                        {"begin_ns", begin_ns_},
                        {"length_ns", end_ns_ - begin_ns_},
                        {"names", names_},
                        {"kinds", std::move(kinds)},
                        {"ranks", std::move(ranks)},
                        {"steps", steps_json()},
                        {"left_out",
                         {{"host_rows", left_out_.host_rows},
                          {"crowded", left_out_.crowded},
                          {"merged", left_out_.merged},
                          {"gap_ns", left_out_.gap_ns}}}}
        .dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }

 private:
  using Kind = std::tuple<RecordKind, std::size_t, Collective>;

  void collect() {
    std::map<BandKey, std::vector<Bar>> bands;
    for (const Record& record : timeline_.records) {
      if (record.kind == RecordKind::kReady || record.kind == RecordKind::kLaunched) {
        note_before(record);
        continue;
      }
      if (record.kind == RecordKind::kStep) {
        note_step(record);
        continue;
      }
      const bool host = record.lane == Lane::kHost;
      if (record.kind == RecordKind::kAnnotation && record.lane == Lane::kCommunication) {
        continue;  // what a codec did within an exchange, which is drawn
      }
      if (record.kind == RecordKind::kEnqueue || record.kind == RecordKind::kAnnotation ||
          (host && activities_.has_device(record.rank))) {
        ++left_out_.host_rows;
        continue;
      }
      const Band band = record.kind == RecordKind::kCommunication ? Band::kCommunication
                        : record.kind == RecordKind::kCopy        ? Band::kCopy
                        : record.kind == RecordKind::kWait        ? Band::kWait
                                                                  : Band::kCompute;
      bands[{record.rank, host ? kNoId : record.device, band}].push_back(
          {record.begin_ns, record.end_ns, what(record), 1, &record});
      Interval& extent =
          extent_.try_emplace(record.rank, Interval{record.begin_ns, record.end_ns}).first->second;
      extent.begin_ns = std::min(extent.begin_ns, record.begin_ns);
      extent.end_ns = std::max(extent.end_ns, record.end_ns);
    }
    for (auto& [key, bars] : bands) {
      spread(key, std::move(bars));
    }
  }

  void note_before(const Record& record) {
    if (record.link == kNoId) {
      return;
    }
    Before& before = before_[{record.rank, record.link}];
    std::int64_t& at = record.kind == RecordKind::kReady ? before.ready_ns : before.launched_ns;
    at = std::max(at, record.end_ns);
  }

  void note_step(const Record& record) {
    const auto [place, added] =
        steps_.try_emplace(record.step,
                           std::pair(Interval{record.begin_ns, record.end_ns},
                                     std::string(label_of(timeline_, record))));
    Interval& all = place->second.first;
    all.begin_ns = std::min(all.begin_ns, record.begin_ns);
    all.end_ns = std::max(all.end_ns, record.end_ns);
    begin_ns_ = std::min(begin_ns_, record.begin_ns);
    end_ns_ = std::max(end_ns_, record.end_ns);
  }

  std::uint32_t what(const Record& record) {
    const auto [name, new_name] = name_ids_.try_emplace(record.name, names_.size());
    if (new_name) {
      names_.push_back(shortened(label_of(timeline_, record), kMostNameBytes));
    }
    const auto [place, new_kind] = kind_ids_.try_emplace(
        {record.kind, name->second, record.collective}, static_cast<std::uint32_t>(kinds_.size()));
    if (new_kind) {
      kinds_.emplace_back(record.kind, name->second, record.collective);
    }
    return place->second;
  }

  /// Gives each bar the lowest row that is free at its begin. Of host operators, which nest, the
  /// outermost then stand in the first row, and deep ones in none.
  void spread(const BandKey& key, std::vector<Bar> bars) {
    std::sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) {
      return std::pair(a.begin_ns, -a.end_ns) < std::pair(b.begin_ns, -b.end_ns);
    });
    std::array<std::int64_t, kMostRows> until{};
    until.fill(std::numeric_limits<std::int64_t>::min());
    std::array<Row, kMostRows> rows;
    for (const Bar& bar : bars) {
      auto* const free = std::find_if(
          until.begin(), until.end(), [&](std::int64_t end) { return end <= bar.begin_ns; });
      if (free == until.end()) {
        ++left_out_.crowded;
        continue;
      }
      *free = std::max(bar.end_ns, bar.begin_ns);
      rows[static_cast<std::size_t>(free - until.begin())].bars.push_back(bar);
    }
    for (Row& row : rows) {
      if (!row.bars.empty()) {
        row.key = key;
        rows_.push_back(std::move(row));
      }
    }
  }

  [[nodiscard]] std::size_t bar_count() const {
    std::size_t count = 0;
    for (const Row& row : rows_) {
      count += row.bars.size();
    }
    return count;
  }

  /// Ten times the gap until it fits; once gaps are as long as a step, whatever kind the bars are.
  void merge_until(std::size_t most) {
    constexpr std::int64_t kLeastGapNs = 100;
    constexpr std::int64_t kAnyKindNs = 1'000'000;
    for (std::int64_t gap_ns = kLeastGapNs; bar_count() > most; gap_ns *= 10) {
      const bool last = gap_ns > end_ns_ - begin_ns_;
      for (Row& row : rows_) {
        if (row.key.band != Band::kCommunication || gap_ns >= kAnyKindNs || last) {
          merge(row, gap_ns, gap_ns >= kAnyKindNs || last);
        }
      }
      left_out_.gap_ns = gap_ns;
      if (last) {
        break;
      }
    }
    for (const Row& row : rows_) {
      for (const Bar& bar : row.bars) {
        left_out_.merged += bar.count > 1 ? bar.count : 0U;
      }
    }
  }

  void merge(Row& row, std::int64_t gap_ns, bool any_kind) const {
    std::vector<Bar> merged;
    std::int64_t longest_ns = 0;
    for (const Bar& bar : row.bars) {
      const bool joins =
          !merged.empty() && bar.begin_ns - merged.back().end_ns <= gap_ns &&
          (any_kind || std::get<0>(kinds_[bar.what]) == std::get<0>(kinds_[merged.back().what]));
      const std::int64_t length_ns = bar.end_ns - bar.begin_ns;
      if (!joins) {
        merged.push_back(bar);
        longest_ns = length_ns;
        continue;
      }
      Bar& into = merged.back();
      into.end_ns = std::max(into.end_ns, bar.end_ns);
      into.count += bar.count;
      into.record = nullptr;
      if (length_ns > longest_ns) {
        into.what = bar.what;
        longest_ns = length_ns;
      }
    }
    row.bars = std::move(merged);
  }

  [[nodiscard]] ordered_json row_json(const Row& row) const {
    Numbers numbers;
    std::int64_t before_ns = begin_ns_;
    for (const Bar& bar : row.bars) {
      numbers.add(static_cast<std::uint64_t>(bar.begin_ns - before_ns));
      numbers.add(static_cast<std::uint64_t>(std::max<std::int64_t>(0, bar.end_ns - bar.begin_ns)));
      numbers.add(bar.what);
      numbers.add(bar.count);
      before_ns = bar.begin_ns;
      if (row.key.band == Band::kCommunication) {
        add_communication(bar, numbers);
      }
    }
    return {{"band", word_of(row.key.band)},
            {"device", row.key.device == kNoId ? ordered_json() : ordered_json(row.key.device)},
            {"count", row.bars.size()},
            {"data", numbers.base64()}};
  }

  void add_communication(const Bar& bar, Numbers& numbers) const {
    if (bar.record == nullptr) {
      for (int i = 0; i < 5; ++i) {
        numbers.add(0);
      }
      return;
    }
    const Record& record = *bar.record;
    numbers.add(static_cast<std::uint64_t>(std::max<std::int64_t>(0, record.bytes)));
    numbers.add(record.bucket == kNoId ? 0U : std::uint64_t{record.bucket} + 1U);
    numbers.add(record.step == kNoId ? 0U : std::uint64_t{record.step} + 1U);
    const auto found = before_.find({record.rank, record.link});
    const Before before = record.link == kNoId || found == before_.end() ? Before{} : found->second;
    for (const std::int64_t at_ns : {before.launched_ns, before.ready_ns}) {
      if (at_ns == std::numeric_limits<std::int64_t>::min()) {
        numbers.add(0);
      } else {
        numbers.add_distance(record.begin_ns - at_ns);
      }
    }
  }

  /// Of all devices of the rank.
  [[nodiscard]] ordered_json exposed_json(std::uint32_t rank) const {
    IntervalSet exposed;
    for (const Activity& device : activities_.of(rank)) {
      exposed = unite(exposed, device.exposed);
    }
    Numbers numbers;
    std::int64_t before_ns = begin_ns_;
    std::size_t count = 0;
    const auto intervals = exposed.intervals();
    for (std::size_t i = 0; i < intervals.size(); ++count) {
      Interval all = intervals[i];
      // As near as bars are made one.
      while (++i < intervals.size() && left_out_.gap_ns > 0 &&
             intervals[i].begin_ns - all.end_ns <= left_out_.gap_ns) {
        all.end_ns = intervals[i].end_ns;
      }
      numbers.add(static_cast<std::uint64_t>(std::max<std::int64_t>(0, all.begin_ns - before_ns)));
      numbers.add(static_cast<std::uint64_t>(all.end_ns - all.begin_ns));
      before_ns = all.begin_ns;
    }
    return {{"count", count}, {"data", numbers.base64()}};
  }

  [[nodiscard]] ordered_json steps_json() const {
    ordered_json list = ordered_json::array();
    for (const auto& [step, times] : steps_) {
      list.push_back({{"step", step},
                      {"name", shortened(times.second, kMostNameBytes)},
                      {"begin_ns", times.first.begin_ns - begin_ns_},
                      {"end_ns", times.first.end_ns - begin_ns_}});
    }
    return list;
  }

  const Timeline& timeline_;
  Activities activities_;
  std::vector<Row> rows_;
  std::map<std::uint32_t, Interval> extent_;                          // by rank
  std::map<std::pair<std::uint32_t, std::uint32_t>, Before> before_;  // by rank and link
  std::map<std::uint32_t, std::pair<Interval, std::string>> steps_;
  std::vector<std::string> names_;
  std::map<std::uint32_t, std::size_t> name_ids_;
  std::vector<Kind> kinds_;
  std::map<Kind, std::uint32_t> kind_ids_;
  std::int64_t begin_ns_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t end_ns_ = std::numeric_limits<std::int64_t>::min();
  LeftOut left_out_;
};

}  // namespace

std::string timeline_columns(const Timeline& timeline, std::size_t most_intervals) {
  return Columns(timeline).write(most_intervals);
}

}  // namespace stretto::detail
