// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/session.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "comm/world.hpp"
#include "run/session_steps.hpp"
#include "stretto/comm/callback/callback.hpp"
#include "stretto/plan/fixed_plans.hpp"

namespace stretto::testing {
namespace {

TEST(Session, EveryPlanAndScheduleGivesTheBitsOfTheSerialOne) {
  for (const RanksAs as : {RanksAs::kThreads, RanksAs::kProcesses}) {
    run_ranks(as, 3, test_options(), [](Communicator& communicator) {
      constexpr std::uint32_t kSteps = 3;
      const auto expected = serial_steps(communicator, kSteps);
      const std::vector<Plan> plans = {single_bucket_plan(model()),
                                       ddp_plan(model(), Bytes(8192), Bytes(1024)),
                                       uniform_plan(model(), Bytes(1000)),
                                       uniform_plan(model(), Bytes(5000), false)};
      for (const Plan& plan : plans) {
        for (const Schedule schedule : {Schedule::kSerial, Schedule::kOverlap}) {
          for (const int streams : {0, 1, 3}) {
            Session session(
                communicator, plan, {.schedule = schedule, .streams = streams, .verify_every = 1});
            for (std::uint32_t step = 0; step < kSteps; ++step) {
              fill(session, communicator.rank(), step);
              ready_in_order(session);
              session.finish();
              ASSERT_EQ(bytes_of(session), expected[step]);
            }
          }
        }
      }
    });
  }
}

// Under a sanitizer a round costs twenty times as much, and a thousand of them meet the same races.
constexpr std::uint32_t kRandomOrders = kSanitized ? 1'000 : 10'000;

TEST(Session, ThousandsOfRandomReadyOrdersPerRankEqualTheSerialSum) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const auto expected = serial_steps(communicator, 4);
    Session session(communicator, uniform_plan(model(), Bytes(4000)), {.record_steps = 0});
    std::vector<std::size_t> order(session.tensors());
    std::iota(order.begin(), order.end(), 0U);
    std::mt19937 generator(static_cast<unsigned>(communicator.rank()) + 7);
    std::vector<std::vector<std::byte>>
        inputs;  // drawing them anew each round would be most of the time
    for (std::uint32_t step = 0; step < 4; ++step) {
      fill(session, communicator.rank(), step);
      inputs.push_back(bytes_of(session));
    }
    for (std::uint32_t round = 0; round < kRandomOrders; ++round) {
      // Each rank its own order, and now and then a pause that lets the other one run ahead.
      std::shuffle(order.begin(), order.end(), generator);
      restore(session, inputs[round % 4]);
      for (const std::size_t i : order) {
        session.ready(i);
        if (generator() % 64 == 0) {
          std::this_thread::yield();
        }
      }
      session.finish();
      ASSERT_EQ(bytes_of(session), expected[round % 4]) << "round " << round;
    }
  });
}

TEST(Session, ReadyFromSeveralThreads) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const auto expected = serial_steps(communicator, 1);
    Session session(communicator, uniform_plan(model(), Bytes(4000)));
    for (int round = 0; round < 50; ++round) {
      fill(session, communicator.rank(), 0);
      std::vector<std::thread> threads;
      for (std::size_t part = 0; part < 3; ++part) {
        threads.emplace_back([&session, part] {
          for (std::size_t i = part; i < session.tensors(); i += 3) {
            session.ready(i);
          }
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
      session.finish();
      ASSERT_EQ(bytes_of(session), expected[0]);
    }
  });
}

TEST(Session, OnBucketSeesEveryTensorOnceAndReduced) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const auto expected = serial_steps(communicator, 1);
    Session session(communicator, uniform_plan(model(), Bytes(4000)));
    std::vector<std::int64_t> seen(session.tensors());
    session.on_bucket([&](std::size_t bucket, const std::vector<TensorRange>& ranges) {
      EXPECT_LT(bucket, session.plan().buckets.size());
      for (const TensorRange& range : ranges) {
        seen[range.tensor] += range.end - range.begin;
      }
    });
    fill(session, communicator.rank(), 0);
    ready_in_order(session);
    session.finish();
    for (std::size_t i = 0; i < session.tensors(); ++i) {
      EXPECT_EQ(seen[i], session.plan().tensors[i].elements());
    }
    EXPECT_EQ(bytes_of(session), expected[0]);
  });
}

