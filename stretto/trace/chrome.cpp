// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/trace/ascend.hpp"
#include "stretto/trace/builder.hpp"
#include "stretto/trace/chrome_arguments.hpp"
#include "stretto/trace/event_pairs.hpp"
#include "stretto/trace/event_scanner.hpp"

// Format facts: PyTorch's kineto (output_json.cpp) and Chrome's "Trace Event Format". `ts` and
// `dur` are microseconds with up to three decimals, whatever displayTimeUnit says; device rows have
// the device as pid and the stream as tid, and say so again in args.
namespace stretto::detail {
namespace {

/// What the category of an event makes of it.
enum class Category : std::uint8_t {
  kOther,
  kNone,  // no category at all: Ascend's tasks
  kKernel,
  kCopy,
  kRuntime,
  kHostOperator,  // cpu_op
  kAnnotation,
  kDeviceAnnotation,
  kAccelerator,  // kernels and copies in one category: Meta's MTIA
};

bool equals_folded(std::string_view text, std::string_view lower) noexcept {
  return text.size() == lower.size() &&
         std::equal(text.begin(), text.end(), lower.begin(), [](unsigned char a, char b) {
           return std::tolower(a) == b;
         });
}

Category category_of(std::string_view cat) noexcept {
  struct Known {
    std::string_view name;
    Category category;
  };
  constexpr std::array kKnown = {
      Known{"cpu_op", Category::kHostOperator},
      Known{"kernel", Category::kKernel},
      Known{"cuda_runtime", Category::kRuntime},
      Known{"cuda_driver", Category::kRuntime},
      Known{"gpu_memcpy", Category::kCopy},
      Known{"gpu_memset", Category::kCopy},
      Known{"user_annotation", Category::kAnnotation},
      Known{"gpu_user_annotation", Category::kDeviceAnnotation},
      Known{"hip_runtime", Category::kRuntime},
      Known{"mtia_runtime", Category::kRuntime},
      Known{"mtia_ccp_events", Category::kAccelerator},
      Known{"xpu_runtime", Category::kRuntime},
      Known{"xpu_driver", Category::kRuntime},
      // <= 2021
      Known{"operator", Category::kAnnotation},
      Known{"runtime", Category::kRuntime},
      Known{"memcpy", Category::kCopy},
      Known{"memset", Category::kCopy},
  };
  if (cat.empty()) {
    return Category::kNone;
  }
  // As they are written today, before those that only differ in case.
  for (const Known& known : kKnown) {
    if (cat == known.name) {
      return known.category;
    }
  }
  for (const Known& known : kKnown) {
    if (equals_folded(cat, known.name)) {
      return known.category;
    }
  }
  return Category::kOther;
}

/// Host ranges that say where a step, an optimizer or a module begins and ends.
bool is_mark(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 7> kMarks = {"ProfilerStep",
                                                      "Optimizer.",
                                                      "DistributedDataParallel.",
                                                      "FSDP",
                                                      "FullyShardedDataParallel.",
                                                      // DDP's copies between gradients and buckets
                                                      "torch.distributed.ddp.reducer",
                                                      "torch::distributed::reducer"};
  return std::any_of(
      kMarks.begin(), kMarks.end(), [&](std::string_view mark) { return name.starts_with(mark); });
}

/// Host calls that hand no work to a device. They are half of all, and would be kept to the end of
/// the file, where it is known that nothing of the device came of them.
bool never_launches(std::string_view name) noexcept {
  for (const std::string_view vendor : {"cuda", "hip"}) {
    if (!name.starts_with(vendor)) {
      continue;
    }
    name.remove_prefix(vendor.size());
    constexpr std::array<std::string_view, 14> kCalls = {"StreamIsCapturing",
                                                         "StreamGet",
                                                         "StreamWaitEvent",
                                                         "StreamSynchronize",
                                                         "Event",
                                                         "Get",
                                                         "SetDevice",
                                                         "DeviceGet",
                                                         "DeviceSynchronize",
                                                         "Occupancy",
                                                         "FuncGet",
                                                         "PointerGet",
                                                         "Malloc",
                                                         "Free"};
    return std::any_of(kCalls.begin(), kCalls.end(), [&](std::string_view call) {
      return name.starts_with(call);
    });
  }
  return false;
}

/// A begin or an end, of a thread or with an id.
bool is_pair_phase(std::string_view ph) noexcept {
  return ph == "B" || ph == "E" || ph == "b" || ph == "e";
}

class ChromeReader {
 public:
  ChromeReader(Input& input, TraceBuilder& builder)
      : input_(input), scanner_(input), builder_(builder), file_(builder.file()) {}

