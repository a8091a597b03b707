// SPDX-License-Identifier: Apache-2.0
// Schedule::kPriority: communication that goes on under the next forward pass.
#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "comm/world.hpp"
#include "run/session_steps.hpp"
#include "stretto/run/session.hpp"

namespace stretto::testing {
namespace {

constexpr SessionOptions kPriority{.schedule = Schedule::kPriority};

// The next forward pass: backward reversed.
void wait_in_order(Session& session) {
  for (std::size_t i = session.tensors(); i-- > 0;) {
    session.wait(i);
  }
}

[[noreturn]] void step_until_it_throws(Session& session) {
  for (;;) {
    session.drain();
    ready_in_order(session);
    session.finish();
  }
}

TEST(SessionPriority, EveryPlanGivesTheBitsOfTheSerialSchedule) {
  for (const RanksAs as : {RanksAs::kThreads, RanksAs::kProcesses}) {
    run_ranks(as, 3, test_options(), [](Communicator& communicator) {
      constexpr std::uint32_t kSteps = 3;
      const auto expected = serial_steps(communicator, kSteps);
      for (const Plan& plan : {single_bucket_plan(model()),
                               ddp_plan(model(), Bytes(8192), Bytes(1024)),
                               uniform_plan(model(), Bytes(1000))}) {
        for (const int streams : {0, 1, 3}) {
          SessionOptions options = kPriority;
          options.streams = streams;
          options.verify_every = 1;
          options.reduce_first = streams == 3;
          Session session(communicator, plan, options);
          for (std::uint32_t step = 0; step < kSteps; ++step) {
            fill(session, communicator.rank(), step);
            ready_in_order(session);
            session.finish();
            wait_in_order(session);
            ASSERT_EQ(bytes_of(session), expected[step]);
          }
        }
      }
    });
  }
}

TEST(SessionPriority, AnyOrderOfReadyAndWaitPerRank) {
  run_threads(3, test_options(), [](Communicator& communicator) {
    const std::uint32_t steps = kSanitized ? 20 : 100;
    const auto expected = serial_steps(communicator, 1);
    Session session(communicator, uniform_plan(model(), Bytes(900)), kPriority);
    std::vector<std::size_t> order(session.tensors());
    std::iota(order.begin(), order.end(), 0U);
    std::mt19937 generator(static_cast<unsigned>(communicator.rank()) + 5);
    for (std::uint32_t step = 0; step < steps; ++step) {
      fill(session, communicator.rank(), 0);
      std::shuffle(order.begin(), order.end(), generator);
      for (const std::size_t i : order) {
        session.ready(i);
      }
      session.finish();
      std::shuffle(order.begin(), order.end(), generator);
      for (const std::size_t i : order) {
        if (generator() % 8 == 0) {
          session.drain();
        }
        session.wait(i);
      }
      ASSERT_EQ(bytes_of(session), expected[0]) << step;
    }
  });
}

TEST(SessionPriority, CallbacksRunOnceInWaitOrDrainWithReducedGradients) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const auto expected = serial_steps(communicator, 1);
    Session session(communicator, uniform_plan(model(), Bytes(3000)), kPriority);
    std::vector<int> calls(session.plan().buckets.size(), 0);
    std::vector<std::int64_t> seen(session.tensors(), 0);
    session.on_bucket([&](std::size_t bucket, const std::vector<TensorRange>& ranges) {
      ++calls[bucket];
      for (const TensorRange& range : ranges) {
        const BufferView gradient = session.gradient(range.tensor);
        seen[range.tensor] += range.end - range.begin;
        if (gradient.dtype == DType::kF32) {
          const auto at = static_cast<std::size_t>(gradient.data - session.gradient(0).data) +
                          static_cast<std::size_t>(range.begin) * sizeof(float);
          EXPECT_EQ(std::memcmp(session.gradient(0).data + at,
                                expected[0].data() + at,
                                static_cast<std::size_t>(range.end - range.begin) * sizeof(float)),
                    0);
        }
      }
    });
    fill(session, communicator.rank(), 0);
    ready_in_order(session);
    session.finish();
    EXPECT_EQ(std::accumulate(calls.begin(), calls.end(), 0), 0) << "finish() waits for nothing";
    session.wait(5);
    const BufferView needed = session.gradient(5);
    EXPECT_EQ(seen[5], static_cast<std::int64_t>(needed.count));
    session.drain();
    session.drain();  // nothing is left
    wait_in_order(session);
    EXPECT_EQ(calls, std::vector<int>(calls.size(), 1));
    for (std::size_t i = 0; i < session.tensors(); ++i) {
      EXPECT_EQ(seen[i], static_cast<std::int64_t>(session.gradient(i).count));
    }
  });
}

