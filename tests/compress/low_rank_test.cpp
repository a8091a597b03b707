// SPDX-License-Identifier: Apache-2.0
#include "stretto/compress/codec/low_rank.hpp"

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

Vector product(const Vector& a, std::size_t rows, std::size_t inner, const Vector& b) {
  const std::size_t cols = b.size() / inner;
  Vector out(rows * cols, 0.0F);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < inner; ++k) {
      for (std::size_t j = 0; j < cols; ++j) {
        out[i * cols + j] += a[i * inner + k] * b[k * cols + j];
      }
    }
  }
  return out;
}

double distance(const Vector& a, const Vector& b) {
  Vector left(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    left[i] = a[i] - b[i];
  }
  return std::sqrt(squares(left));
}

TEST(LowRankKernels, GiveTheSameBitsOnEveryInstructionSetAndPieceByPiece) {
  struct Case {
    std::size_t rows;
    std::size_t cols;
    std::size_t rank;
  };
  for (const Case& one :
       {Case{1, 1, 1}, {7, 35, 2}, {20, 16, 3}, {33, 1100, 4}, {12, 47, 7}, {9, 64, 8}}) {
    const Vector gradient = gaussian(one.rows * one.cols, 1);
    const Vector residual = gaussian(one.rows * one.cols, 2);
    const Vector q = gaussian(one.cols * one.rank, 3);
    struct Result {
      Vector c, p, own, left, out;
      bool operator==(const Result&) const = default;
    };
    const auto run = [&](InstructionSet set, std::size_t piece) {
      const detail::LowRankKernels& kernels = detail::low_rank_kernels(set);
      Result result{gradient,
                    Vector(one.rows * one.rank),
                    Vector(one.cols * one.rank, 0.0F),
                    Vector(one.rows * one.cols),
                    {}};
      const auto each_piece = [&](const auto& body) {
        for (std::size_t row = 0; row < one.rows; row += piece) {
          body(row * one.cols, row * one.rank, std::min(piece, one.rows - row));
        }
      };
      each_piece([&](std::size_t at, std::size_t p, std::size_t rows) {
        kernels.project(
            &result.c[at], &residual[at], rows, one.cols, q.data(), one.rank, &result.p[p]);
      });
      each_piece([&](std::size_t at, std::size_t p, std::size_t rows) {
        kernels.project_back(
            &result.c[at], rows, one.cols, &result.p[p], one.rank, result.own.data());
      });
      result.out = result.c;
      each_piece([&](std::size_t at, std::size_t p, std::size_t rows) {
        kernels.reconstruct(&result.out[at],
                            rows,
                            one.cols,
                            &result.p[p],
                            one.rank,
                            result.own.data(),
                            q.data(),
                            &result.left[at]);
      });
      return result;
    };
    const Result whole = run(InstructionSet::kBaseline, one.rows);
    for (const InstructionSet set : instruction_sets()) {
      EXPECT_EQ(run(set, one.rows), whole) << one.rows << " x " << one.cols;
      EXPECT_EQ(run(set, 8), whole) << "in pieces";
    }
    // And they are the products: in fp64, to the rounding of fp32.
    const auto size = static_cast<double>(one.cols);
    for (std::size_t i = 0; i < one.rows; ++i) {
      for (std::size_t k = 0; k < one.rank; ++k) {
        double sum = 0.0;
        for (std::size_t j = 0; j < one.cols; ++j) {
          const std::size_t at = i * one.cols + j;
          EXPECT_EQ(whole.c[at], gradient[at] + residual[at]);
          sum += static_cast<double>(whole.c[at]) * static_cast<double>(q[k * one.cols + j]);
        }
        EXPECT_NEAR(whole.p[i * one.rank + k], sum, 1e-5 * size);
      }
    }
  }
}

