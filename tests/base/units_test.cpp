// SPDX-License-Identifier: Apache-2.0
#include "stretto/base/units.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

template <typename Parse>
void expect_rejected(Parse parse, std::string_view text) {
  try {
    (void)parse(text);
    ADD_FAILURE() << "accepted '" << text << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(error.detail().found.find(text.substr(0, 30)), std::string::npos) << error.what();
    EXPECT_FALSE(error.detail().expected.empty());
  }
}

TEST(Units, SizesFollowNcclTests) {
  EXPECT_EQ(parse_bytes("0"), Bytes(0));
  EXPECT_EQ(parse_bytes("4096"), Bytes(4096));
  EXPECT_EQ(parse_bytes("64K"), 64_KiB);
  EXPECT_EQ(parse_bytes("64k"), 64_KiB);
  EXPECT_EQ(parse_bytes("25M"), 25_MiB);
  EXPECT_EQ(parse_bytes("25MiB"), 25_MiB);
  EXPECT_EQ(parse_bytes("25 MiB"), 25_MiB);
  EXPECT_EQ(parse_bytes("25MB"), Bytes(25'000'000));
  EXPECT_EQ(parse_bytes("1G"), 1_GiB);
  EXPECT_EQ(parse_bytes("1.5M"), Bytes(1536 * 1024));
  EXPECT_EQ(parse_bytes("1.1MB"), Bytes(1'100'000));
  EXPECT_EQ(parse_bytes("9223372036854775807"), Bytes(std::numeric_limits<std::int64_t>::max()));
}

TEST(Units, WhatIsNoSizeIsRejectedByName) {
  for (const std::string_view text : {"",
                                      "M",
                                      "-1",
                                      "+1",
                                      "1e3",
                                      "0x10",
                                      "nan",
                                      "inf",
                                      "1.2.3",
                                      ".",
                                      "25MI",
                                      "25 M B",
                                      "0.1K",
                                      "9223372036854775808",
                                      "9007199254740993.0",
                                      "8388608T",
                                      "99999999999999999999G"}) {
    expect_rejected(parse_bytes, text);
  }
}

TEST(Units, BandwidthsNeedAUnit) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("2Gbit/s").value(), 250e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("100Mbit/s").value(), 12.5e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("20GB/s").value(), 20e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("0.5 MB/s").value(), 500e3);
  for (const std::string_view text : {"", "5", "0GB/s", "-1GB/s", "5Gb", "5GiB/s", "nanGB/s"}) {
    expect_rejected(parse_bandwidth, text);
  }
}

TEST(Units, DurationsNeedAUnitUnlessZero) {
  EXPECT_EQ(parse_duration("0"), Seconds(0));
  EXPECT_DOUBLE_EQ(parse_duration("50us").count(), 50e-6);
  EXPECT_DOUBLE_EQ(parse_duration("50µs").count(), 50e-6);
  EXPECT_DOUBLE_EQ(parse_duration("1.5ms").count(), 1.5e-3);
  EXPECT_DOUBLE_EQ(parse_duration("800ns").count(), 800e-9);
  EXPECT_DOUBLE_EQ(parse_duration("5m").count(), 300.0);
  EXPECT_DOUBLE_EQ(parse_duration("0s").count(), 0.0);
  for (const std::string_view text : {"", "5", "-1s", "s", "1 minute", "infs"}) {
    expect_rejected(parse_duration, text);
  }
}

TEST(Units, HostileTextIsCutInTheMessage) {
  std::string text(1'000'000, '9');
  text += "\x1b[2J";
  try {
    (void)parse_bytes(text);
    FAIL();
  } catch (const Error& error) {
    EXPECT_LT(std::string_view(error.what()).size(), 300U);
  }
}

TEST(Units, SizesForPeople) {
  EXPECT_EQ(format(Bytes(0)), "0 B");
  EXPECT_EQ(format(Bytes(4096)), "4096 B");
  EXPECT_EQ(format(Bytes(-5)), "-5 B");
  EXPECT_EQ(format(64_KiB), "64.0 KiB");
  EXPECT_EQ(format(25_MiB), "25.0 MiB");
  EXPECT_EQ(format(1000_KiB), "1000 KiB");
  EXPECT_EQ(format(1_MiB - Bytes(1)), "1.0 MiB");
  EXPECT_EQ(format(Bytes(std::numeric_limits<std::int64_t>::max())), "8.0 EiB");
}

TEST(Units, RatesForPeople) {
  EXPECT_EQ(format(BytesPerSecond(2.5e9)), "2.5 GB/s");
  EXPECT_EQ(format(BytesPerSecond(250e6)), "250 MB/s");
  EXPECT_EQ(format(BytesPerSecond(12)), "12 B/s");
}

TEST(Units, TimesForPeopleHaveFourDigits) {
  EXPECT_EQ(format(Seconds(0.05421)), "54.21 ms");
  EXPECT_EQ(format(Seconds(813e-6)), "813.0 us");
  EXPECT_EQ(format(Seconds(0)), "0 s");
  EXPECT_EQ(format(Seconds(1.5)), "1.500 s");
  EXPECT_EQ(format(Seconds(9.99996e-3)), "10.00 ms");
  EXPECT_EQ(format(Seconds(999.96e-3)), "1.000 s");
  EXPECT_EQ(format(Seconds(4321.4)), "4321 s");
  EXPECT_EQ(format(Seconds(-0.002)), "-2.000 ms");
}

}  // namespace
}  // namespace stretto
