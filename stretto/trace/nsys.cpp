// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/nsys.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stretto/base/text.hpp"
#include "stretto/trace/database.hpp"
#include "stretto/trace/nsys_nccl.hpp"

// Format facts: "SQLite Export Schema Reference" of Nsight Systems, 2019 to 2026. Tables exist only
// if they have rows, columns come and go, nothing has an index. Times are ns from the session's
// start. A global id is machine and process, and in its low 24 bits the thread.
namespace stretto::detail {
namespace {

constexpr std::string_view kKernels = "CUPTI_ACTIVITY_KIND_KERNEL";
constexpr std::string_view kCopies = "CUPTI_ACTIVITY_KIND_MEMCPY";
constexpr std::string_view kFills = "CUPTI_ACTIVITY_KIND_MEMSET";
constexpr std::string_view kCalls = "CUPTI_ACTIVITY_KIND_RUNTIME";
constexpr std::string_view kGraphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
constexpr std::string_view kRanges = "NVTX_EVENTS";
constexpr std::string_view kStrings = "StringIds";
constexpr std::string_view kSession = "TARGET_INFO_SESSION_START_TIME";

constexpr std::uint64_t kThreadBits = 0xffffff;
constexpr std::size_t kLongestName = 65536;

/// PyTorch's emit_nvtx names each operator `aten::add, op_id = 990346`: millions of names, each
/// its own. No step is called so.
bool is_operator(std::string_view name) {
  return name.find(", op_id = ") != std::string_view::npos ||
         name.find(", seq = ") != std::string_view::npos;
}

std::string_view name_of_copy(std::int64_t kind) {
  // cudaMemcpyKind as CUPTI numbers it.
  switch (kind) {
    case 1:
      return "Memcpy HtoD";
    case 2:
      return "Memcpy DtoH";
    case 8:
      return "Memcpy DtoD";
    case 10:
      return "Memcpy PtoP";
    default:
      return "Memcpy";
  }
}

class NsysReader {
 public:
  NsysReader(const Database& database, TraceBuilder& builder)
      : database_(database), builder_(builder), file_(builder.file()), nccl_(database) {}

  void read() {
    file_.bytes = database_.bytes();
    if (!is_export()) {
      std::vector<std::string_view> names;
      for (const auto& [name, columns] : database_.tables()) {
        names.push_back(name);
      }
      builder_.fail(
          {0,
           "a database that is no export of Nsight Systems: its tables are " + quote(join(names))});
      return;
    }
    read_session();
    read_strings();
    read_kernels();
    read_copies(kCopies);
    read_copies(kFills);
    number_ranks();
    number_links();
    read_calls();
    read_ranges();
    nccl_.attach(builder_, links_.size());
    file_.world_size = std::max(file_.world_size, nccl_.world_size());
    say_what_is_missing();
  }

 private:
  struct Process {
    std::uint64_t id = 0;  // machine and process
    std::uint64_t kernels = 0;
    std::uint64_t copies = 0;
    std::uint32_t rank = kNoId;
    [[nodiscard]] std::uint64_t number() const { return (id >> 24U) & kThreadBits; }
  };

  [[nodiscard]] bool is_export() const {
    return database_.has(kStrings) || database_.has(kKernels) || database_.has(kCalls) ||
           database_.has(kRanges) || database_.has("META_DATA_EXPORT") ||
           database_.has("EXPORT_META_DATA");
  }

  /// Calls `row` for each row of a table, if there is such a table.
  template <typename Row>
  void sweep(std::string_view table,
             std::initializer_list<std::string_view> columns,
             const Row& row) {
    if (!database_.has(table)) {
      return;
    }
    Query query = database_.select(table, columns);
    while (query.next()) {
      row(query);
      if (++swept_ % 65536 == 0 && builder_.options().on_progress) {
        // A guess: a row is some 60 bytes.
        const double bytes = static_cast<double>(database_.bytes()) + 1.0;
        builder_.options().on_progress(file_.path,
                                       std::min(1.0, static_cast<double>(swept_) * 60.0 / bytes));
      }
    }
    if (!query.fault().empty()) {
      builder_.fail({query.row(), std::string(table) + ": " + query.fault()});
    }
    if (fault_) {
      const TraceFault fault = *std::exchange(fault_, std::nullopt);
      builder_.fail({fault.offset, std::string(table) + ": " + fault.what});
    }
  }

