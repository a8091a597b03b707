// SPDX-License-Identifier: Apache-2.0
#include "stretto/compress/codec/selection.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "compress/vectors.hpp"

namespace stretto::testing {
namespace {

/// By a full sort: the largest magnitudes, of equal ones the lowest indices.
std::vector<std::uint32_t> sorted_top_k(const Vector& values, std::size_t k) {
  std::vector<std::uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::fabs(values[a]) > std::fabs(values[b]);
  });
  order.resize(std::min(k, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

RC_GTEST_PROP(TopK, IsThatOfAFullSort, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 3000);
  const auto k = *rc::gen::inRange<std::size_t>(1, count + 10);
  const auto vectors = hard_vectors(3000);
  Vector gradient = vectors[*rc::gen::inRange<std::size_t>(0, vectors.size())].values;
  gradient.resize(count);
  if (*rc::gen::inRange(0, 2) == 0) {  // many ties
    for (float& value : gradient) {
      value = std::clamp(std::round(value), -3.0F, 3.0F);
    }
  }
  const bool feedback = *rc::gen::inRange(0, 2) == 0;
  const Vector residual = gaussian(count, 3, feedback ? 0.1F : 0.0F);
  Vector sum(count);
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] = gradient[i] + residual[i];
  }
  Vector next(count);
  Selector selector;
  SparseValues chosen;
  RC_ASSERT(selector.top_k({gradient.data(),
                            feedback ? residual.data() : nullptr,
                            feedback ? next.data() : nullptr,
                            count},
                           k,
                           chosen));
  RC_ASSERT(chosen.indices == sorted_top_k(feedback ? sum : gradient, k));
  for (std::size_t i = 0; i < chosen.indices.size(); ++i) {
    RC_ASSERT(chosen.values[i] == (feedback ? sum : gradient)[chosen.indices[i]]);
  }
  if (feedback) {  // sent + left = sum, exactly
    for (std::size_t i = 0; i < chosen.indices.size(); ++i) {
      RC_ASSERT(next[chosen.indices[i]] == 0.0F);
      next[chosen.indices[i]] = chosen.values[i];
    }
    RC_ASSERT(next == sum);
  }
}

TEST(TopK, NothingIsLostOver200Steps) {
  constexpr std::size_t kCount = 3000;
  Vector residual(kCount, 0.0F);
  Vector next(kCount);
  std::vector<double> in(kCount, 0.0);
  std::vector<double> out(kCount, 0.0);
  Selector selector;
  SparseValues chosen;
  for (unsigned step = 0; step < 200; ++step) {
    const Vector gradient = gaussian(kCount, step);
    const CodecInput input{gradient.data(), residual.data(), next.data(), kCount};
    ASSERT_TRUE(step % 3 == 0   ? selector.top_k(input, 30, chosen)
                : step % 3 == 1 ? selector.at_least(input, 4.0F, chosen)
                                : selector.at_least_rms(input, 2.5, chosen));
    EXPECT_FALSE(chosen.indices.empty());
    for (std::size_t i = 0; i < kCount; ++i) {
      in[i] += static_cast<double>(gradient[i]);
    }
    for (std::size_t i = 0; i < chosen.indices.size(); ++i) {
      out[chosen.indices[i]] += static_cast<double>(chosen.values[i]);
    }
    residual.swap(next);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(out[i] + static_cast<double>(residual[i]), in[i], 200 * 0x1p-20);
  }
}

TEST(TopK, EveryInstructionSetFindsTheSame) {
  const Vector values = gaussian(5003, 4);
  const std::uint32_t least = 0x3fc00000U;  // 1.5
  std::vector<std::vector<std::uint32_t>> found;
  for (const InstructionSet set : instruction_sets()) {
    for (const std::size_t room : {std::size_t{0}, std::size_t{7}, values.size()}) {
      const detail::CodecKernels& kernels = detail::codec_kernels(set);
      std::vector<std::uint32_t> indices(room + 1, 77U);
      const std::size_t all =
          kernels.indices_from(values.data(), values.size(), least, indices.data(), room);
      EXPECT_EQ(indices[room], 77U) << "written past the end";
      indices.resize(std::min(room, all));
      if (room == values.size()) {
        found.push_back(indices);
      }
    }
  }
  for (const auto& indices : found) {
    EXPECT_EQ(indices, found[0]);
  }
  EXPECT_EQ(found[0].size(),
            static_cast<std::size_t>(std::count_if(values.begin(), values.end(), [](float value) {
              return std::fabs(value) >= 1.5F;
            })));
}

