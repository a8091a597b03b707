// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/optimizer.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/workload/random.hpp"

namespace stretto {
namespace {

TEST(Optimizer, SgdFollowsItsFormulas) {
  Optimizer sgd(1, {.momentum = 0.5F});
  std::vector<float> weight = {1.0F};
  const std::vector<float> gradient = {2.0F};
  sgd.step(0, weight, gradient, 0.25F, 1.0F, 1);  // v = 2, w = 1 - 0.5
  EXPECT_EQ(weight[0], 0.5F);
  sgd.step(0, weight, gradient, 0.25F, 1.0F, 2);  // v = 3, w = 0.5 - 0.75
  EXPECT_EQ(weight[0], -0.25F);
  sgd.step(0, weight, gradient, 0.25F, 0.25F, 3);  // v = 1.5 + 0.5
  EXPECT_EQ(weight[0], -0.75F);
  Optimizer decaying(1, {.momentum = 0.0F, .weight_decay = 0.5F});
  decaying.step(0, weight, gradient, 1.0F, 1.0F, 1);  // g = 2 - 0.375
  EXPECT_EQ(weight[0], -0.75F - 1.625F);
}

TEST(Optimizer, AVelocityIsNotGivenMomentumAgain) {
  // Momentum kept here, or by who sends, or first here and then there: the same weights.
  constexpr std::uint32_t kSteps = 40;
  for (const std::uint32_t from : {1U, 15U, kSteps + 1}) {
    Optimizer plain(1, {.momentum = 0.9F, .weight_decay = 0.01F});
    Optimizer sent(1, {.momentum = 0.9F, .weight_decay = 0.01F});
    std::vector<float> expected = {0.7F};
    std::vector<float> weight = expected;
    float velocity = 0.0F;
    SplitMix64 random(3);
    for (std::uint32_t t = 1; t <= kSteps; ++t) {
      const std::vector<float> gradient = {random.next_unit() - 0.5F};
      plain.step(0, expected, gradient, 0.1F, 0.5F, t);
      velocity = t < from ? 0.0F : 0.9F * velocity + gradient[0];
      const std::vector<float> arrived = {t < from ? gradient[0] : velocity};
      sent.step(0, weight, arrived, 0.1F, 0.5F, t, t >= from);
      ASSERT_NEAR(weight[0], expected[0], 1e-5) << "update " << t << ", from " << from;
    }
  }
  // What is left of older gradients does not become one of the slow numbers near zero.
  Optimizer sgd(1, {.momentum = 0.9F});
  std::vector<float> weight = {1.0F};
  sgd.step(0, weight, std::vector<float>{1.0F}, 1.0F, 1.0F, 1);
  for (std::uint32_t t = 2; t < 1000; ++t) {
    sgd.step(0, weight, std::vector<float>{0.0F}, 1e30F, 1.0F, t, true);
  }
  const float before = weight[0];
  sgd.step(0, weight, std::vector<float>{0.0F}, 1e38F, 1.0F, 1000, true);
  EXPECT_EQ(weight[0], before);
}

// The algorithms as they are printed, in fp64.
TEST(Optimizer, AdamAndAdamWFollowTheirAlgorithms) {
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    Optimizer optimizer(1, {.kind = kind, .weight_decay = 0.1F});
    std::vector<float> weight = {0.7F};
    double expected = 0.7;
    double m = 0.0;
    double v = 0.0;
    SplitMix64 random(3);
    for (std::uint32_t t = 1; t <= 100; ++t) {
      const std::vector<float> gradient = {random.next_unit() - 0.5F};
      const double rate = 0.01;
      double g = 0.5 * static_cast<double>(gradient[0]);
      if (kind == OptimizerKind::kAdam) {
        g += 0.1 * expected;
      } else {
        expected -= rate * 0.1 * expected;
      }
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      const double m_hat = m / (1 - std::pow(0.9, t));
      const double v_hat = v / (1 - std::pow(0.999, t));
      expected -= rate * m_hat / (std::sqrt(v_hat) + 1e-8);
      optimizer.step(0, weight, gradient, 0.01F, 0.5F, t);
      ASSERT_NEAR(weight[0], expected, 2e-5) << to_string(kind) << ", update " << t;
    }
  }
}

TEST(Optimizer, ClippingScalesToTheLimitOnlyAboveIt) {
  EXPECT_EQ(clip_scale(3.0, 0.0), 1.0F);
  EXPECT_EQ(clip_scale(3.0, 4.0), 1.0F);
  EXPECT_EQ(clip_scale(8.0, 4.0), 0.5F);
}

TEST(Optimizer, NamesAreRead) {
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    EXPECT_EQ(optimizer_from_string(to_string(kind)), kind);
  }
  EXPECT_THROW((void)optimizer_from_string("lamb"), Error);
}

/// Steps over [0, n) cut at random places, in random order.
void step_in_pieces(Optimizer& optimizer,
                    std::span<float> weights,
                    std::span<const float> gradient,
                    std::uint32_t number,
                    SplitMix64& random) {
  std::vector<std::size_t> cuts = {0, weights.size()};
  for (int i = 0; i < 20; ++i) {
    cuts.push_back(random.next() % weights.size());
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::size_t> pieces(cuts.size() - 1);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    pieces[i] = i;
  }
  shuffle(std::span(pieces), random);
  for (const std::size_t piece : pieces) {
    const std::size_t begin = cuts[piece];
    const std::size_t size = cuts[piece + 1] - begin;
    optimizer.step(
        begin, weights.subspan(begin, size), gradient.subspan(begin, size), 0.013F, 0.9F, number);
  }
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

TEST(Optimizer, TheCutDoesNotShowInASingleBit) {
  constexpr std::size_t kElements = 1237;
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    SplitMix64 random(7);
    std::vector<float> whole(kElements);
    std::generate(whole.begin(), whole.end(), [&] { return random.next_unit() - 0.5F; });
    std::vector<float> cut = whole;
    const OptimizerOptions options{.kind = kind, .weight_decay = 0.01F};
    Optimizer of_whole(kElements, options);
    Optimizer of_cut(kElements, options);
    std::vector<float> gradient(kElements);
    for (std::uint32_t step = 1; step <= 50; ++step) {
      std::generate(gradient.begin(), gradient.end(), [&] { return random.next_unit() - 0.5F; });
      of_whole.step(0, whole, gradient, 0.013F, 0.9F, step);
      step_in_pieces(of_cut, cut, gradient, step, random);
      ASSERT_TRUE(std::equal(whole.begin(), whole.end(), cut.begin(), same_bits))
          << to_string(kind) << ", update " << step;
    }
  }
}

}  // namespace
}  // namespace stretto
