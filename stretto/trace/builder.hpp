// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stretto/base/intervals.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/trace/trace.hpp"

/// What all readers need to make a Timeline. Private to trace/: not installed.
namespace stretto::detail {

/// A union of intervals that is built from many, in any order, in little memory: nested host
/// operators are thousands, their union is few.
class GrowingUnion {
 public:
  void add(Interval interval);
  [[nodiscard]] IntervalSet take();
  /// At most as many as take() would give.
  [[nodiscard]] std::size_t size() const noexcept { return pieces_.size(); }

 private:
  std::vector<Interval> pieces_;
  std::size_t compact_at_ = 4096;
};

struct TextHash {
  using is_transparent = void;
  [[nodiscard]] std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>()(text);
  }
};

/// Appends one file's records to a Timeline that may hold other files' already.
class TraceBuilder {
 public:
  TraceBuilder(Trace& trace, const TraceReadOptions& options, std::string path);

  [[nodiscard]] const TraceReadOptions& options() const noexcept { return options_; }
  [[nodiscard]] TraceFile& file() noexcept { return file_; }
  [[nodiscard]] Timeline& timeline() noexcept { return trace_.timeline; }
  /// Where this file's records begin.
  [[nodiscard]] std::size_t first_record() const noexcept { return first_record_; }
  /// How many there are, with those that finish() will add for the host's operators.
  [[nodiscard]] std::size_t records_to_be() const noexcept {
    return trace_.timeline.records.size() - first_record_ + host_compute_.size();
  }

  /// Index into names; the text is what stands in JSON, escapes and all.
  [[nodiscard]] std::uint32_t name_of_json(std::string_view raw);
  [[nodiscard]] std::uint32_t name(std::string_view text);

  /// Room for that many records in all, so that growing does not copy. Costs nothing until used.
  void expect(std::size_t records);

  /// A device kernel; `named_collective` is what the trace's metadata call it, else empty.
  void add_kernel(Record record, std::string_view named_collective);
  /// A copy or fill on a device.
  void add_copy(Record record);
  /// A host call that may have handed work to a device.
  void add_enqueue(Record record);
  /// The host's side of a collective.
  void add_host_communication(Record record);
  /// A named range of a host thread.
  void add_annotation(Record record);
  /// Host operators that compute: only their union is kept.
  void add_host_compute(Interval interval) { host_compute_.add(interval); }

  /// Index into calls; equal ones are not joined.
  [[nodiscard]] std::uint32_t add_call(const CollectiveCall& call);

  /// A device stream or host thread that the trace names by text or by 64 bits.
  [[nodiscard]] std::uint32_t lane_id(std::string_view text);

  /// Each text once: what is true of several ranks is one thing to know.
  void note(std::string text);
  /// @throws Error kParse unless salvaging.
  void fail(TraceFault fault);

  /// A record that already is as it shall be.
  void add(const Record& record) { trace_.timeline.records.push_back(record); }

  /// Ends the file: drops enqueues that lead nowhere, counts what is not linked, adds the file's
  /// rank to those of its records (a file with several numbers them from 0), marks the steps, and
  /// appends the file to the trace.
  void finish();
  /// The same for a file whose records already are whole.
  void finish_as_it_is();

 private:
  /// Where a kernel of that name is counted.
  [[nodiscard]] KernelName& kernel_of(std::uint32_t name, std::string_view named_collective);
  void link_devices();
  template <typename IsWithoutRows>
  void note_lost_kernels(IsWithoutRows is_without_rows);
  void set_rank();

  Trace& trace_;
  const TraceReadOptions& options_;
  TraceFile file_;
  std::size_t first_record_;
  std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>> names_;
  std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>> lanes_;
  std::unordered_map<std::uint32_t, std::size_t> kernels_;        // name -> file_.kernels
  std::unordered_map<std::uint32_t, std::size_t> named_kernels_;  // those with metadata only
  GrowingUnion host_compute_;
};

/// Reads events of Chrome's JSON: PyTorch's of all ages, Ascend's, Stretto's own.
class Input;
void read_chrome(Input& input, TraceBuilder& builder);
/// Reads a Stretto timeline: all its ranks.
void read_stretto(Input& input, TraceBuilder& builder);
/// Reads Horovod's timeline.
[[nodiscard]] bool is_horovod(std::string_view head);
void read_horovod(Input& input, TraceBuilder& builder);
/// Reads the JSON lines of NCCL's Inspector plugin.
[[nodiscard]] bool is_nccl_inspector(std::string_view head);
void read_nccl_inspector(Input& input, TraceBuilder& builder);
/// Says what else to do with a file of NCCL tests. @throws Error kParse, always.
void refuse_nccl_tests(Input& input, TraceBuilder& builder);

/// Makes a kStep record per step and rank out of what marks steps in this file's records, gives
/// device records their step, and derives what a live run records itself: per step the order of its
/// collectives, and kReady and kLaunched of each.
void mark_steps(TraceBuilder& builder);

/// `4458677009853.422` microseconds as integer nanoseconds, half to even. False if it is no number
/// or does not fit.
[[nodiscard]] bool parse_microseconds(std::string_view text, std::int64_t& ns) noexcept;
[[nodiscard]] bool parse_integer(std::string_view text, std::int64_t& value) noexcept;

/// Times must leave room for sums of a few.
inline constexpr std::int64_t kLatestTraceNs = std::int64_t{1} << 61;
/// 104 days: nothing on a device lasts longer, and the lengths of a thousand such still add up.
inline constexpr std::int64_t kLongestTraceNs = std::int64_t{1} << 53;

}  // namespace stretto::detail