// On a network that needs tens of milliseconds for the first bucket, the last one, which the next
// forward pass reads first, is there before it although it left later.
TEST(SessionPriority, WhatIsNeededFirstOvertakesAndReachesIntoTheNextForwardPass) {
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer makes ranks too late for an emulated link to see what is urgent";
  }
  ShmOptions options = test_options();
  options.emulate = machine_from_spec("2@20MB/s,50us");
  run_threads(2, options, [](Communicator& communicator) {
    const std::vector<TensorSpec> tensors = {{"last.weight", DType::kF32, {256 << 10}},
                                             {"first.weight", DType::kF32, {4 << 10}}};
    Session session(communicator, uniform_plan(tensors, Bytes(512 << 10), false), kPriority);
    ASSERT_EQ(session.plan().buckets.size(), 2U);
    constexpr std::uint32_t kSteps = 3;
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      session.wait(1);
      {
        const RecordScope scope(session.recorder(), RecordKind::kForward, "first");
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      session.wait(0);
      session.ready(0);
      session.ready(1);
      session.finish();
    }
    session.drain();
    const Timeline timeline = session.timeline();
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      std::array<std::int64_t, 2> end = {0, 0};
      std::array<std::int64_t, 2> launch = {0, 0};
      int operations = 0;
      std::int64_t step_end = 0;
      bool hides = false;
      for (const Record& record : timeline.records) {
        if (record.step == step && record.kind == RecordKind::kCommunication) {
          end[record.bucket] = std::max(end[record.bucket], record.end_ns);
          ++operations;
        } else if (record.step == step && record.kind == RecordKind::kLaunched) {
          launch[record.bucket] = record.begin_ns;
        } else if (record.step == step && record.kind == RecordKind::kStep) {
          step_end = record.end_ns;
        }
      }
      for (const Record& record : timeline.records) {
        hides = hides || (record.step == step + 1 && record.kind == RecordKind::kForward &&
                          record.begin_ns < end[0] && record.begin_ns >= end[1]);
      }
      EXPECT_EQ(operations, 4) << "two halves each";
      EXPECT_LT(launch[0], launch[1]);
      EXPECT_LT(end[1], end[0]) << "the urgent bucket was overtaken";
      EXPECT_GT(end[0], step_end);
      EXPECT_TRUE(hides || step + 1 == kSteps) << "nothing is computed beside what is left";
    }
  });
}

TEST(SessionPriority, AccumulationAndReplan) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    Session serial(communicator, single_bucket_plan(model()), {.schedule = Schedule::kSerial});
    Session session(communicator, uniform_plan(model(), Bytes(1000)), kPriority);
    for (std::uint32_t step = 0; step < 3; ++step) {
      for (Session* const each : {&serial, &session}) {
        {
          const auto hold = each->accumulate();
          each->drain();
          fill(*each, communicator.rank(), 2 * step);
          ready_in_order(*each);
        }
        fill(*each, communicator.rank(), 2 * step + 1, true);
        ready_in_order(*each);
        each->finish();
      }
      if (step == 1) {
        session.replan(uniform_plan(model(), Bytes(5000)));  // drains
        EXPECT_EQ(bytes_of(session), bytes_of(serial));
      }
      wait_in_order(session);
      ASSERT_EQ(bytes_of(session), bytes_of(serial));
    }
  });
}