  void read() {
    EventText event;
    EventText whole;
    std::uint64_t until_progress = 0;
    const bool salvage = builder_.options().salvage;
    while (scanner_.next(event, salvage)) {
      if (event.ph == "X") {
        add_slice(event);
      } else if (event.ph == "M") {
        add_name(event);
      } else if (is_pair_phase(event.ph) && pairs_.take(event, whole)) {
        add_slice(whole);
      }
      if (++until_progress % 65536 == 0) {
        make_room();
      }
    }
    file_.bytes = scanner_.offset();
    file_.events = scanner_.events();
    file_.lost += scanner_.lost();
    read_members();
    const auto& fault = scanner_.fault();
    if (fault_ && (!fault || fault_->offset <= fault->offset)) {
      builder_.fail(*fault_);
    }
    if (fault) {
      builder_.fail({fault->offset, fault->what});
    } else if (!scanner_.has_events()) {
      builder_.fail({0, "no traceEvents in it: not a trace"});
    }
    file_.format = "kineto";
    if (add_ascend_rows(builder_, ascend_)) {
      file_.format = "ascend";
    } else if (!ascend_.rows.empty()) {
      builder_.note(std::to_string(ascend_.rows.size()) +
                    " rows have no category and were not counted as compute or communication");
    }
    link_calls();
    size_gathers();
    add_ready_of_host();
    note_unread();
    if (file_.negative > 0) {
      builder_.note(std::to_string(file_.negative) +
                    " rows have a negative duration; they count as 0");
    }
  }

 private:
  void add_slice(const EventText& event) {
    const Category category = category_of(event.cat);
    switch (category) {
      case Category::kOther:
        // A collective's host row may have any category.
        if (CommunicationRules::is_host_communication(event.name)) {
          add_host(event, category);
        } else {
          count_unread(event.cat);
        }
        return;
      case Category::kDeviceAnnotation:
        return;
      case Category::kKernel:
      case Category::kCopy:
        add_device(event, category);
        return;
      case Category::kAccelerator:
        if (builder_.options().rows_without_collectives) {
          add_device(event, event.name == "dma_request" ? Category::kCopy : Category::kKernel);
        } else {
          ++accelerator_rows_;
        }
        return;
      case Category::kRuntime:
        add_runtime(event);
        return;
      case Category::kHostOperator:
      case Category::kAnnotation:
        add_host(event, category);
        return;
      case Category::kNone:
        if (CommunicationRules::is_host_communication(event.name)) {
          add_host(event, category);
        } else {
          add_uncategorised(event);
        }
        return;
    }
  }

  /// False, and counted as lost, if the times cannot be read.
  bool read_times(const EventText& event, Record& record) {
    std::int64_t begin = 0;
    std::int64_t length = 0;
    if (!parse_microseconds(event.ts, begin) ||
        (!event.dur.empty() && !parse_microseconds(event.dur, length)) ||
        length > kLongestTraceNs) {
      if (!fault_) {
        fault_ =
            TraceFault{scanner_.offset(),
                       "an event " + quote(unescape(event.name)) + " before here has the time " +
                           quote(event.ts) + " and duration " + quote(event.dur)};
      }
      ++file_.lost;
      return false;
    }
    if (length < 0) {
      ++file_.negative;
      length = 0;
    }
    record.begin_ns = begin;
    record.end_ns = std::min(begin + length, kLatestTraceNs);
    return true;
  }

