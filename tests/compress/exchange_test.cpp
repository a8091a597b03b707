// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
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
  std::vector<Vector> velocity;
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
  ends.velocity.resize(size);
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
    ends.velocity[rank].assign(residuals.velocity(0), residuals.velocity(count));
    finite[rank] = bucket->finite() ? 1 : 0;
  });
  ends.finite.assign(finite.begin(), finite.end());
  return ends;
}

ShmOptions nodes(const char* machine) {
  ShmOptions options = test_options();
  options.emulate = machine_from_text(machine);
  return options;
}
constexpr const char* kTwoNodesOfTwo = "2x2@intra=20GB/s,2us@inter=1Gbit/s,50us";

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
  std::vector<const char*> codecs(kCodecs.begin(), kCodecs.end());
  codecs.push_back("topk:0.05:momentum=0.9");
  codecs.push_back("randomk:0.1:momentum=0.9");
  for (const char* const codec : codecs) {
    const auto gradient = [](int rank, std::uint32_t step) {
      Vector values = random_gradient(rank, step, kCount);
      if (step == 1 && rank == 1) {
        values[1234] = std::numeric_limits<float>::infinity();
      }
      return values;
    };
    const auto compare = [&](int ranks, const ShmOptions& options, Algorithm algorithm) {
      const auto run = [&](std::uint32_t steps) {
        return run_steps(RanksAs::kThreads,
                         ranks,
                         codec,
                         kCount,
                         steps,
                         gradient,
                         ReduceOp::kSum,
                         {},
                         options,
                         algorithm);
      };
      const Ends before = run(1);
      const Ends after = run(2);
      EXPECT_EQ(after.finite, std::vector<bool>(static_cast<std::size_t>(ranks), false)) << codec;
      EXPECT_EQ(after.own, before.own) << codec;
      EXPECT_EQ(after.sums, before.sums) << codec;
      EXPECT_EQ(after.velocity, before.velocity) << codec;
    };
    compare(3, test_options(), Algorithm::kAuto);
    compare(4, nodes(kTwoNodesOfTwo), Algorithm::kHierarchical);
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

// Lin et al. 2018, algorithm 4, for one rank: velocity u, what is not sent v.
struct MomentumModel {
  Vector u;
  Vector v;
  std::size_t chosen = 0;
  float momentum = 0.0F;

  Vector sent(const Vector& gradient) {
    Vector out(gradient.size());
    std::vector<std::size_t> order(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      u[i] = gradient[i] + momentum * u[i];
      v[i] += u[i];
      order[i] = i;
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::abs(v[a]) > std::abs(v[b]);
    });
    for (std::size_t k = 0; k < chosen; ++k) {
      out[order[k]] = v[order[k]];
      u[order[k]] = v[order[k]] = 0.0F;
    }
    return out;
  }
};

TEST(CompressedBucket, MomentumCorrectionIsThePapers) {
  constexpr std::size_t kCount = 2000;
  constexpr std::uint32_t kSteps = 12;
  constexpr int kRanks = 3;
  std::vector<MomentumModel> models(kRanks, {Vector(kCount), Vector(kCount), 100, 0.9F});
  std::vector<Vector> expected;
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    Vector sum(kCount);
    for (int rank = 0; rank < kRanks; ++rank) {
      const Vector sent =
          models[static_cast<std::size_t>(rank)].sent(random_gradient(rank, step, kCount));
      for (std::size_t i = 0; i < kCount; ++i) {
        sum[i] += sent[i];
      }
    }
    expected.push_back(sum);
  }
  std::size_t step = 0;
  const Ends ends = run_steps(
      RanksAs::kThreads,
      kRanks,
      "topk:0.05:momentum=0.9",
      kCount,
      kSteps,
      [](int rank, std::uint32_t at) { return random_gradient(rank, at, kCount); },
      ReduceOp::kSum,
      [&](const Vector& result) { EXPECT_EQ(result, expected[step++]) << step; });
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ends.own[rank], models[rank].v);
    EXPECT_EQ(ends.velocity[rank], models[rank].u);
  }
}

