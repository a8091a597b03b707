// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/codec_spec.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

TEST(CodecSpec, TextAndBack) {
  for (const char* text : {"none",
                           "fp16",
                           "bf16",
                           "int8",
                           "int8:stochastic",
                           "int4:nofeedback",
                           "onebit",
                           "topk:0.01",
                           "topk:1000",
                           "topk:1",
                           "topk:1.0",
                           "randomk:0.1:nofeedback",
                           "threshold:0.001",
                           "threshold:3rms",
                           "powersgd:4",
                           "powersgd:256:nofeedback",
                           "topk:0.001:momentum=0.9",
                           "topk:100:momentum=0.5",
                           "topk:0.001:momentum=0.9:warmup=1000",
                           "randomk:0.01:warmup=10:nofeedback",
                           "threshold:3rms:momentum=0.9"}) {
    EXPECT_EQ(to_string(parse_codec(text)), text);
  }
  EXPECT_EQ(parse_codec("topk:1%"), parse_codec("topk:0.01"));
}

TEST(CodecSpec, OneIsAnElementAndOnePointZeroIsAll) {
  EXPECT_EQ(parse_codec("topk:1").chosen_of(1000), 1U);
  EXPECT_EQ(parse_codec("topk:1.0").chosen_of(1000), 1000U);
  EXPECT_EQ(parse_codec("topk:0.01").chosen_of(1000), 10U);
  EXPECT_EQ(parse_codec("topk:0.01").chosen_of(1001), 11U);  // rounded up
  EXPECT_EQ(parse_codec("topk:0.01").chosen_of(1), 1U);      // never none of some
  EXPECT_EQ(parse_codec("topk:50").chosen_of(7), 7U);
}

TEST(CodecSpec, AWarmUpFallsByTheSameFactorEachStep) {
  const CodecSpec codec = parse_codec("topk:0.001:warmup=4");
  // The parts that the paper's table of ratios has: 75, 93.75, 98.4375, 99.6 and 99.9 % left out.
  const double expected[] = {0.25, 0.0629, 0.0158, 0.00398, 0.001, 0.001};
  for (std::int64_t step = 0; step < 6; ++step) {
    EXPECT_NEAR(codec.fraction_at(step), expected[step], 5e-3 * expected[step]) << step;
    EXPECT_EQ(codec.chosen_of(1'000'000, step),
              static_cast<std::size_t>(std::ceil(codec.fraction_at(step) * 1e6)));
  }
  EXPECT_EQ(codec.chosen_of(0, 0), 0U);
  EXPECT_EQ(parse_codec("topk:0.5:warmup=4").fraction_at(0), 0.5);  // begins there already
  EXPECT_EQ(parse_codec("topk:0.01").fraction_at(0), 0.01);
  EXPECT_EQ(parse_codec("topk:7").chosen_of(1000, 0), 7U);
}

TEST(CodecSpec, WhatIsWrongIsNamed) {
  const auto words_of = [](const char* text) -> std::string {
    try {
      (void)parse_codec(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(words_of("int9").find("Did you mean 'int8'"), std::string::npos) << words_of("int9");
  EXPECT_NE(words_of("").find("none, fp16"), std::string::npos);
  for (const char* text : {"topk",
                           "topk:",
                           "topk:0",
                           "topk:0.0",
                           "topk:-1",
                           "topk:1.5",
                           "topk:101%",
                           "topk:nan",
                           "topk:0x10",
                           "topk:99999999999999999999",
                           "threshold",
                           "threshold:0",
                           "threshold:-1rms",
                           "threshold:inf",
                           "threshold:1e300",
                           "powersgd",
                           "powersgd:0",
                           "powersgd:257",
                           "powersgd:4.0",
                           "powersgd:4:stochastic",
                           "int8:0.5",
                           "int8:stochastic:nofeedback",
                           "fp16:stochastic",
                           "none:nofeedback",
                           "topk:0.1:nofeedback:nofeedback",
                           "int8:momentum=0.9",
                           "powersgd:4:momentum=0.9",
                           "topk:0.1:momentum=1",
                           "topk:0.1:momentum=0",
                           "topk:0.1:momentum=0.99999999999",
                           "topk:0.1:momentum=",
                           "topk:0.1:momentum=0.9:nofeedback",
                           "topk:0.1:nofeedback:momentum=0.9",
                           "topk:0.1:momentum=0.9:momentum=0.9",
                           "topk:100:warmup=5",
                           "threshold:1:warmup=5",
                           "topk:0.1:warmup=0",
                           "topk:0.1:warmup=4294967296",
                           "topk:0.1:warmup=5:warmup=5",
                           " int8"}) {
    EXPECT_NE(words_of(text), "accepted") << text;
  }
}

}  // namespace
}  // namespace stretto