  void add_device(const EventText& event, Category category) {
    Record record;
    if (!read_times(event, record)) {
      return;
    }
    Arguments arguments = read_arguments(event.args);
    record.name = builder_.name_of_json(event.name);
    record.device = builder_.lane_id(arguments.device.empty() ? event.pid : arguments.device);
    record.stream = builder_.lane_id(arguments.stream.empty() ? event.tid : arguments.stream);
    record.link = link_of(arguments.correlation);
    timeless_ += record.begin_ns == 0 && record.end_ns == 0 ? 1U : 0U;
    if (category == Category::kCopy) {
      record.bytes = std::max<std::int64_t>(0, to_count(arguments.bytes));
      builder_.add_copy(record);
      return;
    }
    if (!arguments.collective.empty()) {
      record.call = add_call(arguments);
      record.bytes = payload_bytes(builder_.timeline().calls[record.call]);
    }
    record.sequence = shape_of(arguments.grid);
    builder_.add_kernel(record, arguments.collective);
  }

  std::uint32_t add_call(Arguments& arguments) {
    CollectiveCall& call = arguments.call;
    call.element_bytes = element_bytes_of(arguments.dtype);
    if (!arguments.group.empty()) {
      call.group = builder_.name_of_json(arguments.group);
    }
    if (!arguments.members.empty()) {
      call.members = builder_.name_of_json(arguments.members);
    }
    const std::int64_t peer = to_count(arguments.peer);
    call.peer = peer < 0 || peer > std::numeric_limits<std::int32_t>::max()
                    ? -1
                    : static_cast<std::int32_t>(peer);
    return builder_.add_call(call);
  }

  void add_runtime(const EventText& event) {
    if (never_launches(event.name)) {
      return;
    }
    const Arguments arguments = read_arguments(event.args);
    Record record;
    record.link = link_of(arguments.correlation);
    if (record.link == kNoId || !read_times(event, record)) {
      return;
    }
    record.name = builder_.name_of_json(event.name);
    record.stream = builder_.lane_id(event.tid);
    builder_.add_enqueue(record);
  }

  void add_host(const EventText& event, Category category) {
    Record record;
    if (CommunicationRules::is_host_communication(event.name)) {
      if (read_times(event, record)) {
        record.name = builder_.name_of_json(event.name);
        record.stream = builder_.lane_id(event.tid);
        Arguments arguments = read_arguments(event.args);
        const Collective collective = collective_of_name(event.name);
        if ((is_sized_by_input(collective) || collective == Collective::kAllGather) &&
            set_size_from_shapes(arguments, arguments.call)) {
          record.call = builder_.add_call(arguments.call);
          // Of a gather, when it is known how many ranks take part.
          record.bytes = collective == Collective::kAllGather ? 0 : payload_bytes(arguments.call);
        }
        host_rows_.push_back({{record.begin_ns, record.end_ns},
                              record.stream,
                              record.call,
                              collective_of_name(event.name)});
        builder_.add_host_communication(record);
      }
      return;
    }
    if (category == Category::kHostOperator && event.name.starts_with("aten::")) {
      if (read_times(event, record)) {
        builder_.add_host_compute({record.begin_ns, record.end_ns});
      }
      return;
    }
    if (category == Category::kHostOperator && event.name.starts_with("c10d::")) {
      if (read_times(event, record)) {
        issued_.push_back({collective_of_name(event.name), record.begin_ns});
      }
      return;
    }
    if (category == Category::kHostOperator && event.name == "record_param_comms") {
      Arguments arguments = read_arguments(event.args);
      if (!arguments.collective.empty() && arguments.collective != "wait" &&
          read_times(event, record)) {
        host_calls_.push_back({{record.begin_ns, record.end_ns},
                               builder_.lane_id(event.tid),
                               add_call(arguments),
                               collective_of_name(arguments.collective)});
      }
      return;
    }
    const bool kept = is_mark(event.name) ||
                      (category == Category::kAnnotation && !equals_folded(event.cat, "operator"));
    if (kept && read_times(event, record)) {
      record.name = builder_.name_of_json(event.name);
      record.stream = builder_.lane_id(event.tid);
      builder_.add_annotation(record);
    }
  }

