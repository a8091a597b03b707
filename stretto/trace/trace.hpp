// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/data/timeline.hpp"
#include "stretto/trace/classify.hpp"

namespace stretto {

/// Where the first thing that is not as it should be stands in a trace file.
struct TraceFault {
  std::uint64_t offset = 0;  ///< Byte in the (unpacked) text; row number in a database.
  std::string what;
};

/// How kernels of one name were counted: what `--classes` lists.
struct KernelName {
  std::uint32_t name = 0;  ///< Index into Timeline::names.
  KernelClass classified;
  std::uint64_t count = 0;
  std::int64_t total_ns = 0;
};

/// What one file gave, and what it did not.
struct TraceFile {
  std::string path;
  std::string format;  ///< `kineto`, `ascend`, `nsys`, `horovod`, `nccl-inspector`, `stretto`.
  std::uint32_t rank = 0;
  std::string rank_from;             ///< `metadata`, `file name`, `order`: why it has that rank.
  std::uint32_t rank_count = 1;      ///< How many it may hold, numbered on from `rank`.
  std::vector<std::uint32_t> ranks;  ///< All that it has records of.
  std::uint32_t world_size = 0;      ///< 0 if it does not say.
  std::string backend;               ///< As it says: `nccl`; empty if it does not.
  std::string host;                  ///< Where it ran; empty if it does not say.
  /// Of libraries and drivers, by name. Several of one name are joined.
  std::map<std::string, std::string> versions;
  std::uint64_t bytes = 0;          ///< Of text, unpacked.
  std::uint64_t events = 0;         ///< In the file, of every kind.
  std::uint64_t kept = 0;           ///< Of them, now records.
  std::uint64_t lost = 0;           ///< Of them, unreadable.
  std::uint64_t negative = 0;       ///< With a negative duration, taken as 0.
  std::optional<TraceFault> fault;  ///< The first one. Without `salvage` it would have thrown.
  std::string steps_from;           ///< What marks the steps; empty if nothing does.
  std::uint64_t unlinked = 0;       ///< Device rows whose launch is not in the file. They count.
  std::vector<std::string> notes;   ///< What a reader of the numbers should know, in words.
  std::vector<KernelName> kernels;
  std::int64_t base_ns = 0;  ///< Unix time that the file's times count from; 0 if it does not say.
  /// Ascend only: what the profiler itself computed (rows of its process "Overlap Analysis").
  struct Verdict {
    std::string name;
    std::int64_t total_ns = 0;
  };
  std::vector<Verdict> verdicts;
};

/// Trace files of one job as one Timeline.
struct Trace {
  Timeline timeline;
  std::vector<TraceFile> files;
  std::vector<std::string> notes;  ///< What concerns all of them: ranks that are missing.
  std::int64_t zero_ns = 0;        ///< The timeline's time 0 in the first file's own times.
};

struct TraceReadOptions {
  CommunicationRules rules{};
  /// Use what can be read of a broken file. Otherwise its first fault is thrown.
  bool salvage = false;
  /// Steps are annotations (or NVTX ranges) that match; empty: PyTorch's ProfilerStep, else
  /// `step`/`iteration` ranges, else the ends of optimizer steps.
  std::string step_expression{};
  /// Also the rows of devices whose collectives have rows on the host only (MTIA): HTA counts them.
  /// With them a rank would have a device that never communicates, and nothing exposed.
  bool rows_without_collectives = false;
  /// Called now and then: file, and the share of it that is read, 0 to 1.
  std::function<void(const std::string& path, double share)> on_progress{};
};

/// The formats that can be read, for messages and help.
[[nodiscard]] std::string trace_formats();

/// Files that hold traces in what a user named: files as they are; of a directory, what lies
/// directly in it and looks like a trace by its name. Sorted, numbers in names by value.
/// @throws Error kInvalidArgument for a name that does not exist or a directory without any.
[[nodiscard]] std::vector<std::filesystem::path> find_traces(const std::vector<std::string>& names);

/// Reads one file per rank (an Nsight export may hold several). What a file is, its content says.
/// Ranks come from the trace, else from `rank3` in the name, else from the order of the files.
/// Peak memory: 64 bytes per kept event and a few MiB, whatever the files' size; of an Nsight
/// export also its names, and all of it if it is packed.
/// @throws Error kParse naming file, byte and fault, if a file is broken and `salvage` is off, or
/// is
///         of no known format; kInvalidArgument if it cannot be opened or two files are of one
///         rank.
[[nodiscard]] Trace read_traces(const std::vector<std::filesystem::path>& files,
                                const TraceReadOptions& options = {});

/// One file's bytes in memory, in any format; for tests and fuzzers.
[[nodiscard]] Trace read_trace_text(std::string_view bytes,
                                    std::string_view name,
                                    const TraceReadOptions& options = {});

}  // namespace stretto
