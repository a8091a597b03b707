// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/nccl_tests.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/trace/builder.hpp"
#include "stretto/trace/classify.hpp"
#include "stretto/trace/event_scanner.hpp"

// Format facts: src/util.cu of NVIDIA/nccl-tests, JSON_FILE_VERSION 2 and 3. One object: version,
// start_time, args, env, nccl_version, config with devices, results, out_of_bounds,
// average_bus_bandwidth, end_time. A result: size, count, type, redop, root, out_of_place and
// in_place with time (or cpu_time, us), alg_bw, bus_bw (GB/s, 10^9), nwrong. Numbers that are not
// become the string "nan".
namespace stretto {
namespace {

using detail::Scan;
using detail::ValueKind;
using detail::ValueText;

/// The file's text, with what reading a value needs behind it.
class Document {
 public:
  Document(std::string_view text, std::string_view where)
      : padded_(std::string(text) + std::string(16, '\0')), size_(text.size()), where_(where) {}

  [[nodiscard]] ValueText root() const {
    const char* at = padded_.data();
    const char* const end = at + size_;
    ValueText value;
    const Scan scan = detail::read_value(at, end, value);
    if (scan != Scan::kOk) {
      fail(at, scan);
    }
    return value;
  }

  template <typename Member>
  void members(const ValueText& object, const Member& member) const {
    require(object, '{', "an object");
    const char* at = object.text.data() + 1;
    const char* const end = object.text.data() + object.text.size();
    for (;;) {
      std::string_view key;
      ValueText value;
      bool none = false;
      const Scan scan = detail::read_member(at, end, key, value, none);
      if (scan != Scan::kOk) {
        fail(at, scan);
      }
      if (none) {
        return;
      }
      member(key, value);
    }
  }

  template <typename Element>
  void elements(const ValueText& array, const Element& element) const {
    require(array, '[', "an array");
    const char* at = array.text.data() + 1;
    const char* const end = array.text.data() + array.text.size();
    for (;;) {
      ValueText value;
      bool none = false;
      const Scan scan = detail::read_element(at, end, value, none);
      if (scan != Scan::kOk) {
        fail(at, scan);
      }
      if (none) {
        return;
      }
      element(value);
    }
  }

  [[noreturn]] void fail_at(const char* at,
                            std::string found,
                            std::string expected,
                            std::string help = {}) const {
    throw Error(ErrorCode::kParse,
                {"a file of NCCL tests cannot be read",
                 where_ + " at byte " + std::to_string(at - padded_.data()),
                 std::move(found),
                 std::move(expected),
                 std::move(help)});
  }

 private:
  void require(const ValueText& value, char bracket, std::string expected) const {
    if (value.kind != ValueKind::kContainer || !value.text.starts_with(bracket)) {
      fail_at(value.text.data(), quote(value.text), std::move(expected));
    }
  }
  [[noreturn]] void fail(const char* at, Scan scan) const {
    if (scan == Scan::kMore) {
      fail_at(padded_.data() + size_,
              "the end of the text",
              "the rest of a value",
              "The file may have been cut off while it was written");
    }
    const auto left = static_cast<std::size_t>(padded_.data() + size_ - at);
    fail_at(at, quote({at, std::min<std::size_t>(24, left)}), "JSON");
  }

  std::string padded_;
  std::size_t size_;
  std::string where_;
};

/// Nothing for `null` and for `"nan"`, as for what is no number at all: not measured.
std::optional<double> number_of(const ValueText& value) {
  double number = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, number);
  if (value.kind != ValueKind::kPlain || error != std::errc() || stop != end ||
      !std::isfinite(number) || number < 0) {
    return std::nullopt;
  }
  return number;
}

/// Without MPI only the first device of a process is listed; the counts beside the list say how
/// many it had.
std::uint32_t ranks_of(const Document& document, const ValueText& config) {
  constexpr std::int64_t kMost = 4096;
  std::int64_t listed = 0;
  std::int64_t threads = 0;
  std::int64_t devices = 0;
  document.members(config, [&](std::string_view key, const ValueText& value) {
    if (key == "devices" && value.text.starts_with('[')) {
      document.elements(value, [&](const ValueText&) { ++listed; });
    } else if (key == "nthreads" || key == "ngpus") {
      std::int64_t& count = key == "ngpus" ? devices : threads;
      count =
          detail::parse_integer(value.text, count) ? std::clamp<std::int64_t>(count, 0, kMost) : 0;
    }
  });
  return static_cast<std::uint32_t>(std::max(std::min(listed, kMost * kMost), threads * devices));
}

/// Adds the row if it was measured.
void add_row(std::vector<NcclTestRow>& rows,
             NcclTestRow row,
             const Document& document,
             const ValueText& measurement) {
  if (measurement.kind == ValueKind::kPlain) {
    return;  // null
  }
  constexpr double kMicroseconds = 1e-6;
  constexpr double kGigabytes = 1e9;
  constexpr double kMostWrong = 9e15;
  std::optional<double> time_us;
  std::optional<double> algorithm;
  std::optional<double> bus;
  document.members(measurement, [&](std::string_view key, const ValueText& value) {
    if (key == "time" || key == "cpu_time") {
      time_us = number_of(value);
    } else if (key == "alg_bw") {
      algorithm = number_of(value);
    } else if (key == "bus_bw") {
      bus = number_of(value);
    } else if (key == "nwrong") {
      const auto wrong = number_of(value);
      row.wrong = wrong ? static_cast<std::int64_t>(std::min(*wrong, kMostWrong)) : -1;
    }
  });
  if (time_us && algorithm && bus) {
    row.time = Seconds(*time_us * kMicroseconds);
    row.algorithm_bandwidth_bytes_per_s = *algorithm * kGigabytes;
    row.bus_bandwidth_bytes_per_s = *bus * kGigabytes;
    rows.push_back(std::move(row));
  }
}

void add_result(std::vector<NcclTestRow>& rows, const Document& document, const ValueText& result) {
  NcclTestRow row;
  row.size_bytes = -1;
  std::optional<ValueText> out_of_place;
  std::optional<ValueText> in_place;
  document.members(result, [&](std::string_view key, const ValueText& value) {
    if (key == "size") {
      (void)detail::parse_integer(value.text, row.size_bytes);
    } else if (key == "type") {
      row.dtype = detail::unescape(value.text);
    } else if (key == "redop") {
      row.reduction = detail::unescape(value.text);
    } else if (key == "out_of_place") {
      out_of_place = value;
    } else if (key == "in_place") {
      in_place = value;
    }
  });
  if (row.size_bytes < 0) {
    document.fail_at(result.text.data(), "a result without a size", "its bytes under \"size\"");
  }
  for (const auto& measurement : {out_of_place, in_place}) {
    if (measurement) {
      add_row(rows, row, document, *measurement);
    }
    row.in_place = true;
  }
}

}  // namespace