  void add_uncategorised(const EventText& event) {
    Record record;
    if (!read_times(event, record)) {
      return;
    }
    const Arguments arguments = read_arguments(event.args);
    ascend_.rows.push_back({record.begin_ns,
                            record.end_ns,
                            builder_.name_of_json(event.name),
                            ascend_.key_of(event.pid),
                            ascend_.key_of(event.tid),
                            ascend_.key_of(arguments.task_type)});
  }

  void add_name(const EventText& event) {
    const bool process = event.name == "process_name";
    if (!process && event.name != "thread_name") {
      return;
    }
    if (event.args.empty()) {
      return;
    }
    for_each_member(event.args, [&](std::string_view key, const ValueText& value) {
      if (key == "name") {
        ascend_.name_row(
            event.pid, process ? std::string_view() : event.tid, process, unescape(value.text));
      }
    });
  }

  /// Room for all records of the file, guessed from the part that is read, so that the growing
  /// vector is never copied. Memory that is not written to is not used.
  void make_room() {
    const std::uint64_t size = input_.size();
    const std::uint64_t taken = input_.taken();
    if (size != 0 && builder_.options().on_progress) {
      builder_.options().on_progress(file_.path,
                                     static_cast<double>(taken) / static_cast<double>(size));
    }
    std::vector<Record>& records = builder_.timeline().records;
    const std::size_t mine = builder_.records_to_be();
    if (builder_.first_record() + mine + mine / 4 < records.capacity()) {
      return;
    }
    // Of a pipe nobody knows how much is to come: 1 GiB, then eight times what there is.
    constexpr double kUnknown = std::size_t{1} << 24U;
    const double whole =
        size == 0 || taken == 0
            ? std::max(kUnknown, 8.0 * static_cast<double>(mine))
            : static_cast<double>(mine) * static_cast<double>(size) / static_cast<double>(taken);
    builder_.expect(builder_.first_record() + static_cast<std::size_t>(whole * 1.25) + 65536);
  }

  void read_members() {
    for (const EventScanner::Member& member : scanner_.members()) {
      if (member.key == "strettoPicture") {
        // Its rows have no devices, launches or sizes any more: what they gave would be wrong.
        throw Error(ErrorCode::kInvalidArgument,
                    {"a picture is no trace",
                     file_.path,
                     "a Chrome trace that stretto wrote, for Perfetto",
                     "what it was made of",
                     "Analyze the .timeline.json beside it, or the trace that was converted"});
      }
      if (member.kind != ValueKind::kContainer) {
        add_version(member.key, unescape(member.text()));
      }
      if (member.key == "host_name" && member.kind == ValueKind::kString) {
        file_.host = unescape(member.text());
      }
      if (member.key == "baseTimeNanoseconds") {
        std::int64_t base = 0;
        if (parse_integer(member.text(), base) && base >= 0 && base < kLatestTraceNs) {
          file_.base_ns = base;
        }
      } else if (member.key == "distributedInfo" && member.kind == ValueKind::kContainer &&
                 member.text().starts_with('{')) {
        for_each_member(member.text(), [&](std::string_view key, const ValueText& value) {
          if (key == "rank" && to_id(value.text) != kNoId) {
            file_.rank = to_id(value.text);
            file_.rank_from = "metadata";
          } else if (key == "world_size" && to_id(value.text) != kNoId) {
            file_.world_size = to_id(value.text);
          } else if (key == "backend") {
            file_.backend = unescape(value.text);
          } else if (key == "pg_count" && to_id(value.text) != kNoId) {
            process_groups_ = to_id(value.text);
          } else {
            add_version(key, unescape(value.text));
          }
        });
      }
    }
  }

