// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/overlap.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "stretto/base/error.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/measure/compute_load.hpp"
#include "stretto/measure/subject.hpp"

namespace stretto {
namespace {

using Clock = std::chrono::steady_clock;
using detail::Subject;

Nanoseconds now() {
  return std::chrono::duration_cast<Nanoseconds>(Clock::now().time_since_epoch());
}

double seconds(Nanoseconds time) {
  return Seconds(time).count();
}

/// One rank's samples of one row.
class OverlapSamples {
 public:
  OverlapSamples(Communicator& communicator, Subject& subject, ComputeLoad& load)
      : communicator_(communicator), subject_(subject), load_(load) {}

  [[nodiscard]] double pure() {
    barrier();
    const Nanoseconds begin = now();
    subject_.start(0, Progress::kBackground);
    (void)subject_.finish();
    return seconds(now() - begin);
  }

  [[nodiscard]] double compute(std::int64_t work) {
    barrier();
    const Nanoseconds begin = now();
    load_.run(work);
    return seconds(now() - begin);
  }

  /// Also notes the slowdown, given what the work takes alone.
  [[nodiscard]] double overall(std::int64_t work, double alone) {
    barrier();
    const Nanoseconds begin = now();
    subject_.start(0, Progress::kBackground);
    const Nanoseconds compute_begin = now();
    load_.run(work);
    const Nanoseconds compute_end = now();
    const WorkTimes times = subject_.finish();
    const double total = seconds(now() - begin);
    note_slowdown(seconds(compute_end - compute_begin),
                  seconds(std::min(compute_end, times.ended) - compute_begin),
                  alone);
    return total;
  }

  [[nodiscard]] const std::vector<double>& slowdowns() const noexcept { return slowdowns_; }

 private:
  void barrier() { communicator_.barrier({.progress = Progress::kBackground}).wait(); }

  void note_slowdown(double took, double beside, double alone) {
    // Compute was slowed while it ran `beside`, and as quick as alone for the rest: in that time it
    // did the work that takes `alone` less the rest.
    constexpr double kEnough = 0.3;
    const double done_beside = alone - (took - beside);
    if (beside > kEnough * took && done_beside > kEnough * beside) {
      slowdowns_.push_back(beside / done_beside);
    }
  }

  Communicator& communicator_;
  Subject& subject_;
  ComputeLoad& load_;
  std::vector<double> slowdowns_;
};

/// Mean over ranks, sample by sample.
Spread shared_spread(Communicator& communicator, std::vector<double> values) {
  communicator.all_reduce(view(std::span(values))).wait();
  for (double& value : values) {
    value /= communicator.size();
  }
  return spread_of(values);
}

std::optional<double> shared_slowdown(Communicator& communicator,
                                      const std::vector<double>& slowdowns) {
  // Not every rank need have one.
  const double mine = slowdowns.empty() ? 0.0 : median(slowdowns);
  const double sum = sum_over_ranks(communicator, mine);
  const double ranks = sum_over_ranks(communicator, slowdowns.empty() ? 0.0 : 1.0);
  return ranks > 0.0 ? std::optional(sum / ranks) : std::nullopt;
}

OverlapRow measure_row(Communicator& communicator,
                       const OverlapOptions& options,
                       const MeasuredRow& row,
                       std::span<std::byte> memory,
                       ComputeLoad& load) {
  Subject subject(communicator, options.measure, row, memory);
  subject.clear();
  OverlapSamples samples(communicator, subject, load);
  std::vector<double> pilot;
  for (int i = 0; i < std::max(3, options.measure.warmup); ++i) {
    pilot.push_back(samples.pure());
  }
  // The same compute on all ranks: for what the slowest needs to communicate.
  const double pure = highest_over_ranks(communicator, median(pilot));
  const std::int64_t work = load.work_for(Seconds(pure * options.compute_ratio));
  std::vector<double> pures;
  std::vector<double> computes;
  const Sampled overall = sample(
      communicator,
      options.measure.stop,
      [&] {
        pures.push_back(samples.pure());
        computes.push_back(samples.compute(work));
        return Taken{0.0, samples.overall(work, computes.back())};
      },
      [](std::span<const Taken> ranks) {
        double sum = 0.0;
        for (const Taken& one : ranks) {
          sum += one.duration();
        }
        return sum / static_cast<double>(ranks.size());
      });
  OverlapRow result;
  result.row = row;
  result.overall = overall.spread;
  result.compute = shared_spread(communicator, computes);
  result.pure_communication = shared_spread(communicator, pures);
  result.row.time = result.pure_communication;
  result.row.settled = overall.settled;
  const Seconds added = result.overall.median - result.compute.median;
  result.overlap_ratio = std::clamp(1.0 - added / result.pure_communication.median, 0.0, 1.0);
  result.compute_slowdown = shared_slowdown(communicator, samples.slowdowns());
  return result;
}

}  // namespace

std::vector<OverlapRow> measure_overlap(Communicator& communicator, const OverlapOptions& asked) {
  OverlapOptions options = asked;
  options.measure.progress = Progress::kBackground;
  options.measure.at_once = 1;
  if (!(options.compute_ratio > 0.0) || !std::isfinite(options.compute_ratio)) {
    throw Error(ErrorCode::kInvalidArgument,
                {"compute of that length is not possible",
                 "compute_ratio",
                 std::to_string(options.compute_ratio),
                 "a number above 0",
                 ""});
  }
  const std::vector<MeasuredRow> rows = detail::rows_of(communicator, options.measure);
  ComputeLoad load;
  std::vector<OverlapRow> results;
  for (const MeasuredRow& row : rows) {
    if (options.measure.on_progress) {
      options.measure.on_progress(results.size(), rows.size());
    }
    const detail::Memory memory(
        communicator,
        row.buffers,
        Subject::memory_needed(options.measure.collective, row.size, options.measure.at_once));
    OverlapRow result = measure_row(communicator, options, row, memory.bytes(), load);
    detail::finish_row(communicator, options.measure, memory.bytes(), result.row);
    results.push_back(result);
    if (options.on_row) {
      options.on_row(result);
    }
  }
  return results;
}

}  // namespace stretto
