// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/replanner.hpp"

#include <atomic>
#include <optional>
#include <stdexcept>

#include <gtest/gtest.h>

#include "comm/world.hpp"
#include "run/session_steps.hpp"
#include "stretto/base/error.hpp"
#include "stretto/plan/fixed_plans.hpp"

namespace stretto::testing {
namespace {

/// A clock that a step moves on.
struct Clock {
  Seconds at{};
  [[nodiscard]] ReplannerOptions options(std::uint32_t window) {
    ReplannerOptions options;
    options.window = window;
    options.now = [this] { return at; };
    return options;
  }
};

TEST(Replanner, AllRanksGetThePlanOfRank0WhenStepsDrift) {
  run_threads(3, test_options(), [](Communicator& communicator) {
    const auto expected = serial_steps(communicator, 16);
    Session session(communicator, single_bucket_plan(model()));
    Clock clock;
    int asked = 0;
    Replanner replanner(
        communicator,
        session,
        [&](const StepStats& stats) -> std::optional<ExpectedPlan> {
          ++asked;
          EXPECT_EQ(stats.steps, 12U);
          EXPECT_DOUBLE_EQ(stats.step.count(), 2.0);
          EXPECT_DOUBLE_EQ(stats.expected.count(), 1.0);
          return ExpectedPlan{uniform_plan(model(), Bytes(4096)), Seconds(1.5)};
        },
        clock.options(4));
    for (std::uint32_t step = 0; step < 16; ++step) {
      fill(session, communicator.rank(), step);
      ready_in_order(session);
      session.finish();
      EXPECT_EQ(bytes_of(session), expected[step]) << step;
      // Rank 0's clock counts; the others' is something else.
      clock.at += communicator.rank() != 0 ? Seconds(7.0)
                  : step < 8               ? Seconds(1.0)
                  : step < 12              ? Seconds(2.0)
                                           : Seconds(1.5);
      EXPECT_EQ(replanner.step_finished(), step == 11) << step;
    }
    EXPECT_EQ(asked, communicator.rank() == 0 ? 1 : 0);
    EXPECT_EQ(session.plan().hash(), uniform_plan(model(), Bytes(4096)).hash());
  });
}

TEST(Replanner, KeepsThePlanWhoseBetterGainsLessThanItCosts) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    Session session(communicator, single_bucket_plan(model()));
    Clock clock;
    int asked = 0;
    ReplannerOptions options = clock.options(1);
    options.expected = Seconds(1.0);
    Replanner replanner(
        communicator,
        session,
        [&](const StepStats&) -> std::optional<ExpectedPlan> {
          ++asked;
          return ExpectedPlan{uniform_plan(model(), Bytes(4096)), Seconds(1.99)};
        },
        options);
    for (std::uint32_t step = 0; step < 3; ++step) {
      fill(session, communicator.rank(), step);
      ready_in_order(session);
      session.finish();
      clock.at += Seconds(2.0);
      EXPECT_FALSE(replanner.step_finished());
    }
    // Once: what nobody can better is what is expected from then on.
    EXPECT_EQ(asked, communicator.rank() == 0 ? 1 : 0);
    EXPECT_EQ(session.plan().buckets.size(), single_bucket_plan(model()).buckets.size());
  });
}

TEST(Replanner, WhatDecideThrowsLeavesTheOthersAsTheyWere) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    Session session(communicator, single_bucket_plan(model()));
    ReplannerOptions options;
    options.window = 1;
    options.expected = Seconds(1000.0);
    Replanner replanner(
        communicator,
        session,
        [](const StepStats&) -> std::optional<ExpectedPlan> {
          throw std::runtime_error("no idea");
        },
        options);
    fill(session, communicator.rank(), 0);
    ready_in_order(session);
    session.finish();
    if (communicator.rank() == 0) {
      EXPECT_THROW((void)replanner.step_finished(), std::runtime_error);
    } else {
      EXPECT_FALSE(replanner.step_finished());
    }
    EXPECT_THROW(Replanner(communicator, session, {}, {}), Error);
  });
}

}  // namespace
}  // namespace stretto::testing
