// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/timeline.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/data/json_reader.hpp"
#include "stretto/data/write_timeline.hpp"

namespace stretto {
namespace {

using detail::JsonValue;
using nlohmann::ordered_json;

// Each table is in the order of its enumerators.
constexpr std::array<std::string_view, 12> kKinds = {"step",
                                                     "forward",
                                                     "backward",
                                                     "optimizer",
                                                     "compute",
                                                     "ready",
                                                     "launched",
                                                     "communication",
                                                     "wait",
                                                     "copy",
                                                     "enqueue",
                                                     "annotation"};
constexpr std::array<std::string_view, 4> kLanes = {"step", "compute", "communication", "host"};

// So that the length of any interval, and of any sum of disjoint ones, fits: 73 years.
constexpr std::int64_t kLatestNs = std::int64_t{1} << 61;
constexpr std::int64_t kMostId = std::numeric_limits<std::uint32_t>::max();

/// kNoId is written as -1: it takes less room and says "none" better than 4294967295.
std::int64_t id_to_json(std::uint32_t id) {
  return id == kNoId ? -1 : std::int64_t{id};
}
std::uint32_t id_from_json(std::int64_t id) {
  return id < 0 ? kNoId : static_cast<std::uint32_t>(id);
}

/// Columns of records as JSON, in pieces, as detail::write_json() would write them.
class ColumnWriter {
 public:
  ColumnWriter(const std::vector<Record>& records, const TextSink& sink)
      : records_(records), sink_(sink) {}

  template <typename Field>
  void column(std::string_view key, Field field) {
    begin(key);
    for (std::size_t i = 0; i < records_.size(); ++i) {
      constexpr std::size_t kPiece = std::size_t{1} << 20U;
      text_ += i == 0 ? "" : ",";
      text_ += std::to_string(field(records_[i]));
      if (text_.size() >= kPiece) {
        flush();
      }
    }
    text_ += "]";
  }

  /// Enumerations are columns of numbers with the names beside them, so that a file outlives a
  /// change of the numbers.
  template <typename Enum>
  void enumeration(std::string_view key, Enum Record::*field) {
    std::vector<std::string_view> names;
    column(key, [&](const Record& record) {
      const std::string_view name = to_string(record.*field);
      const auto known = std::find(names.begin(), names.end(), name);
      const auto index = known - names.begin();
      if (known == names.end()) {
        names.push_back(name);
      }
      return index;
    });
    begin(std::string(key) + "_names");
    for (std::size_t i = 0; i < names.size(); ++i) {
      text_ += (i == 0 ? "\"" : ",\"") + std::string(names[i]) + '"';
    }
    text_ += "]";
  }

  void flush() {
    sink_(text_);
    text_.clear();
  }

 private:
  void begin(std::string_view key) {
    text_ += (first_ ? "\n  \"" : ",\n  \"") + std::string(key) + "\": [";
    first_ = false;
  }

  const std::vector<Record>& records_;
  const TextSink& sink_;
  std::string text_;
  bool first_ = true;
};

/// The columns of `records`, all of one length.
class Columns {
 public:
  explicit Columns(const JsonValue& json) : json_(json) {
    begin_ns_ = json.at("begin_ns").integers(-kLatestNs, kLatestNs);
  }

  [[nodiscard]] const std::vector<std::int64_t>& begin_ns() const { return begin_ns_; }

  [[nodiscard]] std::vector<std::int64_t> get(std::string_view key,
                                              std::int64_t least,
                                              std::int64_t most) const {
    const JsonValue json = json_.at(key);
    std::vector<std::int64_t> values = json.integers(least, most);
    if (values.size() != begin_ns_.size()) {
      json.fail({"columns differ in length",
                 {},
                 std::to_string(values.size()) + " values",
                 std::to_string(begin_ns_.size()) + ", as begin_ns has",
                 {}});
    }
    return values;
  }

  void read(std::vector<Record>& records,
            std::string_view key,
            std::int64_t least,
            std::uint32_t Record::*field) const {
    const std::vector<std::int64_t> values = get(key, least, kMostId - 1);
    for (std::size_t i = 0; i < values.size(); ++i) {
      records[i].*field = id_from_json(values[i]);
    }
  }

  template <typename Enum>
  void read(std::vector<Record>& records,
            std::string_view key,
            std::span<const Enum> known,
            Enum Record::*field) const {
    const std::vector<Enum> legend = legend_of(key, known);
    const std::vector<std::int64_t> values =
        get(key, 0, static_cast<std::int64_t>(legend.size()) - 1);
    for (std::size_t i = 0; i < values.size(); ++i) {
      records[i].*field = legend[static_cast<std::size_t>(values[i])];
    }
  }

 private:
  template <typename Enum>
  [[nodiscard]] std::vector<Enum> legend_of(std::string_view key,
                                            std::span<const Enum> known) const {
    std::vector<Enum> legend;
    for (const JsonValue& name : json_.at(std::string(key) + "_names").elements()) {
      const auto match = std::find_if(
          known.begin(), known.end(), [&](Enum value) { return to_string(value) == name.text(); });
      if (match == known.end()) {
        std::vector<std::string_view> names;
        for (const Enum value : known) {
          names.push_back(to_string(value));
        }
        name.fail_type("one of " + join(names));
      }
      legend.push_back(*match);
    }
    return legend;
  }

