// SPDX-License-Identifier: Apache-2.0
#include "stretto/tune/tuner.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

/// A busy host fails a trial now and then; the default that fails so often in a row is broken.
constexpr int kMostFailures = 3;

/// Of a rung: what these cannot tell apart, the confirmation will.
constexpr std::size_t kMostRounds = 4;

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(std::max<std::size_t>(1, values.size()));
}

/// splitmix64 (Steele, Lea, Flood 2014): std::shuffle gives another order with each library.
class Shuffle {
 public:
  explicit Shuffle(std::uint64_t seed) : state_(seed) {}

  void operator()(std::vector<std::size_t>& values) {
    for (std::size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[next() % i]);
    }
  }

 private:
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  std::uint64_t state_;
};

class Tuner {
 public:
  Tuner(std::span<const Candidate> candidates, const RunTrial& run, const TuneOptions& options)
      : run_(run), options_(options), shuffle_(options.seed) {
    for (const Candidate& candidate : candidates) {
      result_.candidates.push_back({candidate, {}, {}, 0, 0, {}});
    }
  }

  TuneResult take() {
    std::vector<std::size_t> alive(result_.candidates.size());
    std::iota(alive.begin(), alive.end(), std::size_t{0});
    for (std::size_t rounds = 1; alive.size() > 1 && rung(alive, rounds);
         rounds = std::min(2 * rounds, kMostRounds)) {
    }
    if (alive.empty()) {
      result_.verdict = stopped_ ? Verdict::kStopped : Verdict::kNothing;
    } else {
      result_.best = alive.front();
      if (!stopped_) {
        confirm(alive.front());
      } else {
        result_.verdict = Verdict::kStopped;
      }
    }
    return std::move(result_);
  }

 private:
  bool stopped() {
    stopped_ = stopped_ || (options_.stop && options_.stop());
    return stopped_;
  }

  std::optional<Seconds> trial(CandidateResult& of) {
    const TrialOutcome outcome = run_(of.candidate.setting, of.trials++);
    ++result_.trials;
    if (outcome.step && *outcome.step > Seconds(0)) {
      of.steps.push_back(*outcome.step);
      failures_ = &of == &result_.baseline ? 0 : failures_;
      return outcome.step;
    }
    const std::string error = outcome.error.empty() ? "the trial gave no step time" : outcome.error;
    if (&of != &result_.baseline) {
      of.error = error;
    } else if (++failures_ == kMostFailures || of.steps.empty()) {
      throw Error(ErrorCode::kBackend,
                  {"the program fails as it is, without anything changed",
                   "the default",
                   error,
                   "steps to compare with",
                   "Run it by itself first"});
    }
    return std::nullopt;
  }

  static void pair(CandidateResult& of, Seconds reference, Seconds step) {
    of.log_ratios.push_back(std::log(reference / step));
  }

  /// One trial each of the default and of those alive. False when it was stopped in between: then
  /// no pair counts.
  bool round(const std::vector<std::size_t>& alive) {
    constexpr auto kBaseline = static_cast<std::size_t>(-1);
    std::vector<std::size_t> order = alive;
    order.push_back(kBaseline);
    shuffle_(order);
    std::optional<Seconds> reference;
    std::vector<std::pair<std::size_t, Seconds>> steps;
    for (const std::size_t which : order) {
      if (stopped()) {
        return false;
      }
      if (which == kBaseline) {
        reference = trial(result_.baseline);
      } else if (result_.candidates[which].error.empty()) {
        if (const auto step = trial(result_.candidates[which])) {
          steps.emplace_back(which, *step);
        }
      }
    }
    for (const auto& [which, step] : steps) {
      if (reference) {
        pair(result_.candidates[which], *reference, step);
      }
    }
    return true;
  }

  bool rung(std::vector<std::size_t>& alive, std::size_t rounds) {
    for (const std::size_t which : alive) {
      ++result_.candidates[which].rungs;
    }
    bool whole = true;
    for (std::size_t i = 0; i < rounds && whole; ++i) {
      whole = round(alive);
    }
    const std::size_t keep = whole ? (alive.size() + 1) / 2 : alive.size();
    std::erase_if(alive,
                  [&](std::size_t which) { return !result_.candidates[which].error.empty(); });
    std::stable_sort(alive.begin(), alive.end(), [&](std::size_t a, std::size_t b) {
      return mean(result_.candidates[a].log_ratios) > mean(result_.candidates[b].log_ratios);
    });
    alive.resize(std::min(alive.size(), keep));
    return whole;
  }

  void confirm(std::size_t which) {
    CandidateResult& candidate = result_.candidates[which];
    const double confidence = 1.0 - (1.0 - options_.confidence) / 2.0;
    const std::size_t pairs = std::max<std::size_t>(2, options_.confirm_pairs);
    std::vector<double> fresh;
    result_.verdict = Verdict::kNoise;
    while (fresh.size() < 2 * pairs) {
      std::optional<Seconds> reference;
      std::optional<Seconds> step;
      for (const bool baseline : {fresh.size() % 2 == 0, fresh.size() % 2 != 0}) {
        if (stopped()) {
          result_.gain = paired_gain(fresh, confidence);
          result_.verdict = Verdict::kStopped;
          return;
        }
        (baseline ? reference : step) = trial(baseline ? result_.baseline : candidate);
        if (!candidate.error.empty()) {
          result_.verdict = Verdict::kNothing;
          return;
        }
      }
      if (!reference) {
        continue;
      }
      pair(candidate, *reference, *step);
      fresh.push_back(candidate.log_ratios.back());
      if (fresh.size() == pairs || fresh.size() == 2 * pairs) {
        result_.gain = paired_gain(fresh, confidence);
        if (result_.gain.low > 1.0 && result_.gain.ratio >= 1.0 + options_.least_gain) {
          result_.verdict = Verdict::kBetter;
          return;
        }
        if (result_.gain.high < 1.0 + options_.least_gain) {
          return;  // more pairs would not make it worth while
        }
      }
    }
  }

  const RunTrial& run_;
  const TuneOptions& options_;
  Shuffle shuffle_;
  TuneResult result_;
  bool stopped_ = false;
  int failures_ = 0;  // of the default, one after the other
};

}  // namespace

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kBetter:
      return "better";
    case Verdict::kNoise:
      return "noise";
    case Verdict::kNothing:
      return "nothing";
    case Verdict::kStopped:
      return "stopped";
  }
  return "?";
}

TuneResult tune(std::span<const Candidate> candidates,
                const RunTrial& run,
                const TuneOptions& options) {
  return Tuner(candidates, run, options).take();
}

}  // namespace stretto
