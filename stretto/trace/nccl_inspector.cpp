// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/base/text.hpp"
#include "stretto/trace/builder.hpp"
#include "stretto/trace/object_stream.hpp"

// Format facts: ext-profiler/inspector of NVIDIA/nccl, output versions v4.0 (commit 1e0c869c, 2025)
// to v4.3 (2026). One object per collective:
//
//   {"header": {"id", "rank", "n_ranks", "nnodes"}, "metadata": {"dump_timestamp_us", ...},
//    "coll_perf": {"coll", "coll_sn", "coll_msg_size_bytes", "coll_exec_time_us",
//                  "coll_timing_source", "coll_algobw_gbs", "coll_busbw_gbs",
//                  with NCCL_INSPECTOR_DUMP_VERBOSE "event_trace_ts": {"kernel_events": [...]}}}
//
// p2p_perf is the same with p2p_ for coll_, and p2p_peer. From v4.3 on header and metadata stand
// once, with "dump_stats", before the operations that were written together.
namespace stretto::detail {
namespace {

constexpr std::int64_t kUnknown = -1;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 42;
constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

/// Zero or more, else unknown.
std::int64_t count_of(std::string_view text) {
  std::int64_t value = 0;
  return parse_integer(text, value) && value >= 0 ? value : kUnknown;
}

std::int64_t time_of(std::string_view text) {
  std::int64_t ns = 0;
  return parse_microseconds(text, ns) && ns >= 0 ? ns : kUnknown;
}

struct Operation {
  std::size_t communicator = 0;
  std::uint32_t rank = 0;  // in it
  std::uint32_t name = 0;
  bool pair = false;                  // send or receive
  bool host_clock = false;            // measured by the host
  std::int64_t length_ns = kUnknown;  // of execution
  std::int64_t begin_ns = kUnknown;
  std::int64_t written_ns = kUnknown;
  std::int64_t bytes = kUnknown;
  std::int64_t sequence = kUnknown;
  std::int64_t peer = kUnknown;
};

struct Communicator {
  std::string id;
  std::int64_t ranks = 0;
};

class InspectorReader {
 public:
  InspectorReader(Input& input, TraceBuilder& builder)
      : stream_(input), builder_(builder), file_(builder.file()) {}

  void read() {
    std::string_view object;
    while (stream_.next(object, builder_.options().salvage)) {
      read_object(object);
    }
    file_.bytes = stream_.offset();
    file_.events = stream_.objects();
    file_.lost += stream_.lost();
    if (stream_.fault()) {
      builder_.fail({stream_.fault()->offset, stream_.fault()->what});
    }
    place();
    find_ranks();
    add_records();
    say_what_is_known();
  }

 private:
  void read_object(std::string_view object) {
    std::string_view operation;
    bool pair = false;
    for_each_member(object, [&](std::string_view key, const ValueText& value) {
      if (value.kind != ValueKind::kContainer || !value.text.starts_with('{')) {
        return;
      }
      if (key == "header") {
        read_header(value.text);
      } else if (key == "metadata") {
        for_each_member(value.text, [&](std::string_view name, const ValueText& member) {
          if (name == "dump_timestamp_us") {
            written_ns_ = time_of(member.text);
          }
        });
      } else if (key == "dump_stats") {
        for_each_member(value.text, [&](std::string_view name, const ValueText& member) {
          if (name == "coll_dropped_since_last_dump" || name == "p2p_dropped_since_last_dump") {
            constexpr std::int64_t kMost = std::int64_t{1} << 40;
            dropped_ += std::clamp<std::int64_t>(count_of(member.text), 0, kMost);
          }
        });
      } else if (key == "coll_perf" || key == "p2p_perf") {
        operation = value.text;
        pair = key == "p2p_perf";
      }
    });
    if (!operation.empty()) {
      read_operation(operation, pair);
    }
  }

  void read_header(std::string_view header) {
    std::string id;
    std::int64_t ranks = 0;
    rank_ = 0;
    for_each_member(header, [&](std::string_view key, const ValueText& value) {
      if (key == "id") {
        id = unescape(value.text);
      } else if (key == "rank") {
        rank_ = static_cast<std::uint32_t>(
            std::clamp<std::int64_t>(count_of(value.text), 0, kMostRanks));
      } else if (key == "n_ranks") {
        ranks = std::clamp<std::int64_t>(count_of(value.text), 0, kMostRanks);
      }
    });
    const auto [place, added] = known_.try_emplace(id, communicators_.size());
    if (added) {
      communicators_.push_back({id, ranks});
    }
    communicator_ = place->second;
    communicators_[communicator_].ranks = std::max(communicators_[communicator_].ranks, ranks);
  }