TEST(Orthonormalise, GivesOrthonormalColumnsOrZeros) {
  constexpr std::size_t kRows = 50;
  constexpr std::size_t kRank = 4;
  std::vector<double> scratch;
  for (const float width : {1e-30F, 1.0F, 1e30F}) {
    for (int deficient = 0; deficient < 4; ++deficient) {
      Vector p = gaussian(kRows * kRank, 5, width);
      for (std::size_t i = 0; i < kRows; ++i) {
        if (deficient == 1) {
          p[i * kRank + 2] = p[i * kRank] - 3.0F * p[i * kRank + 1];
        } else if (deficient == 2) {
          p[i * kRank + 1] = 0.0F;
        } else if (deficient == 3) {
          std::fill_n(&p[i * kRank], kRank, 0.0F);
        }
      }
      orthonormalise(p, kRank, scratch);
      for (std::size_t a = 0; a < kRank; ++a) {
        for (std::size_t b = 0; b < kRank; ++b) {
          double dot = 0.0;
          for (std::size_t i = 0; i < kRows; ++i) {
            dot += static_cast<double>(p[i * kRank + a]) * static_cast<double>(p[i * kRank + b]);
          }
          const bool zero =
              deficient == 3 || (deficient == 2 && a == 1) || (deficient == 1 && a == 2);
          EXPECT_NEAR(dot, a == b && !zero ? 1.0 : 0.0, 1e-6) << width << " " << deficient;
        }
      }
    }
  }
}

TEST(MatricesIn, AreTheWholeRowsThatAreWorthIt) {
  const std::vector<TensorSpec> tensors = {{"bias", DType::kF32, {1000}},
                                           {"weight", DType::kF32, {100, 10, 5}},
                                           {"small", DType::kF32, {4, 4}},
                                           {"none", DType::kF32, {0, 7}}};
  const CodecSpec codec = parse_codec("powersgd:4");
  const std::vector<TensorRange> whole = {{0, 0, 1000}, {1, 0, 5000}, {2, 0, 16}, {3, 0, 0}};
  EXPECT_EQ(matrices_in(tensors, whole, codec), (std::vector<MatrixPart>{{1000, 100, 50}}));
  // Elements 60 to 4980: rows 2 to 98.
  EXPECT_EQ(matrices_in(tensors, {{1, 60, 4980}}, codec), (std::vector<MatrixPart>{{40, 97, 50}}));
  EXPECT_TRUE(matrices_in(tensors, {{1, 60, 90}}, codec).empty());
  EXPECT_TRUE(matrices_in(tensors, whole, parse_codec("int8")).empty());
  EXPECT_TRUE(matrices_in(tensors, whole, parse_codec("powersgd:30")).empty());
}

// A bucket of 3 exact elements, a matrix, 5 exact ones, another matrix.
constexpr MatrixPart kFirst{3, 40, 30};
constexpr MatrixPart kSecond{3 + 1200 + 5, 25, 60};
constexpr std::size_t kCount = 3 + 1200 + 5 + 1500;

struct Rank {
  Vector data;
  Vector own;
};
using Gradient = std::function<Vector(int rank, std::uint32_t step)>;
using Each = std::function<void(int rank, std::uint32_t step, const Rank& now)>;

/// `each` sees what a rank has after each step; one rank at a time.
void run_steps(const std::string& codec,
               int ranks,
               std::uint32_t steps,
               const Gradient& gradient,
               const Each& each,
               Algorithm algorithm = Algorithm::kAuto) {
  std::mutex mutex;
  run_threads(ranks, test_options(), [&](Communicator& communicator) {
    Residuals residuals(kCount);
    const auto bucket =
        compressed_bucket(communicator, parse_codec(codec), kCount, {kFirst, kSecond});
    CallOptions call;
    call.algorithm = algorithm;
    for (std::uint32_t step = 0; step < steps; ++step) {
      Rank now{gradient(communicator.rank(), step), {}};
      bucket->all_reduce(view(std::span(now.data)), ReduceOp::kSum, &residuals, 0, step, call)
          .wait();
      if (!bucket->finite()) {
        residuals.keep(0, kCount);
      }
      residuals.commit();
      bucket->commit();
      now.own.assign(residuals.own(0), residuals.own(kCount));
      const std::scoped_lock lock(mutex);
      each(communicator.rank(), step, now);
    }
  });
}

Vector random_gradient(int rank, std::uint32_t step) {
  return gaussian(kCount, 1000 * static_cast<unsigned>(rank) + step + 1);
}