TEST(CompressedBucket, WhatWaitedWithMomentumMovesAsFarAsMomentumWould) {
  // Nothing is sent for some steps, then all of it.
  constexpr std::size_t kCount = 300;
  constexpr std::uint32_t kHeld = 7;
  for (const char* const last : {"topk:1.0", "randomk:1.0", "threshold:1e-30"}) {
    run_threads(2, test_options(), [&](Communicator& communicator) {
      Residuals residuals(kCount);
      const auto hold =
          compressed_bucket(communicator, parse_codec("threshold:1e30:momentum=0.5"), kCount);
      const auto send =
          compressed_bucket(communicator, parse_codec(std::string(last) + ":momentum=0.5"), kCount);
      std::vector<Vector> velocity(2, Vector(kCount));
      Vector moved(kCount);  // of SGD with momentum, were its rate 1
      Vector data;
      for (std::uint32_t step = 0; step <= kHeld; ++step) {
        for (int rank = 0; rank < 2; ++rank) {
          const Vector gradient = random_gradient(rank, step, kCount);
          for (std::size_t i = 0; i < kCount; ++i) {
            float& u = velocity[static_cast<std::size_t>(rank)][i];
            u = 0.5F * u + gradient[i];
            moved[i] += u;
          }
        }
        data = random_gradient(communicator.rank(), step, kCount);
        (step < kHeld ? hold : send)
            ->all_reduce(view(std::span(data)), ReduceOp::kSum, &residuals, 0, step, {})
            .wait();
        residuals.commit();
        EXPECT_EQ(step < kHeld,
                  std::all_of(
                      data.begin(), data.end(), [](float value) { return value == 0.0F; }));
      }
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_NEAR(data[i], moved[i], 1e-4) << last;
        ASSERT_EQ(residuals.velocity(0)[i], 0.0F);
      }
      residuals.undo();
      EXPECT_NE(residuals.velocity(0)[0], 0.0F);
    });
  }
}

TEST(CompressedBucket, AWarmUpSendsLessEachStep) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    constexpr std::size_t kCount = 10'000;
    for (const bool gathers : {true, false}) {
      const CodecSpec codec = parse_codec(gathers ? "topk:0.01:warmup=5" : "randomk:0.01:warmup=5");
      Residuals residuals(kCount);
      const auto bucket = compressed_bucket(communicator, codec, kCount);
      std::int64_t before = 0;
      for (std::uint32_t step = 0; step < 8; ++step) {
        Vector data = random_gradient(communicator.rank(), step, kCount);
        bucket->all_reduce(view(std::span(data)), ReduceOp::kSum, &residuals, 0, step, {}).wait();
        residuals.commit();
        const std::int64_t sent = bucket->counters().sent_bytes - before;
        const auto chosen = static_cast<std::int64_t>(codec.chosen_of(kCount, step));
        EXPECT_EQ(sent, gathers ? 8 + 8 * chosen : 4 * chosen) << step;
        EXPECT_TRUE(step != 0 || chosen == 2500);
        EXPECT_TRUE(step < 5 || chosen == 100);
        before += sent;
      }
    }
  });
}

TEST(CompressedBucket, OverNodesItEqualsTheFlatOneWhereNothingIsLost) {
  // Multiples of the step, for one rank's gradient and so for a node's sum and that of all.
  constexpr std::size_t kCount = 4096 + 32;
  const auto gradient = [](int, std::uint32_t) {
    Vector values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      values[i] = i % 16 == 0 ? 31.75F : static_cast<float>(i * 7 % 64) * 0.25F;
    }
    return values;
  };
  for (const char* const codec :
       {"int8", "fp16", "bf16", "topk:1.0", "topk:4128", "threshold:0.25", "randomk:1.0"}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
      const auto run = [&](Algorithm algorithm) {
        return run_steps(RanksAs::kThreads,
                         4,
                         codec,
                         kCount,
                         2,
                         gradient,
                         op,
                         {},
                         nodes(kTwoNodesOfTwo),
                         algorithm);
      };
      const Ends flat = run(Algorithm::kDirect);
      const Ends over = run(Algorithm::kHierarchical);
      EXPECT_EQ(over.data, flat.data) << codec;
      for (std::size_t i = 0; i < kCount; ++i) {
        float sum = 0.0F;
        for (int rank = 0; rank < 4; ++rank) {
          sum += gradient(rank, 0)[i];
        }
        ASSERT_EQ(over.data[0][i], op == ReduceOp::kMean ? sum / 4.0F : sum) << codec << " " << i;
      }
    }
  }
}

