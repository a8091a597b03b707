// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "stretto/base/text.hpp"
#include "stretto/trace/builder.hpp"
#include "stretto/trace/pattern.hpp"

namespace stretto::detail {
namespace {

constexpr std::int64_t kNever = -kLatestTraceNs;

/// A step as the host saw it.
struct HostStep {
  Interval when;
  std::uint32_t number = 0;
  std::uint32_t name = 0;
};

bool is_profiler_step(std::string_view name) {
  return name.starts_with("ProfilerStep");
}
bool is_optimizer_step(std::string_view name) {
  return name.starts_with("Optimizer.step");
}
bool is_common_step(std::string_view name) {
  std::string lower(name.substr(0, 32));
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  constexpr std::array<std::string_view, 5> kWords = {
      "step", "iteration", "iter", "train_step", "training_step"};
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) {
    return lower.starts_with(word) &&
           lower.find_first_not_of("0123456789#_-: ", word.size()) == std::string::npos;
  });
}

/// Digits at the end of the name, else none.
std::optional<std::uint32_t> number_of(std::string_view name) {
  const std::size_t last = name.find_last_not_of("0123456789");
  std::int64_t number = 0;
  const std::string_view digits = last == std::string_view::npos ? name : name.substr(last + 1);
  if (digits.empty() || digits.size() > 9 || !parse_integer(digits, number)) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(number);
}

/// Annotations that match, outermost ones only, in order of time.
template <typename Matches>
std::vector<HostStep> matching(std::span<const Record> records,
                               std::uint32_t rank,
                               const std::vector<std::string>& names,
                               Matches matches) {
  std::map<std::uint32_t, bool> known;
  std::vector<HostStep> steps;
  for (const Record& record : records) {
    if (record.kind != RecordKind::kAnnotation || record.end_ns <= record.begin_ns ||
        record.rank != rank) {
      continue;
    }
    const auto [place, added] = known.try_emplace(record.name, false);
    if (added) {
      place->second = matches(std::string_view(names[record.name]));
    }
    if (place->second) {
      steps.push_back({{record.begin_ns, record.end_ns}, 0, record.name});
    }
  }
  std::sort(steps.begin(), steps.end(), [](const HostStep& a, const HostStep& b) {
    return std::tuple(a.when.begin_ns, -a.when.end_ns) <
           std::tuple(b.when.begin_ns, -b.when.end_ns);
  });
  std::vector<HostStep> outermost;
  for (const HostStep& step : steps) {
    if (outermost.empty() || step.when.begin_ns >= outermost.back().when.end_ns) {
      outermost.push_back(step);
    }
  }
  return outermost;
}

/// From the end of one optimizer step to the end of the next.
std::vector<HostStep> between_optimizers(const std::vector<HostStep>& optimizers) {
  std::vector<HostStep> steps;
  for (std::size_t i = 1; i < optimizers.size(); ++i) {
    steps.push_back(
        {{optimizers[i - 1].when.end_ns, optimizers[i].when.end_ns}, 0, optimizers[i].name});
  }
  return steps;
}

void number_steps(std::vector<HostStep>& steps, const std::vector<std::string>& names) {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(steps.size());
  for (const HostStep& step : steps) {
    numbers.push_back(number_of(names[step.name]).value_or(kNoId));
  }
  const bool increasing =
      std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>()) == numbers.end();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i].number =
        increasing && numbers[i] != kNoId ? numbers[i] : static_cast<std::uint32_t>(i);
  }
}

class Marker {
 public:
  Marker(TraceBuilder& builder, std::uint32_t rank)
      : builder_(builder), file_(builder.file()), first_(builder.first_record()), rank_(rank) {
    const std::span<Record> all = records();
    has_device_ = std::any_of(all.begin(), all.end(), [&](const Record& record) {
      return record.rank == rank_ && record.lane != Lane::kHost;
    });
  }

  void mark() {
    find_host_steps();
    std::vector<HostStep> steps = has_device_ ? device_steps() : host_steps_;
    if (steps.empty()) {
      mark_whole();
      return;
    }
    assign(steps);
    leave_out_incomplete(steps);
    add_steps(steps);
    order_collectives();
  }

 private:
  [[nodiscard]] std::span<Record> records() const {
    return std::span(builder_.timeline().records).subspan(first_);
  }