std::vector<NcclTestRow> read_nccl_tests(std::string_view text, std::string_view where) {
  const Document document(text, where);
  const ValueText root = document.root();
  std::string program;
  std::uint32_t ranks = 0;
  bool results = false;
  std::vector<NcclTestRow> rows;
  document.members(root, [&](std::string_view key, const ValueText& value) {
    if (key == "args") {
      // The program's name alone says which collective was measured.
      bool first = true;
      document.elements(value, [&](const ValueText& argument) {
        if (std::exchange(first, false)) {
          program = detail::unescape(argument.text);
          program = program.substr(program.find_last_of('/') + 1);
        }
      });
    } else if (key == "config") {
      ranks = ranks_of(document, value);
    } else if (key == "results") {
      results = true;
      document.elements(value,
                        [&](const ValueText& result) { add_result(rows, document, result); });
    }
  });
  if (!results) {
    document.fail_at(root.text.data(), "no \"results\"", "a file that nccl-tests wrote with -J");
  }
  for (NcclTestRow& row : rows) {
    row.name = program;
    row.collective = collective_of_name(program);
    row.ranks = ranks;
  }
  return rows;
}

bool is_nccl_tests(std::string_view head) noexcept {
  // `env` may be longer than what is seen of the file: what comes before it must do.
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  const auto has = [&](std::string_view key) { return head.find(key) != std::string_view::npos; };
  return first != std::string_view::npos && head[first] == '{' && has("\"version\"") &&
         has("\"start_time\"") && has("\"args\"") && (has("\"env\"") || has("\"nccl_version\"")) &&
         !has("\"traceEvents\"");
}

CollectiveCurve curve_of(std::span<const NcclTestRow> rows, std::string_view where) {
  const auto refuse = [&](std::string message, std::string found, std::string expected) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {std::move(message), std::string(where), std::move(found), std::move(expected), {}});
  };
  if (rows.empty()) {
    refuse("nothing was measured", "no row with a time", "times of a collective at several sizes");
  }
  CollectiveCurve curve;
  curve.collective = rows.front().collective;
  curve.ranks = static_cast<int>(rows.front().ranks);
  if (curve.collective == Collective::kNone) {
    refuse(
        "not the times of a collective", quote(rows.front().name), "all_reduce_perf or the like");
  }
  if (curve.ranks < 2) {
    refuse("what one rank measured says nothing of a network",
           curve.ranks == 0 ? "no number of ranks" : "1 rank",
           "2 ranks or more (-g, or one per process)");
  }
  const auto is_f32 = [](const NcclTestRow& row) { return row.dtype == "float"; };
  const std::string dtype =
      std::any_of(rows.begin(), rows.end(), is_f32) ? "float" : rows.front().dtype;
  std::map<std::int64_t, const NcclTestRow*> by_size;
  for (const NcclTestRow& row : rows) {
    if (row.dtype == dtype && row.size_bytes > 0 && row.time > Seconds(0)) {
      const NcclTestRow*& chosen = by_size[row.size_bytes];
      if (chosen == nullptr || (row.in_place && !chosen->in_place)) {
        chosen = &row;
      }
    }
  }
  for (const auto& [size, row] : by_size) {
    if (row->wrong > 0) {
      refuse("what was measured computed wrong sums",
             std::to_string(row->wrong) + " wrong elements at " + format(Bytes(size)),
             "none: times of a network that does not work are no machine");
    }
    curve.points.push_back({Bytes(size), row->time});
  }
  if (curve.points.empty()) {
    refuse("nothing was measured", "no size and time above zero", "times at several sizes");
  }
  return curve;
}

namespace detail {

void refuse_nccl_tests(Input& /*input*/, TraceBuilder& builder) {
  throw Error(
      ErrorCode::kParse,
      {"a file of NCCL tests holds no timeline",
       builder.file().path,
       "bandwidths measured per size",
       "a profiler's trace of a training run",
       "stretto plan takes it as --machine; formats that can be analyzed: " + trace_formats()});
}

}  // namespace detail
}  // namespace stretto
