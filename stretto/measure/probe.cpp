// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/probe.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

using Clock = std::chrono::steady_clock;

/// Shorter blocks would measure the clock.
constexpr Seconds kLeastBlock{50e-6};
constexpr int kMostCalls = 100;
constexpr Bytes kLatencyOnly{1024};
constexpr Bytes kBandwidthOnly{32 << 10};

void check(const Communicator& communicator, const ProbeOptions& options) {
  check_group_sizes(options.group_sizes, communicator.size());
  if (options.least < Bytes(1) || options.most < options.least) {
    throw Error(ErrorCode::kInvalidArgument,
                {"no message size can be probed",
                 "least, most",
                 format(options.least) + ", " + format(options.most),
                 "1 byte or more, in this order",
                 ""});
  }
}

/// The neighbours of one rank on one level.
struct Shift {
  int next = 0;
  int previous = 0;
};

Shift shift_of(int rank, int inside, int members) {
  const int member = rank / inside % members;
  const int first = rank - member * inside;
  return {first + (member + 1) % members * inside,
          first + (member + members - 1) % members * inside};
}

class Exchange {
 public:
  Exchange(
      Communicator& communicator, Shift shift, Progress progress, BufferView out, BufferView in)
      : communicator_(communicator), shift_(shift), progress_(progress), out_(out), in_(in) {}

  /// One sample; nothing happens in it on a rank that has no part.
  [[nodiscard]] Taken time(int calls, bool takes_part) {
    communicator_.barrier({.progress = progress_}).wait();
    const auto begin = Clock::now();
    Taken by_work;
    for (int call = 0; call < calls && takes_part; ++call) {
      const std::array<Work, 2> works = {
          communicator_.recv(in_, shift_.previous, {.progress = progress_}),
          communicator_.send(out_, shift_.next, {.progress = progress_})};
      for (const Work& work : works) {
        work.wait();
      }
      // The send may be over later: its bytes are lent until the receiver is done with them.
      by_work = {Seconds(works[1].times().launched).count(),
                 Seconds(works[0].times().ended).count()};
    }
    if (!takes_part || (progress_ == Progress::kBackground && calls == 1)) {
      return by_work;
    }
    return {0.0, Seconds(Clock::now() - begin).count() / calls};
  }

 private:
  Communicator& communicator_;
  Shift shift_;
  Progress progress_;
  BufferView out_;
  BufferView in_;
};

/// A link is busy from when the first of its ranks begins until the last of them is done: never too
/// short, and what a late start adds the quickest samples do not have.
double on_one_clock(std::span<const Taken> taken, int sharing, int members) {
  const int ranks = static_cast<int>(taken.size());
  double quickest = INFINITY;
  for (int first = 0; first < ranks; first += sharing) {
    double begin = INFINITY;
    double end = 0.0;
    for (int rank = first; rank < first + sharing; ++rank) {
      const Taken& received = taken[static_cast<std::size_t>(rank)];
      const int sender = shift_of(rank, sharing, members).previous;
      const Taken& sent = taken[static_cast<std::size_t>(sender)];
      if (sent.end > 0.0) {  // else it had no part
        begin = std::min(begin, sent.begin);
        end = std::max(end, received.end);
      }
    }
    quickest = std::min(quickest, end - begin);
  }
  return quickest;
}

double mean_over_links(std::span<const Taken> taken, int sharing) {
  double sum = 0.0;
  for (std::size_t first = 0; first < taken.size(); first += static_cast<std::size_t>(sharing)) {
    double link = 0.0;
    for (const Taken& one : taken.subspan(first, static_cast<std::size_t>(sharing))) {
      link = std::max(link, one.duration());
    }
    sum += link;
  }
  return sum / (static_cast<double>(taken.size()) / sharing);
}

