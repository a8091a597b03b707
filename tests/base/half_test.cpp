// SPDX-License-Identifier: Apache-2.0
#include "stretto/base/half.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace stretto {
namespace {

/// A binary floating-point format, and rounding to it by arithmetic in double: what the conversions
/// are held against. The default rounding mode of the FPU is nearest-even.
struct Format {
  int mantissa_bits;
  int least_exponent;  // of a normal number
  double overflow;     // what rounds to this or more is infinite

  [[nodiscard]] double round(double value) const {
    if (!std::isfinite(value) || value == 0.0) {
      return value;
    }
    const int exponent = std::max(std::ilogb(value), least_exponent);
    const double quantum = std::ldexp(1.0, exponent - mantissa_bits);
    const double rounded = std::nearbyint(value / quantum) * quantum;
    return std::abs(rounded) >= overflow
               ? std::copysign(std::numeric_limits<double>::infinity(), value)
               : rounded;
  }
};
constexpr Format kF16{10, -14, 0x1p16};
constexpr Format kBF16{7, -126, 0x1p128};

double f16_value(std::uint16_t bits) {
  const int exponent = (bits >> 10U) & 0x1f;
  const int mantissa = bits & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

bool same(float a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

TEST(Half, EveryF16HasItsValue) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_f32(half);
    if ((half & 0x7c00U) != 0x7c00U) {
      ASSERT_TRUE(same(value, f16_value(half))) << bits;
    } else if ((half & 0x3ffU) == 0) {
      ASSERT_TRUE(std::isinf(value) && std::signbit(value) == (bits > 0x7fff)) << bits;
    } else {
      ASSERT_TRUE(std::isnan(value)) << bits;
    }
  }
}

TEST(Half, EveryF16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const bool nan = (half & 0x7c00U) == 0x7c00U && (half & 0x3ffU) != 0;
    ASSERT_EQ(f32_to_f16(f16_to_f32(half)), nan ? half | 0x200U : half) << bits;
  }
}

TEST(Half, EveryBF16IsTheUpperHalfAndSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = bf16_to_f32(half);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16U);
    ASSERT_EQ(f32_to_bf16(value), std::isnan(value) ? half | 0x40U : half) << bits;
  }
}

template <typename ToHalf, typename ToFloat>
void check_rounding(float value, const Format& format, ToHalf to_half, ToFloat to_float) {
  const float rounded = to_float(to_half(value));
  ASSERT_TRUE(same(rounded, format.round(value)))
      << value << " became " << rounded << ", not " << format.round(value);
}

TEST(Half, TiesAndTheirNeighboursRoundToEven) {
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const auto next = static_cast<std::uint16_t>(bits + 1);
    const auto tie = static_cast<float>((f16_value(bits) + f16_value(next)) / 2);
    for (const float value : {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, 1e6F), -tie}) {
      check_rounding(value, kF16, f32_to_f16, f16_to_f32);
    }
    EXPECT_EQ(f32_to_f16(tie) & 1U, 0U);
  }
  for (std::uint16_t bits = 0; bits < 0x7f7f; ++bits) {
    const auto tie = std::bit_cast<float>((std::uint32_t{bits} << 16U) | 0x8000U);
    for (const float value : {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, 3e38F), -tie}) {
      check_rounding(value, kBF16, f32_to_bf16, bf16_to_f32);
    }
    EXPECT_EQ(f32_to_bf16(tie) & 1U, 0U);
  }
}

TEST(Half, EdgesOfTheRange) {
  for (const float value : {65504.0F,
                            65519.996F,
                            65520.0F,
                            1e30F,
                            0x1p-24F,
                            0x1p-25F,
                            std::nextafter(0x1p-25F, 1.0F),
                            0x1p-14F,
                            std::nextafter(0x1p-14F, 0.0F),
                            std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::infinity(),
                            0.0F,
                            -0.0F}) {
    check_rounding(value, kF16, f32_to_f16, f16_to_f32);
    check_rounding(-value, kF16, f32_to_f16, f16_to_f32);
    check_rounding(value, kBF16, f32_to_bf16, bf16_to_f32);
    check_rounding(-value, kBF16, f32_to_bf16, bf16_to_f32);
  }
}

RC_GTEST_PROP(Half, AnyFloatRoundsToNearestEven, (std::uint32_t bits)) {
  // RapidCheck prefers small numbers: spread them over all exponents.
  for (const std::uint32_t mixed : {bits, bits * 2654435761U, ~bits}) {
    const auto value = std::bit_cast<float>(mixed);
    RC_ASSERT(same(f16_to_f32(f32_to_f16(value)), kF16.round(value)));
    RC_ASSERT(same(bf16_to_f32(f32_to_bf16(value)), kBF16.round(value)));
  }
}

}  // namespace
}  // namespace stretto
