// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/world.hpp"
#include "compress/vectors.hpp"
#include "stretto/compress/compressed_bucket.hpp"

namespace stretto::testing {
namespace {

constexpr auto kCodecs = std::to_array<const char*>({"fp16",
                                                     "bf16",
                                                     "int8",
                                                     "int4",
                                                     "onebit",
                                                     "topk:0.05",
                                                     "topk:3",
                                                     "threshold:1.5",
                                                     "threshold:2rms",
                                                     "randomk:0.1",
                                                     "powersgd:2"});  // no matrix: exact

/// What each rank ends with: its own data, and its residuals.
struct Ends {
  std::vector<Vector> data;
  std::vector<Vector> own;
  std::vector<Vector> sums;
  std::vector<bool> finite;
};

using Gradient = std::function<Vector(int rank, std::uint32_t step)>;

/// Steps on all ranks; `each` sees rank 0's result of every step.
Ends run_steps(RanksAs as,
               int ranks,
               const std::string& codec,
               std::size_t count,
               std::uint32_t steps,
               const Gradient& gradient,
               ReduceOp op = ReduceOp::kSum,
               const std::function<void(const Vector&)>& each = {},
               ShmOptions options = test_options(),
               Algorithm algorithm = Algorithm::kAuto) {
  Ends ends;
  const auto size = static_cast<std::size_t>(ranks);
  ends.data.resize(size);
  ends.own.resize(size);
  ends.sums.resize(size);
  std::vector<char> finite(size, 0);
  run_ranks(as, ranks, options, [&](Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    Residuals residuals(count);
    const auto bucket = compressed_bucket(communicator, parse_codec(codec), count);
    Vector data;
    for (std::uint32_t step = 0; step < steps; ++step) {
      data = gradient(communicator.rank(), step);
      CallOptions call;
      call.algorithm = algorithm;
      bucket->all_reduce(view(std::span(data)), op, &residuals, 0, step, call).wait();
      if (!bucket->finite()) {
        residuals.keep(0, count);
      }
      residuals.commit();
      if (rank == 0 && each) {
        each(data);
      }
    }
    EXPECT_EQ(bucket->counters().exchanges, steps);
    ends.data[rank] = data;
    ends.own[rank].assign(residuals.own(0), residuals.own(count));
    ends.sums[rank].assign(residuals.of_sums(0), residuals.of_sums(count));
    finite[rank] = bucket->finite() ? 1 : 0;
  });
  ends.finite.assign(finite.begin(), finite.end());
  return ends;
}

Vector random_gradient(int rank, std::uint32_t step, std::size_t count) {
  return gaussian(count, 1000 * static_cast<unsigned>(rank) + step + 1);
}

TEST(CompressedBucket, NothingIsLostAndAllRanksGetTheSameBits) {
  constexpr std::uint32_t kSteps = 6;
  for (const char* const codec : kCodecs) {
    for (const int ranks : {2, 3}) {
      for (const std::size_t count : {std::size_t{5}, std::size_t{5000}}) {
        std::vector<double> out(count, 0.0);
        const Ends ends = run_steps(
            RanksAs::kThreads,
            ranks,
            codec,
            count,
            kSteps,
            [count](int rank, std::uint32_t step) { return random_gradient(rank, step, count); },
            ReduceOp::kSum,
            [&](const Vector& result) {
              for (std::size_t i = 0; i < count; ++i) {
                out[i] += static_cast<double>(result[i]);
              }
            });
        std::vector<double> in(count, 0.0);
        for (int rank = 0; rank < ranks; ++rank) {
          const auto r = static_cast<std::size_t>(rank);
          EXPECT_EQ(ends.data[r], ends.data[0]);
          EXPECT_TRUE(ends.finite[r]);
          for (std::uint32_t step = 0; step < kSteps; ++step) {
            const Vector gradient = random_gradient(rank, step, count);
            for (std::size_t i = 0; i < count; ++i) {
              in[i] += static_cast<double>(gradient[i]);
            }
          }
          for (std::size_t i = 0; i < count; ++i) {
            out[i] += static_cast<double>(ends.own[r][i]) + static_cast<double>(ends.sums[r][i]);
          }
        }
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_NEAR(out[i], in[i], 1e-4) << codec << ", " << ranks << " ranks, element " << i;
        }
      }
    }
  }
}

TEST(CompressedBucket, ALongOneTravelsInChunks) {
  constexpr std::size_t kCount = 300'001;  // parts of more than two chunks each
  for (const char* const codec : {"int8", "topk:0.01"}) {
    const auto gradient = [](int rank, std::uint32_t step) {
      return random_gradient(rank, step, kCount);
    };
    const Ends threads = run_steps(RanksAs::kThreads, 2, codec, kCount, 2, gradient);
    EXPECT_EQ(threads.data[0], threads.data[1]);
    const Ends again = run_steps(RanksAs::kThreads, 2, codec, kCount, 2, gradient);
    EXPECT_EQ(threads.data, again.data) << "a second run gives other bits";
    EXPECT_EQ(threads.own, again.own);
  }
}

TEST(CompressedBucket, EqualGradientsGiveOneRanksDecoding) {
  constexpr std::size_t kCount = 3000;
  for (const char* const codec : {"fp16", "int8", "int4", "onebit", "topk:0.05", "threshold:1"}) {
    std::vector<Vector> results;
    for (const int ranks : {2, 4}) {
      results.push_back(run_steps(
                            RanksAs::kThreads,
                            ranks,
                            codec,
                            kCount,
                            1,
                            [](int, std::uint32_t) { return gaussian(kCount, 77); },
                            ReduceOp::kMean)
                            .data[0]);
    }
    const Vector gradient = gaussian(kCount, 77);
    double lost = 0.0;
    for (std::size_t i = 0; i < kCount; ++i) {
      // Blocks begin with parts, so their scales depend on the number of ranks.
      lost += std::pow(static_cast<double>(results[0][i] - gradient[i]), 2);
      if (std::string(codec).starts_with("t")) {
        ASSERT_EQ(results[0][i], results[1][i]) << codec;
      }
    }
    EXPECT_LT(std::sqrt(lost / squares(gradient)), std::string(codec) == "topk:0.05" ? 0.9 : 0.65);
  }
}

TEST(CompressedBucket, OnTheGridItEqualsTheDenseSum) {
  // Multiples of the step, with the largest in every block; twice that is so too.
  constexpr std::size_t kCount = 4096;
  const auto gradient = [](int, std::uint32_t) {
    Vector values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      values[i] = i % 64 == 0 ? 63.5F : static_cast<float>(i * 7 % 63) * 0.5F;
    }
    return values;
  };
  for (const char* const codec : {"int8", "fp16", "topk:1.0", "threshold:0.25", "randomk:1.0"}) {
    for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
      const std::string name = codec;
      if (algorithm == Algorithm::kRing && name != "fp16" && name != "randomk:1.0") {
        continue;
      }
      const Ends ends = run_steps(RanksAs::kThreads,
                                  2,
                                  codec,
                                  kCount,
                                  1,
                                  gradient,
                                  ReduceOp::kSum,
                                  {},
                                  test_options(),
                                  algorithm);
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(ends.data[0][i], gradient(0, 0)[i] + gradient(1, 0)[i]) << codec << " " << i;
      }
    }
  }
}