  void read_operation(std::string_view object, bool pair) {
    if (communicators_.empty()) {
      read_header("{}");
    }
    Operation operation;
    operation.communicator = communicator_;
    operation.rank = rank_;
    operation.written_ns = written_ns_;
    operation.pair = pair;
    operation.name = builder_.name("collective");
    for_each_member(object, [&](std::string_view key, const ValueText& value) {
      if (key == (pair ? "p2p" : "coll")) {
        operation.name = builder_.name_of_json(value.text);
        return;
      }
      if (key == "event_trace_ts" && value.text.starts_with('{')) {
        operation.begin_ns = first_kernel(value.text);
        return;
      }
      const std::string_view prefix = pair ? "p2p_" : "coll_";
      if (!key.starts_with(prefix)) {
        return;
      }
      key.remove_prefix(prefix.size());
      if (key == "sn") {
        operation.sequence = count_of(value.text);
      } else if (key == "msg_size_bytes") {
        operation.bytes = count_of(value.text);
      } else if (key == "exec_time_us") {
        operation.length_ns = time_of(value.text);
      } else if (key == "timing_source") {
        operation.host_clock = value.text != "kernel_gpu";
      } else if (key == "peer") {
        operation.peer = count_of(value.text);
      }
    });
    if (operation.length_ns == kUnknown || operation.length_ns > kLongestTraceNs ||
        (operation.begin_ns == kUnknown && operation.written_ns == kUnknown)) {
      ++file_.lost;
      builder_.fail({stream_.offset(),
                     "an object before here has no execution time, or neither start nor "
                     "dump_timestamp_us"});
      return;
    }
    operations_.push_back(operation);
  }

  /// The earliest start of its kernel on any channel, as the host saw it.
  [[nodiscard]] static std::int64_t first_kernel(std::string_view trace) {
    std::int64_t first = kUnknown;
    for_each_member(trace, [&](std::string_view key, const ValueText& value) {
      if (key != "kernel_events" || !value.text.starts_with('[')) {
        return;
      }
      const char* at = value.text.data() + 1;
      const char* const end = value.text.data() + value.text.size();
      for (;;) {
        ValueText channel;
        bool none = false;
        if (read_element(at, end, channel, none) != Scan::kOk || none) {
          return;
        }
        if (!channel.text.starts_with('{')) {
          continue;
        }
        for_each_member(channel.text, [&](std::string_view name, const ValueText& member) {
          const std::int64_t start = name == "kernel_start_ts" ? time_of(member.text) : kUnknown;
          if (start > 0 && (first == kUnknown || start < first)) {
            first = start;
          }
        });
      }
    });
    return first;
  }

  /// Of operations without a start only the time is known at which they were written, often many
  /// at once. They are put one after the other, the last one ending then: never later than they
  /// were, and never over each other, for which there would be no more reason.
  void place() {
    std::size_t last = operations_.size();
    std::int64_t before_ns = kUnknown;
    for (std::size_t i = operations_.size(); i-- > 0;) {
      Operation& operation = operations_[i];
      if (operation.begin_ns != kUnknown) {
        continue;
      }
      ++unplaced_;
      const bool together = last < operations_.size() &&
                            operations_[last].communicator == operation.communicator &&
                            operations_[last].rank == operation.rank &&
                            operations_[last].written_ns == operation.written_ns;
      const std::int64_t end_ns = together ? before_ns : operation.written_ns;
      operation.begin_ns = end_ns - std::min(operation.length_ns, end_ns);
      before_ns = operation.begin_ns;
      last = i;
    }
  }

  /// The rank is that in the largest communicator. A process with several devices has several.
  void find_ranks() {
    std::size_t world = 0;
    for (std::size_t i = 0; i < communicators_.size(); ++i) {
      world = communicators_[i].ranks > communicators_[world].ranks ? i : world;
    }
    std::set<std::uint32_t> ranks;
    for (const Operation& operation : operations_) {
      if (operation.communicator == world) {
        ranks.insert(operation.rank);
      }
    }
    if (ranks.empty()) {
      return;
    }
    file_.rank_from = "metadata";
    file_.world_size = static_cast<std::uint32_t>(communicators_[world].ranks);
    several_ = ranks.size() > 1;
    file_.rank = several_ ? 0 : *ranks.begin();
    file_.rank_count = several_ ? *ranks.rbegin() + 1 : 1;
    if (several_ && communicators_.size() > 1) {
      builder_.note(
          "one process with several ranks and several communicators: operations of the smaller "
          "ones count for the rank of the same number");
    }
  }