  /// PyTorch writes the runtime's version, Kineto the runtime's own number under the same key.
  void add_version(std::string_view key, const std::string& version) {
    constexpr std::array<std::string_view, 6> kKeys = {"nccl_version",
                                                       "torch_version",
                                                       "cuda_runtime_version",
                                                       "cuda_driver_version",
                                                       "hip_runtime_version",
                                                       "hip_driver_version"};
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end() || version.empty() ||
        version == "N/A") {
      return;
    }
    std::string& known = file_.versions[std::string(key)];
    known += (known.empty() ? "" : " / ") + version;
  }

  /// Kernels without metadata get it from the host's record of the call that launched them, or from
  /// the row that the process group drew around it (`nccl:all_reduce`), all there was before 2.0.
  void link_calls() {
    if (host_calls_.empty() && host_rows_.empty()) {
      return;
    }
    sort_calls(host_calls_);
    sort_calls(host_rows_);
    std::vector<Record>& records = builder_.timeline().records;
    std::unordered_map<std::uint32_t, const HostCall*> by_link;
    for (std::size_t i = builder_.first_record(); i < records.size(); ++i) {
      if (records[i].kind == RecordKind::kEnqueue) {
        const HostCall* call = call_around(host_calls_, records[i].stream, records[i].begin_ns);
        if (call == nullptr) {
          call = call_around(host_rows_, records[i].stream, records[i].begin_ns);
        }
        if (call != nullptr) {
          by_link.emplace(records[i].link, call);
        }
      }
    }
    for (std::size_t i = builder_.first_record(); i < records.size(); ++i) {
      Record& record = records[i];
      // What a host row has of its own are shapes at most.
      if (record.kind != RecordKind::kCommunication ||
          (record.call != kNoId && record.lane != Lane::kHost)) {
        continue;
      }
      const HostCall* call = nullptr;
      if (record.lane == Lane::kHost) {
        call = call_around(host_calls_, record.stream, record.begin_ns);
      } else if (const auto found = by_link.find(record.link); found != by_link.end()) {
        call = found->second;
      }
      if (call == nullptr) {
        continue;
      }
      if (call->call != kNoId) {
        record.call = call->call;
        record.bytes = payload_bytes(builder_.timeline().calls[call->call]);
      }
      if (call->collective != Collective::kNone) {
        record.collective = call->collective;
      }
    }
  }

  /// Where collectives run on threads of the host (gloo), one begins when a thread is free, and was
  /// ready when the program called c10d. The threads take them in the order of the calls.
  void add_ready_of_host() {
    std::vector<Record>& records = builder_.timeline().records;
    const auto is_mine = [](const Record& record) {
      return record.kind == RecordKind::kCommunication && record.lane == Lane::kHost;
    };
    std::map<Collective, std::vector<std::size_t>> rows;
    for (std::size_t i = builder_.first_record(); i < records.size(); ++i) {
      if (records[i].lane != Lane::kHost) {
        return;  // a device's collectives are ready when its kernels are done
      }
      if (is_mine(records[i])) {
        rows[records[i].collective].push_back(i);
      }
    }
    std::map<Collective, std::vector<std::int64_t>> calls;
    for (const Issued& call : issued_) {
      calls[call.collective].push_back(call.at_ns);
    }
    name_scatters(rows[Collective::kAllReduce],
                  calls[Collective::kAllReduce],
                  rows[Collective::kReduceScatter],
                  calls[Collective::kReduceScatter]);
    std::uint32_t link = 0;
    for (auto& [collective, list] : rows) {
      std::vector<std::int64_t>& issued = calls[collective];
      std::sort(issued.begin(), issued.end());
      std::sort(list.begin(), list.end(), [&](std::size_t a, std::size_t b) {
        return records[a].begin_ns < records[b].begin_ns;
      });
      const bool belong =
          issued.size() == list.size() &&
          std::equal(list.begin(), list.end(), issued.begin(), [&](std::size_t i, auto at_ns) {
            return at_ns <= records[i].begin_ns;
          });
      for (std::size_t i = 0; belong && i < list.size(); ++i) {
        records[list[i]].link = link;
        Record ready;
        ready.kind = RecordKind::kReady;
        ready.lane = Lane::kHost;
        ready.name = records[list[i]].name;
        ready.link = link++;
        ready.begin_ns = issued[i];
        ready.end_ns = issued[i];
        builder_.add(ready);
      }
    }
  }

