// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/data/plan_fit.hpp"
#include "stretto/simulate/event_engine.hpp"
#include "stretto/simulate/step_program.hpp"

namespace stretto {
namespace {

[[noreturn]] void refuse(std::string message,
                         std::string where,
                         std::string found,
                         std::string expected) {
  throw Error(ErrorCode::kInvalidArgument,
              {std::move(message), std::move(where), std::move(found), std::move(expected), {}});
}

void check(const SimulateOptions& options, const ExchangeCosts& costs) {
  if (options.streams < 0) {
    refuse("the number of streams is not possible",
           "streams",
           std::to_string(options.streams),
           "1 or more, or 0 for one per bucket");
  }
  if (options.accumulate < 1) {
    refuse("a step has at least one pass",
           "accumulate",
           std::to_string(options.accumulate),
           "1 or more");
  }
  if (options.prefetch < 0) {
    refuse("prefetch is not possible", "prefetch", std::to_string(options.prefetch), "0 or more");
  }
  if (options.segment < Bytes(0)) {
    refuse("the segment is not possible", "segment", format(options.segment), "0 (none) or more");
  }
  if (options.schedule == Schedule::kPriority && options.sharding == Sharding::kParameters) {
    refuse("parameters that are gathered before each use cannot be updated during the forward pass",
           "schedule priority with ZeRO-3",
           "both",
           "overlap with ZeRO-3, or priority with ZeRO-1 or 2");
  }
  if (costs.ranks < 1) {
    refuse(
        "the number of ranks is not possible", "ranks", std::to_string(costs.ranks), "1 or more");
  }
  if (!(costs.compute_slowdown >= 1.0) || !std::isfinite(costs.compute_slowdown)) {
    refuse("the slowdown of compute is not possible",
           "compute_slowdown",
           std::to_string(costs.compute_slowdown),
           "1 (none) or more");
  }
  if (!options.compute_factor.empty() &&
      options.compute_factor.size() != static_cast<std::size_t>(costs.ranks)) {
    refuse("the speeds are not those of this machine's ranks",
           "compute_factor",
           std::to_string(options.compute_factor.size()) + " factors",
           std::to_string(costs.ranks) + ", one per rank");
  }
  for (std::size_t r = 0; r < options.compute_factor.size(); ++r) {
    if (!(options.compute_factor[r] > 0.0) || !std::isfinite(options.compute_factor[r])) {
      refuse("a rank's speed is not possible",
             "compute_factor of rank " + std::to_string(r),
             std::to_string(options.compute_factor[r]),
             "a number above 0");
    }
  }
}

void check(const StepProfile& profile,
           const Plan& plan,
           const ExchangeCosts& costs,
           const SimulateOptions& options) {
  require_fit(profile, plan);
  plan.validate();
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const CodecSpec& codec = plan.buckets[b].codec;
    if (!codec.lossy()) {
      continue;
    }
    if (options.sharding != Sharding::kNone) {
      throw Error(ErrorCode::kUnavailable,
                  {"codecs are for all-reduce, and sharded gradients are reduce-scattered",
                   "bucket " + std::to_string(b),
                   "codec " + to_string(codec),
                   "none with ZeRO",
                   "Leave the codec or the sharding out."});
    }
    if (costs.codec(codec) == nullptr) {
      std::string known;
      for (const CodecCost& cost : costs.codecs) {
        known += (known.empty() ? "" : ", ") + to_string(cost.codec());
      }
      throw Error(
          ErrorCode::kUnavailable,
          {"there is no price for this codec",
           "bucket " + std::to_string(b),
           "codec " + to_string(codec),
           known.empty() ? "a machine with measured codecs" : known,
           "stretto measure --codec " + to_string(codec) + " -o MACHINE adds it to a file"});
    }
  }
}

/// Ranks of equal speed, as one: who stands for them, and the speed.
struct RankClasses {
  std::vector<std::uint32_t> ranks;
  std::vector<double> factors;
};

RankClasses fold(const std::vector<double>& factors) {
  if (factors.empty()) {
    return {{0}, {1.0}};
  }
  std::vector<std::uint32_t> order(factors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return factors[a] < factors[b];
  });
  std::vector<std::uint32_t> first;
  for (const std::uint32_t rank : order) {
    if (first.empty() || factors[first.back()] != factors[rank]) {
      first.push_back(rank);
    }
  }
  std::sort(first.begin(), first.end());
  RankClasses classes;
  for (const std::uint32_t rank : first) {
    classes.ranks.push_back(rank);
    classes.factors.push_back(factors[rank]);
  }
  return classes;
}

