// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "stretto/report/names.hpp"
#include "stretto/report/report.hpp"
#include "stretto/report/write_records.hpp"

// Format: "Trace Event Format", as Perfetto reads it: X = slice, i = instant, s and f = the two
// ends of an arrow, M = names. Ends of arrows attach to the slice that encloses them, so both are
// given times inside one.
namespace stretto {
namespace {

bool is_instant(const Record& record) {
  return record.kind == RecordKind::kReady || record.kind == RecordKind::kLaunched;
}

/// The records of one lane of one rank.
struct LaneKey {
  std::uint32_t rank = 0;
  Lane lane = Lane::kStep;
  friend auto operator<=>(const LaneKey&, const LaneKey&) = default;
};

/// A slice and the thread it was put on.
struct Placed {
  const Record* record = nullptr;
  std::uint32_t thread = 0;
};

std::string_view lane_title(Lane lane) {
  switch (lane) {
    case Lane::kStep:
      return "step";
    case Lane::kCompute:
      return "compute";
    case Lane::kCommunication:
      return "communication";
    case Lane::kHost:
      return "host";
  }
  return "other";
}

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Microseconds with all three decimals: nanoseconds are not rounded.
std::string microseconds(std::int64_t ns) {
  const std::int64_t magnitude = ns < 0 ? -ns : ns;
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", magnitude / 1000, magnitude % 1000);
}

/// Gives each slice the lowest thread that is free at its begin, so that none overlap.
/// Returns how many threads that took.
std::uint32_t spread(std::vector<Placed>& slices) {
  std::sort(slices.begin(), slices.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.record->begin_ns, a.record->end_ns) <
           std::pair(b.record->begin_ns, b.record->end_ns);
  });
  using Busy = std::pair<std::int64_t, std::uint32_t>;  // until, thread
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> free;
  std::uint32_t threads = 0;
  for (Placed& slice : slices) {
    while (!busy.empty() && busy.top().first <= slice.record->begin_ns) {
      free.push(busy.top().second);
      busy.pop();
    }
    if (free.empty()) {
      free.push(threads++);
    }
    slice.thread = free.top();
    free.pop();
    busy.emplace(slice.record->end_ns, slice.thread);
  }
  return threads;
}

class Writer {
 public:
  Writer(const Timeline& timeline, const TextSink& sink) : timeline_(timeline), sink_(sink) {}

  void write() {
    fmt::format_to(
        std::back_inserter(out_),
        R"({{"displayTimeUnit":"ms","strettoPicture":1,"baseTimeNanoseconds":{},"traceEvents":[)",
        timeline_.origin_unix_ns);
    std::map<LaneKey, std::vector<Placed>> lanes;
    std::map<std::uint32_t, std::vector<const Record*>> instants;
    for (const Record& record : timeline_.records) {
      if (is_instant(record)) {
        instants[record.rank].push_back(&record);
      } else {
        lanes[{record.rank, record.lane}].push_back({&record, 0});
      }
    }
    for (auto& [key, slices] : lanes) {
      name_process(key.rank);
      const std::uint32_t threads = spread(slices);
      const std::uint32_t first = next_thread_;
      for (std::uint32_t t = 0; t < threads; ++t) {
        name_thread(key, t);
      }
      for (Placed& slice : slices) {
        slice.thread += first;
        write_slice(slice);
      }
    }
    for (const auto& [rank, records] : instants) {
      name_process(rank);
      const std::uint32_t thread = next_thread_;
      name_thread({rank, Lane::kCommunication}, "ready, launched");
      for (const Record* record : records) {
        write_instant(*record, thread);
      }
      write_arrows(records, lanes[{rank, Lane::kCompute}], lanes[{rank, Lane::kCommunication}]);
    }
    out_ += "\n]}\n";
    sink_(out_);
  }

 private:
  /// Perfetto keeps process and thread 0 for the kernel's idle task.
  static std::uint64_t process_of(std::uint32_t rank) { return std::uint64_t{rank} + 1; }

