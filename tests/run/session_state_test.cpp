// SPDX-License-Identifier: Apache-2.0
// Residuals that outlive a Session.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/world.hpp"
#include "run/session_steps.hpp"
#include "stretto/data/codec_records.hpp"

namespace stretto::testing {
namespace {

Plan plan_with(const char* codec, Bytes cap) {
  Plan plan = uniform_plan(model(), cap);
  for (Bucket& bucket : plan.buckets) {
    if (bucket.dtype == DType::kF32) {
      bucket.codec = parse_codec(codec);
    }
  }
  return plan;
}

void take_step(Session& session, int rank, std::uint32_t step) {
  fill(session, rank, step);
  ready_in_order(session);
  session.finish();
}

constexpr std::uint32_t kBefore = 3;
constexpr std::uint32_t kAfter = 2;
constexpr Bytes kCap(5000);

TEST(SessionState, ResumedIsBitEqualToNeverStopped) {
  run_threads(3, test_options(), [](Communicator& communicator) {
    for (const char* const codec : {"int8",
                                    "onebit",
                                    "topk:0.1",
                                    "randomk:0.2",
                                    "int4:stochastic",
                                    "threshold:1rms",
                                    "topk:0.1:momentum=0.9:warmup=4",
                                    "powersgd:2"}) {
      const int rank = communicator.rank();
      Session one(communicator, plan_with(codec, kCap));
      for (std::uint32_t step = 0; step < kBefore; ++step) {
        take_step(one, rank, step);
      }
      const std::vector<std::byte> state = one.compression_state();
      Session other(communicator, plan_with(codec, kCap));
      other.restore_compression({&state, 1});
      EXPECT_EQ(other.compression().residual_norm, one.compression().residual_norm);
      for (std::uint32_t step = kBefore; step < kBefore + kAfter; ++step) {
        take_step(one, rank, step);
        take_step(other, rank, step);
        ASSERT_EQ(bytes_of(one), bytes_of(other)) << codec << " step " << step;
      }
      // What was saved by the second one is what the first would save.
      EXPECT_EQ(one.compression_state(), other.compression_state()) << codec;
    }
  });
}

TEST(SessionState, OtherBucketsAndCodecsTakeItUpAsReplanDoes) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const int rank = communicator.rank();
    Session one(communicator, plan_with("int4", kCap));
    for (std::uint32_t step = 0; step < kBefore; ++step) {
      take_step(one, rank, step);
    }
    const std::vector<std::byte> state = one.compression_state();
    one.replan(plan_with("topk:0.1", Bytes(3000)));
    Session other(communicator, plan_with("topk:0.1", Bytes(3000)));
    other.restore_compression({&state, 1});
    for (std::uint32_t step = kBefore; step < kBefore + kAfter; ++step) {
      take_step(one, rank, step);
      take_step(other, rank, step);
      ASSERT_EQ(bytes_of(one), bytes_of(other)) << "step " << step;
    }
  });
}

TEST(SessionState, AnotherNumberOfRanksSendsWhatTheOlderOnesDidNot) {
  std::vector<std::vector<std::byte>> states(4);
  std::vector<double> owed(2000, 0.0);  // of the means, tensor 1
  std::mutex mutex;
  run_threads(4, test_options(), [&](Communicator& communicator) {
    Session session(communicator, plan_with("topk:0.05", kCap));
    std::vector<double> mine(owed.size(), 0.0);
    for (std::uint32_t step = 0; step < kBefore; ++step) {
      fill(session, communicator.rank(), step);
      for (std::size_t k = 0; k < mine.size(); ++k) {
        mine[k] += static_cast<double>(as_span<float>(session.gradient(1))[k]) / 4.0;
      }
      ready_in_order(session);
      session.finish();
      for (std::size_t k = 0; k < mine.size() && communicator.rank() == 0; ++k) {
        mine[k] -= static_cast<double>(as_span<float>(session.gradient(1))[k]);
      }
    }
    const std::scoped_lock lock(mutex);
    states[static_cast<std::size_t>(communicator.rank())] = session.compression_state();
    for (std::size_t k = 0; k < mine.size(); ++k) {
      owed[k] += mine[k];
    }
  });
  for (const int ranks : {2, 3}) {
    run_threads(ranks, test_options(), [&](Communicator& communicator) {
      Session session(communicator, plan_with("topk:1.0", kCap));  // sends all that is left
      session.restore_compression(states);
      for (std::size_t i = 0; i < session.tensors(); ++i) {
        if (session.gradient(i).count != 0) {
          std::memset(session.gradient(i).data, 0, session.gradient(i).size_bytes());
        }
      }
      ready_in_order(session);
      session.finish();
      for (std::size_t k = 0; k < owed.size(); ++k) {
        ASSERT_NEAR(as_span<float>(session.gradient(1))[k], owed[k], 1e-5) << k;
      }
    });
  }
}