TEST(Session, AccumulationCommunicatesOnlyTheLastMicroBatch) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    Session session(communicator, uniform_plan(model(), Bytes(4000)));
    const Timeline before = session.timeline();
    {
      const auto hold = session.accumulate();
      fill(session, communicator.rank(), 1);
      ready_in_order(session);
    }
    fill(session, communicator.rank(), 2, true);
    ready_in_order(session);
    session.finish();
    // mean over ranks of (batch 1 + batch 2), for a tensor of fp32
    const float got = as_span<float>(session.gradient(1))[5];
    float expected = 0;
    for (int rank = 0; rank < 2; ++rank) {
      float sum = 0;
      for (const unsigned step : {1U, 2U}) {
        std::mt19937 generator(1000 + static_cast<unsigned>(rank) * 10 + step);
        std::uniform_real_distribution<float> uniform(-1, 1);
        float value = 0;
        for (int k = 0; k <= 5; ++k) {
          value = uniform(generator);
        }
        sum += value;
      }
      expected += sum;
    }
    EXPECT_EQ(got, expected / 2);
  });
}

TEST(Session, ReplanMovesNoAddressAndKeepsTheBits) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const auto expected = serial_steps(communicator, 2);
    Session session(communicator, uniform_plan(model(), Bytes(1000)));
    const std::byte* const address = session.gradient(4).data;
    fill(session, communicator.rank(), 0);
    ready_in_order(session);
    session.finish();
    EXPECT_EQ(bytes_of(session), expected[0]);
    session.replan(ddp_plan(model(), Bytes(9000), Bytes(100)));
    EXPECT_EQ(session.gradient(4).data, address);
    fill(session, communicator.rank(), 1);
    ready_in_order(session);
    session.finish();
    EXPECT_EQ(bytes_of(session), expected[1]);

    session.ready(0);
    EXPECT_EQ(code_of([&] { session.replan(single_bucket_plan(model())); }),
              ErrorCode::kInvalidArgument);
    auto other = model();
    other[1].name = "renamed";
    EXPECT_EQ(code_of([&] { session.replan(single_bucket_plan(other)); }),
              ErrorCode::kInvalidArgument);
  });
}

TEST(Session, NeverReadyNamesTheTensorOnItsRankAndFailsTheOthersAlike) {
  for (const RanksAs as : {RanksAs::kThreads, RanksAs::kProcesses}) {
    run_ranks(as, 3, test_options(), [](Communicator& communicator) {
      Session session(communicator, uniform_plan(model(), Bytes(4000)));
      std::string what;
      if (communicator.rank() == 1) {
        ready_in_order(session);
        session.finish();
        for (std::size_t i = 0; i < session.tensors(); ++i) {
          if (i != 5) {
            session.ready(i);
          }
        }
        EXPECT_EQ(code_of([&] { session.finish(); }, &what), ErrorCode::kNeverReady);
        EXPECT_NE(what.find("'t5'"), std::string::npos) << what;
      } else {
        // In whatever step it learns of it: nothing that ends after an abort counts.
        EXPECT_EQ(code_of(
                      [&] {
                        for (;;) {
                          ready_in_order(session);
                          session.finish();
                        }
                      },
                      &what),
                  ErrorCode::kNeverReady);
        EXPECT_NE(what.find("rank 1"), std::string::npos) << what;
        EXPECT_NE(what.find("step 1"), std::string::npos) << what;
        EXPECT_NE(what.find("'t5'"), std::string::npos) << what;  // in rank 1's words
      }
      EXPECT_EQ(code_of([&] { session.finish(); }),
                ErrorCode::kInvalidArgument);  // broken, and says so
    });
  }
}

TEST(Session, ReadyTwiceIsNamed) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    std::string what;
    EXPECT_EQ(code_of(
                  [&] {
                    Session session(communicator, uniform_plan(model(), Bytes(4000)));
                    for (;;) {
                      ready_in_order(session);
                      if (communicator.rank() == 0) {
                        session.ready(7);
                      }
                      session.finish();
                    }
                  },
                  &what),
              ErrorCode::kReadyTwice);
    EXPECT_NE(what.find(communicator.rank() == 0 ? "'t7'" : "rank 0"), std::string::npos) << what;
  });
}

