// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/bucketing.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kPrecision = 1e-9;  // of a bisection

void check_order(std::span<const ReadyBytes> gradients) {
  Seconds before{};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const ReadyBytes& gradient = gradients[i];
    if (gradient.bytes < Bytes(0) || !(gradient.ready >= before) ||
        gradient.ready == Seconds(kNever)) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"a gradient is not possible",
                   "gradient " + std::to_string(i),
                   format(gradient.bytes) + " ready at " + format(gradient.ready),
                   "sizes of zero or more, in order of ready time, from 0",
                   ""});
    }
    before = gradient.ready;
  }
}

/// Of the gradients that have bytes: ready[j] and bytes up to and with the j-th, both from index 1;
/// [0] is "nothing yet".
struct Prefixes {
  explicit Prefixes(std::span<const ReadyBytes> gradients) : all(gradients.size()) {
    check_order(gradients);
    ready.push_back(0.0);
    bytes.push_back(0);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].bytes > Bytes(0)) {
        ready.push_back(gradients[i].ready.count());
        bytes.push_back(bytes.back() + gradients[i].bytes.count());
        place.push_back(i);
      }
    }
  }
  [[nodiscard]] std::size_t count() const { return ready.size() - 1; }
  [[nodiscard]] double time(const ExchangeTime& cost, std::size_t i, std::size_t j) const {
    return cost(Bytes(bytes[j] - bytes[i])).count();
  }
  /// The cut whose buckets end after these j, with what has no bytes put into the bucket after it.
  [[nodiscard]] Bucketing cut(const std::vector<std::size_t>& js, const ExchangeTime& cost) const {
    Bucketing result;
    double at = 0.0;
    std::size_t i = 0;
    for (const std::size_t j : js) {
      result.ends.push_back(j == count() ? all : place[j - 1] + 1);
      at = std::max(at, ready[j]) + time(cost, i, j);
      i = j;
    }
    result.communication_end = Seconds(at);
    return result;
  }

  std::size_t all;  // gradients, those without bytes too
  std::vector<double> ready;
  std::vector<std::int64_t> bytes;
  std::vector<std::size_t> place;  // of the j-th among all, at j - 1
};

/// Times of exchanges of neighbouring gradients. Those of a curve, a logarithm and an exponential
/// each, are worked out once where several passes over all of them follow.
class Times {
 public:
  Times(const Prefixes& prefixes, const ExchangeTime& cost, bool several_passes)
      : prefixes_(prefixes), cost_(cost), count_(prefixes.count()) {
    constexpr std::size_t kMostKept = 2048;  // 16 MiB
    if (several_passes && cost.lines().empty() && count_ <= kMostKept) {
      kept_.reserve(count_ * (count_ + 1) / 2);
      for (std::size_t i = 0; i < count_; ++i) {
        for (std::size_t j = i + 1; j <= count_; ++j) {
          kept_.push_back(prefixes.time(cost, i, j));
        }
      }
    }
  }
  /// Of gradients (i, j], i < j.
  [[nodiscard]] double operator()(std::size_t i, std::size_t j) const {
    return kept_.empty() ? prefixes_.time(cost_, i, j)
                         : kept_[i * (2 * count_ - i + 1) / 2 + (j - i - 1)];
  }

 private:
  const Prefixes& prefixes_;
  const ExchangeTime& cost_;
  std::size_t count_;
  std::vector<double> kept_;
};

/// E and the i of each minimum, of one more bucket after `before` (the E that went before).
struct Row {
  std::vector<double> end;
  std::vector<std::uint32_t> from;
};

/// One line of the cost. max(E[i], r_j) falls into two cases, because E does not fall: up to the
/// last i with E[i] <= r_j only the bytes count, so that i is best; beyond it E[i] - beta S_i
/// counts, whose least value in the window between that i and j a monotone queue keeps.
class LineScan {
 public:
  LineScan(const Prefixes& prefixes, const CostLine& line) : prefixes_(prefixes), line_(line) {}

