// SPDX-License-Identifier: Apache-2.0
#include "stretto/tune/tuner.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/data/models.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/plan/planner.hpp"

namespace stretto {
namespace {

TEST(Student, QuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(student_quantile(1, 0.975), 12.706, 1e-3);
  EXPECT_NEAR(student_quantile(2, 0.975), 4.303, 1e-3);
  EXPECT_NEAR(student_quantile(5, 0.975), 2.571, 1e-3);
  EXPECT_NEAR(student_quantile(8, 0.95), 1.860, 1e-3);
  EXPECT_NEAR(student_quantile(30, 0.995), 2.750, 1e-3);
  EXPECT_NEAR(student_quantile(5, 0.025), -2.571, 1e-3);
}

TEST(PairedGain, IntervalHoldsTheTruthAsOftenAsItSays) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(std::log(1.1), 0.05);
  int held = 0;
  constexpr int kRepeats = 4000;
  for (int i = 0; i < kRepeats; ++i) {
    std::vector<double> pairs(6);
    std::generate(pairs.begin(), pairs.end(), [&] { return noise(random); });
    const PairedGain gain = paired_gain(pairs, 0.9);
    held += gain.low <= 1.1 && 1.1 <= gain.high ? 1 : 0;
  }
  EXPECT_NEAR(held, 0.9 * kRepeats, 4.0 * std::sqrt(0.09 * kRepeats));
}

TEST(PairedGain, OnePairBoundsNothing) {
  const std::vector<double> one = {std::log(2.0)};
  EXPECT_DOUBLE_EQ(paired_gain(one, 0.95).ratio, 2.0);
  EXPECT_EQ(paired_gain(one, 0.95).low, 0.0);
  EXPECT_TRUE(std::isinf(paired_gain(one, 0.95).high));
  EXPECT_TRUE(std::isnan(paired_gain({}, 0.95).ratio));
}

/// A program whose steps are known, but for noise and a drift that all trials share.
class Synthetic {
 public:
  Synthetic(double noise, double drift, std::uint64_t seed)
      : noise_(0.0, noise), drift_(drift), random_(seed) {}

  void set(const Setting& setting, double step) { steps_[to_string(setting)] = step; }
  [[nodiscard]] double truth(const Setting& setting) const { return steps_.at(to_string(setting)); }

  TrialOutcome operator()(const Setting& setting, std::size_t /*repeat*/) {
    order.push_back(to_string(setting));
    const double drift = 1.0 + drift_ * static_cast<double>(order.size());
    return {Seconds(truth(setting) * drift * std::exp(noise_(random_))), ""};
  }

  std::vector<std::string> order;