/// Every rank if the Timeline shall have so many, so that means over ranks are right; else one of
/// each class. With the class of each.
std::vector<std::pair<std::uint32_t, std::size_t>> shown_ranks(const RankClasses& classes,
                                                               const SimulateOptions& options,
                                                               std::size_t recorded) {
  std::vector<std::pair<std::uint32_t, std::size_t>> shown;
  const std::vector<double>& factors = options.compute_factor;
  if (factors.empty() || factors.size() > options.recorded_ranks) {
    for (std::size_t c = 0; c < recorded; ++c) {
      shown.emplace_back(classes.ranks[c], c);
    }
    return shown;
  }
  for (std::uint32_t rank = 0; rank < factors.size(); ++rank) {
    const auto of = std::find(classes.factors.begin(), classes.factors.end(), factors[rank]);
    shown.emplace_back(rank, static_cast<std::size_t>(of - classes.factors.begin()));
  }
  return shown;
}

/// Of some steps that were run, when each began on the class that came to it last.
std::vector<double> step_begins(const detail::StepProgram& program,
                                const detail::Trace& trace,
                                std::size_t classes) {
  const std::size_t tasks = program.program.tasks.size();
  std::vector<double> begins;
  for (const std::uint32_t task : program.first_task_of_step) {
    double latest = 0.0;
    for (std::size_t c = 0; c < classes; ++c) {
      latest = std::max(latest, trace.began_s[c * tasks + task]);
    }
    begins.push_back(latest);
  }
  begins.push_back(trace.end_s);
  return begins;
}

class TimelineWriter {
 public:
  TimelineWriter(const StepProfile& profile,
                 const Plan& plan,
                 const detail::StepProgram& program,
                 const detail::Trace& trace)
      : profile_(profile), plan_(plan), program_(program), trace_(trace) {
    timeline_.source = "simulate";
  }

  /// The records of steps [first, last) of class `c`, called `rank`.
  void add(std::size_t c, std::uint32_t rank, std::size_t first, std::size_t last) {
    rank_ = rank;
    const std::size_t tasks = program_.program.tasks.size();
    const double* const began = trace_.began_s.data() + c * tasks;
    const double* const ended = trace_.ended_s.data() + c * tasks;
    const std::uint32_t first_task = program_.first_task_of_step[first];
    origin_s_ = began[first_task];
    for (std::size_t s = first; s < last; ++s) {
      const bool final_step = s + 1 == program_.first_task_of_step.size();
      const std::size_t end_task =
          final_step ? tasks : std::size_t{program_.first_task_of_step[s + 1]};
      step_ = static_cast<std::uint32_t>(s - first);
      const double begin = began[program_.first_task_of_step[s]];
      const double end = final_step ? std::max(ended[tasks - 1], last_end(s)) : began[end_task];
      Record step = record(RecordKind::kStep, Lane::kStep, begin, end);
      step.name = timeline_.name_id("step");
      timeline_.records.push_back(step);
      add_tasks(began, ended, program_.first_task_of_step[s], end_task, begin);
      add_exchanges(s);
    }
  }

  [[nodiscard]] Timeline finish(std::uint32_t ranks, std::size_t steps) {
    timeline_.world_size = ranks;
    timeline_.steps_total = static_cast<std::uint32_t>(steps);
    timeline_.steps_recorded = timeline_.steps_total;
    return std::move(timeline_);
  }

 private:
  [[nodiscard]] std::int64_t ns(double at_s) const {
    return std::llround((at_s - origin_s_) * 1e9);
  }

  [[nodiscard]] Record record(RecordKind kind, Lane lane, double begin_s, double end_s) const {
    Record result;
    result.kind = kind;
    result.lane = lane;
    result.begin_ns = ns(begin_s);
    result.end_ns = ns(end_s);
    result.rank = rank_;
    result.step = step_;
    return result;
  }

  [[nodiscard]] double last_end(std::size_t step) const {
    double latest = 0.0;
    for (std::size_t x = 0; x < program_.exchanges.size(); ++x) {
      if (program_.exchanges[x].step == step) {
        latest = std::max(latest, trace_.exchanges[x].ended_s);
      }
    }
    return latest;
  }

  void add_tasks(const double* began,
                 const double* ended,
                 std::size_t from,
                 std::size_t to,
                 double step_begin) {
    double free = step_begin;
    for (std::size_t t = from; t < to; ++t) {
      const detail::StepTask& what = program_.tasks[t];
      if (ns(began[t]) > ns(free)) {
        Record wait = record(RecordKind::kWait, Lane::kStep, free, began[t]);
        wait.name = timeline_.name_id("wait");
        timeline_.records.push_back(wait);
      }
      free = ended[t];
      if (program_.program.tasks[t].work_s > 0.0) {
        Record task = record(what.kind, Lane::kCompute, began[t], ended[t]);
        task.name = timeline_.name_id(*what.name);
        timeline_.records.push_back(task);
      }
      for (std::size_t i = what.tensors_begin; i < what.tensors_end; ++i) {
        Record ready = record(RecordKind::kReady, Lane::kCompute, ended[t], ended[t]);
        ready.bytes = profile_.tensors[i].bytes().count();
        ready.name = timeline_.name_id(profile_.tensors[i].name);
        if (program_.bucket_of_tensor[i] != kNoId) {
          ready.bucket = program_.bucket_of_tensor[i];
          ready.link = link(program_.gradient_exchange(what.step, ready.bucket));
        }
        timeline_.records.push_back(ready);
      }
    }
  }

