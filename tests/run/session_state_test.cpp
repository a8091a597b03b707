// SPDX-License-Identifier: Apache-2.0
// Residuals that outlive a Session.
#include <cstddef>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/world.hpp"
#include "run/session_steps.hpp"

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