  template <typename... Arguments>
  void event(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    constexpr std::size_t kPiece = std::size_t{1} << 20U;
    if (out_.size() >= kPiece) {
      sink_(out_);
      out_.clear();
    }
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(out_), format, std::forward<Arguments>(arguments)...);
  }

  void name_process(std::uint32_t rank) {
    if (!named_.insert(rank).second) {
      return;
    }
    event(R"({{"ph":"M","name":"process_name","pid":{},"tid":0,"args":{{"name":"rank {}"}}}})",
          process_of(rank),
          rank);
    event(R"({{"ph":"M","name":"process_sort_index","pid":{},"tid":0,"args":{{"sort_index":{}}}}})",
          process_of(rank),
          rank);
  }

  void name_thread(LaneKey key, std::uint32_t index) {
    const std::string_view title = lane_title(key.lane);
    name_thread(key, index == 0 ? std::string(title) : fmt::format("{} {}", title, index + 1));
  }
  void name_thread(LaneKey key, const std::string& title) {
    const std::uint32_t thread = next_thread_++;
    event(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})",
          process_of(key.rank),
          thread,
          json_string(title));
    event(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
          process_of(key.rank),
          thread,
          thread);
  }

  static std::string arguments_of(const Record& record) {
    std::string text = fmt::format("{{\"step\":{}", record.step);
    const auto add = [&](std::string_view key, std::uint32_t id) {
      if (id != kNoId) {
        fmt::format_to(std::back_inserter(text), ",\"{}\":{}", key, id);
      }
    };
    add("bucket", record.bucket);
    add("sequence", record.sequence);
    if (record.bytes != 0) {
      fmt::format_to(std::back_inserter(text), ",\"bytes\":{}", record.bytes);
    }
    if (record.collective != Collective::kNone) {
      fmt::format_to(std::back_inserter(text),
                     R"(,"collective":"{}","algorithm":"{}")",
                     to_string(record.collective),
                     to_string(record.algorithm));
    }
    return text + "}";
  }

  void write_slice(const Placed& slice) {
    const Record& record = *slice.record;
    event(R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{}}})",
          to_string(record.kind),
          json_string(detail::label_of(timeline_, record)),
          process_of(record.rank),
          slice.thread,
          microseconds(record.begin_ns),
          microseconds(record.end_ns - record.begin_ns),
          arguments_of(record));
  }

  void write_instant(const Record& record, std::uint32_t thread) {
    event(R"({{"ph":"i","s":"t","cat":"{}","name":{},"pid":{},"tid":{},"ts":{},"args":{}}})",
          to_string(record.kind),
          json_string(detail::label_of(timeline_, record)),
          process_of(record.rank),
          thread,
          microseconds(record.begin_ns),
          arguments_of(record));
  }

  /// From the compute in which a bucket's last gradient was written to its communication. All of
  /// one rank; `compute` and `communication` are sorted by begin.
  void write_arrows(const std::vector<const Record*>& instants,
                    const std::vector<Placed>& compute,
                    const std::vector<Placed>& communication) {
    std::map<std::uint32_t, std::int64_t> last_ready;  // by link
    for (const Record* record : instants) {
      if (record->kind == RecordKind::kReady && record->link != kNoId) {
        const auto [place, added] = last_ready.try_emplace(record->link, record->begin_ns);
        place->second = std::max(place->second, record->begin_ns);
      }
    }
    for (const Placed& slice : communication) {
      const auto ready = last_ready.find(slice.record->link);
      if (ready == last_ready.end() || slice.record->end_ns <= slice.record->begin_ns) {
        continue;
      }
      const auto after = std::upper_bound(
          compute.begin(), compute.end(), ready->second, [](std::int64_t at, const Placed& other) {
            return at < other.record->begin_ns;
          });
      const auto from = std::find_if(
          std::make_reverse_iterator(after), compute.rend(), [](const Placed& candidate) {
            return is_compute(candidate.record->kind) &&
                   candidate.record->end_ns > candidate.record->begin_ns;
          });
      if (from == compute.rend() || from->record->begin_ns > slice.record->begin_ns) {
        continue;
      }
      const std::int64_t at =
          std::min({ready->second, from->record->end_ns - 1, slice.record->begin_ns});
      write_arrow(*from, at, slice);
    }
  }

  void write_arrow(const Placed& from, std::int64_t at_ns, const Placed& to) {
    const std::uint64_t id = next_arrow_++;
    event(R"({{"ph":"s","cat":"ready","name":"ready","id":{},"pid":{},"tid":{},"ts":{}}})",
          id,
          process_of(from.record->rank),
          from.thread,
          microseconds(at_ns));
    event(R"({{"ph":"f","bp":"e","cat":"ready","name":"ready","id":{},"pid":{},"tid":{},"ts":{}}})",
          id,
          process_of(to.record->rank),
          to.thread,
          microseconds(to.record->begin_ns));
  }

  const Timeline& timeline_;
  const TextSink& sink_;
  std::string out_;
  bool first_ = true;
  std::set<std::uint32_t> named_;
  std::uint32_t next_thread_ = 1;
  std::uint64_t next_arrow_ = 1;
};

}  // namespace

void write_chrome_trace(const Timeline& timeline, const TextSink& sink) {
  Writer(timeline, sink).write();
}

std::string chrome_trace(const Timeline& timeline) {
  std::string text;
  write_chrome_trace(timeline, [&](std::string_view piece) { text += piece; });
  return text;
}

}  // namespace stretto
