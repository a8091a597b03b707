// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/codec_watch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "comm/world.hpp"
#include "run/session_steps.hpp"
#include "stretto/base/error.hpp"
#include "stretto/plan/codec_choice.hpp"

namespace stretto::testing {
namespace {

Plan compressed() {
  return with_codec(uniform_plan(model(), Bytes(5000)), parse_codec("topk:0.1"), {});
}

/// Steps on three ranks, with clocks that say what a step took. Which steps had codecs, and what
/// was decided.
struct Watched {
  std::vector<bool> encoded;
  std::vector<CodecSwitch> switches;
};
Watched watch(CodecWatchOptions options,
              std::uint32_t steps,
              const std::function<double(std::uint32_t step, bool codecs)>& step_s,
              const Plan& plan = compressed()) {
  Watched result;
  run_threads(3, test_options(), [&](Communicator& communicator) {
    Session session(communicator, plan);
    Seconds clock{};
    CodecWatchOptions mine = options;
    mine.now = [&clock] { return clock; };
    CodecWatch watched(communicator, session, mine);
    for (std::uint32_t step = 0; step < steps; ++step) {
      fill(session, communicator.rank(), step);
      ready_in_order(session);
      const bool codecs = std::any_of(session.plan().buckets.begin(),
                                      session.plan().buckets.end(),
                                      [](const Bucket& bucket) { return bucket.codec.lossy(); });
      session.finish();
      EXPECT_EQ(watched.codecs_on() && plan.hash() == compressed().hash(), codecs);
      // Rank 0's clock counts; the others' says the opposite.
      clock += Seconds(communicator.rank() == 0 ? step_s(step, codecs) : step_s(step, !codecs));
      watched.step_finished();
      if (communicator.rank() == 0) {
        result.encoded.push_back(codecs);
      }
    }
    if (communicator.rank() == 0) {
      result.switches = watched.switches();
    }
  });
  return result;
}

CodecWatchOptions quick() {
  CodecWatchOptions options;
  options.window = 4;
  options.trial_window = 2;
  options.trial_every = 3;
  options.least_gain = 0.1;
  return options;
}

TEST(CodecWatch, KeepsCodecsThatPayAndTriesTheOtherLessAndLessOften) {
  const Watched seen =
      watch(quick(), 60, [](std::uint32_t, bool codecs) { return codecs ? 1.0 : 2.0; });
  // After 3 windows of 4 steps a trial of 1 + 2; after 6 more the next.
  for (std::uint32_t step = 0; step < 60; ++step) {
    const bool tried = (step >= 12 && step < 15) || (step >= 39 && step < 42);
    EXPECT_EQ(seen.encoded[step], !tried) << step;
  }
  ASSERT_EQ(seen.switches.size(), 2U);
  EXPECT_EQ(seen.switches[0].step, 15U);
  EXPECT_TRUE(seen.switches[0].codecs);
  EXPECT_FALSE(seen.switches[0].changed);
  EXPECT_EQ(seen.switches[0].with, Seconds(1.0));
  EXPECT_EQ(seen.switches[0].without, Seconds(2.0));
}

TEST(CodecWatch, TurnsThemOffWhenTheyLoseAndOnWhenTheyGainEnough) {
  // Without 1.0 s. With: slower first, a little quicker from step 30 on, and much from 60 on.
  CodecWatchOptions options = quick();
  options.exact_step = Seconds(1.0);
  const Watched seen = watch(options, 150, [](std::uint32_t step, bool codecs) {
    return !codecs ? 1.0 : step < 30 ? 1.2 : step < 60 ? 0.95 : 0.5;
  });
  ASSERT_GE(seen.switches.size(), 3U);
  // Slower than without: tried after the first look already.
  EXPECT_EQ(seen.switches[0].step, 7U);
  EXPECT_TRUE(seen.switches[0].changed);
  EXPECT_FALSE(seen.switches[0].codecs);
  EXPECT_FALSE(seen.encoded[10]);
  for (std::size_t i = 1; i + 1 < seen.switches.size() && !seen.switches[i].codecs; ++i) {
    EXPECT_FALSE(seen.switches[i].changed) << "5 % are less than the 10 % asked for";
    EXPECT_LT(seen.switches[i].step, 75U);
  }
  EXPECT_TRUE(seen.encoded.back());
  const auto back = std::find_if(seen.switches.begin(), seen.switches.end(), [](const auto& one) {
    return one.changed && one.codecs;
  });
  ASSERT_NE(back, seen.switches.end());
  EXPECT_GE(back->step, 60U);
}

TEST(CodecWatch, BetweenTheTwoEverythingStaysAsItIs) {
  // 5 % of 10 %: codecs that are on stay, and those that are off do too.
  const auto little = [](std::uint32_t step, bool codecs) {
    return !codecs ? 1.0 : step < 8 ? 1.5 : 0.95;
  };
  const Watched on =
      watch(quick(), 80, [&](std::uint32_t step, bool codecs) { return little(step + 8, codecs); });
  for (const CodecSwitch& one : on.switches) {
    EXPECT_FALSE(one.changed);
    EXPECT_TRUE(one.codecs);
  }
  CodecWatchOptions options = quick();
  options.exact_step = Seconds(1.0);
  const Watched off = watch(options, 80, little);
  EXPECT_FALSE(off.encoded.back() && off.encoded[70] && off.encoded[60]);
  EXPECT_EQ(
      std::count_if(
          off.switches.begin(), off.switches.end(), [](const auto& one) { return one.changed; }),
      1);
}

TEST(CodecWatch, ANetworkThatGetsQuickerIsNoticedAtOnceHoweverManyTrialsWereInVain) {
  // Codecs pay for 200 steps, so routine trials get rare; then steps without them are the shorter.
  const Watched seen = watch(quick(), 260, [](std::uint32_t step, bool codecs) {
    return step < 200 ? (codecs ? 1.0 : 2.0) : (codecs ? 3.0 : 0.5);
  });
  const auto gone = std::find_if(seen.switches.begin(), seen.switches.end(), [](const auto& one) {
    return one.changed && !one.codecs;
  });
  ASSERT_NE(gone, seen.switches.end());
  EXPECT_GE(gone - seen.switches.begin(), 3) << "trials in vain before";
  // The look that saw a long step, and the trial.
  EXPECT_LE(gone->step, 200U + 2 * 4 + 3);
  EXPECT_FALSE(seen.encoded.back());
}

TEST(CodecWatch, ANetworkThatGetsSlowerBringsCodecsBackAtOnce) {
  // Codecs lose for 130 steps, at 1.5 s to 1.0 s; then every step without them takes 4 s. The
  // routine trials are after 105 and 204.
  const Watched seen = watch(quick(), 180, [](std::uint32_t step, bool codecs) {
    return codecs ? 1.5 : step < 130 ? 1.0 : 4.0;
  });
  const auto back = std::find_if(seen.switches.begin(), seen.switches.end(), [](const auto& one) {
    return one.changed && one.codecs;
  });
  ASSERT_NE(back, seen.switches.end());
  EXPECT_GE(back->step, 130U);
  EXPECT_LE(back->step, 130U + 2 * 4 + 3);
  EXPECT_TRUE(seen.encoded.back());
}

TEST(CodecWatch, StepsThatAreAllLongerCallForTrialsLessAndLessOften) {
  // Every second look the whole machine is slower: each of them looks as if codecs lost.
  const Watched seen = watch(quick(), 400, [](std::uint32_t step, bool codecs) {
    const double load = (step / 4) % 2 == 0 ? 1.0 : 4.0;
    return load * (codecs ? 1.0 : 1.25);
  });
  std::size_t in_vain = 0;
  for (const CodecSwitch& one : seen.switches) {
    in_vain += one.changed ? 0 : 1;
  }
  // A trial at most every third look of 4 steps, but for the first two.
  EXPECT_LE(in_vain, 2U + 400 / 15);
}

TEST(CodecWatch, WhatCodecsHadNotSentTravelsWhenTheyGo) {
  // Sum of all results = sum of all gradients, but for what is not sent in the end.
  run_threads(2, test_options(), [](Communicator& communicator) {
    Session session(communicator, compressed(), {.op = ReduceOp::kSum});
    Plan exact = compressed();
    for (Bucket& bucket : exact.buckets) {
      bucket.codec = {};
    }
    std::vector<double> got(session.gradient(1).count, 0.0);
    std::vector<double> given(got.size(), 0.0);
    const auto take = [&](std::uint32_t number) {
      fill(session, communicator.rank(), number);
      ready_in_order(session);
      session.finish();
    };
    const auto step = [&](std::uint32_t number) {
      for (int rank = 0; rank < 2; ++rank) {
        fill(session, rank, number);
        for (std::size_t k = 0; k < given.size(); ++k) {
          given[k] += static_cast<double>(as_span<float>(session.gradient(1))[k]);
        }
      }
      take(number);
      for (std::size_t k = 0; k < got.size(); ++k) {
        got[k] += static_cast<double>(as_span<float>(session.gradient(1))[k]);
      }
    };
    std::uint32_t number = 0;
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 3; ++i) {
        step(number++);
      }
      EXPECT_GT(session.compression().residual_norm, 0.0);
      session.replan(exact);
      take(number);
      EXPECT_EQ(session.compression().residual_norm, 0.0);
      session.undo_compression();  // and once more, with all that was owed
      EXPECT_GT(session.compression().residual_norm, 0.0);
      step(number++);
      step(number++);  // nothing comes back
      EXPECT_EQ(session.compression().residual_norm, 0.0);
      for (std::size_t k = 0; k < got.size(); ++k) {
        ASSERT_NEAR(got[k], given[k], 1e-4) << k;
      }
      session.replan(compressed());
    }
  });
}

TEST(CodecWatch, LeavesPlansWithoutCodecsAloneAndRefusesNonsense) {
  const Watched seen = watch(
      quick(), 30, [](std::uint32_t, bool) { return 1.0; }, uniform_plan(model(), Bytes(5000)));
  EXPECT_TRUE(seen.switches.empty());
  run_threads(1, test_options(), [](Communicator& communicator) {
    Session session(communicator, compressed());
    const auto code = [&](auto change) {
      CodecWatchOptions options;
      change(options);
      return code_of([&] { (void)CodecWatch(communicator, session, options); });
    };
    EXPECT_EQ(code([](CodecWatchOptions& o) { o.window = 0; }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([](CodecWatchOptions& o) { o.trial_window = 0; }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([](CodecWatchOptions& o) { o.trial_every = 0; }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([](CodecWatchOptions& o) { o.least_gain = 1.0; }), ErrorCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace stretto::testing