TEST(SessionPriority, TheNormIsThatOfTheSerialScheduleAndOfTheGradients) {
  run_threads(3, test_options(), [](Communicator& communicator) {
    const Plan plan = uniform_plan(model(), Bytes(1000));
    std::vector<double> norms;
    for (const Schedule schedule : {Schedule::kSerial, Schedule::kOverlap, Schedule::kPriority}) {
      Session session(communicator, plan, {.schedule = schedule, .reduce_first = true});
      EXPECT_EQ(code_of([&] { (void)session.gradient_norm(); }), ErrorCode::kInvalidArgument);
      fill(session, communicator.rank(), 7);
      ready_in_order(session);
      session.finish();
      norms.push_back(session.gradient_norm());
      session.wait(0);
      EXPECT_EQ(session.gradient_norm(), norms.back());
      session.drain();
      EXPECT_EQ(session.gradient_norm(), norms.back());
      if (schedule == Schedule::kPriority) {
        session.on_bucket([](std::size_t, const std::vector<TensorRange>&) {});
        EXPECT_EQ(code_of([&] { (void)session.gradient_norm(); }), ErrorCode::kInvalidArgument);
      }
      double sum = 0.0;
      for (std::size_t i = 0; i < session.tensors(); ++i) {
        const BufferView gradient = session.gradient(i);
        for (std::size_t k = 0; k < gradient.count; ++k) {
          double value = 0.0;
          if (gradient.dtype == DType::kF64) {
            value = as_span<double>(gradient)[k];
          } else if (gradient.dtype == DType::kF32) {
            value = static_cast<double>(as_span<float>(gradient)[k]);
          } else {
            std::uint16_t bits = 0;
            std::memcpy(&bits, gradient.data + 2 * k, 2);
            value = static_cast<double>(std::bit_cast<float>(std::uint32_t{bits} << 16U));
          }
          sum += value * value;
        }
      }
      EXPECT_NEAR(norms.back(), std::sqrt(sum), 1e-12 * norms.back());
    }
    EXPECT_EQ(norms[0], norms[1]);
    EXPECT_EQ(norms[0], norms[2]);
    Session counts(
        communicator, single_bucket_plan({{"n", DType::kI32, {4}}}), {.op = ReduceOp::kSum});
    counts.ready(0);
    counts.finish();
    EXPECT_EQ(code_of([&] { (void)counts.gradient_norm(); }), ErrorCode::kInvalidArgument);
  });
}

TEST(SessionPriority, ReadyBeforeTheStepBeforeWasWaitedForFailsAllRanks) {
  run_processes(2, test_options(), [](Communicator& communicator) {
    Session session(communicator, uniform_plan(model(), Bytes(4000)), kPriority);
    communicator.barrier().wait();  // nobody is still making a Session when the other gives up
    ready_in_order(session);
    session.finish();
    if (communicator.rank() == 0) {
      session.ready(3);
      std::string what;
      EXPECT_EQ(code_of([&] { session.finish(); }, &what), ErrorCode::kInvalidArgument);
      EXPECT_NE(what.find("'t3' ready"), std::string::npos) << what;
      EXPECT_NE(what.find("not waited for: 't0'"), std::string::npos) << what;
      EXPECT_NE(what.find("drain()"), std::string::npos) << what;
    } else {
      EXPECT_EQ(code_of([&] { step_until_it_throws(session); }), ErrorCode::kInvalidArgument);
    }
  });
}

