// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/expectation.hpp"

#include <cstddef>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/half.hpp"

namespace stretto::detail {
namespace {

/// The sum of all ranks' inputs as a rank that adds in the type itself would have it.
std::vector<std::byte> summed(DType dtype, int ranks, std::size_t count) {
  std::vector<std::byte> bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0.0;
    for (int rank = 0; rank < ranks; ++rank) {
      sum += input_value(dtype, rank, i);
    }
    std::byte* const at = bytes.data() + i * size_of(dtype);
    const auto store = [&](auto value) { std::memcpy(at, &value, sizeof value); };
    switch (dtype) {
      case DType::kF32:
        store(static_cast<float>(sum));
        break;
      case DType::kF64:
        store(sum);
        break;
      case DType::kF16:
        store(f32_to_f16(static_cast<float>(sum)));
        break;
      case DType::kBF16:
        store(f32_to_bf16(static_cast<float>(sum)));
        break;
      case DType::kI32:
        store(static_cast<std::int32_t>(sum));
        break;
      case DType::kI64:
        store(static_cast<std::int64_t>(sum));
        break;
    }
  }
  return bytes;
}

TEST(Expectation, TheRightSumOfEveryTypeIsRightAndEveryOtherIsSeen) {
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(to_string(dtype));
    constexpr std::size_t kCount = 500;
    std::vector<std::byte> bytes = summed(dtype, 5, kCount);
    const BufferView view{bytes.data(), kCount, dtype, {}};
    EXPECT_EQ(count_wrong_sums(view, ReduceOp::kSum, 5), 0);
    // A rank's contribution left out, or everything one element further.
    EXPECT_GT(count_wrong_sums(view, ReduceOp::kSum, 4), 450);
    EXPECT_GT(count_wrong_sums(view, ReduceOp::kSum, 5, 1), 450);
    EXPECT_GT(count_wrong_sums(view, ReduceOp::kMax, 5), 400);
    // One element damaged in its highest bits.
    bytes[17 * size_of(dtype) + size_of(dtype) - 1] ^= std::byte{0x40};
    EXPECT_EQ(count_wrong_sums(view, ReduceOp::kSum, 5), 1);
  }
}

TEST(Expectation, NanIsWrong) {
  std::vector<float> nan(3, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(count_wrong_sums(view(std::span(nan)), ReduceOp::kSum, 2), 3);
  EXPECT_EQ(count_wrong_copies(view(std::span(nan)), 0), 3);
}

TEST(Expectation, CopiesAreExactAndKnowTheirPlace) {
  for (const DType dtype : kAllDTypes) {
    std::vector<std::byte> bytes(64 * size_of(dtype));
    const BufferView view{bytes.data(), 64, dtype, {}};
    fill_input(view, 3, 1000);
    EXPECT_EQ(count_wrong_copies(view, 3, 1000), 0) << to_string(dtype);
    EXPECT_GT(count_wrong_copies(view, 2, 1000), 50) << to_string(dtype);
    EXPECT_GT(count_wrong_copies(view, 3, 1001), 50) << to_string(dtype);
  }
}

TEST(Expectation, InputsAreHeldExactlyByTheirType) {
  std::set<double> seen;
  for (std::size_t i = 0; i < 4096; ++i) {
    const double value = input_value(DType::kBF16, 1, i);
    seen.insert(value);
    ASSERT_GE(value, -1.0);
    ASSERT_LT(value, 1.0);
    ASSERT_EQ(bf16_to_f32(f32_to_bf16(static_cast<float>(value))), value);
    ASSERT_EQ(f16_to_f32(f32_to_f16(static_cast<float>(value))), value);
  }
  EXPECT_EQ(seen.size(), 256U);
}

}  // namespace
}  // namespace stretto::detail