  /// E of `before` up to j - 1 must be final. Call with j = 1, 2, ...
  std::pair<double, std::uint32_t> best(const std::vector<double>& before, std::size_t j) {
    push(before, j - 1);
    while (pointer_ + 1 < j && before[pointer_ + 1] <= prefixes_.ready[j]) {
      ++pointer_;
    }
    while (head_ < queue_.size() && queue_[head_] <= pointer_) {
      ++head_;
    }
    double least = kNever;
    std::size_t from = pointer_;
    if (before[pointer_] <= prefixes_.ready[j]) {
      least = prefixes_.ready[j] + time(pointer_, j);
    } else if (before[pointer_] < kNever) {
      least = before[pointer_] + time(pointer_, j);  // pointer 0, and already too late
    }
    if (head_ < queue_.size()) {
      const std::size_t i = queue_[head_];
      const double candidate = before[i] + time(i, j);
      if (candidate < least) {
        least = candidate;
        from = i;
      }
    }
    return {least, static_cast<std::uint32_t>(from)};
  }

 private:
  [[nodiscard]] double time(std::size_t i, std::size_t j) const {
    return line_(Bytes(prefixes_.bytes[j] - prefixes_.bytes[i])).count();
  }
  [[nodiscard]] double key(const std::vector<double>& before, std::size_t i) const {
    return before[i] - line_.seconds_per_byte * static_cast<double>(prefixes_.bytes[i]);
  }
  void push(const std::vector<double>& before, std::size_t i) {
    if (before[i] == kNever) {
      return;
    }
    while (queue_.size() > head_ && key(before, queue_.back()) >= key(before, i)) {
      queue_.pop_back();
    }
    queue_.push_back(i);
  }

  const Prefixes& prefixes_;
  const CostLine& line_;
  std::size_t pointer_ = 0;
  std::vector<std::size_t> queue_;
  std::size_t head_ = 0;
};

/// Appends bucket after bucket as long as `row` says so, and what `before` may grow to.
Row scan(const Prefixes& prefixes,
         const ExchangeTime& cost,
         const Times& times,
         const std::vector<double>* before) {
  const std::size_t count = prefixes.count();
  Row row;
  row.end.assign(count + 1, kNever);
  row.from.assign(count + 1, 0);
  row.end[0] = 0.0;
  const std::vector<double>& ends = before != nullptr ? *before : row.end;
  std::vector<LineScan> scans;
  for (const CostLine& line : cost.lines()) {
    scans.emplace_back(prefixes, line);
  }
  for (std::size_t j = 1; j <= count; ++j) {
    for (LineScan& line : scans) {
      const auto [end, from] = line.best(ends, j);
      if (end < row.end[j]) {
        row.end[j] = end;
        row.from[j] = from;
      }
    }
    if (scans.empty()) {
      for (std::size_t i = j; i-- > 0;) {
        const double start = std::max(ends[i], prefixes.ready[j]);
        const double end = start + times(i, j);
        if (end < row.end[j]) {
          row.end[j] = end;
          row.from[j] = static_cast<std::uint32_t>(i);
        }
        if (ends[i] <= prefixes.ready[j]) {
          break;  // before i only more bytes
        }
      }
    }
  }
  return row;
}

/// When, at the latest, the stream may be free after the first i gradients for the rest to be
/// exchanged and updated by a given end. With S the bytes and D_i that end less the update of all
/// that comes after i:
///
///   latest[i] = max over j > i of  min(latest[j], D_i) - T(S_j - S_i),  where that is >= r_j
///
/// latest does not fall. So of the j with latest[j] >= D_i only the first counts, and it moves
/// towards the front with i; the others, of one line, are in the order of latest[j] - beta S_j, and
/// what begins too early for r_j does so for every smaller i: a heap per line, O(L log L). Of a
/// curve all are looked at.
class LatestStarts {
 public:
  LatestStarts(const Prefixes& prefixes,
               const ExchangeTime& cost,
               const Times& times,
               double update_s_per_byte)
      : prefixes_(prefixes),
        cost_(cost),
        times_(times),
        update_s_per_byte_(update_s_per_byte),
        latest_(prefixes.count() + 1),
        next_(prefixes.count() + 1),
        heaps_(cost.lines().size()) {}