TEST(SessionPriority, MisuseIsSaid) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    Session session(communicator, uniform_plan(model(), Bytes(4000)), kPriority);
    session.wait(0);  // no step yet
    session.drain();
    fill(session, communicator.rank(), 0);
    session.ready(0);
    EXPECT_EQ(code_of([&] { session.wait(0); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { (void)session.gradient_norm(); }), ErrorCode::kInvalidArgument);
    for (std::size_t i = 1; i < session.tensors(); ++i) {
      session.ready(i);
    }
    session.finish();
    EXPECT_THROW(session.wait(session.tensors()), std::out_of_range);
    session.drain();
  });
}

TEST(SessionPriority, ACallbackThatThrowsEndsTheSessionAndTellsThePeers) {
  run_processes(2, test_options(), [](Communicator& communicator) {
    Session session(communicator, uniform_plan(model(), Bytes(4000)), kPriority);
    if (communicator.rank() == 0) {
      session.on_bucket([](std::size_t bucket, const std::vector<TensorRange>&) {
        if (bucket == 0) {
          throw std::runtime_error("no");
        }
      });
      ready_in_order(session);
      session.finish();
      EXPECT_THROW(session.drain(), std::runtime_error);
      EXPECT_EQ(code_of([&] { session.drain(); }), ErrorCode::kInvalidArgument);
    } else {
      EXPECT_EQ(code_of([&] { step_until_it_throws(session); }), ErrorCode::kBackend);
    }
  });
}

// Killed with a step's gradients half way: in backward, between finish() and forward, in forward.
TEST(SessionPriority, ARankKilledAtAnyPhaseIsPeerLost) {
  for (int phase = 0; phase < 3; ++phase) {
    const RendezvousDirectory directory;
    ShmOptions options = test_options();
    options.emulate = machine_from_spec("3@100MB/s,200us");
    const auto children =
        fork_ranks(directory.path(), 3, options, [phase](Communicator& communicator) {
          const std::vector<TensorSpec> tensors = {{"b", DType::kF32, {200000}},
                                                   {"a", DType::kF32, {200000}}};
          Session session(communicator, uniform_plan(tensors, Bytes(100000)), kPriority);
          const bool dies = communicator.rank() == 1;
          std::string what;
          EXPECT_EQ(code_of(
                        [&] {
                          for (std::uint32_t step = 0;; ++step) {
                            const bool now = dies && step == 3;
                            session.wait(1);
                            if (now && phase == 2) {
                              kill(getpid(), SIGKILL);
                            }
                            session.wait(0);
                            session.ready(0);
                            if (now && phase == 0) {
                              kill(getpid(), SIGKILL);
                            }
                            session.ready(1);
                            session.finish();
                            if (now && phase == 1) {
                              kill(getpid(), SIGKILL);
                            }
                          }
                        },
                        &what),
                    ErrorCode::kPeerLost);
          EXPECT_NE(what.find("rank 1"), std::string::npos) << what;
        });
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
      EXPECT_EQ(wait_for(children[rank]), rank == 1 ? 128 + SIGKILL : 0) << "rank " << rank;
    }
  }
}

TEST(SessionPriority, BucketsWithACodecTravelWholeAndKeepTheirResidual) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    Plan plan = uniform_plan(model(), Bytes(2000));
    for (Bucket& bucket : plan.buckets) {
      if (bucket.dtype == DType::kF32) {
        bucket.codec = parse_codec("int8");
      }
    }
    std::vector<std::vector<std::byte>> results;
    std::vector<double> norms;
    for (const Schedule schedule : {Schedule::kOverlap, Schedule::kPriority}) {
      Session session(communicator, plan, {.schedule = schedule});
      for (std::uint32_t step = 0; step < 4; ++step) {
        fill(session, communicator.rank(), step);
        ready_in_order(session);
        session.finish();
        if (step == 2) {
          if (schedule == Schedule::kPriority) {
            EXPECT_EQ(code_of([&] { session.undo_compression(); }), ErrorCode::kInvalidArgument);
          }
          session.drain();
          session.undo_compression();
        }
        session.drain();
      }
      results.push_back(bytes_of(session));
      norms.push_back(session.compression().residual_norm);
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(norms[0], norms[1]);
    EXPECT_GT(norms[0], 0.0);
  });
}

