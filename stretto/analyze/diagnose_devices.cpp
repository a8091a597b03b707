// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "stretto/analyze/diagnose_case.hpp"
#include "stretto/analyze/telling_words.hpp"
#include "stretto/base/text.hpp"

namespace stretto::detail {
namespace {

// Each is printed with the diagnosis that it led to.
constexpr double kOneStream = 0.10;      // of the communication time on a stream that computes
constexpr double kSlowed = 1.10;         // kernels beside communication against alone
constexpr double kSlowedMuch = 0.01;     // of the compute is what slowed kernels take longer
constexpr double kCopies = 0.02;         // of the step copies buckets
constexpr double kUnknownStream = 0.05;  // of the span, on a stream with nothing but one kernel
constexpr double kMovesData = 0.50;      // of the compute, in kernels that move data
constexpr double kUnknownKernel = 0.05;  // of the span, kernels named like an exchange

}  // namespace

void look_at_streams(Case& of) {
  struct Stream {
    std::int64_t communication_ns = 0;
    std::int64_t compute_ns = 0;
  };
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Stream> streams;
  for (const Record& record : of.timeline.records) {
    if (record.device == kNoId) {
      continue;
    }
    Stream& stream = streams[{record.rank, record.device, record.stream}];
    if (record.kind == RecordKind::kCommunication) {
      stream.communication_ns += record.end_ns - record.begin_ns;
    } else if (record.kind == RecordKind::kCompute) {
      stream.compute_ns += record.end_ns - record.begin_ns;
    }
  }
  double shared = 0.0;
  double all = 0.0;
  for (const auto& [key, stream] : streams) {
    all += static_cast<double>(stream.communication_ns);
    // A few fills and casts on the communication stream are no compute stream.
    if (stream.compute_ns > stream.communication_ns / 10) {
      shared += static_cast<double>(stream.communication_ns);
    }
  }
  if (all > 0.0 && shared / all > kOneStream) {
    const bool matters =
        !of.all.summary || of.all.summary->exposed / of.all.summary->step >= kLittleExposed;
    of.say({"one_stream",
            matters ? Weight::kFirst : Weight::kNote,
            "Communication runs on the stream that computes: it cannot overlap what it stands in "
            "line "
            "with",
            fmt::format("{} of the communication time", percent(shared / all)),
            fmt::format("more than {} on a stream with as much compute as a tenth of it",
                        percent(kOneStream)),
            "Launch it asynchronously (async_op=True, wait() where the result is used) so that the "
            "library uses a stream of its own"});
  }
}

bool is_slowed(const Slowdown& slowdown, const std::vector<DeviceTotals>& devices) {
  double compute = 0.0;
  for (const DeviceTotals& device : devices) {
    compute += static_cast<double>(device.compute_ns) / 1e9;
  }
  compute /= static_cast<double>(std::max<std::size_t>(1, devices.size()));
  return slowdown.factor >= kSlowed && slowdown.extra.count() >= kSlowedMuch * compute;
}

void look_at_slowdown(Case& of) {
  if (!of.all.slowdown || !is_slowed(*of.all.slowdown, of.all.devices)) {
    return;
  }
  const std::string without =
      of.all.slowdown->compute_without
          ? fmt::format("; the step's compute of {} would be about {} without",
                        format(of.all.summary->compute),
                        format(*of.all.slowdown->compute_without))
          : std::string();
  of.say({"slowed_compute",
          Weight::kCause,
          "Compute runs slower beside communication: hiding it is not free",
          fmt::format("{} {} {:.2f} times as long beside it ({} at the same position of the step); "
                      "{} in all per device{}",
                      of.all.slowdown->kernels,
                      of.all.slowdown->kernels == 1 ? "kernel takes" : "kernels take",
                      of.all.slowdown->factor,
                      of.all.slowdown->same_position,
                      format(of.all.slowdown->extra),
                      without),
          fmt::format("factor above {:.2f}, and {} of the compute", kSlowed, percent(kSlowedMuch)),
          "Fewer SMs for communication (NCCL_MAX_NCHANNELS / NCCL_MAX_CTAS), or fewer bytes"});
}

void look_at_bucket_copies(Case& of) {
  std::int64_t copies = 0;
  double seconds = 0.0;
  std::set<std::uint32_t> names;
  for (std::size_t i = 0; i < of.timeline.names.size(); ++i) {
    if (of.timeline.names[i].find("reducer::copy_bucket_to_grad") != std::string::npos ||
        of.timeline.names[i].find("reducer::mul_out") != std::string::npos) {
      names.insert(static_cast<std::uint32_t>(i));
    }
  }
  if (names.empty()) {
    return;
  }
  for (const Record& record : of.timeline.records) {
    if (record.kind == RecordKind::kAnnotation && names.contains(record.name)) {
      ++copies;
      seconds += static_cast<double>(record.end_ns - record.begin_ns) / 1e9;
    }
  }
  const double step =
      of.all.summary ? of.all.summary->step.count() * of.all.summary->steps * of.all.summary->ranks
                     : 0.0;
  if (copies > 0 && step > 0.0 && seconds / step > kCopies) {
    of.say({"bucket_copies",
            of.all.has_communication() ? Weight::kCause : Weight::kNote,
            "DDP copies every gradient into its bucket and back",
            fmt::format(
                "{} copies, {} of the steps' time on the host", copies, percent(seconds / step)),
            fmt::format("more than {} of the step", percent(kCopies)),
            "DistributedDataParallel(model, gradient_as_bucket_view=True)"});
  }
}

/// A stream that runs one or two kernels and nothing else, beside one that computes, is most
/// often somebody's own communication.
void look_at_unknown_streams(Case& of) {
  struct Stream {
    std::set<std::uint32_t> names;
    std::int64_t total_ns = 0;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::map<std::uint32_t, Stream>> devices;
  for (const Record& record : of.timeline.records) {
    if (record.device != kNoId && record.kind == RecordKind::kCompute) {
      Stream& stream = devices[{record.rank, record.device}][record.stream];
      stream.total_ns += record.end_ns - record.begin_ns;
      if (stream.names.size() < 4) {
        stream.names.insert(record.name);
      }
    }
  }
  for (const DeviceTotals& totals : of.all.devices) {
    const auto device = devices.find({totals.rank, totals.device});
    if (device == devices.end() || device->second.size() < 2) {
      continue;
    }
    std::int64_t most_ns = 0;
    for (const auto& [number, stream] : device->second) {
      most_ns = std::max(most_ns, stream.total_ns);
    }
    for (const auto& [number, stream] : device->second) {
      const bool busiest = stream.total_ns == most_ns;
      const double share = totals.span_ns == 0 ? 0.0
                                               : static_cast<double>(stream.total_ns) /
                                                     static_cast<double>(totals.span_ns);
      if (busiest || stream.names.size() > 2 || share < kUnknownStream) {
        continue;
      }
      of.say({"unknown_stream",
              Weight::kNote,
              fmt::format("Stream {} of device {} runs nothing but {}; it counts as compute",
                          number,
                          totals.device,
                          quote(of.timeline.names[*stream.names.begin()])),
              fmt::format("{} of the recording", percent(share)),
              fmt::format("a stream with at most 2 kernel names and more than {} of the time",
                          percent(kUnknownStream)),
              "If it is communication, say so: --comm-regex 'part of its name'"});
      return;
    }
  }
}

void look_at_unknown_kernels(Case& of) {
  std::map<std::uint32_t, std::int64_t> total_ns;  // by name, of those that count as compute
  for (const Record& record : of.timeline.records) {
    if (record.device != kNoId && record.kind == RecordKind::kCompute) {
      total_ns[record.name] += record.end_ns - record.begin_ns;
    }
  }
  std::int64_t span_ns = 0;
  for (const DeviceTotals& totals : of.all.devices) {
    span_ns += totals.span_ns;
  }
  for (const auto& [name, sum_ns] : total_ns) {
    const double share =
        span_ns == 0 ? 0.0 : static_cast<double>(sum_ns) / static_cast<double>(span_ns);
    if (share < kUnknownKernel || telling_word(of.timeline.names[name], kExchangeWords).empty()) {
      continue;
    }
    of.say({"unknown_kernel",
            Weight::kNote,
            fmt::format("{} is named like an exchange, and counts as compute",
                        quote(of.timeline.names[name])),
            fmt::format("{} of the recording", percent(share)),
            fmt::format("such a name and more than {} of the time", percent(kUnknownKernel)),
            "If it is communication, say so: --comm-regex 'part of its name'"});
  }
}

void look_at_memory_bound(Case& of) {
  std::map<std::uint32_t, std::int64_t> total_ns;  // by name
  std::int64_t compute_ns = 0;
  for (const Record& record : of.timeline.records) {
    if (record.device != kNoId && record.kind == RecordKind::kCompute) {
      total_ns[record.name] += record.end_ns - record.begin_ns;
      compute_ns += record.end_ns - record.begin_ns;
    }
  }
  std::int64_t moving_ns = 0;
  for (const auto& [name, sum_ns] : total_ns) {
    moving_ns += telling_word(of.timeline.names[name], kMovingWords).empty() ? 0 : sum_ns;
  }
  if (compute_ns == 0 ||
      static_cast<double>(moving_ns) <= kMovesData * static_cast<double>(compute_ns)) {
    return;
  }
  of.say(
      {"memory_bandwidth_bound",
       Weight::kNote,
       "Compute is bound by the memory of the device",
       fmt::format("{} of the compute in kernels that move data (elementwise, reductions, norms, "
                   "copies), told by their names",
                   percent(static_cast<double>(moving_ns) / static_cast<double>(compute_ns))),
       fmt::format("above {} of the compute", percent(kMovesData)),
       "Fuse them (torch.compile, fused optimizers and norms) or use narrower types"});
}

}  // namespace stretto::detail
