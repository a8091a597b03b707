// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "compress/vectors.hpp"
#include "stretto/compress/codec/block_codec.hpp"

namespace stretto::testing {
namespace {

constexpr auto kFormats = std::to_array<BlockFormat>({BlockFormat::kFp16,
                                                      BlockFormat::kBf16,
                                                      BlockFormat::kInt8,
                                                      BlockFormat::kInt8Stochastic,
                                                      BlockFormat::kInt4,
                                                      BlockFormat::kInt4Stochastic,
                                                      BlockFormat::kOneBit});

bool stochastic(BlockFormat format) {
  return format == BlockFormat::kInt8Stochastic || format == BlockFormat::kInt4Stochastic;
}

struct Coded {
  std::vector<std::byte> wire;
  Vector decoded;
  bool finite = true;
};

/// One encoding, and what the other side makes of it.
Coded code(BlockFormat format, const Vector& gradient, Vector* residual, std::uint64_t key = 1) {
  Coded coded;
  // Filled, so that bytes left unwritten are seen to differ.
  coded.wire.assign(encoded_bytes(format, gradient.size()) + 8, std::byte{0xa5});
  float* const next = residual == nullptr ? nullptr : residual->data();
  coded.finite =
      encode(format, {gradient.data(), next, next, gradient.size()}, key, coded.wire.data());
  for (std::size_t i = coded.wire.size() - 8; i < coded.wire.size(); ++i) {
    EXPECT_EQ(coded.wire[i], std::byte{0xa5}) << "written past the end";
  }
  coded.decoded.resize(gradient.size());
  const bool finite =
      decode(format, coded.wire.data(), 1.0F, coded.decoded.data(), gradient.size());
  EXPECT_EQ(finite, coded.finite);
  return coded;
}

TEST(BlockCodec, NothingIsLostOver200Steps) {
  // Sum of what was decoded + what is left = sum of what came in, to fp32 rounding.
  constexpr std::size_t kCount = 5000;
  for (const BlockFormat format : kFormats) {
    if (stochastic(format)) {
      continue;  // these have no residual
    }
    Vector residual(kCount, 0.0F);
    std::vector<double> in(kCount, 0.0);
    std::vector<double> out(kCount, 0.0);
    std::vector<double> magnitude(kCount, 0.0);
    for (unsigned step = 0; step < 200; ++step) {
      const Vector gradient = gaussian(kCount, step, step % 7 == 0 ? 1e-3F : 1.0F);
      const Coded coded = code(format, gradient, &residual);
      for (std::size_t i = 0; i < kCount; ++i) {
        in[i] += static_cast<double>(gradient[i]);
        out[i] += static_cast<double>(coded.decoded[i]);
        magnitude[i] += std::fabs(static_cast<double>(gradient[i])) +
                        std::fabs(static_cast<double>(coded.decoded[i]));
      }
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(out[i] + static_cast<double>(residual[i]), in[i], magnitude[i] * 0x1p-22)
          << static_cast<int>(format) << " element " << i;
    }
  }
}

TEST(BlockCodec, IsAContractionOnHardVectors) {
  for (const BlockFormat format : kFormats) {
    if (stochastic(format)) {
      continue;
    }
    for (const auto& [name, values] : hard_vectors(10'000)) {
      Vector residual(values.size(), 0.0F);
      const Coded coded = code(format, values, &residual);
      EXPECT_TRUE(coded.finite) << name;
      const bool finer = format != BlockFormat::kOneBit;
      for (std::size_t i = 0; finer && i < values.size(); ++i) {
        ASSERT_LE(std::fabs(residual[i]), std::fabs(values[i]) * 1.00001F) << name << " " << i;
      }
      EXPECT_LE(squares(residual), squares(values) * 1.00001) << name;
      if (name == "gaussian") {
        const double lost = std::sqrt(squares(residual) / squares(values));
        const double most = format == BlockFormat::kOneBit ? 0.61
                            : format == BlockFormat::kInt4 ? 0.12
                            : format == BlockFormat::kInt8 ? 0.008
                                                           : 0.002;
        EXPECT_LT(lost, most);
      }
    }
  }
}

TEST(BlockCodec, ResidualIsWhatTheDecoderMisses) {
  for (const BlockFormat format : kFormats) {
    const Vector gradient = gaussian(4099, 3);
    Vector residual = gaussian(4099, 4, 0.1F);
    Vector sum(gradient.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] = gradient[i] + residual[i];
    }
    const Coded coded = code(format, gradient, &residual);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      ASSERT_EQ(residual[i], sum[i] - coded.decoded[i]) << static_cast<int>(format) << " " << i;
    }
  }
}

TEST(BlockCodec, WhatLiesOnTheGridIsExact) {
  Vector values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i % 15) - 7) * 0.25F;
  }
  for (const BlockFormat format : {BlockFormat::kInt4, BlockFormat::kFp16, BlockFormat::kBf16}) {
    Vector residual(values.size(), 0.0F);
    EXPECT_EQ(code(format, values, &residual).decoded, values);
    EXPECT_EQ(residual, Vector(values.size(), 0.0F));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i % 255) - 127);
  }
  EXPECT_EQ(code(BlockFormat::kInt8, values, nullptr).decoded, values);
}