TEST(CompressedBucket, WhatOneRankHasThatIsNotFiniteAllSeeAndNoResidualKeeps) {
  constexpr std::size_t kCount = 3000;
  for (const char* const codec : kCodecs) {
    const auto gradient = [](int rank, std::uint32_t step) {
      Vector values = random_gradient(rank, step, kCount);
      if (step == 1 && rank == 1) {
        values[1234] = std::numeric_limits<float>::infinity();
      }
      return values;
    };
    const Ends before = run_steps(RanksAs::kThreads, 3, codec, kCount, 1, gradient);
    const Ends after = run_steps(RanksAs::kThreads, 3, codec, kCount, 2, gradient);
    EXPECT_EQ(after.finite, std::vector<bool>(3, false)) << codec;
    EXPECT_EQ(after.own, before.own) << codec;
    EXPECT_EQ(after.sums, before.sums) << codec;
  }
}

TEST(CompressedBucket, AnEmulatedMachineGivesTheSameBits) {
  constexpr std::size_t kCount = 20'000;
  const auto gradient = [](int rank, std::uint32_t step) {
    return random_gradient(rank, step, kCount);
  };
  ShmOptions options = test_options();
  options.emulate = machine_from_text("2@1Gbit/s,50us");
  for (const char* const codec : {"int8", "topk:0.01", "randomk:0.01"}) {
    const Ends real = run_steps(RanksAs::kThreads, 2, codec, kCount, 2, gradient);
    const Ends emulated =
        run_steps(RanksAs::kThreads, 2, codec, kCount, 2, gradient, ReduceOp::kSum, {}, options);
    EXPECT_EQ(real.data, emulated.data) << codec;
  }
}