  JsonValue json_;
  std::vector<std::int64_t> begin_ns_;
};

/// All enumerators of an enumeration that counts from zero to `last`.
template <typename Enum, Enum last>
constexpr auto all_of() {
  std::array<Enum, static_cast<std::size_t>(last) + 1> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<Enum>(i);
  }
  return values;
}
constexpr auto kAllKinds = all_of<RecordKind, RecordKind::kAnnotation>();
constexpr auto kAllLanes = all_of<Lane, Lane::kHost>();
constexpr auto kAllCollectives = all_of<Collective, Collective::kSendRecv>();
constexpr auto kAllAlgorithms = all_of<Algorithm, kLastAlgorithm>();

std::vector<Record> read_records(const JsonValue& json, std::size_t names, std::size_t calls) {
  const Columns columns(json);
  std::vector<Record> records(columns.begin_ns().size());
  const std::vector<std::int64_t> end_ns = columns.get("end_ns", -kLatestNs, kLatestNs);
  const std::vector<std::int64_t> bytes =
      columns.get("bytes", 0, std::numeric_limits<std::int64_t>::max() >> 8U);
  for (std::size_t i = 0; i < records.size(); ++i) {
    records[i].begin_ns = columns.begin_ns()[i];
    records[i].end_ns = end_ns[i];
    records[i].bytes = bytes[i];
    if (end_ns[i] < records[i].begin_ns) {
      json.at("end_ns").elements()[i].fail_type("at least begin_ns, " +
                                                std::to_string(records[i].begin_ns));
    }
  }
  const std::vector<std::int64_t> name =
      columns.get("name", 0, static_cast<std::int64_t>(names) - 1);
  for (std::size_t i = 0; i < name.size(); ++i) {
    records[i].name = static_cast<std::uint32_t>(name[i]);
  }
  columns.read(records, "rank", 0, &Record::rank);
  columns.read(records, "step", -1, &Record::step);
  columns.read(records, "link", -1, &Record::link);
  columns.read(records, "bucket", -1, &Record::bucket);
  columns.read(records, "sequence", -1, &Record::sequence);
  if (json.find("device")) {  // only timelines of imported traces have them
    columns.read(records, "device", -1, &Record::device);
    columns.read(records, "stream", -1, &Record::stream);
    columns.read(records, "call", -1, &Record::call);
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (records[i].call != kNoId && records[i].call >= calls) {
        json.at("call").elements()[i].fail_type("less than the number of calls, " +
                                                std::to_string(calls));
      }
    }
  }
  columns.read<RecordKind>(records, "kind", kAllKinds, &Record::kind);
  columns.read<Lane>(records, "lane", kAllLanes, &Record::lane);
  columns.read<Collective>(records, "collective", kAllCollectives, &Record::collective);
  columns.read<Algorithm>(records, "algorithm", kAllAlgorithms, &Record::algorithm);
  return records;
}

ordered_json to_json(const CollectiveCall& call) {
  return {{"group", id_to_json(call.group)},
          {"members", id_to_json(call.members)},
          {"group_size", call.group_size},
          {"element_bytes", call.element_bytes},
          {"in_elements", call.in_elements},
          {"out_elements", call.out_elements},
          {"sequence", call.sequence},
          {"peer", call.peer}};
}

CollectiveCall read_call(const JsonValue& json, std::size_t names) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto name = [&](std::string_view key) {
    return id_from_json(json.at(key).integer(-1, static_cast<std::int64_t>(names) - 1));
  };
  CollectiveCall call;
  call.group = name("group");
  call.members = name("members");
  call.group_size = static_cast<std::uint32_t>(json.at("group_size").integer(0, kMostId));
  call.element_bytes = static_cast<std::uint32_t>(json.at("element_bytes").integer(0, kMostId));
  call.in_elements = json.at("in_elements").integer(-1, kMost);
  call.out_elements = json.at("out_elements").integer(-1, kMost);
  call.sequence = json.at("sequence").integer(-1, kMost);
  call.peer = static_cast<std::int32_t>(
      json.at("peer").integer(-1, std::numeric_limits<std::int32_t>::max()));
  return call;
}

/// Timelines of live runs have neither devices nor calls, and their files no columns for them.
bool is_imported(const Timeline& timeline) {
  return !timeline.calls.empty() ||
         std::any_of(timeline.records.begin(), timeline.records.end(), [](const Record& r) {
           return r.device != kNoId || r.stream != kNoId;
         });
}

}  // namespace

std::string_view to_string(RecordKind kind) noexcept {
  const auto index = static_cast<std::size_t>(kind);
  return index < kKinds.size() ? kKinds[index] : "unknown";
}

std::string_view to_string(Lane lane) noexcept {
  const auto index = static_cast<std::size_t>(lane);
  return index < kLanes.size() ? kLanes[index] : "unknown";
}