// ---- A sharded optimizer ----

// Plain descent on this rank's parts; the others' come by the gather. In any order of ready and,
// under priority, of wait: each rank its own.
TEST(SessionShard, ParametersAreThoseOfAReplicatedUpdateWhateverTheOrders) {
  run_threads(3, test_options(), [](Communicator& communicator) {
    const std::vector<TensorSpec> tensors = {{"d", DType::kF32, {700}},
                                             {"c", DType::kF32, {1}},
                                             {"b", DType::kF32, {3, 411}},
                                             {"a", DType::kF32, {90}}};
    const Plan plan = uniform_plan(tensors, Bytes(1000));
    const std::uint32_t steps = kSanitized ? 10 : 60;
    std::vector<std::vector<float>> results;
    for (const Schedule schedule : {Schedule::kSerial, Schedule::kOverlap, Schedule::kPriority}) {
      for (const bool shards : {false, true}) {
        const int streams = schedule == Schedule::kOverlap ? 0 : 2;
        Session session(communicator,
                        plan,
                        {.schedule = schedule, .streams = streams, .shard_optimizer = shards});
        std::vector<std::vector<float>> own;  // without shards
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          own.emplace_back(session.gradient(i).count, 0.0F);
          EXPECT_EQ(session.parameter(i).count, shards ? session.gradient(i).count : 0U);
        }
        const auto parameter = [&](std::size_t i) {
          return shards ? as_span<float>(session.parameter(i)) : std::span<float>(own[i]);
        };
        std::size_t touched = 0;
        session.on_bucket([&](std::size_t, const std::vector<TensorRange>& ranges) {
          for (const TensorRange& range : ranges) {
            for (auto k = static_cast<std::size_t>(range.begin);
                 k < static_cast<std::size_t>(range.end);
                 ++k) {
              parameter(range.tensor)[k] -= as_span<float>(session.gradient(range.tensor))[k];
              ++touched;
            }
          }
        });
        std::mt19937 generator(static_cast<unsigned>(communicator.rank()) + 11);
        std::vector<std::size_t> order = {0, 1, 2, 3};
        for (std::uint32_t step = 0; step < steps; ++step) {
          fill(session, communicator.rank(), step);
          std::shuffle(order.begin(), order.end(), generator);
          for (const std::size_t i : order) {
            session.ready(i);
          }
          session.finish();
          std::shuffle(order.begin(), order.end(), generator);
          for (const std::size_t i : order) {
            session.wait(i);
          }
        }
        std::vector<float> all;
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          all.insert(all.end(), parameter(i).begin(), parameter(i).end());
        }
        results.push_back(all);
        std::size_t mine = 0;
        for (const Bucket& bucket : plan.buckets) {
          const Part part = part_of(static_cast<std::size_t>(bucket.end - bucket.begin),
                                    communicator.size(),
                                    communicator.rank());
          mine += part.end - part.begin;
        }
        EXPECT_EQ(touched, steps * (shards ? mine : all.size()));
        if (shards) {
          EXPECT_EQ(code_of([&] { session.replan(single_bucket_plan(tensors)); }),
                    ErrorCode::kUnavailable);
        }
      }
    }
    for (const std::vector<float>& result : results) {
      ASSERT_EQ(result, results.front());
    }
  });
}

TEST(SessionShard, OptionsThatDifferAreAMismatch) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    for (const bool shards : {false, true}) {
      SessionOptions options = kPriority;
      (shards ? options.shard_optimizer : options.reduce_first) = communicator.rank() == 0;
      std::string what;
      EXPECT_EQ(code_of(
                    [&] {
                      const Session session(
                          communicator, uniform_plan(model(), Bytes(900)), options);
                    },
                    &what),
                ErrorCode::kMismatch);
      EXPECT_NE(what.find(shards ? "shard_optimizer yes" : "reduce_first yes"), std::string::npos)
          << what;
    }
  });
}

