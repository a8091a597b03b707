// SPDX-License-Identifier: Apache-2.0
#include "stretto/base/text.hpp"

#include <array>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace stretto {
namespace {

constexpr std::array<std::string_view, 4> kWords = {"bucket", "bytes", "begin", "algorithm"};

TEST(Text, QuoteMakesHostileTextHarmless) {
  EXPECT_EQ(quote("fc1.weight"), "'fc1.weight'");
  EXPECT_EQ(quote("a\x1b[2Jb\n"), "'a\\x1b[2Jb\\x0a'");
  EXPECT_EQ(quote(std::string(61, 'x')), "'" + std::string(60, 'x') + "...'");
  EXPECT_EQ(quote(std::string(60, 'x')), "'" + std::string(60, 'x') + "'");
  // 3 bytes each: the 20th ends at byte 60; one byte more in front, and it must go as a whole.
  std::string wide = "x";
  for (int i = 0; i < 30; ++i) {
    wide += "漢";
  }
  EXPECT_EQ(quote(wide), "'" + wide.substr(0, 58) + "...'");
}

TEST(Text, NearestIsATypoAwayOrNothing) {
  EXPECT_EQ(nearest("buckt", kWords), "bucket");
  EXPECT_EQ(nearest("algoritm", kWords), "algorithm");
  EXPECT_EQ(nearest("bytse", kWords), "bytes");  // two neighbours swapped are one slip
  EXPECT_EQ(nearest("ybtse", kWords), "");
  EXPECT_EQ(nearest("ytes", kWords), "bytes");
  EXPECT_EQ(nearest("", kWords), "");
  EXPECT_EQ(nearest(std::string(1'000'000, 'b'), kWords), "");
}

TEST(Text, SuggestAlwaysListsWhatIsKnown) {
  EXPECT_EQ(suggest("buckt", kWords),
            "Did you mean 'bucket'? Known: bucket, bytes, begin, algorithm");
  EXPECT_EQ(suggest("xyz", kWords), "Known: bucket, bytes, begin, algorithm");
}

}  // namespace
}  // namespace stretto