LevelProbe probe_level(Communicator& communicator,
                       const ProbeOptions& options,
                       int level,
                       int inside,
                       std::span<std::byte> memory) {
  LevelProbe probe;
  probe.level = level;
  probe.sharing = inside;
  const int members = options.group_sizes[static_cast<std::size_t>(level)];
  const Shift shift = shift_of(communicator.rank(), inside, members);
  const std::size_t half = memory.size() / 2;
  for (Bytes size = options.least; size <= options.most; size = size * 4) {
    if (inside > 1 && size > kLatencyOnly && size < kBandwidthOnly) {
      continue;  // neither alone on the link, nor longer than the ranks' starts are apart
    }
    // Bytes have no type of their own here: integers of four, and one at least.
    const std::size_t count = std::max<std::size_t>(1, static_cast<std::size_t>(size.count()) / 4);
    Exchange exchange(communicator,
                      shift,
                      options.progress,
                      {memory.data(), count, DType::kI32, {}},
                      {memory.data() + half, count, DType::kI32, {}});
    const bool alone = size <= kLatencyOnly;
    const bool takes_part = !alone || communicator.rank() % inside == 0;
    for (int i = 0; i < options.warmup; ++i) {
      (void)exchange.time(1, takes_part);
    }
    const double once = highest_over_ranks(communicator, exchange.time(1, takes_part).duration());
    int calls = 1;
    if (options.progress == Progress::kCaller) {
      const double wanted = std::ceil(kLeastBlock.count() / std::max(once, 1e-9));
      calls = static_cast<int>(std::clamp<double>(wanted, 1, kMostCalls));
    }
    const Sampled sampled = sample(
        communicator,
        options.stop,
        [&] { return exchange.time(calls, takes_part); },
        [&](std::span<const Taken> taken) {
          return options.one_clock ? on_one_clock(taken, inside, members)
                                   : mean_over_links(taken, inside);
        });
    const std::int64_t messages = alone ? 1 : inside;
    probe.points.push_back(
        {Bytes(static_cast<std::int64_t>(count) * 4 * messages), sampled.spread.p10});
    probe.spreads.push_back(sampled.spread);
    if (sampled.spread.median >= options.longest) {
      break;
    }
  }
  probe.line = fit_line(probe.points);
  probe.segments = fit_segments(probe.points);
  return probe;
}

}  // namespace

void check_group_sizes(std::span<const int> group_sizes, int ranks) {
  std::int64_t product = 1;
  std::string sizes;
  for (const int size : group_sizes) {
    product *= std::clamp(size, 0, 1 << 20);
    sizes += (sizes.empty() ? "" : " x ") + std::to_string(size);
  }
  if (product != ranks) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the levels' groups do not hold the ranks",
                 "group sizes",
                 sizes + " = " + std::to_string(product),
                 std::to_string(ranks) + " ranks",
                 ""});
  }
}

std::vector<LevelProbe> probe_levels(Communicator& communicator, const ProbeOptions& options) {
  check(communicator, options);
  std::vector<LevelProbe> probes;
  if (communicator.size() < 2) {
    return probes;
  }
  // Sent from the one half, received in the other; a page between them.
  const std::unique_ptr<Arena> arena =
      communicator.allocate(Bytes(std::max<std::int64_t>(options.most.count(), 4) * 2 + 8192));
  int inside = 1;
  for (std::size_t level = 0; level < options.group_sizes.size(); ++level) {
    if (options.on_progress) {
      options.on_progress(level, options.group_sizes.size());
    }
    if (options.group_sizes[level] > 1) {
      probes.push_back(
          probe_level(communicator, options, static_cast<int>(level), inside, arena->bytes()));
    }
    inside *= options.group_sizes[level];
  }
  return probes;
}

Machine measured_machine(std::string name,
                         std::string source,
                         std::span<const LevelProbe> probes,
                         std::span<const int> group_sizes,
                         std::span<const std::string> names,
                         std::vector<CollectiveCurve> curves) {
  Machine machine;
  machine.name = std::move(name);
  machine.source = std::move(source);
  machine.basis = Basis::kMeasured;
  machine.curves = std::move(curves);
  for (const LevelProbe& probe : probes) {
    const auto index = static_cast<std::size_t>(probe.level);
    Level level;
    level.name = index < names.size() ? names[index] : "level" + std::to_string(probe.level);
    level.group_size = group_sizes[index];
    level.latency = probe.line.latency;
    level.bandwidth = probe.line.bandwidth();
    if (!(level.bandwidth > BytesPerSecond(0))) {
      // Times that did not grow say that the link is at least this fast.
      const CurvePoint& largest = probe.points.back();
      level.bandwidth =
          BytesPerSecond(static_cast<double>(largest.size.count()) / largest.time.count());
    }
    machine.levels.push_back(std::move(level));
  }
  if (machine.levels.empty()) {
    machine.levels.push_back({"alone", 1, Seconds(0), BytesPerSecond(1e9)});
  }
  return machine;
}

}  // namespace stretto