TEST(PowerSgd, WhatArrivedAndWhatIsLeftIsWhatWasGiven) {
  constexpr std::uint32_t kSteps = 200;
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
    std::vector<double> open(kCount, 0.0);
    std::vector<Vector> arrived(kSteps);
    double given = 0.0;
    double left = 0.0;
    run_steps(
        "powersgd:3",
        3,
        kSteps,
        random_gradient,
        [&](int rank, std::uint32_t step, const Rank& now) {
          const Vector gradient = random_gradient(rank, step);
          given += squares(gradient);
          for (std::size_t i = 0; i < kCount; ++i) {
            open[i] += static_cast<double>(gradient[i]);
          }
          if (arrived[step].empty()) {
            arrived[step] = now.data;
            for (std::size_t i = 0; i < kCount; ++i) {
              open[i] -= static_cast<double>(now.data[i]);
            }
          } else {
            ASSERT_EQ(arrived[step], now.data) << "rank " << rank << ", step " << step;
          }
          if (step + 1 == kSteps) {
            left += squares(now.own);
            for (std::size_t i = 0; i < kCount; ++i) {
              open[i] -= static_cast<double>(now.own[i]);
            }
          }
        },
        algorithm);
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(open[i], 0.0, 2e-3) << "element " << i;
    }
    EXPECT_GT(left, 0.0);
    // Random matrices are the worst case: of 25 directions 3 are sent. What is left stays bounded.
    EXPECT_LT(left, given);
  }
}

TEST(PowerSgd, WhatIsLeftIsNeverMoreThanThereWas) {
  for (const NamedVector& hard : hard_vectors(kCount)) {
    Vector before(kCount, 0.0F);
    run_steps(
        "powersgd:2",
        2,
        20,
        [&](int rank, std::uint32_t) { return rank == 0 ? hard.values : Vector(kCount, 0.0F); },
        [&](int rank, std::uint32_t step, const Rank& now) {
          if (rank != 0) {
            return;
          }
          for (std::size_t i = 0; i < kCount; ++i) {
            before[i] += hard.values[i];
          }
          EXPECT_LE(std::sqrt(squares(now.own)), std::sqrt(squares(before)) * (1 + 1e-5))
              << hard.name << ", step " << step;
          EXPECT_TRUE(std::isfinite(squares(now.data))) << hard.name;
          before = now.own;
        });
  }
}

TEST(PowerSgd, ExactElementsAndMatricesOfThatRankArriveAtOnce) {
  Vector gradient = gaussian(kCount, 8);
  const auto put = [&](const MatrixPart& matrix, unsigned seed) {
    const Vector values = product(
        gaussian(matrix.rows * 2, seed), matrix.rows, 2, gaussian(2 * matrix.cols, seed + 1));
    std::copy(values.begin(), values.end(), &gradient[matrix.begin]);
  };
  put(kFirst, 20);
  put(kSecond, 30);
  // Of rank 2 with room for 3: a column has nothing to send.
  for (const char* const codec : {"powersgd:2", "powersgd:3"}) {
    run_steps(
        codec,
        2,
        1,
        [&](int, std::uint32_t) { return gradient; },
        [&](int, std::uint32_t, const Rank& now) {
          for (std::size_t i = 0; i < kCount; ++i) {
            const bool exact = i < 3 || (i >= 1203 && i < 1208);
            EXPECT_NEAR(now.data[i], 2.0F * gradient[i], exact ? 0.0F : 1e-4F) << i;
            EXPECT_NEAR(now.own[i], 0.0F, exact ? 0.0F : 1e-4F) << i;
          }
        });
  }
}