TEST(Session, PlansThatDifferAreTheSameMismatchOnEveryRank) {
  for (const RanksAs as : {RanksAs::kThreads, RanksAs::kProcesses}) {
    run_ranks(as, 3, test_options(), [](Communicator& communicator) {
      auto tensors = model();
      if (communicator.rank() == 2) {
        tensors[4].shape = {1501};
      }
      std::string what;
      EXPECT_EQ(code_of([&] { Session(communicator, uniform_plan(tensors, Bytes(4000))); }, &what),
                ErrorCode::kMismatch);
      EXPECT_NE(what.find("rank 2"), std::string::npos) << what;
      EXPECT_NE(what.find("t4"), std::string::npos) << what;
      EXPECT_NE(what.find("1501"), std::string::npos) << what;
      EXPECT_NE(what.find("1500"), std::string::npos) << what;
    });
  }
}

// A backend that reduces the bucket (slot 0) wrongly, but what verifies it rightly: what a
// write after ready() looks like, without the race.
TEST(Session, VerifyFindsAWrongReductionAndNamesTheTensor) {
  const auto communicator =
      make_callback_communicator(0, 1, [](const detail::Call& call, const CallbackDone& done) {
        if (call.options.slot == 0U && call.data.count > 1200) {
          as_span<float>(call.data)[1100] += 1.0F;
        }
        done(std::nullopt);
      });
  Session session(
      *communicator,
      single_bucket_plan({{"first", DType::kF32, {1000}}, {"second", DType::kF32, {1000}}}),
      {.verify_every = 2});
  std::string what;
  session.ready(0);
  session.ready(1);
  EXPECT_EQ(code_of([&] { session.finish(); }, &what), ErrorCode::kMismatch);
  EXPECT_NE(what.find("'second'"), std::string::npos) << what;
}

TEST(Session, TimelineShowsReadyLaunchedAndCommunicationLinked) {
  run_processes(2, test_options(), [](Communicator& communicator) {
    Session session(communicator, uniform_plan(model(), Bytes(4000)), {.record_steps = 2});
    for (std::uint32_t step = 0; step < 5; ++step) {
      const Nanoseconds begin = monotonic_now();
      fill(session, communicator.rank(), step);
      ready_in_order(session);
      session.recorder().add(RecordKind::kBackward, "backward", begin, monotonic_now());
      session.finish();
    }
    const Timeline all = gather_timelines(communicator, session.timeline());
    if (communicator.rank() != 0) {
      EXPECT_TRUE(all.records.empty());
      return;
    }
    EXPECT_EQ(all.world_size, 2U);
    EXPECT_EQ(all.steps_total, 5U);
    EXPECT_EQ(all.steps_recorded, 2U);
    const auto buckets = session.plan().buckets.size();
    for (const std::uint32_t rank : {0U, 1U}) {
      for (const std::uint32_t step : {3U, 4U}) {
        std::vector<Record> launched(buckets);
        std::vector<Record> communication(buckets);
        Record whole;
        std::size_t ready = 0;
        for (const Record& record : all.records) {
          if (record.rank != rank || record.step != step) {
            continue;
          }
          if (record.kind == RecordKind::kLaunched) {
            launched[record.bucket] = record;
          } else if (record.kind == RecordKind::kCommunication) {
            communication[record.bucket] = record;
          } else if (record.kind == RecordKind::kStep) {
            whole = record;
          } else if (record.kind == RecordKind::kReady) {
            ++ready;
          }
        }
        EXPECT_EQ(ready, session.tensors());
        for (std::size_t b = 0; b < buckets; ++b) {
          EXPECT_EQ(launched[b].link, communication[b].link);
          EXPECT_LE(launched[b].begin_ns, communication[b].begin_ns);
          EXPECT_LT(communication[b].begin_ns, communication[b].end_ns);
          EXPECT_LE(whole.begin_ns, launched[b].begin_ns);
          EXPECT_GE(whole.end_ns, communication[b].end_ns);
          for (const Record& record : all.records) {
            if (record.rank == rank && record.kind == RecordKind::kReady &&
                record.link == launched[b].link) {
              EXPECT_LE(record.begin_ns, launched[b].begin_ns);
            }
          }
        }
      }
    }
  });
}

