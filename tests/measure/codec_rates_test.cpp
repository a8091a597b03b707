// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/codec_rates.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

CodecRateOptions small() {
  CodecRateOptions options;
  options.elements = 100000;
  options.budget = Seconds(0);
  return options;
}

TEST(CodecRates, RatioIsOfTheWireAndErrorOfOneStep) {
  struct Case {
    const char* codec;
    double ratio;
    double least_error;
    double most_error;
  };
  // Errors of normal numbers: 2^-11 and 2^-8 are the largest of 16 bits; one bit leaves
  // sqrt(1 - 2/pi) = 0.60; a tenth of the elements at random leaves sqrt(0.9); of 316 directions,
  // four are little.
  for (const Case& one : {Case{"fp16", 2.0, 1e-5, 0x1p-11},
                          Case{"bf16", 2.0, 1e-4, 0x1p-8},
                          Case{"int8", 3.96, 1e-3, 0.012},
                          Case{"int4", 7.5, 0.02, 0.2},
                          Case{"onebit", 31.2, 0.58, 0.62},
                          Case{"topk:0.01", 50.0, 0.9, 0.99},
                          Case{"topk:1000", 50.0, 0.9, 0.99},
                          Case{"randomk:0.1", 10.0, 0.94, 0.96},
                          Case{"powersgd:4", 37.4, 0.9, 1.0}}) {
    const CodecRate rate = measure_codec(parse_codec(one.codec), small());
    EXPECT_NEAR(rate.ratio / one.ratio, 1.0, 0.02) << one.codec;
    EXPECT_GT(rate.error, one.least_error) << one.codec;
    EXPECT_LT(rate.error, one.most_error) << one.codec;
    EXPECT_GT(rate.encode.value(), 0.0) << one.codec;
    EXPECT_GT(rate.decode.value(), 0.0) << one.codec;
  }
}

TEST(CodecRates, AllUsualCodecsCanBeMeasuredAndNoneCannot) {
  for (const CodecSpec& codec : usual_codecs()) {
    const CodecRate rate = measure_codec(codec, small());
    EXPECT_EQ(rate.codec, codec);
    EXPECT_GT(rate.ratio, 1.0) << to_string(codec);
  }
  EXPECT_THROW((void)measure_codec(CodecSpec{}), Error);
}

}  // namespace
}  // namespace stretto
