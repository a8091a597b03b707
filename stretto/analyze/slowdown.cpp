// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stretto/analyze/diagnose.hpp"
#include "stretto/base/intervals.hpp"
#include "stretto/base/statistics.hpp"

namespace stretto::detail {
namespace {

// Fewer do not make a median worth comparing.
constexpr std::size_t kLeastRuns = 5;
constexpr double kOneShape = 1.25;
constexpr std::size_t kMostRuns = 4096;  // of a name, each way: enough for a median

struct Runs {
  std::vector<double> alone_ns;
  std::vector<double> beside_ns;
};

}  // namespace

std::optional<Slowdown> measure_slowdown(const Timeline& timeline) {
  using Device = std::pair<std::uint32_t, std::uint32_t>;
  std::map<Device, std::vector<Interval>> pieces;
  for (const Record& record : timeline.records) {
    if (record.kind == RecordKind::kCommunication && record.device != kNoId) {
      pieces[{record.rank, record.device}].push_back({record.begin_ns, record.end_ns});
    }
  }
  std::map<Device, IntervalSet> communication;
  for (auto& [device, list] : pieces) {
    communication[device] = IntervalSet(std::move(list));
  }
  std::unordered_map<std::uint64_t, Runs> kernels;  // by name and shape
  for (const Record& record : timeline.records) {
    if (record.kind != RecordKind::kCompute || record.device == kNoId || record.sequence == kNoId ||
        record.end_ns <= record.begin_ns) {
      continue;
    }
    const auto found = communication.find({record.rank, record.device});
    if (found == communication.end()) {
      continue;
    }
    const std::int64_t length_ns = record.end_ns - record.begin_ns;
    const std::int64_t beside_ns =
        found->second.measure_within_ns({record.begin_ns, record.end_ns});
    if (beside_ns != 0 && 2 * beside_ns < length_ns) {
      continue;  // neither
    }
    Runs& runs = kernels[(std::uint64_t{record.name} << 32U) | record.sequence];
    std::vector<double>& list = beside_ns == 0 ? runs.alone_ns : runs.beside_ns;
    if (list.size() < kMostRuns) {
      list.push_back(static_cast<double>(length_ns));
    }
  }
  Slowdown slowdown;
  double alone_ns = 0.0;
  double beside_ns = 0.0;
  for (auto& [kernel, runs] : kernels) {
    // One that takes several lengths alone does several things: nothing can be said of it.
    if (runs.alone_ns.size() < kLeastRuns || runs.beside_ns.size() < kLeastRuns ||
        quantile(runs.alone_ns, 0.9) > kOneShape * quantile(runs.alone_ns, 0.1)) {
      continue;
    }
    ++slowdown.kernels;
    const auto count = static_cast<double>(runs.beside_ns.size());
    alone_ns += count * median(std::move(runs.alone_ns));
    beside_ns += count * median(std::move(runs.beside_ns));
  }
  if (slowdown.kernels == 0 || alone_ns <= 0.0) {
    return std::nullopt;
  }
  slowdown.factor = beside_ns / alone_ns;
  slowdown.extra = Seconds(std::max(0.0, beside_ns - alone_ns) / 1e9 /
                           static_cast<double>(communication.size()));
  return slowdown;
}

}  // namespace stretto::detail