TEST(Session, OptionsThatDifferAreTheSameMismatchOnEveryRank) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    SessionOptions options;
    options.op = communicator.rank() == 0 ? ReduceOp::kMean : ReduceOp::kSum;
    std::string what;
    EXPECT_EQ(
        code_of([&] { Session(communicator, uniform_plan(model(), Bytes(4000)), options); }, &what),
        ErrorCode::kMismatch);
    EXPECT_NE(what.find("op sum"), std::string::npos) << what;
    EXPECT_NE(what.find("op mean"), std::string::npos) << what;
  });
}

TEST(Session, TheMeanOfIntegersIsRefusedAtOnce) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    std::string what;
    EXPECT_EQ(code_of(
                  [&] {
                    Session(communicator, single_bucket_plan({{"count", DType::kI32, {8}}}));
                  },
                  &what),
              ErrorCode::kInvalidArgument);
    EXPECT_NE(what.find("'count'"), std::string::npos) << what;
  });
}

TEST(Session, WhatOnlyTheSimulatorCanDoIsRefusedAtOnce) {
  run_ranks(RanksAs::kThreads, 2, test_options(), [](Communicator& communicator) {
    const auto code_of = [&](const Plan& plan, Schedule schedule) {
      try {
        Session session(communicator, plan, {.schedule = schedule});
      } catch (const Error& error) {
        return error.code();
      }
      return ErrorCode::kMismatch;
    };
    Plan plan = single_bucket_plan(model());
    plan.buckets[0].algorithm = Algorithm::kInSwitch;
    EXPECT_EQ(code_of(plan, Schedule::kOverlap), ErrorCode::kUnavailable);
    std::vector<float> data(4);
    EXPECT_THROW((void)communicator.all_reduce(
                     view(std::span(data)), ReduceOp::kSum, {.algorithm = Algorithm::kBruck}),
                 Error);
  });
}

TEST(Session, ACallbackThatThrowsEndsTheSessionAndTellsThePeers) {
  run_processes(2, test_options(), [](Communicator& communicator) {
    Session session(communicator, uniform_plan(model(), Bytes(4000)));
    if (communicator.rank() == 0) {
      int calls = 0;
      session.on_bucket([&](std::size_t, const std::vector<TensorRange>&) {
        if (++calls == 2) {
          throw std::runtime_error("no");
        }
      });
      ready_in_order(session);
      EXPECT_THROW(session.finish(), std::runtime_error);
      EXPECT_EQ(code_of([&] { session.finish(); }), ErrorCode::kInvalidArgument);
      EXPECT_EQ(calls, 2);
    } else {
      EXPECT_EQ(code_of([&] {
                  for (;;) {
                    ready_in_order(session);
                    session.finish();
                  }
                }),
                ErrorCode::kBackend);
    }
  });
}

TEST(Session, WaitForOneGradient) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const auto expected = serial_steps(communicator, 1);
    Session session(communicator, uniform_plan(model(), Bytes(4000)));
    session.wait(1);  // nothing is open: the last step, had there been one, is reduced
    fill(session, communicator.rank(), 0);
    session.ready(1);
    EXPECT_EQ(code_of([&] { session.wait(1); }),
              ErrorCode::kInvalidArgument);  // its bucket lacks others
    for (std::size_t i = 0; i < session.tensors(); ++i) {
      if (i != 1) {
        session.ready(i);
      }
    }
    session.wait(1);
    const BufferView gradient = session.gradient(1);
    const auto at = static_cast<std::size_t>(gradient.data - session.gradient(0).data);
    EXPECT_EQ(std::memcmp(gradient.data, expected[0].data() + at, gradient.size_bytes()), 0);
    session.finish();
    EXPECT_EQ(bytes_of(session), expected[0]);
  });
}

