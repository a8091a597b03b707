// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/measure.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>

#include "stretto/base/error.hpp"
#include "stretto/measure/subject.hpp"

namespace stretto {
namespace {

using detail::Memory;
using detail::Subject;

/// Shorter blocks of calls would measure the clock and the barrier before them.
constexpr Seconds kLeastBlock{50e-6};
constexpr int kMostCalls = 100;

[[noreturn]] void refuse(std::string message,
                         std::string where,
                         std::string found,
                         std::string expected) {
  throw Error(ErrorCode::kInvalidArgument,
              {std::move(message), std::move(where), std::move(found), std::move(expected), ""});
}

void check(const Communicator& communicator, const MeasureOptions& options) {
  switch (options.collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kAllToAll:
      break;
    case Collective::kSendRecv:
      if (communicator.size() < 2) {
        refuse("sending and receiving needs a second rank", "send_recv", "1 rank", "2 or more");
      }
      break;
    default:
      refuse("this collective cannot be measured",
             "collective",
             std::string(to_string(options.collective)),
             "all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all or send_recv");
  }
  if (options.sizes.empty() || options.algorithms.empty() || options.dtypes.empty() ||
      options.buffers.empty()) {
    refuse("there is nothing to measure",
           "sizes, algorithms, dtypes, buffers",
           "an empty list",
           "one or more of each");
  }
  for (const Bytes size : options.sizes) {
    if (size < Bytes(1)) {
      refuse("a size cannot be measured", "sizes", format(size), "1 byte or more");
    }
  }
  if (options.at_once < 1 || options.warmup < 0) {
    refuse("the numbers of operations are not possible",
           "at_once, warmup",
           std::to_string(options.at_once) + ", " + std::to_string(options.warmup),
           "at least 1 and at least 0");
  }
  if (options.one_clock && options.progress != Progress::kBackground) {
    refuse("one clock for all ranks is asked for calls that are timed in blocks",
           "one_clock",
           "Progress::kCaller",
           "Progress::kBackground");
  }
  if (options.root < 0 || options.root >= communicator.size()) {
    refuse("no such rank",
           "root",
           std::to_string(options.root),
           "0 to " + std::to_string(communicator.size() - 1));
  }
}

double combine(OverRanks how, std::span<const Taken> taken) {
  std::vector<double> seconds;
  for (const Taken& one : taken) {
    seconds.push_back(one.duration());
  }
  switch (how) {
    case OverRanks::kRank0:
      return seconds.front();
    case OverRanks::kMean:
      return std::accumulate(seconds.begin(), seconds.end(), 0.0) /
             static_cast<double>(seconds.size());
    case OverRanks::kLeast:
      return *std::min_element(seconds.begin(), seconds.end());
    case OverRanks::kMost:
      return *std::max_element(seconds.begin(), seconds.end());
  }
  return seconds.front();
}

/// Ranks do not leave a barrier together. What one waits for another's start is no communication.
double combine_on_one_clock(const MeasureOptions& options, std::span<const Taken> taken) {
  const std::size_t ranks = taken.size();
  if (options.collective == Collective::kSendRecv) {
    double sum = 0.0;
    for (std::size_t r = 0; r < ranks; ++r) {
      sum += taken[r].end - taken[(r + ranks - 1) % ranks].begin;
    }
    return sum / static_cast<double>(ranks);
  }
  double begin = taken[static_cast<std::size_t>(options.root)].begin;
  double end = taken.front().end;
  for (const Taken& one : taken) {
    begin = options.collective == Collective::kBroadcast ? begin : std::max(begin, one.begin);
    end = std::max(end, one.end);
  }
  return end - begin;
}

void measure_row(Communicator& communicator,
                 const MeasureOptions& options,
                 std::span<std::byte> memory,
                 MeasuredRow& row) {
  Subject subject(communicator, options, row, memory);
  subject.clear();
  for (int i = 0; i < options.warmup; ++i) {
    (void)subject.time(1);
  }
  if (options.progress == Progress::kCaller) {
    // Long enough that the clock costs nothing, and the same on all ranks.
    const double once =
        highest_over_ranks(communicator, subject.time(1).duration()) * options.at_once;
    const double calls = std::ceil(kLeastBlock.count() / std::max(once, 1e-9));
    row.block = static_cast<int>(std::clamp<double>(calls, 1, kMostCalls));
  }
  const Sampled sampled = sample(
      communicator,
      options.stop,
      [&] { return subject.time(row.block); },
      [&](std::span<const Taken> taken) {
        return options.one_clock ? combine_on_one_clock(options, taken)
                                 : combine(options.over_ranks, taken);
      });
  row.time = sampled.spread;
  row.settled = sampled.settled;
}

}  // namespace

namespace detail {

std::vector<MeasuredRow> rows_of(const Communicator& communicator, const MeasureOptions& options) {
  check(communicator, options);
  std::vector<MeasuredRow> rows;
  for (const DType dtype : options.dtypes) {
    for (const Algorithm algorithm : options.algorithms) {
      for (const Buffers buffers : options.buffers) {
        std::size_t last = 0;
        for (const Bytes size : options.sizes) {
          const auto element = static_cast<std::int64_t>(size_of(dtype));
          MeasuredRow row;
          // Blocks of all_to_all are of equal length.
          const std::int64_t unit =
              options.collective == Collective::kAllToAll ? communicator.size() : 1;
          const std::int64_t units = std::max<std::int64_t>(1, size.count() / element / unit);
          row.count = static_cast<std::size_t>(units * unit);
          row.size = Bytes(element) * static_cast<std::int64_t>(row.count);
          row.algorithm = algorithm;
          row.dtype = dtype;
          row.buffers = buffers;
          if (row.count != last) {  // sizes below one element become one
            rows.push_back(row);
          }
          last = row.count;
        }
      }
    }
  }
  return rows;
}

void finish_row(Communicator& communicator,
                const MeasureOptions& options,
                std::span<std::byte> memory,
                MeasuredRow& row) {
  if (row.time.median > Seconds(0)) {
    const double rate = static_cast<double>(row.size.count()) / row.time.median.count();
    row.algorithm_bandwidth = BytesPerSecond(rate);
    row.bus_bandwidth = BytesPerSecond(rate * bus_factor(options.collective, communicator.size()));
  }
  if (options.check) {
    Subject subject(communicator, options, row, memory);
    // A double counts exactly to 2^53.
    row.wrong = std::llround(sum_over_ranks(communicator, static_cast<double>(subject.check())));
  }
}

}  // namespace detail

std::string_view to_string(Buffers buffers) noexcept {
  return buffers == Buffers::kArena ? "arena" : "private";
}

bool has_root(Collective collective) noexcept {
  return collective == Collective::kBroadcast || collective == Collective::kReduce;
}

double bus_factor(Collective collective, int ranks) noexcept {
  const double others = static_cast<double>(ranks - 1) / std::max(ranks, 1);
  switch (collective) {
    case Collective::kAllReduce:
      return 2.0 * others;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return others;
    default:
      return 1.0;
  }
}

std::int64_t Measurement::wrong() const noexcept {
  return std::accumulate(
      rows.begin(), rows.end(), std::int64_t{0}, [](std::int64_t sum, const MeasuredRow& row) {
        return sum + std::max<std::int64_t>(row.wrong, 0);
      });
}

BytesPerSecond Measurement::mean_bus_bandwidth() const noexcept {
  if (rows.empty()) {
    return {};
  }
  double sum = 0.0;
  for (const MeasuredRow& row : rows) {
    sum += row.bus_bandwidth.value();
  }
  return BytesPerSecond(sum / static_cast<double>(rows.size()));
}

Measurement describe(const Communicator& communicator, const MeasureOptions& options) {
  Measurement measurement;
  measurement.collective = options.collective;
  measurement.op = options.op;
  measurement.root = has_root(options.collective) ? options.root : -1;
  measurement.ranks = communicator.size();
  measurement.backend = communicator.backend();
  return measurement;
}

Measurement measure(Communicator& communicator, const MeasureOptions& options) {
  Measurement measurement = describe(communicator, options);
  measurement.rows = detail::rows_of(communicator, options);
  for (const Buffers kind : options.buffers) {
    Bytes needed{};
    for (const MeasuredRow& row : measurement.rows) {
      needed =
          std::max(needed, Subject::memory_needed(options.collective, row.size, options.at_once));
    }
    const Memory memory(communicator, kind, needed);
    for (std::size_t i = 0; i < measurement.rows.size(); ++i) {
      MeasuredRow& row = measurement.rows[i];
      if (row.buffers != kind) {
        continue;
      }
      if (options.on_progress) {
        options.on_progress(i, measurement.rows.size());
      }
      measure_row(communicator, options, memory.bytes(), row);
      detail::finish_row(communicator, options, memory.bytes(), row);
      if (options.on_row) {
        options.on_row(row);
      }
    }
  }
  return measurement;
}

std::vector<CollectiveCurve> curves_of(const Measurement& measurement) {
  std::vector<CollectiveCurve> curves;
  if (measurement.ranks < 2 || measurement.rows.empty()) {
    return curves;
  }
  const MeasuredRow& first = measurement.rows.front();
  for (const MeasuredRow& row : measurement.rows) {
    if (row.dtype != first.dtype || row.buffers != first.buffers) {
      continue;
    }
    auto curve = std::find_if(curves.begin(), curves.end(), [&](const CollectiveCurve& one) {
      return one.algorithm == row.algorithm;
    });
    if (curve == curves.end()) {
      curves.push_back({measurement.collective, row.algorithm, measurement.ranks, {}});
      curve = std::prev(curves.end());
    }
    curve->points.push_back({row.size, row.time.median});
  }
  for (CollectiveCurve& curve : curves) {
    std::sort(curve.points.begin(), curve.points.end(), [](const auto& a, const auto& b) {
      return a.size < b.size;
    });
    // A size asked for twice counts once: readers of machines want sizes that increase.
    const auto repeated =
        std::unique(curve.points.begin(), curve.points.end(), [](const auto& a, const auto& b) {
          return a.size == b.size;
        });
    curve.points.erase(repeated, curve.points.end());
  }
  return curves;
}

}  // namespace stretto
