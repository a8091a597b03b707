// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/sgd.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/workload/random.hpp"

namespace stretto {
namespace {

TEST(Sgd, FollowsTheTwoFormulas) {
  Sgd sgd(1, 0.5F);
  std::vector<float> weight = {1.0F};
  const std::vector<float> gradient = {2.0F};
  sgd.step(0, weight, gradient, 0.25F);  // v = 2, w = 1 - 0.5
  EXPECT_EQ(weight[0], 0.5F);
  sgd.step(0, weight, gradient, 0.25F);  // v = 3, w = 0.5 - 0.75
  EXPECT_EQ(weight[0], -0.25F);
}

/// Steps over [0, n) cut at random places, in random order.
void step_in_pieces(Sgd& sgd,
                    std::span<float> weights,
                    std::span<const float> gradient,
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
    sgd.step(begin, weights.subspan(begin, size), gradient.subspan(begin, size), 0.013F);
  }
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

TEST(Sgd, TheCutDoesNotShowInASingleBit) {
  constexpr std::size_t kElements = 1237;
  SplitMix64 random(7);
  std::vector<float> whole(kElements);
  std::generate(whole.begin(), whole.end(), [&] { return random.next_unit() - 0.5F; });
  std::vector<float> cut = whole;
  Sgd sgd_whole(kElements, 0.9F);
  Sgd sgd_cut(kElements, 0.9F);
  std::vector<float> gradient(kElements);
  for (int step = 0; step < 50; ++step) {
    std::generate(gradient.begin(), gradient.end(), [&] { return random.next_unit() - 0.5F; });
    sgd_whole.step(0, whole, gradient, 0.013F);
    step_in_pieces(sgd_cut, cut, gradient, random);
    ASSERT_TRUE(std::equal(whole.begin(), whole.end(), cut.begin(), same_bits)) << step;
  }
}

}  // namespace
}  // namespace stretto