TEST(SessionState, AnotherLossScaleChangesNothingButTheUnit) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const int rank = communicator.rank();
    for (const char* const codec : {"int8",
                                    "onebit",
                                    "topk:0.1",
                                    "topk:0.1:momentum=0.5",
                                    "randomk:0.2",
                                    "threshold:1rms",
                                    "powersgd:2"}) {
      // Powers of two, so that every bit of one step is that of the other. Steps 2 and 3 overflow.
      constexpr float kScale = 1024.0F;
      Session plain(communicator, plan_with(codec, kCap));
      Session scaled(communicator, plan_with(codec, kCap));
      float scale = kScale;
      const auto f32 = [](Session& session, std::size_t i) {
        return session.gradient(i).dtype == DType::kF32 ? as_span<float>(session.gradient(i))
                                                        : std::span<float>();
      };
      for (std::uint32_t step = 0; step < 8; ++step) {
        const bool left_out = step == 2 || step == 3;
        fill(plain, rank, step);
        fill(scaled, rank, step);
        for (std::size_t i = 0; i < scaled.tensors(); ++i) {
          for (float& value : f32(scaled, i)) {
            value *= scale;
          }
        }
        for (Session* const session : {&plain, &scaled}) {
          ready_in_order(*session);
          session->finish();
        }
        for (std::size_t i = 0; i < plain.tensors(); ++i) {
          for (std::size_t k = 0; k < f32(plain, i).size(); ++k) {
            ASSERT_EQ(f32(plain, i)[k] * scale, f32(scaled, i)[k]) << codec << " step " << step;
          }
        }
        if (left_out) {
          plain.undo_compression();
          if (step == 2) {  // either order
            scaled.undo_compression();
            scaled.rescale_compression(0.5);
          } else {
            scaled.rescale_compression(0.5);
            scaled.undo_compression();
          }
          scale *= 0.5F;
        } else if (step == 5) {
          scaled.rescale_compression(4.0);
          scale *= 4.0F;
        }
      }
    }
    Session session(communicator, plan_with("int8", kCap));
    for (const double factor :
         {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan(""), 1e300, 1e-300}) {
      EXPECT_EQ(code_of([&] { session.rescale_compression(factor); }), ErrorCode::kInvalidArgument);
    }
    session.ready(0);
    EXPECT_EQ(code_of([&] { session.rescale_compression(2.0); }), ErrorCode::kInvalidArgument);
    for (std::size_t i = 1; i < session.tensors(); ++i) {
      session.ready(i);
    }
    session.finish();
    Session dense(communicator, uniform_plan(model(), kCap));
    dense.rescale_compression(2.0);
  });
}

TEST(SessionState, CodecsBeginAfterTheirFirstSteps) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const int rank = communicator.rank();
    constexpr std::uint32_t kStart = 2;
    for (const Schedule schedule : {Schedule::kOverlap, Schedule::kPriority}) {
      for (const char* const codec : {"int8", "topk:0.1:momentum=0.9:warmup=3", "randomk:0.2"}) {
        SessionOptions options;
        options.schedule = schedule;
        Session dense(communicator, uniform_plan(model(), kCap), options);
        Session at_once(communicator, plan_with(codec, kCap), options);
        options.codec_start = kStart;
        Session later(communicator, plan_with(codec, kCap), options);
        const auto drained = [&](Session& session, std::uint32_t step) {
          take_step(session, rank, step);
          session.drain();
          return bytes_of(session);
        };
        for (std::uint32_t step = 0; step < kStart; ++step) {
          ASSERT_EQ(drained(later, step), drained(dense, step)) << codec;
          EXPECT_EQ(later.compression().counters.exchanges, 0);
          EXPECT_EQ(later.compression().residual_norm, 0.0);
        }
        later.undo_compression();  // there is nothing that was not sent
        EXPECT_EQ(code_of([&] { later.undo_compression(); }), ErrorCode::kInvalidArgument);
        EXPECT_EQ(later.step(), kStart);
        // From then on it is as if the job had begun, warm-up and seeds too.
        for (std::uint32_t step = kStart; step < kStart + 5; ++step) {
          ASSERT_EQ(drained(later, step), drained(at_once, step)) << codec << " step " << step;
        }
        // A job that goes on does not wait again.
        const std::vector<std::byte> state = later.compression_state();
        Session resumed(communicator, plan_with(codec, kCap), options);
        resumed.restore_compression({&state, 1});
        ASSERT_EQ(drained(resumed, 20), drained(later, 20)) << codec;
      }
    }
  });
}