TEST(CompressedBucket, SaysWhatItCannotDo) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    Vector data(100);
    Residuals residuals(100);
    const auto bucket = compressed_bucket(communicator, parse_codec("int8"), 100);
    const auto code = [&](const BufferView& buffer, ReduceOp op, Algorithm algorithm) {
      CallOptions call;
      call.algorithm = algorithm;
      return code_of([&] { (void)bucket->all_reduce(buffer, op, &residuals, 0, 0, call); });
    };
    const BufferView all = view(std::span(data));
    EXPECT_EQ(code(all, ReduceOp::kMax, Algorithm::kAuto), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code(all, ReduceOp::kSum, Algorithm::kRing), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code(all.slice(0, 99), ReduceOp::kSum, Algorithm::kAuto),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { (void)compressed_bucket(communicator, CodecSpec{}, 100); }),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] {
                (void)compressed_bucket(communicator, parse_codec("int8"), std::size_t{1} << 33);
              }),
              ErrorCode::kInvalidArgument);
  });
}

TEST(CompressedBucket, SendsWhatItSays) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    constexpr std::size_t kCount = 64 * 1024;
    Vector data = gaussian(kCount, 3);
    Residuals residuals(kCount);
    const auto sent = [&](const char* codec) {
      const auto bucket = compressed_bucket(communicator, parse_codec(codec), kCount);
      bucket->all_reduce(view(std::span(data)), ReduceOp::kMean, &residuals, 0, 0, {}).wait();
      EXPECT_EQ(bucket->counters().dense_bytes, static_cast<std::int64_t>(4 * kCount));
      return bucket->counters().sent_bytes;
    };
    // Half of the bucket, and the sum of the other half.
    EXPECT_EQ(sent("int8"), 2 * 64 * (4 + 512));
    EXPECT_EQ(sent("fp16"), 2 * 2 * 32 * 1024);
    EXPECT_EQ(sent("topk:100"), 8 + 100 * 8);
  });
}

TEST(Residuals, UndoGivesBackEveryBitAndSettleKeepsTheTotal) {
  Residuals residuals(4);
  residuals.next_own(0)[1] = 0.1F;
  residuals.next_of_sums(0)[2] = 0.3F;
  residuals.commit();
  EXPECT_EQ(residuals.own(0)[1], 0.1F);
  residuals.next_own(0)[1] = 7.0F;
  residuals.commit();
  residuals.undo();
  EXPECT_EQ(residuals.own(0)[1], 0.1F);
  residuals.settle();
  EXPECT_EQ(residuals.own(0)[1], 0.1F);
  EXPECT_EQ(residuals.own(0)[2], 0.3F);
  EXPECT_EQ(residuals.of_sums(0)[2], 0.0F);
  EXPECT_NEAR(residuals.norm(), std::hypot(0.1, 0.3), 1e-7);
  residuals.commit();  // nothing wrote: nothing changes
  EXPECT_EQ(residuals.own(0)[2], 0.3F);
}

}  // namespace
}  // namespace stretto::testing