  void find_host_steps() {
    const std::vector<std::string>& names = builder_.timeline().names;
    const std::string& expression = builder_.options().step_expression;
    const auto find = [&](auto matches) { return matching(records(), rank_, names, matches); };
    if (!expression.empty()) {
      const Pattern pattern(expression);
      host_steps_ = find([&](std::string_view name) { return pattern.is_in(name); });
      file_.steps_from = "ranges that match " + expression;
    } else {
      host_steps_ = find(is_profiler_step);
      file_.steps_from = "ProfilerStep";
      if (host_steps_.empty()) {
        host_steps_ = find(is_common_step);
        file_.steps_from = "ranges named step or iteration";
      }
      if (host_steps_.empty()) {
        host_steps_ = between_optimizers(find(is_optimizer_step));
        file_.steps_from = "ends of optimizer steps";
      }
    }
    if (host_steps_.empty()) {
      file_.steps_from.clear();
    }
    number_steps(host_steps_, names);
  }

  /// Index of the last host step that begins at or before, none before the first.
  [[nodiscard]] std::optional<std::size_t> step_at(std::int64_t at_ns) const {
    const auto after = std::upper_bound(
        host_steps_.begin(), host_steps_.end(), at_ns, [](std::int64_t at, const HostStep& step) {
          return at < step.when.begin_ns;
        });
    if (after == host_steps_.begin()) {
      return std::nullopt;
    }
    return static_cast<std::size_t>(after - host_steps_.begin() - 1);
  }

  /// There are as many as kernels: small.
  struct Launch {
    std::uint32_t link;
    std::uint32_t record;
  };