  void read_session() {
    sweep(kSession, {"utcEpochNs"}, [&](const Query& row) {
      const std::int64_t base = row.integer(0).value_or(0);
      if (base > 0 && base < kLatestTraceNs) {
        file_.base_ns = base;
      }
    });
  }

  /// Into memory, for a look-up on disk per row takes longer than all else. Without the names of
  /// operators, which are most where they are.
  void read_strings() {
    sweep(kStrings, {"id", "value"}, [&](const Query& row) {
      const std::string_view text = row.text(1).substr(0, kLongestName);
      if (!is_operator(text)) {
        strings_.emplace(row.integer(0).value_or(0), text);
      }
    });
  }

  [[nodiscard]] const std::string* string(std::optional<std::int64_t> id) const {
    const auto found = id ? strings_.find(*id) : strings_.end();
    return found == strings_.end() ? nullptr : &found->second;
  }

  /// Index of a name that a table refers to by id.
  [[nodiscard]] std::uint32_t name_of(std::optional<std::int64_t> id, std::string_view otherwise) {
    if (id) {
      if (const auto known = names_.find(*id); known != names_.end()) {
        return known->second;
      }
    }
    const std::string* const text = string(id);
    const std::uint32_t name = builder_.name(text == nullptr ? otherwise : *text);
    if (id) {
      names_.emplace(*id, name);
    }
    return name;
  }

  /// False, and counted as lost, if a row has no times that can be.
  [[nodiscard]] bool read_times(const Query& row, Record& record) {
    const auto begin = row.integer(0);
    const auto end = row.integer(1);
    const auto possible = [](std::optional<std::int64_t> at) {
      return at && *at >= -kLatestTraceNs && *at <= kLatestTraceNs;
    };
    if (!possible(begin) || !possible(end) || *end - *begin > kLongestTraceNs) {
      ++file_.lost;
      if (!fault_) {
        fault_ = TraceFault{row.row(), "a row without a start and an end that can be"};
      }
      return false;
    }
    record.begin_ns = *begin;
    record.end_ns = *end;
    if (record.end_ns < record.begin_ns) {
      ++file_.negative;
      record.end_ns = record.begin_ns;
    }
    return true;
  }

  /// Index of the process that a global id names, new ones added.
  [[nodiscard]] std::uint32_t process_of(std::optional<std::int64_t> global_id) {
    const std::uint64_t id = global_id ? static_cast<std::uint64_t>(*global_id) & ~kThreadBits : 0;
    if (last_process_ < processes_.size() && processes_[last_process_].id == id) {
      return last_process_;
    }
    const auto [place, added] =
        process_at_.try_emplace(id, static_cast<std::uint32_t>(processes_.size()));
    if (added) {
      processes_.push_back({.id = id});
    }
    last_process_ = place->second;
    return last_process_;
  }

  [[nodiscard]] std::uint32_t lane_of(std::optional<std::int64_t> number) {
    return number ? builder_.lane_id(std::to_string(*number)) : kNoId;
  }

  /// What all device tables have in common. The link is the correlation id until all are known.
  [[nodiscard]] bool read_device_row(const Query& row, Record& record) {
    ++file_.events;
    if (!read_times(row, record)) {
      return false;
    }
    record.device = lane_of(row.integer(2));
    record.stream = lane_of(row.integer(3));
    const std::int64_t correlation = row.integer(4).value_or(-1);
    record.link = correlation < 0 || correlation >= std::int64_t{kNoId}
                      ? kNoId
                      : static_cast<std::uint32_t>(correlation);
    record.rank = process_of(row.integer(5));
    return true;
  }

  void read_kernels() {
    sweep(kKernels,
          {"start",
           "end",
           "deviceId",
           "streamId",
           "correlationId",
           "globalPid",
           "demangledName",
           "shortName"},
          [&](const Query& row) {
            Record record;
            if (read_device_row(row, record)) {
              auto name = row.integer(6);
              name = string(name) == nullptr ? row.integer(7) : name;
              unnamed_ += string(name) == nullptr ? 1U : 0U;
              record.name = name_of(name, "kernel without a name");
              ++processes_[record.rank].kernels;
              builder_.add_kernel(record, {});
            }
          });
  }