  /// Gloo has no reduce_scatter: PyTorch reduces all and keeps a part, and its row says all_reduce.
  /// Threads take calls in their order, so that the k-th row is the k-th of both kinds' calls.
  void name_scatters(std::vector<std::size_t>& reduces,
                     std::vector<std::int64_t>& reduce_calls,
                     std::vector<std::size_t>& scatters,
                     const std::vector<std::int64_t>& scatter_calls) {
    std::vector<Record>& records = builder_.timeline().records;
    if (!scatters.empty() || scatter_calls.empty() ||
        reduces.size() != reduce_calls.size() + scatter_calls.size()) {
      return;
    }
    std::vector<std::pair<std::int64_t, bool>> calls;  // whether it scatters
    calls.reserve(reduces.size());
    for (const std::int64_t at_ns : reduce_calls) {
      calls.emplace_back(at_ns, false);
    }
    for (const std::int64_t at_ns : scatter_calls) {
      calls.emplace_back(at_ns, true);
    }
    std::sort(calls.begin(), calls.end());
    std::sort(reduces.begin(), reduces.end(), [&](std::size_t a, std::size_t b) {
      return records[a].begin_ns < records[b].begin_ns;
    });
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].second) {
        records[reduces[i]].collective = Collective::kReduceScatter;
        scatters.push_back(reduces[i]);
      } else {
        left.push_back(reduces[i]);
      }
    }
    reduces = std::move(left);
    builder_.note(std::to_string(scatters.size()) +
                  " reduce_scatters ran as gloo's all_reduce, and count as reduce_scatters");
  }

  /// What a gather's row says is what goes in. Out of it comes that of all ranks, where the job has
  /// but one process group.
  void size_gathers() {
    Timeline& timeline = builder_.timeline();
    if (process_groups_ != 1 || file_.world_size == 0) {
      return;
    }
    for (std::size_t i = builder_.first_record(); i < timeline.records.size(); ++i) {
      Record& record = timeline.records[i];
      if (record.kind != RecordKind::kCommunication || record.lane != Lane::kHost ||
          record.collective != Collective::kAllGather || record.call == kNoId) {
        continue;
      }
      CollectiveCall& call = timeline.calls[record.call];
      constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() >> 32U;
      if (call.out_elements < 0 && call.in_elements >= 0 && call.in_elements < kMost) {
        call.out_elements = call.in_elements * std::int64_t{file_.world_size};
        record.bytes = payload_bytes(call);
      }
    }
  }

  struct Issued {
    Collective collective;
    std::int64_t at_ns;
  };

  struct HostCall {
    Interval when;
    std::uint32_t thread;
    std::uint32_t call;
    Collective collective;
  };

  static void sort_calls(std::vector<HostCall>& calls) {
    std::sort(calls.begin(), calls.end(), [](const HostCall& a, const HostCall& b) {
      return std::pair(a.thread, a.when.begin_ns) < std::pair(b.thread, b.when.begin_ns);
    });
  }

  [[nodiscard]] static const HostCall* call_around(const std::vector<HostCall>& calls,
                                                   std::uint32_t thread,
                                                   std::int64_t at_ns) {
    const auto after = std::upper_bound(
        calls.begin(),
        calls.end(),
        std::pair(thread, at_ns),
        [](const std::pair<std::uint32_t, std::int64_t>& place, const HostCall& call) {
          return place < std::pair(call.thread, call.when.begin_ns);
        });
    if (after == calls.begin()) {
      return nullptr;
    }
    const HostCall& call = *std::prev(after);
    return call.thread == thread && call.when.end_ns >= at_ns ? &call : nullptr;
  }

  /// A correlation id as a link. Those that do not fit get numbers of their own.
  [[nodiscard]] std::uint32_t link_of(std::string_view text) {
    constexpr std::int64_t kFirstOwn = 0x80000000;
    std::int64_t id = 0;
    if (text.empty()) {
      return kNoId;
    }
    if (!parse_integer(text, id) || id < 0) {
      ++bad_links_;
      return kNoId;
    }
    if (id < kFirstOwn) {
      return static_cast<std::uint32_t>(id);
    }
    return large_links_
        .try_emplace(
            id,
            static_cast<std::uint32_t>(kFirstOwn + static_cast<std::int64_t>(large_links_.size())))
        .first->second;
  }

  void count_unread(std::string_view category) {
    constexpr std::size_t kMostKinds = 64;
    const auto known = unread_.find(category);
    if (known != unread_.end()) {
      ++known->second;
    } else if (unread_.size() < kMostKinds) {
      unread_.emplace(category, 1);
    }
  }

  /// What was passed over and may matter to somebody.
  void note_unread() {
    constexpr std::uint64_t kFew = 100;  // every file has some rows about itself
    if (pairs_.unended() + pairs_.unbegun() > 0) {
      builder_.note("of the rows that come as a begin and an end (ph B and E, b and e), " +
                    std::to_string(pairs_.unended()) + " never end and " +
                    std::to_string(pairs_.unbegun()) + " never began: these are not counted");
    }
    if (timeless_ > 0) {
      builder_.note(std::to_string(timeless_) +
                    " device rows have neither time nor duration: the profiler lost them, and they "
                    "count as nothing");
    }
    if (accelerator_rows_ > 0) {
      builder_.note(
          std::to_string(accelerator_rows_) +
          " rows of MTIA's devices are not counted: its collectives have rows on the host "
          "only, so those are what is compared (--as hta counts them as HTA does)");
    }
    if (bad_links_ > 0) {
      builder_.note(std::to_string(bad_links_) +
                    " rows have a correlation that is no number: they are linked to no launch");
    }
    const std::vector<Record>& records = builder_.timeline().records;
    const bool device =
        std::any_of(records.begin() + static_cast<std::ptrdiff_t>(builder_.first_record()),
                    records.end(),
                    [](const Record& record) { return record.lane != Lane::kHost; });
    const auto most =
        std::max_element(unread_.begin(), unread_.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        });
    if (!device && most != unread_.end() && most->second >= kFew) {
      builder_.note(
          "no row of a device is read; of the categories that are not, the most rows have " +
          quote(most->first) + ": " + std::to_string(most->second));
    }
  }

  Input& input_;
  EventScanner scanner_;
  TraceBuilder& builder_;
  TraceFile& file_;
  std::optional<TraceFault> fault_;
  AscendRows ascend_;
  std::vector<HostCall> host_calls_;  // record_param_comms
  std::vector<HostCall> host_rows_;   // nccl:all_reduce and the like
  std::vector<Issued> issued_;
  std::unordered_map<std::int64_t, std::uint32_t> large_links_;
  std::map<std::string, std::uint64_t, std::less<>> unread_;  // rows by category
  EventPairs pairs_;
  std::uint32_t process_groups_ = 0;  // 0 if the file does not say
  std::uint64_t timeless_ = 0;
  std::uint64_t bad_links_ = 0;
  std::uint64_t accelerator_rows_ = 0;
};

}  // namespace

void read_chrome(Input& input, TraceBuilder& builder) {
  ChromeReader(input, builder).read();
}

}  // namespace stretto::detail