TEST(Session, AwaitedTellsAnotherThreadForWhichBucketARankWaits) {
  std::atomic<bool> seen = false;
  run_threads(2, test_options(), [&](Communicator& communicator) {
    const Plan plan = uniform_plan(model(), Bytes(4000));
    Session session(communicator, plan);
    EXPECT_EQ(session.awaited(), std::nullopt);
    if (communicator.rank() == 1) {
      while (!seen) {  // holds the other rank up
        std::this_thread::yield();
      }
      ready_in_order(session);
      session.finish();
      return;
    }
    std::thread watcher([&] {
      std::optional<std::size_t> bucket;
      while (!bucket) {
        std::this_thread::yield();
        bucket = session.awaited();
      }
      EXPECT_LT(*bucket, plan.buckets.size());
      seen = true;
    });
    ready_in_order(session);
    session.finish();
    watcher.join();
    EXPECT_EQ(session.awaited(), std::nullopt);
  });
}

TEST(Session, FinishUnderAHoldSaysSo) {
  const auto communicator = std::move(local_shm_world(1, test_options())[0]);
  Session session(*communicator, uniform_plan(model(), Bytes(4000)));
  const auto hold = session.accumulate();
  ready_in_order(session);
  std::string what;
  EXPECT_EQ(code_of([&] { session.finish(); }, &what), ErrorCode::kNeverReady);
  EXPECT_NE(what.find("accumulate()"), std::string::npos) << what;
}

TEST(Session, OverlapLaunchesBeforeTheLastGradientAndSerialDoesNot) {
  for (const Schedule schedule : {Schedule::kSerial, Schedule::kOverlap}) {
    run_threads(2, test_options(), [schedule](Communicator& communicator) {
      Session session(communicator, uniform_plan(model(), Bytes(4000)), {.schedule = schedule});
      ready_in_order(session);
      session.finish();
      std::int64_t last_ready = 0;
      std::int64_t first_launch = INT64_MAX;
      for (const Record& record : session.timeline().records) {
        if (record.kind == RecordKind::kReady) {
          last_ready = std::max(last_ready, record.begin_ns);
        } else if (record.kind == RecordKind::kLaunched) {
          first_launch = std::min(first_launch, record.begin_ns);
        }
      }
      EXPECT_EQ(first_launch < last_ready, schedule == Schedule::kOverlap);
    });
  }
}

// A process group that runs things late and one by one: totally ordered, on one rank.
TEST(Session, TotalOrderLaunchesInPlanOrderWhateverTheReadyOrder) {
  std::vector<std::uint32_t> started;
  std::vector<std::thread> runners;
  {
    const auto communicator =
        make_callback_communicator(0, 1, [&](const detail::Call& call, const CallbackDone& done) {
          if (call.options.slot) {
            started.push_back(*call.options.slot);
          }
          runners.emplace_back([done] { done(std::nullopt); });
        });
    Session session(*communicator, uniform_plan(model(), Bytes(4000)));
    for (std::size_t i = session.tensors(); i-- > 0;) {
      session.ready(i);
    }
    session.finish();
    for (std::thread& runner : runners) {
      runner.join();
    }
    std::vector<std::uint32_t> expected(session.plan().buckets.size());
    std::iota(expected.begin(), expected.end(), 0U);
    EXPECT_EQ(started, expected);
  }
}

// ---- Codecs ----

Plan compressed_plan(const char* codec, Bytes cap) {
  Plan plan = uniform_plan(model(), cap);
  for (Bucket& bucket : plan.buckets) {
    if (bucket.dtype == DType::kF32) {
      bucket.codec = parse_codec(codec);
    }
  }
  return plan;
}

TEST(SessionCodec, AllRanksAgreeAndWhatIsNotSentIsKept) {
  for (const RanksAs as : {RanksAs::kThreads, RanksAs::kProcesses}) {
    run_ranks(as, 3, test_options(), [](Communicator& communicator) {
      for (const char* const codec : {"int8", "topk:0.1", "fp16"}) {
        Session session(communicator, compressed_plan(codec, Bytes(5000)));
        for (std::uint32_t step = 0; step < 3; ++step) {
          fill(session, communicator.rank(), step);
          ready_in_order(session);
          session.finish();
        }
        const std::vector<std::byte> mine = bytes_of(session);
        std::vector<std::byte> first = mine;
        communicator.broadcast({first.data(), first.size() / 2, DType::kF16, {}}, 0).wait();
        first.resize(mine.size() / 2 * 2);
        EXPECT_TRUE(std::equal(first.begin(), first.end(), mine.begin()));
        const Session::Compression done = session.compression();
        EXPECT_GT(done.residual_norm, 0.0);
        EXPECT_EQ(done.counters.not_finite, 0);
        EXPECT_GT(done.counters.sent_bytes, 0);
      }
    });
  }
}