TEST(BlockCodec, ABlockWithoutGradientStaysFinite) {
  // Its residual shrinks from step to step until 1 / scale would overflow.
  for (const BlockFormat format : kFormats) {
    if (stochastic(format)) {
      continue;
    }
    const Vector zeros(700, 0.0F);
    Vector residual = gaussian(700, 5);
    double before = squares(residual);
    for (int step = 0; step < 200; ++step) {
      const Coded coded = code(format, zeros, &residual);
      ASSERT_TRUE(coded.finite) << static_cast<int>(format) << " step " << step;
      const double after = squares(residual);
      ASSERT_LE(after, before * 1.00001);
      before = after;
    }
    // One bit moves every element by the mean: it nears zero, and no more.
    EXPECT_LT(before, format == BlockFormat::kOneBit ? 0.1 : 1e-4);
  }
}

TEST(BlockCodec, WhatIsNotFiniteIsFlaggedAndTouchesNoResidual) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const BlockFormat format : kFormats) {
    for (const float bad : {inf, -inf, nan, -nan, std::numeric_limits<float>::max()}) {
      // Blocks of all formats: the bad element is in the second of the longest.
      Vector gradient = gaussian(6000, 6);
      gradient[2100] = bad;
      const Vector before = gaussian(6000, 7, 0.1F);
      Vector residual = before;
      const Coded coded = code(format, gradient, &residual);
      EXPECT_FALSE(coded.finite);
      EXPECT_FALSE(std::isfinite(coded.decoded[2100]) && bad != std::numeric_limits<float>::max());
      EXPECT_EQ(residual[2100], before[2100]);
      EXPECT_NE(residual[0], before[0]) << "other blocks go on";
      for (const float value : residual) {
        ASSERT_TRUE(std::isfinite(value));
      }
      Vector sum(6000, 1.0F);
      EXPECT_FALSE(decode_add(format, coded.wire.data(), sum.data(), sum.size()) &&
                   bad != std::numeric_limits<float>::max());
    }
  }
}

TEST(BlockCodec, Fp16SaturatesAndKeepsTheRest) {
  Vector gradient = {1e6F, -1e6F, 1.0F};
  Vector residual(3, 0.0F);
  const Coded coded = code(BlockFormat::kFp16, gradient, &residual);
  EXPECT_TRUE(coded.finite);
  EXPECT_EQ(coded.decoded, (Vector{65504.0F, -65504.0F, 1.0F}));
  EXPECT_EQ(residual, (Vector{1e6F - 65504.0F, -1e6F + 65504.0F, 0.0F}));
}

TEST(BlockCodec, LargestOfABlockIsExactAndSymmetric) {
  // 128 / (2 amax) and a clamp, as others have it, would lose an eighth of the largest positive.
  for (const float sign : {1.0F, -1.0F}) {
    Vector values(100, 0.01F);
    values[50] = sign * 8.0F;
    for (const BlockFormat format : {BlockFormat::kInt8, BlockFormat::kInt4}) {
      EXPECT_FLOAT_EQ(code(format, values, nullptr).decoded[50], sign * 8.0F);
    }
  }
}

TEST(BlockCodec, StochasticRoundingIsUnbiased) {
  const Vector values = gaussian(300, 8);
  for (const BlockFormat format : kFormats) {
    if (!stochastic(format)) {
      continue;
    }
    constexpr int kSeeds = 4096;
    std::vector<double> sum(values.size(), 0.0);
    for (int seed = 0; seed < kSeeds; ++seed) {
      const Coded coded = code(format, values, nullptr, static_cast<std::uint64_t>(seed) << 20);
      for (std::size_t i = 0; i < values.size(); ++i) {
        sum[i] += static_cast<double>(coded.decoded[i]);
      }
    }
    double largest = 0;
    for (const float value : values) {
      largest = std::max(largest, std::fabs(static_cast<double>(value)));
    }
    // A step is at most amax / L; the deviation of one draw at most half of it.
    const double step = largest / (format == BlockFormat::kInt8Stochastic ? 127 : 7);
    const double sigma = step / 2 / std::sqrt(static_cast<double>(kSeeds));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(sum[i] / kSeeds, static_cast<double>(values[i]), 5 * sigma) << i;
    }
  }
}