TEST(SessionState, TimelinesSayWhatCodecsDidWithinTheirExchanges) {
  const auto look = [](Communicator& communicator, bool emulated) {
    Session session(communicator, plan_with("int8", kCap));
    for (std::uint32_t step = 0; step < 2; ++step) {
      take_step(session, communicator.rank(), step);
    }
    const Timeline timeline = session.timeline();
    std::size_t encoded = 0;
    std::size_t decoded = 0;
    for (const Record& record : timeline.records) {
      if (record.kind != RecordKind::kAnnotation) {
        continue;
      }
      const std::string& name = timeline.names.at(record.name);
      encoded += codec_of_record(name, kEncodeRecord) == "int8" ? 1U : 0U;
      decoded += codec_of_record(name, kDecodeRecord) == "int8" ? 1U : 0U;
      EXPECT_EQ(record.lane, Lane::kCommunication);
      const auto exchange =
          std::find_if(timeline.records.begin(), timeline.records.end(), [&](const Record& other) {
            return other.kind == RecordKind::kCommunication && other.step == record.step &&
                   other.bucket == record.bucket;
          });
      ASSERT_NE(exchange, timeline.records.end());
      EXPECT_LE(exchange->begin_ns, record.begin_ns);
      EXPECT_LE(record.begin_ns, record.end_ns);
      EXPECT_TRUE(emulated || record.end_ns <= exchange->end_ns) << name;
    }
    EXPECT_GE(encoded, 2U);
    EXPECT_GE(decoded, 2U);
  };
  run_threads(2, test_options(), [&](Communicator& communicator) { look(communicator, false); });
  ShmOptions emulated = test_options();
  emulated.emulate = machine_from_text("2@1Gbit/s,50us");
  run_threads(2, emulated, [&](Communicator& communicator) { look(communicator, true); });
}

TEST(SessionState, WhatCannotBeTakenUpIsSaid) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    Session dense(communicator, uniform_plan(model(), kCap));
    EXPECT_TRUE(dense.compression_state().empty());
    dense.restore_compression({});
    Session session(communicator, plan_with("int8", kCap));
    take_step(session, communicator.rank(), 0);
    const std::vector<std::byte> state = session.compression_state();
    const auto code = [](Session& to, const std::vector<std::byte>& from) {
      try {
        to.restore_compression({&from, 1});
      } catch (const Error& error) {
        return error.code();
      }
      return ErrorCode::kBackend;
    };
    std::vector<std::byte> damaged = state;
    damaged[damaged.size() / 2] ^= std::byte{1};
    EXPECT_EQ(code(session, damaged), ErrorCode::kParse);
    std::vector<TensorSpec> tensors = model();
    tensors[1].shape = {2001};
    Session other(communicator, uniform_plan(tensors, kCap));
    EXPECT_EQ(code(other, state), ErrorCode::kMismatch);
    session.ready(0);
    EXPECT_EQ(code(session, state), ErrorCode::kInvalidArgument);
    EXPECT_THROW((void)session.compression_state(), Error);
    for (std::size_t i = 1; i < session.tensors(); ++i) {
      session.ready(i);
    }
    session.finish();
    dense.restore_compression({&state, 1});  // kept for codecs that come later
    EXPECT_GT(dense.compression().residual_norm, 0.0);
  });
}

}  // namespace
}  // namespace stretto::testing