TEST(PowerSgd, DirectionsThatAreKeptComeCloserToTheBest) {
  // Singular values 1, 1/2, 1/3...: the best of rank 2 leaves what is behind them.
  Vector gradient(kCount, 0.0F);
  double best = 0.0;
  std::vector<double> scratch;
  for (const MatrixPart& matrix : {kFirst, kSecond}) {
    constexpr std::size_t kDirections = 10;
    Vector u = gaussian(matrix.rows * kDirections, 40);
    Vector v = gaussian(matrix.cols * kDirections, 41);
    orthonormalise(u, kDirections, scratch);
    orthonormalise(v, kDirections, scratch);
    Vector transposed(kDirections * matrix.cols);
    for (std::size_t k = 0; k < kDirections; ++k) {
      for (std::size_t j = 0; j < matrix.cols; ++j) {
        transposed[k * matrix.cols + j] = v[j * kDirections + k] / static_cast<float>(k + 1);
      }
      best += k < 2 ? 0.0 : 1.0 / static_cast<double>((k + 1) * (k + 1));
    }
    const Vector values = product(u, matrix.rows, kDirections, transposed);
    std::copy(values.begin(), values.end(), &gradient[matrix.begin]);
  }
  std::vector<double> lost;
  run_steps(
      "powersgd:2:nofeedback",
      2,
      8,
      [&](int, std::uint32_t) { return gradient; },
      [&](int rank, std::uint32_t, const Rank& now) {
        Vector mean = now.data;
        for (float& value : mean) {
          value /= 2.0F;
        }
        if (rank == 0) {
          lost.push_back(distance(mean, gradient));
        }
      });
  EXPECT_GT(lost[0], 1.03 * std::sqrt(best));
  EXPECT_LT(lost[7], 1.001 * std::sqrt(best));
  EXPECT_LT(lost[1], lost[0]);
}

TEST(PowerSgd, ZerosStayFiniteAndAreNoDeadEnd) {
  run_steps(
      "powersgd:2",
      2,
      201,
      [&](int rank, std::uint32_t step) {
        return step < 200 ? Vector(kCount, 0.0F) : random_gradient(rank, step);
      },
      [&](int, std::uint32_t step, const Rank& now) {
        if (step < 200) {
          ASSERT_EQ(now.data, Vector(kCount, 0.0F)) << step;
        } else {
          EXPECT_GT(squares(Vector(now.data.begin() + 3, now.data.begin() + 1203)), 1.0);
        }
      });
}

TEST(PowerSgd, WhatIsNotFiniteOnOneRankIsSeenByAllAndChangesNothing) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const std::size_t where : {std::size_t{1}, std::size_t{900}}) {
      std::vector<Vector> own(3);
      run_steps(
          "powersgd:2",
          3,
          3,
          [&](int rank, std::uint32_t step) {
            Vector gradient = random_gradient(rank, step);
            if (step == 1 && rank == 2) {
              gradient[where] = bad;
            }
            return gradient;
          },
          [&](int rank, std::uint32_t step, const Rank& now) {
            Vector& before = own[static_cast<std::size_t>(rank)];
            if (step == 1) {
              EXPECT_EQ(now.own, before);
            }
            for (const float value : now.data) {
              ASSERT_EQ(std::isnan(value), step == 1);
            }
            before = now.own;
          });
    }
  }
}

TEST(PowerSgd, DirectionsAreSavedUndoneAndChecked) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const auto make = [&] {
      return compressed_bucket(communicator, parse_codec("powersgd:2"), kCount, {kFirst, kSecond});
    };
    const auto one = make();
    EXPECT_TRUE(one->directions().empty());
    Residuals residuals(kCount);
    const auto step = [&](CompressedBucket& bucket, std::uint32_t number) {
      Vector data = random_gradient(communicator.rank(), number);
      bucket.all_reduce(view(std::span(data)), ReduceOp::kMean, &residuals, 0, number, {}).wait();
      bucket.commit();
      return data;
    };
    (void)step(*one, 0);
    const Vector saved(one->directions().begin(), one->directions().end());
    EXPECT_EQ(saved.size(), 2U * (30 + 60));
    const Vector expected = step(*one, 1);
    one->undo();
    EXPECT_EQ(Vector(one->directions().begin(), one->directions().end()), saved);
    EXPECT_EQ(step(*one, 1), expected);
    const auto other = make();
    other->set_directions(saved);
    EXPECT_EQ(step(*other, 1), expected);
    EXPECT_EQ(code_of([&] { other->set_directions(std::span(saved).first(5)); }),
              ErrorCode::kMismatch);
    const auto int8 = compressed_bucket(communicator, parse_codec("int8"), kCount);
    EXPECT_EQ(code_of([&] { int8->set_directions(saved); }), ErrorCode::kMismatch);
    int8->set_directions({});
    // Sent: 2 columns of 65 rows, 8 exact elements, then 2 columns of 90.
    EXPECT_EQ(other->counters().sent_bytes, 4 * (2 * 65 + 8 + 2 * 90));
  });
}

}  // namespace
}  // namespace stretto::testing
