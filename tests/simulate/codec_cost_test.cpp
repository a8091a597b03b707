// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/codec_cost.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/simulate/simulate.hpp"

namespace stretto {
namespace {

constexpr double kEncode = 4e9;  // bytes of gradients per second
constexpr double kDecode = 8e9;
constexpr double kLatency = 1e-5;
constexpr double kPerByte = 1e-8;

CodecRate rate_of(const char* codec, double ratio) {
  return {parse_codec(codec), BytesPerSecond(kEncode), BytesPerSecond(kDecode), ratio, 0.01};
}

ExchangeTime line(double per_byte) {
  return ExchangeTime(std::vector<CostLine>{{Seconds(kLatency), per_byte, Algorithm::kDirect}});
}

CodecCost cost_of(const char* codec, double ratio, int ranks) {
  return {rate_of(codec, ratio), line(kPerByte), line(kPerByte / 2), ranks};
}

TEST(CodecCost, OneChunkIsEncodedSentAndDecodedOneAfterTheOther) {
  // 4 parts of 64 Ki elements: a chunk each.
  constexpr double kBytes = 1 << 20;
  const CodecCost cost = cost_of("int8", 4.0, 4);
  const double work = 1.25 * kBytes / kEncode + 2.0 * kBytes / kDecode;
  EXPECT_NEAR(cost.processor(Bytes(1 << 20)).count(), work, 1e-12);
  EXPECT_EQ(cost.encoded(Bytes(1 << 20)), Bytes(1 << 18));
  EXPECT_NEAR(cost(Bytes(1 << 20)).count(), kLatency + kBytes / 4.0 * kPerByte + work, 1e-12);
}

TEST(CodecCost, ChunksOverlapWireAndProcessor) {
  constexpr double kBytes = 1 << 30;
  const CodecCost cost = cost_of("int8", 4.0, 4);
  const double work = cost.processor(Bytes(1 << 30)).count();
  const double wire = kBytes / 4.0 * kPerByte;
  ASSERT_GT(wire, work);
  EXPECT_GT(cost(Bytes(1 << 30)).count(), kLatency + wire);
  EXPECT_LT(cost(Bytes(1 << 30)).count(), kLatency + wire + 0.01 * work);
}

TEST(CodecCost, GatherBringsEverybodysElementsToEverybody) {
  constexpr double kBytes = 1 << 20;
  const CodecCost cost = cost_of("topk:0.01", 50.0, 4);
  const double wire = 4.0 * 20972.0 * kPerByte / 2.0;  // 2^20 / 50, rounded up
  const double work = kBytes / kEncode + 4.0 * kBytes / kDecode;
  EXPECT_NEAR(cost(Bytes(1 << 20)).count(), kLatency + wire + work, 1e-12);
  EXPECT_NEAR(cost.off_wire(Bytes(1 << 20)).count(), kLatency + work, 1e-12);
}

TEST(CodecCost, ANumberOfElementsIsThatManyWhateverTheBucket) {
  const CodecCost cost = cost_of("topk:1000", 50.0, 2);
  EXPECT_EQ(cost.encoded(Bytes(1 << 20)), Bytes(8000));
  EXPECT_EQ(cost.encoded(Bytes(1 << 24)), Bytes(8000));
  EXPECT_EQ(cost.encoded(Bytes(400)), Bytes(800));
}

TEST(CodecCost, NeverFallsWhenABucketGrowsAndItsCurveIsCloseAbove) {
  for (const char* const codec :
       {"int8", "topk:0.01", "topk:50", "randomk:0.1", "onebit", "powersgd:4"}) {
    const CodecCost cost = cost_of(codec, 8.0, 4);
    const ExchangeTime curve = cost.curve(Bytes(1 << 26));
    Seconds before{};
    for (std::int64_t size = 4; size <= 1 << 26; size += 4 + size / 5 / 4 * 4) {
      const Seconds now = cost(Bytes(size));
      EXPECT_GE(now, before * (1.0 - 1e-12)) << codec << " " << size;
      EXPECT_NEAR(curve(Bytes(size)) / now, 1.0, 0.02) << codec << " " << size;
      before = now;
    }
  }
}

TEST(CodecCost, OneRankEncodesNothing) {
  EXPECT_EQ(cost_of("int8", 4.0, 1).processor(Bytes(1 << 20)), Seconds(0));
}

TEST(CodecCost, FasterLinksLeaveTheProcessorAsItIs) {
  const CodecCost cost = cost_of("topk:0.01", 50.0, 4);
  const Bytes size(1 << 22);
  EXPECT_NEAR(cost.scaled(0.0, 0.0)(size) / cost.processor(size), 1.0, 1e-9);
}

/// One tensor of 1 MiB, ready after 3 ms.
StepProfile one_tensor() {
  StepProfile profile;
  profile.forward.push_back({"layer", Seconds(1e-3)});
  profile.forward_end = Seconds(1e-3);
  profile.tensors.push_back({"layer.weight", DType::kF32, {1 << 18}, Seconds(3e-3)});
  profile.backward_end = profile.compute_end = Seconds(3e-3);
  return profile;
}

Plan plan_of(const StepProfile& profile, const char* codec) {
  Plan plan;
  plan.tensors.push_back({profile.tensors[0].name, DType::kF32, profile.tensors[0].shape});
  plan.buckets.push_back({DType::kF32, 0, 1 << 18, 0, Algorithm::kDirect, parse_codec(codec)});
  return plan;
}

TEST(SimulateCodecs, TheStepHasEncodingWireAndDecoding) {
  const StepProfile profile = one_tensor();
  Machine machine = machine_from_spec("4@1Gbit/s,50us");
  const Seconds dense = simulate(profile, machine, plan_of(profile, "none")).step;
  machine.codecs.push_back(rate_of("int8", 4.0));
  EXPECT_EQ(simulate(profile, machine, plan_of(profile, "none")).step, dense);
  const ExchangeCosts costs = exchange_costs(machine, Algorithm::kDirect, Bytes(1 << 20));
  ASSERT_NE(costs.codec(parse_codec("int8")), nullptr);
  const Seconds step = simulate(profile, machine, plan_of(profile, "int8")).step;
  const Seconds exchange = (*costs.codec(parse_codec("int8")))(Bytes(1 << 20));
  EXPECT_NEAR((step - Seconds(3e-3)) / exchange, 1.0, 1e-9);
  EXPECT_LT(step, dense);
  // 6/4 of a byte's time for each of 2^18 bytes, two latencies, and the processor.
  EXPECT_NEAR(exchange.count(),
              2 * 50e-6 + 1.5 * (1 << 18) / 125e6 +
                  costs.codec(parse_codec("int8"))->processor(Bytes(1 << 20)).count(),
              1e-9);
  machine.codecs[0].encode = BytesPerSecond(1e6);  // a processor that makes it worse
  EXPECT_GT(simulate(profile, machine, plan_of(profile, "int8")).step, dense);
}

TEST(SimulateCodecs, WhatHasNoPriceIsRefused) {
  const StepProfile profile = one_tensor();
  Machine machine = machine_from_spec("4@1Gbit/s,50us");
  machine.codecs.push_back(rate_of("int8", 4.0));
  try {
    (void)simulate(profile, machine, plan_of(profile, "int4"));
    FAIL() << "int4 has no rate";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_EQ(error.detail().found, "codec int4");
    EXPECT_EQ(error.detail().expected, "int8");
  }
  SimulateOptions sharded;
  sharded.sharding = Sharding::kOptimizer;
  EXPECT_THROW((void)simulate(profile, machine, plan_of(profile, "int8"), sharded), Error);
}

}  // namespace
}  // namespace stretto
