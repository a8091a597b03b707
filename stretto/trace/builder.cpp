// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/builder.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#include "stretto/base/error.hpp"
#include "stretto/base/saturate.hpp"
#include "stretto/trace/event_scanner.hpp"

namespace stretto::detail {
namespace {

// Numbers of devices, streams and threads that are no small numbers get one from here on.
constexpr std::uint32_t kFirstNamedLane = 0x80000000U;

}  // namespace

void GrowingUnion::add(Interval interval) {
  if (interval.end_ns <= interval.begin_ns) {
    return;
  }
  if (!pieces_.empty() && interval.begin_ns >= pieces_.back().begin_ns &&
      interval.begin_ns <= pieces_.back().end_ns) {
    pieces_.back().end_ns = std::max(pieces_.back().end_ns, interval.end_ns);
    return;
  }
  if (pieces_.size() == compact_at_) {
    const IntervalSet merged(std::move(pieces_));
    pieces_.assign(merged.intervals().begin(), merged.intervals().end());
    compact_at_ = std::max(compact_at_, 2 * pieces_.size());
  }
  pieces_.push_back(interval);
}

IntervalSet GrowingUnion::take() {
  return IntervalSet(std::move(pieces_));
}

TraceBuilder::TraceBuilder(Trace& trace, const TraceReadOptions& options, std::string path)
    : trace_(trace), options_(options), first_record_(trace.timeline.records.size()) {
  file_.path = std::move(path);
  const std::vector<std::string>& known = trace.timeline.names;
  for (std::size_t i = 0; i < known.size(); ++i) {
    names_.emplace(known[i], static_cast<std::uint32_t>(i));
  }
}

std::uint32_t TraceBuilder::name(std::string_view text) {
  if (const auto known = names_.find(text); known != names_.end()) {
    return known->second;
  }
  const auto id = static_cast<std::uint32_t>(timeline().names.size());
  timeline().names.emplace_back(text);
  names_.emplace(text, id);
  return id;
}

std::uint32_t TraceBuilder::name_of_json(std::string_view raw) {
  if (raw.find('\\') == std::string_view::npos) {
    return name(raw);
  }
  return name(unescape(raw));
}

void TraceBuilder::expect(std::size_t records) {
  if (records <= timeline().records.capacity()) {
    return;
  }
  try {
    timeline().records.reserve(records);
  } catch (const std::bad_alloc&) {
    // A guess that was too high, by a file whose events all stand at its begin. It grows as it
    // needs.
  } catch (const std::length_error&) {
  }
}

KernelName& TraceBuilder::kernel_of(std::uint32_t name, std::string_view named_collective) {
  const auto [place, added] = kernels_.try_emplace(name, file_.kernels.size());
  if (added) {
    file_.kernels.push_back({name, options_.rules.classify(timeline().names[name]), 0, 0});
  }
  if (named_collective.empty() || file_.kernels[place->second].classified.communication) {
    return file_.kernels[place->second];
  }
  // Metadata speak for their row only: a kernel that scales a bucket has the same name as others
  // that have nothing to do with communication.
  const auto [own, first] = named_kernels_.try_emplace(name, file_.kernels.size());
  if (first) {
    file_.kernels.push_back(
        {name,
         {true, "by the trace's metadata", std::string(named_collective), Collective::kNone},
         0,
         0});
  }
  return file_.kernels[own->second];
}

void TraceBuilder::add_kernel(Record record, std::string_view named_collective) {
  KernelName& kernel = kernel_of(record.name, named_collective);
  ++kernel.count;
  kernel.total_ns = add_saturating(kernel.total_ns, record.end_ns - record.begin_ns);
  if (kernel.classified.communication) {
    record.kind = RecordKind::kCommunication;
    record.lane = Lane::kCommunication;
    record.sequence = kNoId;  // numbered by step later
    record.collective =
        named_collective.empty() ? Collective::kNone : collective_of_name(named_collective);
    if (record.collective == Collective::kNone) {
      record.collective = kernel.classified.collective;
    }
  } else {
    record.kind = RecordKind::kCompute;
    record.lane = Lane::kCompute;
  }
  add(record);
}

void TraceBuilder::add_copy(Record record) {
  record.kind = RecordKind::kCopy;
  record.lane = Lane::kCompute;
  add(record);
}

void TraceBuilder::add_enqueue(Record record) {
  record.kind = RecordKind::kEnqueue;
  record.lane = Lane::kHost;
  add(record);
}

void TraceBuilder::add_host_communication(Record record) {
  record.kind = RecordKind::kCommunication;
  record.lane = Lane::kHost;
  record.collective = collective_of_name(timeline().names[record.name]);
  add(record);
}

void TraceBuilder::add_annotation(Record record) {
  record.kind = RecordKind::kAnnotation;
  record.lane = Lane::kHost;
  add(record);
}

std::uint32_t TraceBuilder::add_call(const CollectiveCall& call) {
  timeline().calls.push_back(call);
  return static_cast<std::uint32_t>(timeline().calls.size() - 1);
}

std::uint32_t TraceBuilder::lane_id(std::string_view text) {
  std::int64_t number = 0;
  if (parse_integer(text, number) && number >= 0 && number < std::int64_t{kFirstNamedLane}) {
    return static_cast<std::uint32_t>(number);
  }
  // "stream 7" of 2021 is stream 7.
  constexpr std::string_view kOld = "stream ";
  if (text.starts_with(kOld) && parse_integer(text.substr(kOld.size()), number) && number >= 0 &&
      number < std::int64_t{kFirstNamedLane}) {
    return static_cast<std::uint32_t>(number);
  }
  const auto known = lanes_.find(text);
  if (known != lanes_.end()) {
    return known->second;
  }
  const std::uint32_t id = kFirstNamedLane + static_cast<std::uint32_t>(lanes_.size());
  lanes_.emplace(text, id);
  return id;
}

void TraceBuilder::note(std::string text) {
  if (std::find(file_.notes.begin(), file_.notes.end(), text) == file_.notes.end()) {
    file_.notes.push_back(std::move(text));
  }
}

void TraceBuilder::fail(TraceFault fault) {
  if (!options_.salvage) {
    const bool rows = file_.format == "nsys";
    throw Error(
        ErrorCode::kParse,
        {"a trace is broken",
         file_.path + (rows ? ", row " : ", byte ") + std::to_string(fault.offset),
         fault.what,
         rows ? "a whole export of nsys" : "whole JSON",
         file_.events == 0 ? "Is it the right file? Formats that can be read: " + trace_formats()
                           : std::to_string(file_.events) +
                                 " whole events come before it; --salvage uses what can be read"});
  }
  if (!file_.fault) {
    file_.fault = std::move(fault);
  }
}

void TraceBuilder::link_devices() {
  // Which links exist on both sides. A sorted vector is a quarter of a hash table, and 4 bytes
  // each for a moment.
  std::vector<Record>& records = timeline().records;
  const auto begin = records.begin() + static_cast<std::ptrdiff_t>(first_record_);
  const auto links_of = [&](auto is_one) {
    std::vector<std::uint32_t> links;
    links.reserve(static_cast<std::size_t>(std::count_if(begin, records.end(), is_one)));
    for (auto record = begin; record != records.end(); ++record) {
      if (is_one(*record)) {
        links.push_back(record->link);
      }
    }
    std::sort(links.begin(), links.end());
    links.erase(std::unique(links.begin(), links.end()), links.end());
    return links;
  };
  const std::vector<std::uint32_t> device_links =
      links_of([](const Record& record) { return record.lane != Lane::kHost; });
  const std::vector<std::uint32_t> host_links =
      links_of([](const Record& record) { return record.kind == RecordKind::kEnqueue; });
  const auto in = [](const std::vector<std::uint32_t>& links, std::uint32_t link) {
    return link != kNoId && std::binary_search(links.begin(), links.end(), link);
  };
  for (std::size_t i = first_record_; i < records.size(); ++i) {
    if (records[i].lane != Lane::kHost && !in(host_links, records[i].link)) {
      // Where no launch at all is recorded, nothing is missing.
      file_.unlinked += host_links.empty() ? 0U : 1U;
      records[i].link = kNoId;
    }
  }
  const auto is_without_rows = [&](const Record& record) {
    return record.kind == RecordKind::kEnqueue && !in(device_links, record.link);
  };
  note_lost_kernels(is_without_rows);
  records.erase(std::remove_if(begin, records.end(), is_without_rows), records.end());
}

template <typename IsWithoutRows>
void TraceBuilder::note_lost_kernels(IsWithoutRows is_without_rows) {
  // The last few launches of a recording are cut off by its end.
  constexpr std::uint64_t kFew = 8;
  constexpr double kShare = 0.01;
  std::map<std::uint32_t, bool> known;  // by name
  std::uint64_t launches = 0;
  std::uint64_t without = 0;
  for (std::size_t i = first_record_; i < timeline().records.size(); ++i) {
    const Record& record = timeline().records[i];
    if (record.kind != RecordKind::kEnqueue) {
      continue;
    }
    const auto [place, added] = known.try_emplace(record.name, false);
    if (added) {
      place->second = timeline().names[record.name].find("LaunchKernel") != std::string::npos;
    }
    if (place->second) {
      ++launches;
      without += is_without_rows(record) ? 1U : 0U;
    }
  }
  if (without >= kFew && static_cast<double>(without) > kShare * static_cast<double>(launches)) {
    note(std::to_string(without) + " of " + std::to_string(launches) +
         " kernel launches have no kernel in the file: " +
         (without == launches ? "the device was not recorded"
                              : "the profiler lost them, and what they ran is in no number"));
  }
}

void TraceBuilder::finish() {
  link_devices();
  const std::uint32_t host = name("host operators");
  const IntervalSet host_compute = host_compute_.take();
  for (const Interval& piece : host_compute.intervals()) {
    Record record;
    record.begin_ns = piece.begin_ns;
    record.end_ns = piece.end_ns;
    record.name = host;
    record.kind = RecordKind::kCompute;
    record.lane = Lane::kHost;
    add(record);
  }
  set_rank();
  mark_steps(*this);
  trace_.files.push_back(std::move(file_));
}

void TraceBuilder::finish_as_it_is() {
  set_rank();
  trace_.files.push_back(std::move(file_));
}

void TraceBuilder::set_rank() {
  std::vector<Record>& records = timeline().records;
  for (std::size_t i = first_record_; i < records.size(); ++i) {
    records[i].rank += file_.rank;
  }
  if (!file_.host.empty() || !file_.versions.empty()) {
    timeline().setups.push_back(
        {file_.rank, file_.host, {file_.versions.begin(), file_.versions.end()}});
  }
  file_.kept = static_cast<std::uint64_t>(records.size() - first_record_);
}

bool parse_integer(std::string_view text, std::int64_t& value) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_microseconds(std::string_view text, std::int64_t& ns) noexcept {
  const bool negative = text.starts_with('-');
  if (negative) {
    text.remove_prefix(1);
  }
  // All digits as one number, and where its decimal point is; then the point is moved by three.
  constexpr int kMostDigits = 19;  // always fit, and hold a Unix time in ns
  constexpr auto kMost = static_cast<std::uint64_t>(kLatestTraceNs);
  std::uint64_t digits = 0;
  int taken = 0;
  int behind_point = 0;
  bool point = false;
  bool any = false;
  int first_dropped = -1;  // the digit behind the last that fits,
  bool rest = false;       // whether those behind that one are not all zero,
  int dropped = 0;         // and how many of all these stand before the point
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !point) {
      point = true;
    } else if (c >= '0' && c <= '9') {
      any = true;
      if (taken < kMostDigits) {
        digits = digits * 10 + static_cast<std::uint64_t>(c - '0');
        taken += digits != 0 ? 1 : 0;
        behind_point += point ? 1 : 0;
      } else {
        rest = rest || (first_dropped >= 0 && c != '0');
        first_dropped = first_dropped < 0 ? c - '0' : first_dropped;
        dropped += point ? 0 : 1;
      }
    } else {
      break;
    }
  }
  std::int64_t exponent = 0;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    std::string_view power = text.substr(i + 1);
    if (power.starts_with('+')) {
      power.remove_prefix(1);
      if (power.starts_with('-')) {
        return false;
      }
    }
    if (!parse_integer(power, exponent) || exponent > 100 || exponent < -100) {
      return false;
    }
    i = text.size();
  }
  if (!any || i != text.size()) {
    return false;
  }
  std::int64_t shift = 3 + exponent - behind_point + dropped;
  for (; shift > 0 && digits != 0; --shift) {
    if (digits > kMost / 10) {
      return false;
    }
    digits *= 10;
  }
  if (shift == 0 && first_dropped >= 0) {
    if (first_dropped > 5 || (first_dropped == 5 && (rest || digits % 2 == 1))) {
      ++digits;
    }
  } else if (shift < 0) {
    std::uint64_t unit = 1;
    for (; shift < 0 && unit <= kMost; ++shift) {
      unit *= 10;
    }
    if (shift < 0) {
      digits = 0;
    } else {
      const std::uint64_t below = digits % unit;
      digits /= unit;
      const std::uint64_t half = unit / 2;
      if (below > half || (below == half && (rest || first_dropped > 0 || digits % 2 == 1))) {
        ++digits;
      }
    }
  }
  if (digits > kMost) {
    return false;
  }
  ns = static_cast<std::int64_t>(digits) * (negative ? -1 : 1);
  return true;
}

}  // namespace stretto::detail