TEST(BlockCodec, StochasticRoundingDependsOnTheKey) {
  const Vector values = gaussian(300, 8);
  const Coded once = code(BlockFormat::kInt8Stochastic, values, nullptr, 1);
  EXPECT_EQ(once.wire, code(BlockFormat::kInt8Stochastic, values, nullptr, 1).wire);
  EXPECT_NE(once.wire, code(BlockFormat::kInt8Stochastic, values, nullptr, 2).wire);
}

TEST(BlockCodec, BytesAreThoseOfItsBlocks) {
  EXPECT_EQ(encoded_bytes(BlockFormat::kFp16, 1001), 2002U);
  EXPECT_EQ(encoded_bytes(BlockFormat::kInt8, 1024), 2 * (4U + 512U));
  EXPECT_EQ(encoded_bytes(BlockFormat::kInt8, 513), 4U + 512U + 4U + 1U);
  EXPECT_EQ(encoded_bytes(BlockFormat::kInt4, 129), 4U + 64U + 4U + 1U);
  EXPECT_EQ(encoded_bytes(BlockFormat::kOneBit, 2048 + 9), 4U + 256U + 4U + 2U);
  for (const BlockFormat format : kFormats) {
    EXPECT_EQ(encoded_bytes(format, 0), 0U);
  }
}

TEST(BlockCodec, TheSeedsDemoWithItsRightValues) {
  // Codes of 0 to 255 cast to int8 lost half of the values; symmetric codes lose at most half a
  // step of any.
  const Vector values = gaussian(100'000, 42);
  Vector residual(values.size(), 0.0F);
  (void)code(BlockFormat::kInt8, values, &residual);
  float largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::fabs(value));
  }
  for (const float error : residual) {
    ASSERT_LE(std::fabs(error), largest / 127.0F * 0.50001F);
  }
  EXPECT_LT(std::sqrt(squares(residual) / squares(values)), 0.011236);
}

RC_GTEST_PROP(BlockCodec, BitsAreThoseOfEveryInstructionSet, ()) {
  const auto format =
      *rc::gen::elementOf(std::vector<BlockFormat>(kFormats.begin(), kFormats.end()));
  const auto count = *rc::gen::inRange<std::size_t>(0, 5000);
  const auto vectors = hard_vectors(5000);
  Vector gradient = vectors[*rc::gen::inRange<std::size_t>(0, vectors.size())].values;
  gradient.resize(count);
  if (count > 0 && *rc::gen::inRange(0, 4) == 0) {
    gradient[count / 2] = std::numeric_limits<float>::quiet_NaN();
  }
  const Vector before = gaussian(count, 9, 0.1F);
  std::vector<std::vector<std::byte>> wires;
  std::vector<std::vector<std::uint32_t>> results;
  for (const InstructionSet set : instruction_sets()) {
    const detail::CodecKernels& kernels = detail::codec_kernels(set);
    Vector residual = before;
    std::vector<std::byte> wire(encoded_bytes(format, count));
    (void)kernels.encode(
        format, {gradient.data(), residual.data(), residual.data(), count}, 99, wire.data());
    Vector sum = gaussian(count, 10);
    (void)kernels.decode_add(format, wire.data(), sum.data(), count);
    Vector stored(count);
    (void)kernels.decode(format, wire.data(), 1.0F / 3.0F, stored.data(), count);
    std::vector<std::uint32_t> bits;
    for (const Vector* each : {&residual, &sum, &stored}) {
      for (const float value : *each) {
        bits.push_back(std::isnan(value) ? 0x7fc00000U : std::bit_cast<std::uint32_t>(value));
      }
    }
    results.push_back(bits);
    wires.push_back(wire);
  }
  for (std::size_t i = 1; i < wires.size(); ++i) {
    RC_ASSERT(wires[i] == wires[0]);
    RC_ASSERT(results[i] == results[0]);
  }
}

RC_GTEST_PROP(BlockCodec, AWireMayBeCutAtBlocks, ()) {
  const auto format = *rc::gen::elementOf(
      std::vector<BlockFormat>{BlockFormat::kInt8, BlockFormat::kInt4, BlockFormat::kOneBit});
  const std::size_t block = block_elements(format);
  const auto first = block * *rc::gen::inRange<std::size_t>(0, 4);
  const Vector values = gaussian(first + *rc::gen::inRange<std::size_t>(0, 3000), 1);
  const Coded whole = code(format, values, nullptr);
  const Coded left =
      code(format, Vector(values.begin(), values.begin() + static_cast<long>(first)), nullptr);
  const Coded right =
      code(format, Vector(values.begin() + static_cast<long>(first), values.end()), nullptr);
  Vector decoded = left.decoded;
  decoded.insert(decoded.end(), right.decoded.begin(), right.decoded.end());
  RC_ASSERT(decoded == whole.decoded);
}

}  // namespace
}  // namespace stretto::testing
