// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"

namespace stretto {

enum class RecordKind : std::uint8_t {
  kStep,       ///< One whole training step; every other record of the step lies inside it, but for
               ///< exchanges that reach into the next (Schedule::kPriority).
  kForward,    ///< Compute.
  kBackward,   ///< Compute.
  kOptimizer,  ///< Compute.
  kCompute,    ///< Compute of no more specific kind.
  kReady,      ///< Instant: a gradient was written.
  kLaunched,   ///< Instant: a bucket's last gradient was ready and its exchange was handed over.
  kCommunication,  ///< A collective, from its first byte offered to its result usable.
  kWait,           ///< The step's thread did nothing but wait for communication.
  // From here on: what only imported traces have.
  kCopy,        ///< A copy or fill on a device; neither compute nor communication.
  kEnqueue,     ///< A host call that handed work to a device; `link` leads to that work.
  kAnnotation,  ///< A named range of the program: a step mark, an optimizer, a module.
};
[[nodiscard]] std::string_view to_string(RecordKind kind) noexcept;
[[nodiscard]] constexpr bool is_compute(RecordKind kind) noexcept {
  return kind == RecordKind::kForward || kind == RecordKind::kBackward ||
         kind == RecordKind::kOptimizer || kind == RecordKind::kCompute;
}

/// Which row of a rank a record is drawn in. Records of kCommunication may overlap each other.
/// kHost holds what host threads did in an imported trace: of a rank that has device records too,
/// no compute and no communication is counted there.
enum class Lane : std::uint8_t { kStep, kCompute, kCommunication, kHost };
[[nodiscard]] std::string_view to_string(Lane lane) noexcept;

inline constexpr std::uint32_t kNoId = 0xffffffffU;

/// Name of the one step of a recording in which nothing marks steps.
inline constexpr std::string_view kWholeRecording = "whole recording";

/// One thing that happened, or is predicted to. Plain 64 bytes, so that recording is one store
/// and millions fit in memory.
struct Record {
  std::int64_t begin_ns = 0;   ///< From Timeline::origin.
  std::int64_t end_ns = 0;     ///< == begin_ns for an instant.
  std::int64_t bytes = 0;      ///< Payload of one rank; 0 where it has no meaning.
  std::uint32_t name = 0;      ///< Index into Timeline::names.
  std::uint32_t link = kNoId;  ///< Records of one rank that share it belong together: the kReady of
                               ///< a bucket's tensors, its kLaunched and its kCommunication.
  std::uint32_t rank = 0;
  std::uint32_t step = 0;          ///< kNoId in an imported trace: in no step that is marked.
  std::uint32_t bucket = kNoId;    ///< Index into the plan's buckets.
  std::uint32_t sequence = kNoId;  ///< Order of launch within the step, from 0; of a device's
                                   ///< compute: its launch shape, equal for kernels of one name
                                   ///< that do equal work.
  RecordKind kind = RecordKind::kCompute;
  Lane lane = Lane::kCompute;
  Collective collective = Collective::kNone;
  Algorithm algorithm = Algorithm::kAuto;
  std::uint32_t device = kNoId;  ///< Of an imported trace: the device's number in it,
  std::uint32_t stream = kNoId;  ///< the stream (on kHost: the thread),
  std::uint32_t call = kNoId;    ///< and, of a collective, the index into Timeline::calls.
};
static_assert(sizeof(Record) == 64);

/// What a trace says of one collective beside its times. Counts are elements of one rank as the
/// operation sees them: all_gather has out = ranks x in.
struct CollectiveCall {
  std::uint32_t group = kNoId;      ///< Name of the process group, index into Timeline::names.
  std::uint32_t members = kNoId;    ///< Its ranks as the trace writes them, index into names.
  std::uint32_t group_size = 0;     ///< 0 if unknown.
  std::uint32_t element_bytes = 0;  ///< 0 if unknown.
  std::int64_t in_elements = -1;    ///< -1 if unknown, and so for the others.
  std::int64_t out_elements = -1;
  std::int64_t sequence = -1;  ///< Number of the call within its group, the same on every rank.
  std::int32_t peer = -1;      ///< Of send and recv: the other rank.
  friend bool operator==(const CollectiveCall&, const CollectiveCall&) = default;
};

/// What is known of one rank's clock.
struct RankClock {
  std::uint32_t rank = 0;
  std::int64_t offset_ns = 0;    ///< Already added to the rank's records.
  std::int64_t residual_ns = 0;  ///< How wrong it may still be. 0 on one host: one clock.
};

/// Where and with what a rank ran, as far as its trace says.
struct RankSetup {
  std::uint32_t rank = 0;
  std::string host;  ///< Empty if unknown.
  /// Of libraries and drivers, `nccl_version` and the like, by name.
  std::vector<std::pair<std::string, std::string>> versions;
};

/// What happened during one or more steps on one or more ranks. Live run, imported trace and
/// simulation give the same type.
struct Timeline {
  std::string source;                ///< `run`, `simulate`, or the format it was read from.
  std::int64_t origin_unix_ns = 0;   ///< Time 0 of the records as Unix time; 0 if unknown.
  std::uint32_t world_size = 0;      ///< Ranks of the job; records may cover fewer.
  std::uint32_t steps_total = 0;     ///< Steps that ran;
  std::uint32_t steps_recorded = 0;  ///< and how many of them, the last ones, are here.
  std::vector<RankClock> clocks;
  std::vector<RankSetup> setups;
  std::vector<std::string> names;
  std::vector<CollectiveCall> calls;
  std::vector<Record> records;

  /// Index of `name` in names, added if new.
  std::uint32_t name_id(std::string_view name);
};

/// Schema `stretto.timeline/1`: one array per field ("columns"), which is compact and quick to read
/// from any language.
[[nodiscard]] std::string to_json(const Timeline& timeline);
/// `where` names the source in errors.
/// @throws Error kParse with the byte offset.
[[nodiscard]] Timeline timeline_from_json(std::string_view text, std::string_view where);

}  // namespace stretto