  void find_launches() {
    const std::span<Record> all = records();
    const auto is_launch = [&](const Record& record) {
      return record.rank == rank_ && record.kind == RecordKind::kEnqueue;
    };
    launches_.reserve(static_cast<std::size_t>(std::count_if(all.begin(), all.end(), is_launch)));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (is_launch(all[i])) {
        launches_.push_back({all[i].link, static_cast<std::uint32_t>(i)});
      }
    }
    std::sort(launches_.begin(), launches_.end(), [&](const Launch& a, const Launch& b) {
      return a.link != b.link ? a.link < b.link : all[a.record].begin_ns < all[b.record].begin_ns;
    });
  }

  /// The host call that launched it; null if none is recorded.
  [[nodiscard]] const Record* launch_of(const Record& record) const {
    if (record.link == kNoId) {
      return nullptr;
    }
    const auto found = std::lower_bound(
        launches_.begin(),
        launches_.end(),
        record.link,
        [](const Launch& launch, std::uint32_t link) { return launch.link < link; });
    if (found == launches_.end() || found->link != record.link) {
      return nullptr;
    }
    return &records()[found->record];
  }

  /// A step of the device lasts until the last of what the host launched in it has ended, and
  /// begins where the step before it ended: the device lags behind the host, and what it waits for
  /// at the begin of a step belongs to that step.
  std::vector<HostStep> device_steps() {
    find_launches();
    std::vector<std::int64_t> end(host_steps_.size(), kNever);
    std::int64_t before = kNever;  // end of what was launched before the first step
    for (const Record& record : records()) {
      const Record* launch =
          record.rank != rank_ || record.lane == Lane::kHost ? nullptr : launch_of(record);
      if (launch == nullptr) {
        continue;
      }
      const auto step = step_at(launch->begin_ns);
      std::int64_t& last = step ? end[*step] : before;
      last = std::max(last, record.end_ns);
    }
    std::vector<HostStep> steps;
    std::int64_t begin = before;
    for (std::size_t i = 0; i < host_steps_.size(); ++i) {
      if (end[i] == kNever) {
        continue;  // the host marked a step that gave the device nothing to do
      }
      HostStep step = host_steps_[i];
      step.when = {
          std::max(begin, i == 0 || begin == kNever ? host_steps_[i].when.begin_ns : begin),
          end[i]};
      if (step.when.end_ns > step.when.begin_ns) {
        steps.push_back(step);
        begin = step.when.end_ns;
      }
    }
    return steps;
  }

  void mark_whole() {
    std::int64_t begin = kLatestTraceNs;
    std::int64_t end = -kLatestTraceNs;
    for (const Record& record : records()) {
      // Rows without time and length are what a profiler lost: they lie at 0.
      if (record.rank == rank_ && record.end_ns > record.begin_ns &&
          has_device_ == (record.lane != Lane::kHost)) {
        begin = std::min(begin, record.begin_ns);
        end = std::max(end, record.end_ns);
      }
    }
    if (begin >= end) {
      return;
    }
    if (launches_.empty()) {
      find_launches();
    }
    const bool marked = !host_steps_.empty();
    host_steps_.clear();
    file_.steps_from.clear();
    std::vector<HostStep> whole = {{{begin, end}, 0, builder_.name(kWholeRecording)}};
    assign(whole);
    add_steps(whole);
    order_collectives();
    builder_.note(
        marked ? std::string("its steps are marked on the host, but no row of the device has its "
                             "launch in the file, so that the whole file counts as one step")
        : !builder_.options().step_expression.empty()
            ? "no range matches --step-regex " + quote(builder_.options().step_expression) +
                  ", so that the whole file counts as one step"
            : "nothing marks its steps, so that the whole file counts as one; name "
              "what does with --step-regex");
  }

  /// Device records belong to the step in which they begin on the device; host records alike.
  void assign(const std::vector<HostStep>& steps) {
    const auto step_of = [](const std::vector<HostStep>& list, std::int64_t at_ns) {
      const auto after = std::upper_bound(
          list.begin(), list.end(), at_ns, [](std::int64_t at, const HostStep& step) {
            return at < step.when.begin_ns;
          });
      return after == list.begin() || std::prev(after)->when.end_ns <= at_ns
                 ? kNoId
                 : std::prev(after)->number;
    };
    const std::vector<HostStep>& host = host_steps_.empty() ? steps : host_steps_;
    for (Record& record : records()) {
      if (record.rank != rank_) {
        continue;
      }
      record.step = step_of(record.lane == Lane::kHost ? host : steps, record.begin_ns);
    }
  }

  /// The last step of a recording may be cut off: it has then fewer collectives than all others,
  /// which agree.
  void leave_out_incomplete(std::vector<HostStep>& steps) {
    if (steps.size() < 2) {
      return;
    }
    std::map<std::uint32_t, std::size_t> count;
    for (const Record& record : records()) {
      if (record.rank == rank_ && record.kind == RecordKind::kCommunication &&
          has_device_ == (record.lane != Lane::kHost)) {
        ++count[record.step];
      }
    }
    if (steps.size() == 2) {
      const std::size_t first = count[steps[0].number];
      const std::size_t second = count[steps[1].number];
      if (second < first) {
        builder_.note("the last of its two steps has " + std::to_string(second) +
                      " collectives, the first " + std::to_string(first) +
                      ": it may be cut off, and counts");
      }
      return;
    }
    const std::size_t usual = count[steps[1].number];
    const bool agree = std::all_of(steps.begin() + 1, steps.end() - 1, [&](const HostStep& step) {
      return count[step.number] == usual;
    });
    const std::size_t last = count[steps.back().number];
    if (agree && last < usual) {
      builder_.note("the last step (" + builder_.timeline().names[steps.back().name] + ") has " +
                    std::to_string(last) + " collectives where the others have " +
                    std::to_string(usual) +
                    ": it is cut off, and counts in the totals but not in the steps' medians");
      steps.pop_back();
    }
  }

  void add_steps(const std::vector<HostStep>& steps) {
    for (const HostStep& step : steps) {
      Record record;
      record.begin_ns = step.when.begin_ns;
      record.end_ns = step.when.end_ns;
      record.name = step.name;
      record.rank = rank_;
      record.step = step.number;
      record.kind = RecordKind::kStep;
      record.lane = Lane::kStep;
      builder_.timeline().records.push_back(record);
    }
  }

  /// Numbers the collectives of each step, and says when each was handed over and when all that was
  /// launched before it on its device was done: what it could not begin before.
  void order_collectives() {
    std::vector<std::size_t> communication;
    const std::span<Record> all = records();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].rank == rank_ && all[i].kind == RecordKind::kCommunication &&
          has_device_ == (all[i].lane != Lane::kHost) && all[i].step != kNoId) {
        communication.push_back(i);
      }
    }
    if (communication.empty()) {
      return;
    }
    std::sort(communication.begin(), communication.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(all[a].begin_ns, all[a].end_ns) < std::pair(all[b].begin_ns, all[b].end_ns);
    });
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> next;  // step, device
    for (const std::size_t i : communication) {
      all[i].sequence = next[{all[i].step, all[i].device}]++;
      all[i].bucket = all[i].sequence;
    }
    if (has_device_) {
      add_instants(communication);
    }
  }

  /// A collective that a host thread launched.
  struct Handed {
    std::int64_t launched_ns;
    std::int64_t begin_ns;
    std::size_t record;
    std::int64_t ready_ns = kNever;
  };
  using Place = std::pair<std::uint32_t, std::uint32_t>;  // device, host thread

  /// A collective waits for the stream that is current when it is launched: for the compute that
  /// its thread launched before. What of it was not over when the collective began ran on another
  /// stream, and counts for a later one.
  void add_instants(const std::vector<std::size_t>& communication) {
    std::map<Place, std::vector<Handed>> places;  // in order of launch
    for (const std::size_t i : communication) {
      const Record& collective = records()[i];
      if (const Record* launch = launch_of(collective)) {
        places[{collective.device, launch->stream}].push_back(
            {launch->begin_ns, collective.begin_ns, i});
      }
    }
    for (auto& [place, list] : places) {
      std::stable_sort(list.begin(), list.end(), [](const Handed& a, const Handed& b) {
        return a.launched_ns < b.launched_ns;
      });
    }
    // Kernels are millions and collectives few: nothing is kept per kernel.
    for (const Record& record : records()) {
      if (record.rank == rank_ && record.kind == RecordKind::kCompute &&
          record.lane == Lane::kCompute) {
        if (const Record* launch = launch_of(record)) {
          count_compute(places, record, *launch);
        }
      }
    }
    for (const auto& [place, list] : places) {
      std::int64_t ready_ns = kNever;
      for (const Handed& handed : list) {
        ready_ns = std::max(ready_ns, handed.ready_ns);
        add_instant(handed.record, RecordKind::kLaunched, handed.launched_ns);
        if (ready_ns != kNever) {
          add_instant(handed.record, RecordKind::kReady, std::min(ready_ns, handed.begin_ns));
        }
      }
    }
  }

  /// For the first collective that was launched after it and began when it was over; those behind
  /// that one take it over.
  static void count_compute(std::map<Place, std::vector<Handed>>& places,
                            const Record& compute,
                            const Record& launch) {
    constexpr int kMostAsked = 64;
    const auto place = places.find({compute.device, launch.stream});
    if (place == places.end()) {
      return;
    }
    std::vector<Handed>& list = place->second;
    auto after = std::upper_bound(list.begin(),
                                  list.end(),
                                  launch.begin_ns,
                                  [](std::int64_t launched_ns, const Handed& handed) {
                                    return launched_ns < handed.launched_ns;
                                  });
    for (int asked = 0; after != list.end() && asked < kMostAsked; ++asked, ++after) {
      if (compute.end_ns <= after->begin_ns) {
        after->ready_ns = std::max(after->ready_ns, compute.end_ns);
        return;
      }
    }
  }

  void add_instant(std::size_t collective, RecordKind kind, std::int64_t at_ns) {
    Record instant = records()[collective];
    instant.lane = Lane::kCommunication;
    instant.kind = kind;
    if (kind == RecordKind::kReady) {
      instant.bytes = 0;  // whatever was ready, how large it is nobody knows
    }
    instant.begin_ns = at_ns;
    instant.end_ns = at_ns;
    builder_.timeline().records.push_back(instant);
  }

  TraceBuilder& builder_;
  TraceFile& file_;
  std::size_t first_;
  std::uint32_t rank_;
  bool has_device_ = false;  // asked before steps are added, which are no host records either
  std::vector<HostStep> host_steps_;
  std::vector<Launch> launches_;
};

}  // namespace

void mark_steps(TraceBuilder& builder) {
  std::set<std::uint32_t> ranks;
  const std::vector<Record>& records = builder.timeline().records;
  for (std::size_t i = builder.first_record(); i < records.size(); ++i) {
    if (ranks.empty() || *ranks.rbegin() != records[i].rank) {
      ranks.insert(records[i].rank);
    }
  }
  for (const std::uint32_t rank : ranks) {
    Marker(builder, rank).mark();
  }
}

}  // namespace stretto::detail