TEST(CompressedBucket, OverNodesNothingIsLostAndEachRankKeepsItsShareOnly) {
  constexpr std::uint32_t kSteps = 6;
  for (const char* const codec : {"int8",
                                  "int4",
                                  "onebit",
                                  "fp16",
                                  "topk:0.05",
                                  "topk:30",
                                  "threshold:1rms",
                                  "randomk:0.1",
                                  "powersgd:2"}) {
    for (const char* const machine :
         {kTwoNodesOfTwo, "2x3@intra=20GB/s,2us@inter=1Gbit/s,50us", "4@1Gbit/s,50us"}) {
      for (const std::size_t count : {std::size_t{5}, std::size_t{5000}}) {
        const int ranks = machine_from_text(machine).ranks();
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
            },
            nodes(machine),
            Algorithm::kHierarchical);
        std::vector<double> in(count, 0.0);
        std::vector<int> keepers(count, 0);
        for (int rank = 0; rank < ranks; ++rank) {
          const auto r = static_cast<std::size_t>(rank);
          EXPECT_EQ(ends.data[r], ends.data[0]) << codec << ", " << machine;
          for (std::uint32_t step = 0; step < kSteps; ++step) {
            const Vector gradient = random_gradient(rank, step, count);
            for (std::size_t i = 0; i < count; ++i) {
              in[i] += static_cast<double>(gradient[i]);
            }
          }
          for (std::size_t i = 0; i < count; ++i) {
            out[i] += static_cast<double>(ends.own[r][i]) + static_cast<double>(ends.sums[r][i]);
            keepers[i] += ends.own[r][i] != 0.0F ? 1 : 0;
          }
        }
        const bool gathers_nodes = std::string(codec).starts_with("t") ||
                                   exchange_of(parse_codec(codec)) == CodecExchange::kTwoShot;
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_NEAR(out[i], in[i], 2e-4) << codec << ", " << machine << ", element " << i;
          if (gathers_nodes && std::string(machine).starts_with("2x")) {
            ASSERT_LE(keepers[i], 2) << codec << ": one in each node";
          }
        }
      }
    }
  }
}

TEST(CompressedBucket, OverNodesWhatWasKeptByAFlatExchangeIsSentToo) {
  constexpr std::size_t kCount = 3000;
  run_threads(4, nodes(kTwoNodesOfTwo), [](Communicator& communicator) {
    Residuals residuals(kCount);
    const auto flat = compressed_bucket(communicator, parse_codec("threshold:1e30"), kCount);
    const auto over = compressed_bucket(communicator, parse_codec("topk:1.0"), kCount);
    Vector in(kCount);
    Vector data;
    for (std::uint32_t step = 0; step < 4; ++step) {
      for (int rank = 0; rank < 4; ++rank) {
        const Vector gradient = random_gradient(rank, step, kCount);
        for (std::size_t i = 0; i < kCount; ++i) {
          in[i] += gradient[i];
        }
      }
      data = random_gradient(communicator.rank(), step, kCount);
      CallOptions call;
      call.algorithm = step < 2 ? Algorithm::kDirect : Algorithm::kHierarchical;
      CompressedBucket& bucket = step < 2 ? *flat : *over;
      bucket.all_reduce(view(std::span(data)), ReduceOp::kSum, &residuals, 0, step, call).wait();
      residuals.commit();
      bucket.commit();
      if (step == 1) {
        residuals.settle();
      }
      if (step == 2) {
        for (std::size_t i = 0; i < kCount; ++i) {
          ASSERT_NEAR(data[i], in[i], 1e-4) << i;
        }
        EXPECT_EQ(residuals.norm(), 0.0);
        // Undone and done again it is sent again.
        residuals.undo();
        bucket.undo();
        EXPECT_GT(residuals.norm(), 0.0);
        data = random_gradient(communicator.rank(), step, kCount);
        bucket.all_reduce(view(std::span(data)), ReduceOp::kSum, &residuals, 0, step, call).wait();
        residuals.commit();
        bucket.commit();
        for (std::size_t i = 0; i < kCount; ++i) {
          ASSERT_NEAR(data[i], in[i], 1e-4) << i;
        }
        in.assign(kCount, 0.0F);
      }
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(data[i], in[i], 1e-4) << "what was sent came back, element " << i;
    }
  });
}

TEST(CompressedBucket, OverNodesOnlyTheSlowLinkIsSpared) {
  // 2 nodes of 2: dense inside, 3/4 of what a flat two-shot encodes is for the other node.
  run_threads(4, nodes(kTwoNodesOfTwo), [](Communicator& communicator) {
    constexpr std::size_t kCount = 64 * 1024;
    Vector data = gaussian(kCount, 3);
    Residuals residuals(kCount);
    const auto bucket = compressed_bucket(communicator, parse_codec("int8"), kCount);
    CallOptions call;
    call.algorithm = Algorithm::kHierarchical;
    bucket->all_reduce(view(std::span(data)), ReduceOp::kMean, &residuals, 0, 0, call).wait();
    const std::int64_t inside = 2 * 4 * kCount / 2;
    const std::int64_t between = 2 * 32 * (4 + 512);  // half of this rank's half, and its sum
    EXPECT_EQ(bucket->counters().sent_bytes, inside + between);
  });
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
  residuals.next_velocity(0)[3] = 4.0F;
  residuals.commit();
  residuals.scale(0.5F);
  EXPECT_EQ(residuals.own(0)[2], 0.15F);
  EXPECT_EQ(residuals.velocity(0)[3], 2.0F);
  residuals.undo();
  EXPECT_EQ(residuals.own(0)[2], 0.15F) << "what undo() brings back is scaled too";
}

}  // namespace
}  // namespace stretto::testing