// A rank that leaves between finish() and its updates, for which its peers wait.
TEST(SessionShard, DestroyedWithAStepUnderWayTellsThePeers) {
  run_processes(2, test_options(), [](Communicator& communicator) {
    std::optional<Session> session;
    session.emplace(communicator,
                    uniform_plan(model(), Bytes(4000)),
                    SessionOptions{.schedule = Schedule::kPriority, .shard_optimizer = true});
    ready_in_order(*session);
    session->finish();
    if (communicator.rank() == 0) {
      (void)session->gradient_norm();  // everything is reduced
      session.reset();
      EXPECT_THROW(communicator.barrier().wait(), Error);
      return;
    }
    std::string what;
    // The norm may come from before or after the peer is gone; the update cannot.
    const auto go_on = [&] {
      (void)session->gradient_norm();
      session->drain();
    };
    EXPECT_EQ(code_of(go_on, &what), ErrorCode::kBackend);
    EXPECT_NE(what.find("drain()"), std::string::npos) << what;
  });
}

TEST(SessionShard, ARankKilledBetweenFinishAndUpdateIsPeerLost) {
  const RendezvousDirectory directory;
  const auto children =
      fork_ranks(directory.path(), 3, test_options(), [](Communicator& communicator) {
        Session session(communicator,
                        uniform_plan(model(), Bytes(4000)),
                        {.schedule = Schedule::kPriority, .shard_optimizer = true});
        EXPECT_EQ(code_of([&] {
                    for (std::uint32_t step = 0;; ++step) {
                      session.drain();
                      ready_in_order(session);
                      session.finish();
                      (void)session.gradient_norm();
                      if (communicator.rank() == 1 && step == 2) {
                        kill(getpid(), SIGKILL);
                      }
                    }
                  }),
                  ErrorCode::kPeerLost);
      });
  for (std::size_t rank = 0; rank < children.size(); ++rank) {
    EXPECT_EQ(wait_for(children[rank]), rank == 1 ? 128 + SIGKILL : 0) << "rank " << rank;
  }
}

TEST(SessionShard, WaitInTheOpenStepIsForThisRanksPart) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const auto expected = serial_steps(communicator, 1);
    Session session(communicator, single_bucket_plan(model()), {.shard_optimizer = true});
    fill(session, communicator.rank(), 0);
    ready_in_order(session);
    session.wait(0);
    const Bucket& bucket = session.plan().buckets.front();
    const Part mine = part_of(static_cast<std::size_t>(bucket.end - bucket.begin),
                              communicator.size(),
                              communicator.rank());
    ASSERT_EQ(bucket.dtype, DType::kF32);
    EXPECT_EQ(std::memcmp(session.gradient(0).data + 4 * mine.begin,
                          expected[0].data() + 4 * mine.begin,
                          4 * (mine.end - mine.begin)),
              0);
    session.finish();
  });
}

TEST(SessionShard, WhatDoesNotGoWithItIsSaid) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const auto code = [&](const Plan& plan, SessionOptions options) {
      options.shard_optimizer = true;
      return code_of([&] { const Session session(communicator, plan, options); });
    };
    Plan plan = uniform_plan(model(), Bytes(2000));
    EXPECT_EQ(code(plan, {.verify_every = 1}), ErrorCode::kUnavailable);
    plan.buckets[0].algorithm = Algorithm::kDoubleBinaryTree;
    EXPECT_EQ(code(plan, {}), ErrorCode::kUnavailable);
    plan.buckets[0].algorithm = Algorithm::kAuto;
    plan.buckets[0].codec = parse_codec("int8");
    EXPECT_EQ(code(plan, {}), ErrorCode::kUnavailable);
  });
}

}  // namespace
}  // namespace stretto::testing