  void read_copies(std::string_view table) {
    sweep(
        table,
        {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind"},
        [&](const Query& row) {
          Record record;
          if (read_device_row(row, record)) {
            record.name = builder_.name(table == kFills ? "Memset"
                                                        : name_of_copy(row.integer(7).value_or(0)));
            record.bytes = std::max<std::int64_t>(0, row.integer(6).value_or(0));
            ++processes_[record.rank].copies;
            builder_.add_copy(record);
          }
        });
  }

  /// A rank is a process that has kernels, in order of process ids. Others may own copies (a loader
  /// of data), but train nothing; unless there are no kernels at all.
  void number_ranks() {
    const bool kernels = std::any_of(
        processes_.begin(), processes_.end(), [](const Process& p) { return p.kernels > 0; });
    std::vector<Process*> ranks;
    for (Process& process : processes_) {
      if (process.kernels > 0 || !kernels) {
        ranks.push_back(&process);
      } else {
        builder_.note("process " + std::to_string(process.number()) + " has no kernels: its " +
                      std::to_string(process.copies) + " copies count for no rank");
      }
    }
    std::sort(ranks.begin(), ranks.end(), [](const Process* a, const Process* b) {
      return std::pair(a->number(), a->id) < std::pair(b->number(), b->id);
    });
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      ranks[i]->rank = static_cast<std::uint32_t>(i);
    }
    std::vector<Record>& records = builder_.timeline().records;
    const auto begin = records.begin() + static_cast<std::ptrdiff_t>(builder_.first_record());
    for (auto record = begin; record != records.end(); ++record) {
      record->rank = processes_[record->rank].rank;
    }
    records.erase(
        std::remove_if(
            begin, records.end(), [](const Record& record) { return record.rank == kNoId; }),
        records.end());
    if (ranks.size() > 1) {
      file_.rank_count = static_cast<std::uint32_t>(ranks.size());
      builder_.note("holds " + std::to_string(ranks.size()) +
                    " processes, which are the ranks in order of their process ids");
    }
  }

  [[nodiscard]] static std::uint64_t key_of(std::uint32_t rank, std::uint32_t correlation) {
    return (std::uint64_t{rank} << 32U) | correlation;
  }

  /// Correlation ids are unique within a process only: links become indices into all pairs of rank
  /// and id that device rows have. Of the many more host calls only those with such a pair matter.
  void number_links() {
    std::vector<Record>& records = builder_.timeline().records;
    for (std::size_t i = builder_.first_record(); i < records.size(); ++i) {
      if (records[i].link != kNoId) {
        links_.push_back(key_of(records[i].rank, records[i].link));
      }
    }
    std::sort(links_.begin(), links_.end());
    links_.erase(std::unique(links_.begin(), links_.end()), links_.end());
    for (std::size_t i = builder_.first_record(); i < records.size(); ++i) {
      if (records[i].link != kNoId) {
        records[i].link = link_of(key_of(records[i].rank, records[i].link));
      }
    }
  }

  [[nodiscard]] std::uint32_t link_of(std::uint64_t key) const {
    const auto found = std::lower_bound(links_.begin(), links_.end(), key);
    return found == links_.end() || *found != key
               ? kNoId
               : static_cast<std::uint32_t>(found - links_.begin());
  }

  /// The rank of a host row; of all of them if the device rows name no process.
  [[nodiscard]] std::uint32_t rank_of(std::optional<std::int64_t> global_tid) {
    if (!database_.has(kKernels, "globalPid")) {
      global_tid = std::nullopt;
    }
    const std::uint64_t id =
        global_tid ? static_cast<std::uint64_t>(*global_tid) & ~kThreadBits : 0;
    const auto found = process_at_.find(id);
    return found == process_at_.end() ? kNoId : processes_[found->second].rank;
  }

  void read_calls() {
    sweep(kCalls, {"start", "end", "globalTid", "correlationId", "nameId"}, [&](const Query& row) {
      ++file_.events;
      const std::int64_t correlation = row.integer(3).value_or(-1);
      const auto global_tid = row.integer(2);
      Record record;
      record.rank = rank_of(global_tid);
      if (record.rank == kNoId || correlation < 0 || correlation >= std::int64_t{kNoId}) {
        return;
      }
      record.link = link_of(key_of(record.rank, static_cast<std::uint32_t>(correlation)));
      if (record.link == kNoId || !read_times(row, record)) {
        return;
      }
      record.name = name_of(row.integer(4), "call without a name");
      record.stream = thread_of(global_tid);
      builder_.add_enqueue(record);
    });
  }

  [[nodiscard]] static std::uint32_t thread_of(std::optional<std::int64_t> global_tid) {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(global_tid.value_or(0)) &
                                      kThreadBits);
  }