  [[nodiscard]] bool possible(double end) {
    const std::size_t count = prefixes_.count();
    latest_[count] = kNever;
    free_ = count;
    for (std::vector<Keyed>& heap : heaps_) {
      heap.clear();
    }
    const auto total = static_cast<double>(prefixes_.bytes.back());
    for (std::size_t i = count; i-- > 0;) {
      const double done =
          end - update_s_per_byte_ * (total - static_cast<double>(prefixes_.bytes[i]));
      while (free_ > i + 1 && latest_[free_ - 1] >= done) {
        --free_;
      }
      latest_[i] = -kNever;
      take(i, free_, done - times_(i, free_));
      if (heaps_.empty()) {
        for (std::size_t j = i + 1; j < free_; ++j) {
          take(i, j, latest_[j] - times_(i, j));
        }
      }
      for (std::size_t l = 0; l < heaps_.size(); ++l) {
        take_best_of(heaps_[l], cost_.lines()[l], i);
      }
      if (latest_[i] == -kNever) {
        return false;
      }
    }
    return latest_[0] >= 0.0;
  }

  /// Of the last end that was possible: the j's of its buckets.
  [[nodiscard]] std::vector<std::size_t> cut() const {
    std::vector<std::size_t> js;
    for (std::size_t i = 0; i < prefixes_.count(); i = next_[i]) {
      js.push_back(next_[i]);
    }
    return js;
  }

 private:
  using Keyed = std::pair<double, std::size_t>;

  void take(std::size_t i, std::size_t j, double start) {
    if (start >= prefixes_.ready[j] && start > latest_[i]) {
      latest_[i] = start;
      next_[i] = j;
    }
  }
  void take_best_of(std::vector<Keyed>& heap, const CostLine& line, std::size_t i) {
    if (i + 1 < free_) {
      const double sent = line.seconds_per_byte * static_cast<double>(prefixes_.bytes[i + 1]);
      heap.emplace_back(latest_[i + 1] - sent, i + 1);
      std::push_heap(heap.begin(), heap.end());
    }
    while (!heap.empty()) {
      const std::size_t j = heap.front().second;
      const double start =
          latest_[j] - line(Bytes(prefixes_.bytes[j] - prefixes_.bytes[i])).count();
      if (j < free_ && start >= prefixes_.ready[j]) {
        take(i, j, start);
        return;
      }
      std::pop_heap(heap.begin(), heap.end());
      heap.pop_back();
    }
  }

  const Prefixes& prefixes_;
  const ExchangeTime& cost_;
  const Times& times_;
  double update_s_per_byte_;
  std::vector<double> latest_;
  std::vector<std::size_t> next_;
  std::vector<std::vector<Keyed>> heaps_;
  std::size_t free_ = 0;  // the first j with latest[j] >= D_i
};

}  // namespace

Seconds communication_end(std::span<const ReadyBytes> gradients,
                          std::span<const std::size_t> ends,
                          const ExchangeTime& cost) {
  check_order(gradients);
  double at = 0.0;
  std::size_t i = 0;
  for (std::size_t b = 0; b < ends.size(); ++b) {
    if (ends[b] <= i || ends[b] > gradients.size() ||
        (b + 1 == ends.size() && ends[b] != gradients.size())) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"a bucket is not possible",
                   "bucket " + std::to_string(b),
                   "gradients " + std::to_string(i) + " to " + std::to_string(ends[b]),
                   "ends that increase up to " + std::to_string(gradients.size()),
                   ""});
    }
    Bytes bytes;
    Seconds ready{};
    for (; i < ends[b]; ++i) {
      bytes += gradients[i].bytes;
      ready = gradients[i].bytes > Bytes(0) ? gradients[i].ready : ready;
    }
    if (bytes > Bytes(0)) {
      at = std::max(at, ready.count()) + cost(bytes).count();
    }
  }
  return Seconds(at);
}

Bucketing earliest_buckets(std::span<const ReadyBytes> gradients, const ExchangeTime& cost) {
  const Prefixes prefixes(gradients);
  const Row row = scan(prefixes, cost, Times(prefixes, cost, false), nullptr);
  std::vector<std::size_t> js;
  for (std::size_t j = prefixes.count(); j > 0; j = row.from[j]) {
    js.push_back(j);
  }
  std::reverse(js.begin(), js.end());
  return prefixes.cut(js, cost);
}

