// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/event_engine.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"

namespace stretto::detail {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::uint32_t kNone = 0xffffffffU;

/// Compute of all ranks slows down and speeds up together, so one clock of work done serves all: it
/// runs at 1, or 1/slowdown while communication is under way, and a rank's task is over when that
/// clock passes a mark set at its begin.
class Simulator {
 public:
  Simulator(const Program& program, std::span<const double> factors, std::size_t recorded)
      : program_(program),
        factors_(factors),
        recorded_(std::min(recorded, factors.size())),
        state_(program.exchanges.size()),
        classes_(factors.size()),
        streams_(program.streams) {
    trace_.exchanges.resize(program.exchanges.size());
    trace_.began_s.assign(recorded_ * program.tasks.size(), 0.0);
    trace_.ended_s.assign(recorded_ * program.tasks.size(), 0.0);
    for (ExchangeState& exchange : state_) {
      exchange.unreleased = static_cast<std::uint32_t>(factors.size());
    }
  }

  Trace run() {
    for (std::uint32_t c = 0; c < classes_.size(); ++c) {
      advance(c);
    }
    while (step()) {
    }
    if (done_ != classes_.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"the simulated step waits for itself",
                   "simulate",
                   std::to_string(classes_.size() - done_) + " ranks blocked",
                   "an order in which every exchange is fed before it is waited for",
                   "Launch buckets in the order in which they are complete."});
    }
    trace_.end_s = std::max(trace_.end_s, now_);
    return std::move(trace_);
  }

 private:
  struct ExchangeState {
    std::uint32_t unreleased = 0;  // ranks that have not fed it
    bool over = false;
    bool began = false;
    double left_s = 0.0;
    std::uint64_t order = 0;
    std::vector<std::uint32_t> blocked;  // classes that wait for it
  };
  struct ClassState {
    std::uint32_t task = 0;
    std::uint32_t wait = 0;  // next of its task's waits to look at
    bool entered = false;
  };
  struct Stream {
    std::vector<std::uint32_t> waiting;  // a heap, most urgent first
    bool busy = false;
  };
  using Timed = std::pair<double, std::uint32_t>;
  using EarliestFirst = std::priority_queue<Timed, std::vector<Timed>, std::greater<>>;

  /// Most urgent first, then in order of release.
  [[nodiscard]] bool less_urgent(std::uint32_t a, std::uint32_t b) const {
    const int urgency_a = program_.exchanges[a].urgency;
    const int urgency_b = program_.exchanges[b].urgency;
    return urgency_a < urgency_b || (urgency_a == urgency_b && state_[a].order > state_[b].order);
  }

  [[nodiscard]] auto less() const {
    return [this](std::uint32_t a, std::uint32_t b) { return less_urgent(a, b); };
  }

  /// Runs the class's program up to its next piece of compute that takes time, or to a wait.
  void advance(std::uint32_t c) {
    ClassState& state = classes_[c];
    while (state.task < program_.tasks.size()) {
      const ComputeTask& task = program_.tasks[state.task];
      if (!state.entered) {
        state.entered = true;
        state.wait = task.waits_begin;
      }
      for (; state.wait < task.waits_end; ++state.wait) {
        ExchangeState& exchange = state_[program_.waits[state.wait]];
        if (!exchange.over) {
          exchange.blocked.push_back(c);
          return;
        }
      }
      if (c < recorded_) {
        trace_.began_s[c * program_.tasks.size() + state.task] = now_;
      }
      const double work = task.work_s * factors_[c];
      if (work > 0.0) {
        computing_.emplace(worked_ + work, c);
        return;
      }
      finish_task(c);
    }
    ++done_;
  }

  void finish_task(std::uint32_t c) {
    ClassState& state = classes_[c];
    const ComputeTask& task = program_.tasks[state.task];
    ++trace_.events;
    if (c < recorded_) {
      trace_.ended_s[c * program_.tasks.size() + state.task] = now_;
    }
    for (std::uint32_t r = task.releases_begin; r < task.releases_end; ++r) {
      release(program_.releases[r]);
    }
    ++state.task;
    state.entered = false;
  }

  void release(std::uint32_t x) {
    ExchangeState& exchange = state_[x];
    if (--exchange.unreleased > 0) {
      return;
    }
    exchange.order = released_++;
    exchange.left_s = program_.exchanges[x].wire_s;
    trace_.exchanges[x].released_s = now_;
    Stream& stream = streams_[program_.exchanges[x].stream];
    stream.waiting.push_back(x);
    std::push_heap(stream.waiting.begin(), stream.waiting.end(), less());
    if (on_wire_ != kNone && &stream == &streams_[program_.exchanges[on_wire_].stream]) {
      overtake_with(x);
    }
    start_next(stream);
  }

  /// Hands the stream's most urgent exchange to the wire, if the stream is free.
  void start_next(Stream& stream) {
    if (stream.busy || stream.waiting.empty()) {
      return;
    }
    std::pop_heap(stream.waiting.begin(), stream.waiting.end(), less());
    const std::uint32_t x = stream.waiting.back();
    stream.waiting.pop_back();
    stream.busy = true;
    ++under_way_;
    wire_queue_.push_back(x);
    std::push_heap(wire_queue_.begin(), wire_queue_.end(), less());
    overtake_with(x);
    feed_wire();
  }

  /// The wire is free after the present segment, if `x` is more urgent than what it carries.
  void overtake_with(std::uint32_t x) {
    if (on_wire_ == kNone || !less_urgent(on_wire_, x)) {
      return;
    }
    const double segment = program_.exchanges[on_wire_].segment_s;
    if (segment > 0.0) {
      const double segments = std::floor((now_ - fed_) / segment) + 1.0;
      carries_s_ = std::min(carries_s_, segments * segment);
      wire_free_ = std::max(now_, fed_ + carries_s_);
    }
  }

  void feed_wire() {
    if (on_wire_ != kNone || wire_queue_.empty()) {
      return;
    }
    std::pop_heap(wire_queue_.begin(), wire_queue_.end(), less());
    on_wire_ = wire_queue_.back();
    wire_queue_.pop_back();
    ExchangeState& exchange = state_[on_wire_];
    if (!exchange.began) {
      exchange.began = true;
      trace_.exchanges[on_wire_].began_s = now_;
    }
    // All that is left, not segment by segment: that would take an event for each, however small
    // they are, and nothing can overtake before it is there (overtake_with).
    fed_ = now_;
    carries_s_ = exchange.left_s;
    wire_free_ = now_ + carries_s_;
    const Stream& stream = streams_[program_.exchanges[on_wire_].stream];
    if (!stream.waiting.empty()) {
      overtake_with(stream.waiting.front());
    }
  }

  void leave_wire() {
    ++trace_.events;
    const std::uint32_t x = on_wire_;
    ExchangeState& exchange = state_[x];
    exchange.left_s -= carries_s_;
    on_wire_ = kNone;
    wire_free_ = kNever;
    const ExchangeTask& task = program_.exchanges[x];
    Stream& stream = streams_[task.stream];
    if (exchange.left_s <= 1e-15) {
      arriving_.emplace(now_ + task.latency_s, x);
    } else if (!stream.waiting.empty() && less_urgent(x, stream.waiting.front())) {
      // The more urgent one of its own stream takes its place there too.
      stream.waiting.push_back(x);
      std::push_heap(stream.waiting.begin(), stream.waiting.end(), less());
      stream.busy = false;
      --under_way_;
      start_next(stream);
    } else {
      wire_queue_.push_back(x);
      std::push_heap(wire_queue_.begin(), wire_queue_.end(), less());
    }
    feed_wire();
  }

  void arrive(std::uint32_t x) {
    ++trace_.events;
    ExchangeState& exchange = state_[x];
    exchange.over = true;
    trace_.exchanges[x].ended_s = now_;
    Stream& stream = streams_[program_.exchanges[x].stream];
    stream.busy = false;
    --under_way_;
    const std::vector<std::uint32_t> blocked = std::move(exchange.blocked);
    for (const std::uint32_t c : blocked) {
      advance(c);
    }
    start_next(stream);
  }

  [[nodiscard]] double rate() const { return under_way_ > 0 ? 1.0 / program_.slowdown : 1.0; }

  /// Carries out the next event. False when there is none.
  bool step() {
    double compute_at = kNever;
    if (!computing_.empty()) {
      compute_at = now_ + std::max(0.0, computing_.top().first - worked_) / rate();
    }
    const double arrival_at = arriving_.empty() ? kNever : arriving_.top().first;
    const double next = std::min({compute_at, arrival_at, wire_free_});
    if (next == kNever) {
      return false;
    }
    // What ends at the same moment: arrivals first, so that who waits for them goes on then.
    if (compute_at == next && arrival_at > next && wire_free_ > next) {
      worked_ = computing_.top().first;
    } else {
      worked_ += (next - now_) * rate();
    }
    now_ = next;
    if (arrival_at == next) {
      const std::uint32_t x = arriving_.top().second;
      arriving_.pop();
      arrive(x);
    } else if (wire_free_ == next) {
      leave_wire();
    } else {
      worked_ = std::max(worked_, computing_.top().first);
      const std::uint32_t c = computing_.top().second;
      computing_.pop();
      finish_task(c);
      advance(c);
    }
    return true;
  }

  const Program& program_;
  std::span<const double> factors_;
  std::size_t recorded_;
  Trace trace_;
  std::vector<ExchangeState> state_;
  std::vector<ClassState> classes_;
  std::vector<Stream> streams_;
  EarliestFirst computing_;  // by the mark on the clock of work
  EarliestFirst arriving_;   // by time
  std::vector<std::uint32_t> wire_queue_;
  std::uint32_t on_wire_ = kNone;
  double wire_free_ = kNever;
  double fed_ = 0.0;        // when it began to carry what it carries,
  double carries_s_ = 0.0;  // and for how long
  double now_ = 0.0;
  double worked_ = 0.0;
  std::uint64_t released_ = 0;
  int under_way_ = 0;
  std::size_t done_ = 0;
};

}  // namespace

Trace run_program(const Program& program,
                  std::span<const double> compute_factor,
                  std::size_t recorded) {
  return Simulator(program, compute_factor, recorded).run();
}

}  // namespace stretto::detail