 private:
  std::map<std::string, double> steps_;
  std::normal_distribution<double> noise_;
  double drift_;
  std::mt19937_64 random_;
};

Setting setting(int number) {
  return {{"k", std::to_string(number)}};
}

RC_GTEST_PROP(Tuner, IsNeverWorseThanTheDefaultBeyondNoise, ()) {
  const double noise = *rc::gen::inRange(0, 10) * 0.01;
  const double drift = *rc::gen::inRange(0, 3) * 0.01;
  Synthetic program(noise, drift, *rc::gen::inRange<std::uint64_t>(0, 1000000));
  program.set({}, 1.0);
  std::vector<Candidate> candidates;
  const int count = *rc::gen::inRange(0, 9);
  for (int i = 0; i < count; ++i) {
    program.set(setting(i), *rc::gen::inRange(80, 130) * 0.01);
    candidates.push_back({setting(i), std::nullopt});
  }
  const TuneResult result = tune(candidates, std::ref(program), {});
  RC_ASSERT(result.trials == program.order.size());
  if (result.adopted()) {
    const double truth = program.truth(result.candidates.at(*result.best).candidate.setting);
    // Six standard errors of the mean of six pairs.
    RC_ASSERT(truth <= 1.0 + 6.0 * noise * std::sqrt(2.0 / 6.0));
    RC_ASSERT(result.gain.low > 1.0);
  }
  double best = 1.0;
  for (const Candidate& candidate : candidates) {
    best = std::min(best, program.truth(candidate.setting));
  }
  if (noise == 0.0 && drift == 0.0) {
    RC_ASSERT(result.adopted() == (best < 1.0 / 1.01));
    if (result.adopted()) {
      RC_ASSERT(program.truth(result.candidates.at(*result.best).candidate.setting) == best);
    }
  }
}

RC_GTEST_PROP(Tuner, IsTheSameForTheSameSeed, ()) {
  const auto seed = *rc::gen::inRange<std::uint64_t>(0, 1000000);
  const int count = *rc::gen::inRange(0, 9);
  const auto run = [&](std::uint64_t order) {
    Synthetic program(0.03, 0.0, seed);
    program.set({}, 1.0);
    std::vector<Candidate> candidates;
    for (int i = 0; i < count; ++i) {
      program.set(setting(i), 1.0 - 0.02 * i);
      candidates.push_back({setting(i), std::nullopt});
    }
    TuneOptions options;
    options.seed = order;
    const TuneResult result = tune(candidates, std::ref(program), options);
    return std::pair(program.order, result.best);
  };
  RC_ASSERT(run(seed) == run(seed));
}

TEST(Tuner, KeepsTheDefaultWhenTheGainIsInsideTheNoise) {
  Synthetic program(0.1, 0.0, 3);
  program.set({}, 1.0);
  program.set(setting(0), 0.995);
  const std::vector<Candidate> candidates = {{setting(0), std::nullopt}};
  const TuneResult result = tune(candidates, std::ref(program), {});
  EXPECT_FALSE(result.adopted());
  EXPECT_EQ(result.verdict, Verdict::kNoise);
  EXPECT_LT(result.gain.low, 1.0);
}

TEST(Tuner, ConfirmsARealGainWithPairsOfItsOwn) {
  Synthetic program(0.02, 0.0, 5);
  program.set({}, 1.0);
  program.set(setting(0), 1.2);
  program.set(setting(1), 0.8);
  const std::vector<Candidate> candidates = {{setting(0), std::nullopt},
                                             {setting(1), std::nullopt}};
  const TuneResult result = tune(candidates, std::ref(program), {});
  ASSERT_TRUE(result.adopted());
  EXPECT_EQ(*result.best, 1U);
  EXPECT_NEAR(result.gain.ratio, 1.25, 0.05);
  EXPECT_EQ(result.gain.pairs, 6U);
  EXPECT_EQ(result.candidates[1].log_ratios.size(), 7U);  // one of the rung
  // The last pairs: each has the default once, first in turns.
  const std::vector<std::string> last(program.order.end() - 4, program.order.end());
  EXPECT_EQ(last, (std::vector<std::string>{"default", "k=1", "k=1", "default"}));
}

TEST(Tuner, LeavesOutWhatFails) {
  const RunTrial run = [](const Setting& setting, std::size_t) -> TrialOutcome {
    if (value_of(setting, "k") == "0") {
      return {std::nullopt, "no such schedule"};
    }
    return {Seconds(setting.empty() ? 1.0 : 0.5), ""};
  };
  const std::vector<Candidate> candidates = {{setting(0), std::nullopt},
                                             {setting(1), std::nullopt}};
  const TuneResult result = tune(candidates, run, {});
  EXPECT_EQ(result.candidates[0].error, "no such schedule");
  ASSERT_TRUE(result.adopted());
  EXPECT_EQ(*result.best, 1U);

  const std::vector<Candidate> only = {{setting(0), std::nullopt}};
  EXPECT_EQ(tune(only, run, {}).verdict, Verdict::kNothing);
  EXPECT_EQ(tune({}, run, {}).verdict, Verdict::kNothing);
}

TEST(Tuner, FailsWhenTheDefaultDoes) {
  const RunTrial run = [](const Setting& setting, std::size_t) -> TrialOutcome {
    return setting.empty() ? TrialOutcome{std::nullopt, "no such file"}
                           : TrialOutcome{Seconds(1.0), ""};
  };
  const std::vector<Candidate> candidates = {{setting(0), std::nullopt}};
  try {
    (void)tune(candidates, run, {});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no such file"), std::string::npos);
  }
}

TEST(Tuner, OutlivesADefaultThatFailsNowAndThen) {
  std::size_t calls = 0;
  const RunTrial run = [&](const Setting& setting, std::size_t) -> TrialOutcome {
    if (setting.empty() && ++calls % 3 == 0) {
      return {std::nullopt, "the host was busy"};
    }
    return {Seconds(setting.empty() ? 1.0 : 0.5), ""};
  };
  const std::vector<Candidate> candidates = {{setting(0), std::nullopt},
                                             {setting(1), std::nullopt}};
  const TuneResult result = tune(candidates, run, {});
  EXPECT_TRUE(result.adopted());
  EXPECT_TRUE(result.baseline.error.empty());

  const RunTrial never = [&](const Setting& setting, std::size_t) -> TrialOutcome {
    return setting.empty() && ++calls > 4 ? TrialOutcome{std::nullopt, "gone"}
                                          : TrialOutcome{Seconds(1.0), ""};
  };
  calls = 0;
  EXPECT_THROW((void)tune(candidates, never, {}), Error);
}

TEST(Tuner, KeepsTheDefaultWhenItIsStopped) {
  for (std::size_t most = 0; most < 16; ++most) {
    Synthetic program(0.01, 0.0, 1);
    program.set({}, 1.0);
    program.set(setting(0), 0.5);
    program.set(setting(1), 0.6);
    TuneOptions options;
    options.stop = [&] { return program.order.size() >= most; };
    const std::vector<Candidate> candidates = {{setting(0), std::nullopt},
                                               {setting(1), std::nullopt}};
    const TuneResult result = tune(candidates, std::ref(program), options);
    EXPECT_LE(result.trials, most);
    // 3 trials of the rung, 12 to confirm.
    EXPECT_EQ(result.verdict, most < 15 ? Verdict::kStopped : Verdict::kBetter) << most;
  }
}

/// Plans whose steps the simulator predicts, on a machine that is a little different from what it
/// takes it for: each setting by up to 1.5 %, and each trial by noise of 2 %.
TEST(Tuner, FindsTheBestOfManySettingsInATwentiethOfTheirTrials) {
  std::vector<KnobValues> knobs = {{"buckets", {}},
                                   {"schedule", {"serial", "overlap"}},
                                   {"latency", {"50", "60", "80", "110", "150", "200"}}};
  for (int k = 16; k < 27; ++k) {
    knobs[0].values.push_back(std::to_string(1 << k));
    knobs[0].values.push_back(std::to_string(3 << (k - 1)));
  }
  const std::vector<Setting> settings = combinations(knobs);
  for (const char* name : {"resnet50", "vgg16"}) {
    const StepProfile profile = profile_from_model_json(model_json(name), name, {});
    for (const double ratio : {0.5, 1.0, 2.0}) {
      std::mt19937_64 random(11);
      std::uniform_real_distribution<double> error(-0.015, 0.015);
      Synthetic program(0.02, 0.0, 13);
      std::vector<Candidate> candidates;
      double best = 1e9;
      for (const Setting& setting : settings) {
        ExchangeCosts costs;
        const double per_byte =
            ratio * profile.compute_end.count() / static_cast<double>(profile.bytes().count());
        costs.all_reduce = ExchangeTime(std::vector<CostLine>{
            {Seconds(std::stod(std::string(*value_of(setting, "latency"))) * 1e-5),
             per_byte,
             Algorithm::kRing}});
        costs.ranks = 8;
        SimulateOptions options;
        options.schedule = schedule_from_string(*value_of(setting, "schedule"));
        options.recorded_ranks = 0;
        const Plan plan = uniform_plan(
            tensors_of(profile), Bytes(std::stoll(std::string(*value_of(setting, "buckets")))));
        const Seconds step = simulate(profile, costs, plan, options).step;
        program.set(setting, step.count() * (1.0 + error(random)));
        best = std::min(best, program.truth(setting));
        candidates.push_back({setting, step});
      }
      program.set({}, program.truth(settings.back()));  // serial, large buckets
      const TuneResult result = tune(shortlist(candidates, 8), std::ref(program), {});
      ASSERT_TRUE(result.best.has_value());
      const double found = program.truth(result.candidates[*result.best].candidate.setting);
      EXPECT_GE(best / found, 0.97) << name << " at " << ratio;
      // Exhaustively, each setting as often as those that were confirmed at the least.
      EXPECT_LE(result.trials, settings.size() * 6 / 20) << name << " at " << ratio;
    }
  }
}

}  // namespace
}  // namespace stretto