TEST(TopK, AllEqualIsStillExactlyK) {
  Selector selector;
  SparseValues chosen;
  for (const float value : {1.0F, 0.0F}) {
    const Vector gradient(1000, value);
    ASSERT_TRUE(selector.top_k({gradient.data(), nullptr, nullptr, 1000}, 10, chosen));
    std::vector<std::uint32_t> first(10);
    std::iota(first.begin(), first.end(), 0U);
    EXPECT_EQ(chosen.indices, first);
  }
}

TEST(Threshold, MayChooseNothingAndLooksAtMagnitudes) {
  Selector selector;
  SparseValues chosen;
  const Vector negative(100, -1.0F);
  ASSERT_TRUE(selector.at_least({negative.data(), nullptr, nullptr, 100}, 1.5F, chosen));
  EXPECT_TRUE(chosen.indices.empty());
  ASSERT_TRUE(selector.at_least({negative.data(), nullptr, nullptr, 100}, 1.0F, chosen));
  EXPECT_EQ(chosen.indices.size(), 100U);
  const Vector zeros(100, 0.0F);
  ASSERT_TRUE(selector.at_least_rms({zeros.data(), nullptr, nullptr, 100}, 1.0, chosen));
  EXPECT_TRUE(chosen.indices.empty());
  ASSERT_TRUE(selector.top_k({zeros.data(), nullptr, nullptr, 0}, 5, chosen));
  EXPECT_TRUE(chosen.indices.empty());
}

TEST(Threshold, InRootMeanSquaresItFollowsTheGradient) {
  Selector selector;
  SparseValues chosen;
  for (const float width : {1e-20F, 1.0F, 1e15F}) {
    const Vector gradient = gaussian(20'000, 6, width);
    ASSERT_TRUE(selector.at_least_rms({gradient.data(), nullptr, nullptr, 20'000}, 2.0, chosen));
    EXPECT_NEAR(static_cast<double>(chosen.indices.size()), 20'000 * 0.0455, 100);
  }
}

TEST(TopK, WhatIsNotFiniteIsFlaggedAndTouchesNoResidual) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::max()}) {
    Vector gradient = gaussian(1000, 7);
    gradient[500] = bad;
    const Vector residual = gaussian(1000, 8);
    Vector next(1000);
    Selector selector;
    SparseValues chosen;
    const CodecInput input{gradient.data(), residual.data(), next.data(), 1000};
    EXPECT_FALSE(selector.top_k(input, 10, chosen));
    EXPECT_TRUE(chosen.indices.empty());
    EXPECT_EQ(next, residual);
    EXPECT_FALSE(selector.at_least(input, 1.0F, chosen));
    EXPECT_FALSE(selector.at_least_rms(input, 1.0, chosen));
  }
}

RC_GTEST_PROP(RandomK, DrawsWithoutReplacementInOrder, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(0, 5000);
  const auto k = *rc::gen::inRange<std::size_t>(0, 5000);
  const auto key = *rc::gen::arbitrary<std::uint64_t>();
  std::vector<std::uint32_t> indices;
  draw_indices(count, k, key, indices);
  RC_ASSERT(indices.size() == std::min(k, count));
  const bool growing =
      std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()) == indices.end();
  const bool inside = indices.empty() || indices.back() < count;
  RC_ASSERT(growing);
  RC_ASSERT(inside);
}

TEST(RandomK, EveryElementIsDrawnAlike) {
  std::vector<int> drawn(1000, 0);
  std::vector<std::uint32_t> indices;
  constexpr int kDraws = 20'000;
  for (std::uint64_t key = 0; key < kDraws; ++key) {
    draw_indices(drawn.size(), 100, key << 32, indices);
    for (const std::uint32_t index : indices) {
      ++drawn[index];
    }
  }
  for (const int times : drawn) {  // a tenth of the draws each: 2000, sigma 42
    EXPECT_NEAR(times, kDraws / 10, 5 * 43);
  }
}

TEST(RandomK, LargeCountsDoNotOverflow) {
  std::vector<std::uint32_t> indices;
  draw_indices(Selector::kMostElements, 1000, 5, indices);
  EXPECT_GT(indices.back(), 0xf0000000U);
}

}  // namespace
}  // namespace stretto::testing