  void add_records() {
    for (const Operation& operation : operations_) {
      const Communicator& communicator = communicators_[operation.communicator];
      Record record;
      record.begin_ns = operation.begin_ns;
      record.end_ns = std::min(operation.begin_ns + operation.length_ns, kLatestTraceNs);
      record.name = operation.name;
      record.rank = several_ ? operation.rank : 0;
      record.stream = builder_.lane_id(communicator.id);
      const std::string name = builder_.timeline().names[operation.name];
      const Collective collective = collective_of_name(name);
      CollectiveCall call;
      call.group = builder_.name(communicator.id);
      call.group_size = static_cast<std::uint32_t>(communicator.ranks);
      call.sequence = operation.sequence;
      call.peer = operation.peer > std::numeric_limits<std::int32_t>::max()
                      ? -1
                      : static_cast<std::int32_t>(operation.peer);
      if (operation.bytes >= 0 && operation.bytes <= kMostBytes) {
        // Of these two Inspector counts one rank's part, as its own bandwidths show.
        const bool part =
            collective == Collective::kAllGather || collective == Collective::kReduceScatter;
        record.bytes = operation.bytes * (part ? std::max<std::int64_t>(1, communicator.ranks) : 1);
        call.element_bytes = 1;
        call.in_elements = collective == Collective::kAllGather ? operation.bytes : record.bytes;
        call.out_elements =
            collective == Collective::kReduceScatter ? operation.bytes : record.bytes;
      }
      record.call = builder_.add_call(call);
      builder_.add_kernel(record, name.empty() ? "collective" : name);
    }
    if (!operations_.empty()) {
      file_.backend = "nccl";
    }
  }

  void say_what_is_known() {
    builder_.note(
        "NCCL Inspector records no compute: what of the communication is exposed cannot be told "
        "from it alone; durations, bytes and bandwidths can");
    if (unplaced_ > 0) {
      builder_.note(std::to_string(unplaced_) + " of " + std::to_string(operations_.size()) +
                    " operations have no start time: they are shown ending when they were "
                    "written; record with NCCL_INSPECTOR_DUMP_VERBOSE=1");
    }
    const auto host = std::count_if(
        operations_.begin(), operations_.end(), [](const auto& o) { return o.host_clock; });
    if (host > 0) {
      builder_.note(std::to_string(host) + " operations were timed by the host, not by the device");
    }
    if (const std::uint64_t gaps = missing(); gaps > 0 || dropped_ > 0) {
      builder_.note(std::to_string(std::max(gaps, static_cast<std::uint64_t>(dropped_))) +
                    " operations that NCCL ran were not recorded, as their numbers tell; small "
                    "messages are not, and some are lost between dumps");
    }
  }

  /// Numbers within a communicator that no operation has.
  [[nodiscard]] std::uint64_t missing() const {
    struct Numbers {
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      std::int64_t most = 0;
      std::uint64_t count = 0;
    };
    std::map<std::pair<std::pair<std::size_t, std::uint32_t>, bool>, Numbers> seen;
    for (const Operation& operation : operations_) {
      if (operation.sequence >= 0) {
        Numbers& numbers = seen[{{operation.communicator, operation.rank}, operation.pair}];
        numbers.least = std::min(numbers.least, operation.sequence);
        numbers.most = std::max(numbers.most, operation.sequence);
        ++numbers.count;
      }
    }
    std::uint64_t gaps = 0;
    for (const auto& [key, numbers] : seen) {
      const std::uint64_t span = static_cast<std::uint64_t>(numbers.most - numbers.least) + 1;
      gaps += span > numbers.count ? span - numbers.count : 0;
    }
    return gaps;
  }

  ObjectStream stream_;
  TraceBuilder& builder_;
  TraceFile& file_;
  std::vector<Communicator> communicators_;
  std::map<std::string, std::size_t> known_;
  std::size_t communicator_ = 0;  // of the last header
  std::uint32_t rank_ = 0;
  std::int64_t written_ns_ = kUnknown;
  std::vector<Operation> operations_;
  std::uint64_t unplaced_ = 0;
  std::int64_t dropped_ = 0;
  bool several_ = false;
};

}  // namespace

bool is_nccl_inspector(std::string_view head) {
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && head[first] == '{' &&
         (head.find("\"coll_perf\"") != std::string_view::npos ||
          head.find("\"p2p_perf\"") != std::string_view::npos ||
          head.find("\"inspector_output_format_version\"") != std::string_view::npos);
}

void read_nccl_inspector(Input& input, TraceBuilder& builder) {
  InspectorReader(input, builder).read();
}

}  // namespace stretto::detail