  void read_ranges() {
    // Push/pop and start/end ranges, and those of NVTX's older text functions.
    constexpr std::array<std::int64_t, 4> kRangeTypes = {59, 60, 70, 71};
    std::vector<Record> marks;
    sweep(kRanges,
          {"start", "end", "eventType", "globalTid", "text", "textId", "binaryData"},
          [&](const Query& row) {
            ++file_.events;
            const auto type = row.integer(2);
            if (!row.integer(1) ||
                (type &&
                 std::find(kRangeTypes.begin(), kRangeTypes.end(), *type) == kRangeTypes.end())) {
              return;  // an instant, a category, a domain, a range that never ended
            }
            const std::string* const known = string(row.integer(5));
            const std::string_view text =
                known != nullptr ? *known : row.text(4).substr(0, kLongestName);
            if (text.empty() || is_operator(text)) {
              return;
            }
            Record record;
            record.rank = rank_of(row.integer(3));
            if (record.rank == kNoId || !read_times(row, record)) {
              return;
            }
            record.stream = thread_of(row.integer(3));
            if (NcclRanges::is_nccl(text)) {
              nccl_.add(
                  record.rank, record.stream, {record.begin_ns, record.end_ns}, text, row.blob(6));
              return;
            }
            record.name = known != nullptr ? name_of(row.integer(5), {}) : builder_.name(text);
            marks.push_back(record);
          });
    add_marks(marks);
  }

  /// Only the main thread's, whose number is that of the process, if it has any: what a backward
  /// thread or a loader of data marks is no step.
  void add_marks(const std::vector<Record>& marks) {
    std::map<std::uint32_t, std::uint32_t> main_threads;  // by rank
    for (const Process& process : processes_) {
      if (process.rank != kNoId) {
        main_threads[process.rank] = static_cast<std::uint32_t>(process.number());
      }
    }
    std::map<std::uint32_t, bool> marked;
    for (const Record& mark : marks) {
      marked[mark.rank] = marked[mark.rank] || mark.stream == main_threads[mark.rank];
    }
    for (const Record& mark : marks) {
      if (!marked[mark.rank] || mark.stream == main_threads[mark.rank]) {
        builder_.add_annotation(mark);
      }
    }
  }

  void say_what_is_missing() {
    std::uint64_t graphs = 0;
    sweep(kGraphs, {"start"}, [&](const Query&) { ++graphs; });
    if (graphs > 0) {
      builder_.note(std::to_string(graphs) +
                    " launches of CUDA graphs were recorded whole: the kernels inside are not in "
                    "the file and count for nothing; record with --cuda-graph-trace=node");
    }
    if (!database_.has(kKernels)) {
      builder_.note("no kernels in it; record with --trace=cuda,nvtx");
    }
    if (unnamed_ > 0) {
      builder_.note(std::to_string(unnamed_) +
                    " kernels have no name: they count as compute, whatever they are");
    }
    if (file_.negative > 0) {
      builder_.note(std::to_string(file_.negative) +
                    " rows end before they begin; they count as 0");
    }
  }

  const Database& database_;
  TraceBuilder& builder_;
  TraceFile& file_;
  NcclRanges nccl_;
  std::unordered_map<std::int64_t, std::string> strings_;
  std::unordered_map<std::int64_t, std::uint32_t> names_;
  std::vector<Process> processes_;
  std::unordered_map<std::uint64_t, std::uint32_t> process_at_;
  std::uint32_t last_process_ = 0;
  std::vector<std::uint64_t> links_;
  std::optional<TraceFault> fault_;
  std::uint64_t swept_ = 0;
  std::uint64_t unnamed_ = 0;
};

}  // namespace

void read_nsys_file(const std::filesystem::path& path, TraceBuilder& builder) {
  builder.file().format = "nsys";
  try {
    const Database database(path);
    NsysReader(database, builder).read();
  } catch (const BrokenDatabase& error) {
    builder.fail({0, error.what()});
  }
}

void read_nsys(Input& input, TraceBuilder& builder) {
  std::string bytes = read_all(input);
  if (!input.fault().empty()) {
    builder.fail({bytes.size(), input.fault()});
  }
  builder.file().format = "nsys";
  try {
    const Database database{std::span<char>(bytes)};
    NsysReader(database, builder).read();
  } catch (const BrokenDatabase& error) {
    builder.fail({0, error.what()});
  }
}

}  // namespace stretto::detail
