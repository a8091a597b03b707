// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/buffer.hpp"
#include "stretto/base/dtype.hpp"
#include "stretto/base/error.hpp"
#include "stretto/base/hash.hpp"
#include "stretto/base/statistics.hpp"

namespace stretto {
namespace {

TEST(DTypes, NamesRoundTrip) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
  }
  try {
    (void)dtype_from_string("f33");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.detail().found, "'f33'");
    EXPECT_EQ(error.detail().expected, "one of f32, f64, f16, bf16, i32, i64");
  }
}

TEST(Buffers, SliceCountsElements) {
  std::array<double, 5> values = {0, 1, 2, 3, 4};
  const BufferView middle = view(std::span<double>(values)).slice(1, 4);
  EXPECT_EQ(middle.size_bytes(), 24U);
  EXPECT_EQ(as_span<double>(middle)[0], 1.0);
}

TEST(Hash, IsXxh64OfACanonicalStream) {
  EXPECT_EQ(Hasher().digest(), 0xef46db3751d8e999U);  // published value for no input, seed 0
  // 8 bytes, least significant first; the length of text stands before it.
  const std::array<std::byte, 8> one = {std::byte{1}};
  EXPECT_EQ(Hasher().add(std::uint64_t{1}).digest(), Hasher().add_raw(one).digest());
  EXPECT_NE(Hasher().add("ab").add("c").digest(), Hasher().add("a").add("bc").digest());
}

TEST(Errors, TextHasAllParts) {
  const Error error(ErrorCode::kPeerLost, {"rank 1 left", "step 3", "eof", "data", "See its log"});
  EXPECT_STREQ(error.what(), "rank 1 left (step 3); found eof, expected data. See its log");
  EXPECT_EQ(to_string(error.code()), "peer_lost");
  EXPECT_STREQ(Error(ErrorCode::kParse, "bad").what(), "bad");
}

TEST(Statistics, QuantilesInterpolate) {
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2.0);
  EXPECT_DOUBLE_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(quantile({10, 20, 30, 40, 50}, 0.1), 14.0);
  EXPECT_DOUBLE_EQ(quantile({10, 20}, 0.0), 10.0);
  EXPECT_DOUBLE_EQ(quantile({10, 20}, 1.0), 20.0);
  EXPECT_DOUBLE_EQ(median({7}), 7.0);
  EXPECT_TRUE(std::isnan(median({})));
}

RC_GTEST_PROP(Statistics,
              QuantileIsThatOfTheSortedValues,
              (std::vector<int> numbers, std::uint8_t percent)) {
  RC_PRE(!numbers.empty());
  std::vector<double> values(numbers.begin(), numbers.end());
  const double q = std::min<int>(percent, 100) / 100.0;
  std::sort(numbers.begin(), numbers.end());
  const double position = q * static_cast<double>(numbers.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, numbers.size() - 1);
  const double expected =
      numbers[below] + (position - static_cast<double>(below)) *
                           (static_cast<double>(numbers[above]) - numbers[below]);
  RC_ASSERT(std::abs(quantile(values, q) - expected) <= 1e-6 * (1.0 + std::abs(expected)));
}

}  // namespace
}  // namespace stretto