  void add_exchanges(std::size_t step) {
    std::uint32_t sequence = 0;
    for (std::size_t x = 0; x < program_.exchanges.size(); ++x) {
      const detail::StepExchange& what = program_.exchanges[x];
      if (what.step != step) {
        continue;
      }
      const detail::Trace::Exchange& when = trace_.exchanges[x];
      Record entry =
          record(RecordKind::kLaunched, Lane::kCommunication, when.released_s, when.released_s);
      entry.collective = what.collective;
      entry.algorithm = plan_.buckets[what.bucket].algorithm;
      entry.bytes = plan_.buckets[what.bucket].bytes().count();
      entry.bucket = what.bucket;
      entry.sequence = sequence++;
      entry.link = link(x);
      entry.name = timeline_.name_id("bucket " + std::to_string(what.bucket));
      timeline_.records.push_back(entry);
      entry.kind = RecordKind::kCommunication;
      entry.begin_ns = ns(when.began_s);
      entry.end_ns = ns(when.ended_s);
      timeline_.records.push_back(entry);
    }
  }

  [[nodiscard]] static std::uint32_t link(std::size_t exchange) {
    return static_cast<std::uint32_t>(exchange);
  }

  const StepProfile& profile_;
  const Plan& plan_;
  const detail::StepProgram& program_;
  const detail::Trace& trace_;
  Timeline timeline_;
  std::uint32_t rank_ = 0;
  std::uint32_t step_ = 0;
  double origin_s_ = 0.0;
};

bool steady(const std::vector<double>& begins) {
  const std::size_t n = begins.size();
  // The last step also waits for its own end; the two before it are like any other.
  const double last = begins[n - 2] - begins[n - 3];
  const double before = begins[n - 3] - begins[n - 4];
  return std::abs(last - before) <= 1e-9 * std::max(last, before);
}

}  // namespace

Simulation simulate(const StepProfile& profile,
                    const ExchangeCosts& costs,
                    const Plan& plan,
                    const SimulateOptions& options) {
  check(options, costs);
  check(profile, plan, costs, options);
  const RankClasses classes = fold(options.compute_factor);
  const std::size_t recorded =
      std::min(std::max<std::size_t>(options.recorded_ranks, 1), classes.ranks.size());
  const bool across = options.schedule == Schedule::kPriority;
  constexpr std::size_t kFewSteps = 4;
  constexpr std::size_t kManySteps = 64;
  for (std::size_t steps = across ? kFewSteps : 1;; steps *= 2) {
    const detail::StepProgram program = detail::step_program(profile, costs, plan, options, steps);
    const detail::Trace trace = detail::run_program(program.program, classes.factors, recorded);
    const std::vector<double> begins = step_begins(program, trace, recorded);
    if (across && steps < kManySteps && !steady(begins)) {
      continue;
    }
    // The one before the last: what reaches into the next step is there.
    const std::size_t shown = across ? steps - 2 : 0;
    Simulation result;
    result.events = trace.events;
    result.step = Seconds(begins[shown + 1] - begins[shown]);
    result.steady = !across || steady(begins);
    if (!result.steady) {
      const std::size_t half = steps / 2;
      result.step =
          Seconds((begins[shown + 1] - begins[half]) / static_cast<double>(shown + 1 - half));
    }
    double communication_end = begins[shown];
    for (std::size_t x = 0; x < program.exchanges.size(); ++x) {
      if (program.exchanges[x].step == shown) {
        communication_end = std::max(communication_end, trace.exchanges[x].ended_s);
      }
    }
    result.communication_end = Seconds(communication_end - begins[shown]);
    if (options.recorded_ranks > 0) {
      TimelineWriter writer(profile, plan, program, trace);
      // What the steps before left on the wire is in the last one.
      const std::size_t first = across ? shown - 2 : 0;
      for (const auto& [rank, c] : shown_ranks(classes, options, recorded)) {
        writer.add(c, rank, first, shown + 1);
      }
      result.timeline = writer.finish(static_cast<std::uint32_t>(costs.ranks), shown + 1 - first);
    }
    return result;
  }
}

}  // namespace stretto
