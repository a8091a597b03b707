// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
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

/// How a kernel ran: beside communication for at least half of its time, alone all of it, or in
/// between, which says nothing.
enum class How : std::uint8_t { kAlone, kBeside, kBetween };

using Device = std::pair<std::uint32_t, std::uint32_t>;  // rank, device

std::uint64_t kernel_of(const Record& record) {
  return (std::uint64_t{record.name} << 32U) | record.sequence;
}

/// What runs took, and what the same number of them would have taken alone.
struct Compared {
  double alone_ns = 0.0;
  double beside_ns = 0.0;
  std::size_t runs = 0;
};

Compared compare(Runs runs) {
  const std::size_t count = runs.beside_ns.size();
  return {static_cast<double>(count) * median(std::move(runs.alone_ns)),
          static_cast<double>(count) * median(std::move(runs.beside_ns)),
          count};
}

/// One run of a kernel in a step.
struct Run {
  Device device;
  std::uint32_t step;
  std::int64_t begin_ns;
  double length_ns;
  How how;
};

/// Only runs at the same position among the kernel's runs of a step are sure to do the same work:
/// others have name and grid in common, but may be of another layer. Steps count that have as many
/// runs as most of the device's steps.
Compared compare_by_position(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
    return std::tuple(a.device, a.step, a.begin_ns) < std::tuple(b.device, b.step, b.begin_ns);
  });
  std::map<Device, std::map<std::size_t, std::size_t>> steps_of_count;
  const auto end_of_step = [&](std::size_t begin) {
    std::size_t end = begin;
    while (end < runs.size() && runs[end].device == runs[begin].device &&
           runs[end].step == runs[begin].step) {
      ++end;
    }
    return end;
  };
  for (std::size_t begin = 0; begin < runs.size(); begin = end_of_step(begin)) {
    ++steps_of_count[runs[begin].device][end_of_step(begin) - begin];
  }
  std::map<std::pair<Device, std::size_t>, Runs> positions;
  for (std::size_t begin = 0; begin < runs.size();) {
    const std::size_t end = end_of_step(begin);
    const auto& counts = steps_of_count[runs[begin].device];
    const auto usual =
        std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        });
    for (std::size_t i = begin; end - begin == usual->first && i < end; ++i) {
      if (runs[i].how != How::kBetween) {
        Runs& position = positions[{runs[i].device, i - begin}];
        (runs[i].how == How::kBeside ? position.beside_ns : position.alone_ns)
            .push_back(runs[i].length_ns);
      }
    }
    begin = end;
  }
  Compared all;
  std::size_t alone = 0;
  for (auto& [position, both] : positions) {
    if (both.alone_ns.empty() || both.beside_ns.empty()) {
      continue;
    }
    alone += both.alone_ns.size();
    const Compared one = compare(std::move(both));
    all.alone_ns += one.alone_ns;
    all.beside_ns += one.beside_ns;
    all.runs += one.runs;
  }
  return alone < kLeastRuns || all.runs < kLeastRuns ? Compared{} : all;
}

class Measurement {
 public:
  explicit Measurement(const Timeline& timeline) : timeline_(timeline) {
    std::map<Device, std::vector<Interval>> pieces;
    for (const Record& record : timeline.records) {
      if (record.kind == RecordKind::kCommunication && record.device != kNoId) {
        pieces[{record.rank, record.device}].push_back({record.begin_ns, record.end_ns});
      }
    }
    for (auto& [device, list] : pieces) {
      communication_[device] = IntervalSet(std::move(list));
    }
  }

  [[nodiscard]] std::optional<Slowdown> measure() const {
    std::unordered_map<std::uint64_t, Runs> kernels = runs_of_kernels();
    std::unordered_map<std::uint64_t, std::vector<Run>> listed = runs_in_steps(kernels);
    Slowdown slowdown;
    double alone_ns = 0.0;
    double beside_ns = 0.0;
    for (auto& [kernel, runs] : kernels) {
      Compared compared = compare_by_position(std::move(listed[kernel]));
      if (compared.runs > 0) {
        ++slowdown.same_position;
      } else if (quantile(runs.alone_ns, 0.9) <= kOneShape * quantile(runs.alone_ns, 0.1)) {
        compared = compare(std::move(runs));
      } else {
        continue;  // one that takes several lengths alone does several things
      }
      ++slowdown.kernels;
      alone_ns += compared.alone_ns;
      beside_ns += compared.beside_ns;
    }
    if (slowdown.kernels == 0 || alone_ns <= 0.0) {
      return std::nullopt;
    }
    slowdown.factor = beside_ns / alone_ns;
    slowdown.extra = Seconds(std::max(0.0, beside_ns - alone_ns) / 1e9 /
                             static_cast<double>(communication_.size()));
    return slowdown;
  }

 private:
  /// Absent for what is no kernel of a known shape on a device that communicates.
  [[nodiscard]] std::optional<How> how_of(const Record& record) const {
    if (record.kind != RecordKind::kCompute || record.device == kNoId || record.sequence == kNoId ||
        record.end_ns <= record.begin_ns) {
      return std::nullopt;
    }
    const auto found = communication_.find({record.rank, record.device});
    if (found == communication_.end()) {
      return std::nullopt;
    }
    const std::int64_t beside_ns =
        found->second.measure_within_ns({record.begin_ns, record.end_ns});
    return beside_ns == 0                                     ? How::kAlone
           : 2 * beside_ns >= record.end_ns - record.begin_ns ? How::kBeside
                                                              : How::kBetween;
  }

  /// Of kernels that ran often enough both ways.
  [[nodiscard]] std::unordered_map<std::uint64_t, Runs> runs_of_kernels() const {
    std::unordered_map<std::uint64_t, Runs> kernels;
    for (const Record& record : timeline_.records) {
      const auto how = how_of(record);
      if (!how || *how == How::kBetween) {
        continue;
      }
      Runs& runs = kernels[kernel_of(record)];
      std::vector<double>& list = *how == How::kBeside ? runs.beside_ns : runs.alone_ns;
      if (list.size() < kMostRuns) {
        list.push_back(static_cast<double>(record.end_ns - record.begin_ns));
      }
    }
    std::erase_if(kernels, [](const auto& kernel) {
      return kernel.second.alone_ns.size() < kLeastRuns ||
             kernel.second.beside_ns.size() < kLeastRuns;
    });
    return kernels;
  }

  /// None of a kernel with more runs than are kept: without all of them no position is known.
  [[nodiscard]] std::unordered_map<std::uint64_t, std::vector<Run>> runs_in_steps(
      const std::unordered_map<std::uint64_t, Runs>& kernels) const {
    std::unordered_map<std::uint64_t, std::vector<Run>> listed;
    for (const Record& record : timeline_.records) {
      if (record.step == kNoId || !kernels.contains(kernel_of(record))) {
        continue;
      }
      if (const auto how = how_of(record)) {
        std::vector<Run>& list = listed[kernel_of(record)];
        if (list.size() <= kMostRuns) {
          list.push_back({{record.rank, record.device},
                          record.step,
                          record.begin_ns,
                          static_cast<double>(record.end_ns - record.begin_ns),
                          *how});
        }
      }
    }
    std::erase_if(listed, [](const auto& entry) { return entry.second.size() > kMostRuns; });
    return listed;
  }

  const Timeline& timeline_;
  std::map<Device, IntervalSet> communication_;
};

}  // namespace

std::optional<Slowdown> measure_slowdown(const Timeline& timeline) {
  return Measurement(timeline).measure();
}

}  // namespace stretto::detail