TEST(SessionCodec, UndoneAndRepeatedEqualsNeverDone) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const auto steps = [&](bool with_undone_step) {
      Session session(communicator, compressed_plan("int4", Bytes(5000)));
      std::vector<std::byte> result;
      for (std::uint32_t step = 0; step < 4; ++step) {
        if (with_undone_step && step == 2) {
          fill(session, communicator.rank(), 77);
          ready_in_order(session);
          session.finish();
          session.undo_compression();
        }
        fill(session, communicator.rank(), step);
        ready_in_order(session);
        session.finish();
        result = bytes_of(session);
      }
      return result;
    };
    EXPECT_EQ(steps(false), steps(true));
  });
}

TEST(SessionCodec, ReplanKeepsTheTotalOfWhatIsNotSent) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    // Sum over steps of the results, then of dense steps with what was left: as if never encoded.
    Session session(communicator, compressed_plan("onebit", Bytes(5000)), {.op = ReduceOp::kSum});
    std::vector<double> got(session.gradient(1).count, 0.0);
    const auto add = [&] {
      for (std::size_t k = 0; k < got.size(); ++k) {
        got[k] += static_cast<double>(as_span<float>(session.gradient(1))[k]);
      }
    };
    std::vector<double> given(got.size(), 0.0);
    for (std::uint32_t step = 0; step < 3; ++step) {
      for (int rank = 0; rank < 2; ++rank) {
        fill(session, rank, step);
        for (std::size_t k = 0; k < given.size(); ++k) {
          given[k] += static_cast<double>(as_span<float>(session.gradient(1))[k]);
        }
      }
      fill(session, communicator.rank(), step);
      ready_in_order(session);
      session.finish();
      add();
    }
    session.replan(compressed_plan("topk:1.0", Bytes(3000)));  // sends all that is left
    for (std::size_t i = 0; i < session.tensors(); ++i) {
      if (session.gradient(i).count != 0) {  // one tensor is empty, and has no address
        std::memset(session.gradient(i).data, 0, session.gradient(i).size_bytes());
      }
    }
    ready_in_order(session);
    session.finish();
    add();
    for (std::size_t k = 0; k < got.size(); ++k) {
      ASSERT_NEAR(got[k], given[k], 1e-4) << k;
    }
    EXPECT_EQ(session.compression().residual_norm, 0.0);
  });
}

TEST(SessionCodec, OneRankLosesNothing) {
  run_threads(1, test_options(), [](Communicator& communicator) {
    Session session(communicator, compressed_plan("onebit", Bytes(5000)));
    fill(session, 0, 0);
    const std::vector<std::byte> before = bytes_of(session);
    ready_in_order(session);
    session.finish();
    EXPECT_EQ(bytes_of(session), before);
    EXPECT_EQ(session.compression().counters.exchanges, 0);
  });
}

TEST(SessionCodec, WhatDoesNotGoTogetherIsSaidAtOnce) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const auto code = [&](const Plan& plan, const SessionOptions& options) {
      return code_of([&] { const Session session(communicator, plan, options); });
    };
    const Plan plan = compressed_plan("int8", Bytes(5000));
    EXPECT_EQ(code(plan, {.op = ReduceOp::kMax}), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code(plan, {.verify_every = 1}), ErrorCode::kInvalidArgument);
    Plan ring = plan;
    Plan halves = plan;
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      ring.buckets[b].algorithm = Algorithm::kRing;
      halves.buckets[b].codec = plan.buckets.front().codec;
    }
    EXPECT_EQ(code(ring, {}), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code(halves, {}), ErrorCode::kInvalidArgument) << "a codec on bf16";
    Plan other = plan;
    if (communicator.rank() == 1) {
      other.buckets[0].codec = parse_codec("int4");
    }
    std::string words;
    EXPECT_EQ(code_of([&] { const Session session(communicator, other); }, &words),
              ErrorCode::kMismatch);
    EXPECT_NE(words.find("codec int4"), std::string::npos) << words;
    Session session(communicator, plan);
    EXPECT_EQ(code_of([&] { session.undo_compression(); }), ErrorCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace stretto::testing