std::uint32_t Timeline::name_id(std::string_view name) {
  const auto known = std::find(names.begin(), names.end(), name);
  if (known == names.end()) {
    names.emplace_back(name);
    return static_cast<std::uint32_t>(names.size() - 1);
  }
  return static_cast<std::uint32_t>(known - names.begin());
}

void write_json(const Timeline& timeline, const TextSink& sink) {
  ordered_json clocks = ordered_json::array();
  for (const RankClock& clock : timeline.clocks) {
    clocks.push_back(ordered_json{
        {"rank", clock.rank}, {"offset_ns", clock.offset_ns}, {"residual_ns", clock.residual_ns}});
  }
  const bool imported = is_imported(timeline);
  ordered_json document{{"schema", "stretto.timeline/1"},
                        {"source", timeline.source},
                        {"origin_unix_ns", timeline.origin_unix_ns},
                        {"world_size", timeline.world_size},
                        {"steps_total", timeline.steps_total},
                        {"steps_recorded", timeline.steps_recorded},
                        {"clocks", std::move(clocks)},
                        {"names", timeline.names}};
  if (imported) {
    ordered_json calls = ordered_json::array();
    for (const CollectiveCall& call : timeline.calls) {
      calls.push_back(to_json(call));
    }
    document["calls"] = std::move(calls);
  }
  if (!timeline.setups.empty()) {
    ordered_json setups = ordered_json::array();
    for (const RankSetup& setup : timeline.setups) {
      ordered_json versions = ordered_json::array();
      for (const auto& [library, version] : setup.versions) {
        versions.push_back({{"library", library}, {"version", version}});
      }
      setups.push_back(
          {{"rank", setup.rank}, {"host", setup.host}, {"versions", std::move(versions)}});
    }
    document["setups"] = std::move(setups);
  }
  std::string head = detail::write_json(document);
  constexpr std::string_view kEnd = "\n}\n";
  head.resize(head.size() - kEnd.size());
  sink(head + ",\n \"records\": {");
  ColumnWriter columns(timeline.records, sink);
  columns.column("begin_ns", [](const Record& r) { return r.begin_ns; });
  columns.column("end_ns", [](const Record& r) { return r.end_ns; });
  columns.column("bytes", [](const Record& r) { return r.bytes; });
  columns.column("name", [](const Record& r) { return r.name; });
  columns.column("rank", [](const Record& r) { return r.rank; });
  columns.column("step", [](const Record& r) { return id_to_json(r.step); });
  columns.column("link", [](const Record& r) { return id_to_json(r.link); });
  columns.column("bucket", [](const Record& r) { return id_to_json(r.bucket); });
  columns.column("sequence", [](const Record& r) { return id_to_json(r.sequence); });
  if (imported) {
    columns.column("device", [](const Record& r) { return id_to_json(r.device); });
    columns.column("stream", [](const Record& r) { return id_to_json(r.stream); });
    columns.column("call", [](const Record& r) { return id_to_json(r.call); });
  }
  columns.enumeration("kind", &Record::kind);
  columns.enumeration("lane", &Record::lane);
  columns.enumeration("collective", &Record::collective);
  columns.enumeration("algorithm", &Record::algorithm);
  columns.flush();
  sink("\n }" + std::string(kEnd));
}

std::string to_json(const Timeline& timeline) {
  std::string text;
  write_json(timeline, [&](std::string_view piece) { text += piece; });
  return text;
}

Timeline timeline_from_json(std::string_view text, std::string_view where) {
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();
  const nlohmann::json document = detail::parse_json(text, where);
  const JsonValue root(document, where, "");
  root.check_schema("timeline");
  const auto small = [](const JsonValue& json) {
    return static_cast<std::uint32_t>(json.integer(0, kMostId));
  };
  Timeline timeline;
  timeline.source = root.at("source").text();
  timeline.origin_unix_ns = root.at("origin_unix_ns").integer(kLowest, kHighest);
  timeline.world_size = small(root.at("world_size"));
  timeline.steps_total = small(root.at("steps_total"));
  timeline.steps_recorded = small(root.at("steps_recorded"));
  for (const JsonValue& clock : root.at("clocks").elements()) {
    timeline.clocks.push_back({small(clock.at("rank")),
                               clock.at("offset_ns").integer(kLowest, kHighest),
                               clock.at("residual_ns").integer(kLowest, kHighest)});
  }
  if (const auto setups = root.find("setups")) {
    for (const JsonValue& json : setups->elements()) {
      RankSetup setup{small(json.at("rank")), json.at("host").text(), {}};
      for (const JsonValue& version : json.at("versions").elements()) {
        setup.versions.emplace_back(version.at("library").text(), version.at("version").text());
      }
      timeline.setups.push_back(std::move(setup));
    }
  }
  for (const JsonValue& name : root.at("names").elements()) {
    timeline.names.push_back(name.text());
  }
  if (const auto calls = root.find("calls")) {
    for (const JsonValue& call : calls->elements()) {
      timeline.calls.push_back(read_call(call, timeline.names.size()));
    }
  }
  timeline.records = read_records(root.at("records"), timeline.names.size(), timeline.calls.size());
  return timeline;
}

}  // namespace stretto