Bucketing fewest_buckets(std::span<const ReadyBytes> gradients,
                         const ExchangeTime& cost,
                         Seconds deadline) {
  Bucketing earliest = earliest_buckets(gradients, cost);
  if (earliest.communication_end > deadline || earliest.ends.size() <= 1) {
    return earliest;
  }
  const Prefixes prefixes(gradients);
  const std::size_t count = prefixes.count();
  const Times times(prefixes, cost, true);
  std::vector<Row> rows;  // [k]: with at most k + 1 buckets
  rows.reserve(earliest.ends.size());
  std::vector<double> before(count + 1, kNever);
  before[0] = 0.0;
  while (rows.size() + 1 < earliest.ends.size()) {
    rows.push_back(scan(prefixes, cost, times, &before));
    before = rows.back().end;
    if (before[count] <= deadline.count()) {
      std::vector<std::size_t> js;
      std::size_t j = count;
      for (std::size_t k = rows.size(); j > 0;) {
        js.push_back(j);
        j = rows[--k].from[j];
      }
      std::reverse(js.begin(), js.end());
      return prefixes.cut(js, cost);
    }
  }
  return earliest;
}

EvenBuckets best_even_buckets(std::span<const ReadyBytes> gradients, const CostLine& cost) {
  check_order(gradients);
  const std::size_t count = gradients.size();
  if (count == 0) {
    return {};
  }
  std::vector<double> bytes(count + 1, 0.0);  // up to each gradient, as time on the wire
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i + 1] =
        bytes[i] + cost.seconds_per_byte * static_cast<double>(gradients[i].bytes.count());
  }
  const double latency = cost.latency.count();
  // No cut of a size ends before its last bucket alone would, nor before all of them, one after the
  // other from the moment the first is ready.
  const auto bound = [&](std::size_t size) {
    const std::size_t buckets = (count + size - 1) / size;
    const double last =
        gradients.back().ready.count() + latency + bytes[count] - bytes[(buckets - 1) * size];
    const double all = gradients[std::min(size, count) - 1].ready.count() +
                       static_cast<double>(buckets) * latency + bytes[count];
    return std::max(last, all);
  };
  const auto end_of = [&](std::size_t size) {
    double at = 0.0;
    for (std::size_t i = 0; i < count; i += size) {
      const std::size_t end = std::min(count, i + size);
      at = std::max(at, gradients[end - 1].ready.count()) + latency + bytes[end] - bytes[i];
    }
    return at;
  };
  std::size_t best = count;
  double least_bound = bound(count);
  for (std::size_t size = count; size-- > 1;) {
    const double here = bound(size);
    if (here < least_bound) {
      least_bound = here;
      best = size;
    }
  }
  // The most promising first, so that few others need a look.
  double least = end_of(best);
  const std::size_t promising = best;
  for (std::size_t size = count; size > 0; --size) {
    if (size != promising && bound(size) < least) {
      const double end = end_of(size);
      if (end < least) {
        least = end;
        best = size;
      }
    }
  }
  return {best, Seconds(least)};
}

UpdatedBucketing buckets_before_update(std::span<const ReadyBytes> gradients,
                                       const ExchangeTime& cost,
                                       Seconds compute_end,
                                       double update_s_per_byte) {
  const Prefixes prefixes(gradients);
  const auto total = static_cast<double>(prefixes.bytes.back());
  Bucketing best = earliest_buckets(gradients, cost);
  const auto step_end = [&](const Bucketing& cut) {
    double channel = 0.0;
    double updated = compute_end.count();
    std::size_t i = 0;
    for (const std::size_t end : cut.ends) {
      Bytes bytes;
      Seconds ready{};
      for (; i < end; ++i) {
        bytes += gradients[i].bytes;
        ready = gradients[i].bytes > Bytes(0) ? gradients[i].ready : ready;
      }
      channel = std::max(channel, ready.count()) + cost(bytes).count();
      updated = std::max(updated, channel) + update_s_per_byte * static_cast<double>(bytes.count());
    }
    return updated;
  };
  double feasible = step_end(best);
  double infeasible =
      std::max(compute_end.count() + update_s_per_byte * total, best.communication_end.count());
  if (feasible - infeasible <= kPrecision * feasible) {
    return {std::move(best), Seconds(feasible)};
  }
  const Times times(prefixes, cost, true);
  LatestStarts starts(prefixes, cost, times, update_s_per_byte);
  constexpr int kHalvings = 60;
  for (int k = 0; k < kHalvings && feasible - infeasible > kPrecision * feasible; ++k) {
    const double middle = infeasible + (feasible - infeasible) / 2;
    if (!starts.possible(middle)) {
      infeasible = middle;
      continue;
    }
    Bucketing cut = prefixes.cut(starts.cut(), cost);
    feasible = std::min(middle, step_end(cut));
    best = std::move(cut);
  }
  return {std::move(best), Seconds(feasible)};
}

}  // namespace stretto
