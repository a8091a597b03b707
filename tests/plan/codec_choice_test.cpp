// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/codec_choice.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

constexpr std::int64_t kElements = 1 << 18;  // 1 MiB

/// Tensors of 1 MiB, ready at these times; then nothing but communication.
StepProfile profile_of(const std::vector<double>& ready_s) {
  StepProfile profile;
  profile.forward.push_back({"layer", Seconds(1e-3)});
  profile.forward_end = Seconds(1e-3);
  for (const double ready : ready_s) {
    profile.tensors.push_back({"t" + std::to_string(profile.tensors.size()) + ".weight",
                               DType::kF32,
                               {kElements},
                               Seconds(ready)});
  }
  profile.backward_end = profile.compute_end = Seconds(ready_s.back());
  return profile;
}

Plan plan_of(const StepProfile& profile) {
  Plan plan;
  for (const ProfileTensor& tensor : profile.tensors) {
    const auto begin = static_cast<std::int64_t>(plan.tensors.size()) * kElements;
    plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
    plan.buckets.push_back({DType::kF32, begin, begin + kElements, 0, Algorithm::kDirect});
  }
  return plan;
}

CodecRate rate_of(const char* codec, double ratio, double error, double bytes_per_s = 4e9) {
  return {
      parse_codec(codec), BytesPerSecond(bytes_per_s), BytesPerSecond(bytes_per_s), ratio, error};
}

ExchangeCosts costs_of(const char* machine, std::vector<CodecRate> rates) {
  Machine on = machine_from_spec(machine);
  on.codecs = std::move(rates);
  return exchange_costs(on, Algorithm::kDirect, Bytes(1 << 30));
}

CodecPolicy allowing(std::vector<const char*> codecs) {
  CodecPolicy policy;
  for (const char* const codec : codecs) {
    policy.allowed.push_back(parse_codec(codec));
  }
  return policy;
}

std::size_t encoded(const CodecChoice& choice) {
  return static_cast<std::size_t>(
      std::count_if(choice.buckets.begin(), choice.buckets.end(), [](const BucketCodec& bucket) {
        return bucket.codec.lossy();
      }));
}

// 1 MiB takes 12.6 ms on 4@1Gbit/s.
constexpr const char* kSlow = "4@1Gbit/s,50us";

TEST(CodecChoice, HiddenCommunicationIsWorthNothing) {
  const StepProfile profile = profile_of({0.01, 0.03, 0.05, 0.5});
  const ExchangeCosts costs = costs_of(kSlow, {rate_of("int8", 3.97, 0.007)});
  const CodecChoice choice =
      choose_codecs(profile, costs, plan_of(profile), {}, allowing({"int8"}));
  // Only the last bucket is exposed, and it is 12 of 512 ms: not enough.
  EXPECT_EQ(encoded(choice), 0U);
  EXPECT_EQ(choice.step, choice.exact_step);
  CodecPolicy eager = allowing({"int8"});
  eager.least_gain = 0.005;
  const CodecChoice more = choose_codecs(profile, costs, plan_of(profile), {}, eager);
  EXPECT_EQ(encoded(more), 1U);
  EXPECT_TRUE(more.plan.buckets.back().codec.lossy());
  EXPECT_LT(more.step, more.exact_step);
  EXPECT_NE(more.buckets[0].why.find("hidden"), std::string::npos) << more.buckets[0].why;
  EXPECT_NE(more.buckets[3].why.find("longer"), std::string::npos) << more.buckets[3].why;
}

TEST(CodecChoice, ExposedCommunicationIsEncodedByTheLeastLossyThatIsAsQuick) {
  const StepProfile profile = profile_of({0.001, 0.002, 0.003, 0.004});
  const ExchangeCosts costs = costs_of(
      kSlow,
      {rate_of("int8", 3.97, 0.007), rate_of("fp16", 2.0, 0.0002), rate_of("onebit", 31.5, 0.6)});
  const CodecChoice int8 =
      choose_codecs(profile, costs, plan_of(profile), {}, allowing({"int8", "fp16"}));
  EXPECT_EQ(encoded(int8), 4U);
  for (const BucketCodec& bucket : int8.buckets) {
    EXPECT_EQ(to_string(bucket.codec), "int8");
  }
  EXPECT_LT(int8.step, 0.4 * int8.exact_step);
  const CodecChoice onebit =
      choose_codecs(profile, costs, plan_of(profile), {}, allowing({"onebit", "int8"}));
  EXPECT_LT(onebit.step, int8.step);

  // Compute until 24.5 ms hides one exchange as it is (12.7 ms) beside two of int8.
  StepProfile longer = profile_of({0.001, 0.002, 0.003, 0.0245});
  longer.tensors[3].shape = {1 << 15};  // 128 KiB
  Plan plan = plan_of(longer);
  plan.buckets[3].end = plan.buckets[3].begin + (1 << 15);
  const CodecChoice mixed = choose_codecs(longer, costs, plan, {}, allowing({"int8", "fp16"}));
  std::string codecs;
  for (const Bucket& bucket : mixed.plan.buckets) {
    codecs += to_string(bucket.codec) + " ";
  }
  EXPECT_EQ(codecs, "none int8 int8 int8 ");
}

TEST(CodecChoice, SaysNoByDefaultAndOnFastLinks) {
  const StepProfile profile = profile_of({0.001, 0.002});
  const ExchangeCosts slow = costs_of(kSlow, {rate_of("int8", 3.97, 0.007)});
  const CodecChoice none = choose_codecs(profile, slow, plan_of(profile), {}, {});
  EXPECT_EQ(encoded(none), 0U);
  EXPECT_EQ(none.buckets[0].why, "no codec is allowed");
  // 8 GB/s: 1 MiB takes 0.2 ms, its encoding more.
  const ExchangeCosts fast = costs_of("4@64Gbit/s,2us", {rate_of("int8", 3.97, 0.007)});
  const CodecChoice choice = choose_codecs(profile, fast, plan_of(profile), {}, allowing({"int8"}));
  EXPECT_EQ(encoded(choice), 0U);
  EXPECT_NE(choice.buckets[0].why.find("int8 takes"), std::string::npos) << choice.buckets[0].why;
}

TEST(CodecChoice, KeepsWhatIsToStayExactSmallOrSavesTooLittle) {
  const StepProfile profile = profile_of({0.001, 0.002, 0.003});
  const ExchangeCosts costs = costs_of(kSlow, {rate_of("int8", 3.97, 0.007)});
  CodecPolicy policy = allowing({"int8"});
  policy.exact = {"t1.*"};
  const CodecChoice choice = choose_codecs(profile, costs, plan_of(profile), {}, policy);
  EXPECT_EQ(encoded(choice), 2U);
  EXPECT_FALSE(choice.plan.buckets[1].codec.lossy());
  EXPECT_NE(choice.buckets[1].why.find("t1.weight"), std::string::npos) << choice.buckets[1].why;
  policy.least_bytes = Bytes(2 << 20);
  EXPECT_EQ(encoded(choose_codecs(profile, costs, plan_of(profile), {}, policy)), 0U);
  policy.least_bytes = Bytes(0);
  policy.least_ratio = 4.0;
  const CodecChoice little = choose_codecs(profile, costs, plan_of(profile), {}, policy);
  EXPECT_EQ(encoded(little), 0U);
  EXPECT_NE(little.buckets[0].why.find("saves too little"), std::string::npos);
}

TEST(CodecChoice, IsNeverSlowerThanAnyUniformPlanByMoreThanItGivesAway) {
  for (const char* const machine : {kSlow, "8@10Gbit/s,20us", "2@100Mbit/s,1ms"}) {
    const StepProfile profile = profile_of({0.002, 0.011, 0.012, 0.03, 0.031, 0.06});
    const ExchangeCosts costs = costs_of(machine,
                                         {rate_of("int8", 3.97, 0.007),
                                          rate_of("fp16", 2.0, 0.0002),
                                          rate_of("topk:0.01", 50.0, 0.95, 1e9)});
    CodecPolicy policy = allowing({"int8", "fp16", "topk:0.01"});
    policy.least_gain = 0.0;
    const CodecChoice choice = choose_codecs(profile, costs, plan_of(profile), {}, policy);
    for (const char* const codec : {"none", "int8", "fp16", "topk:0.01"}) {
      Plan uniform = plan_of(profile);
      for (Bucket& bucket : uniform.buckets) {
        bucket.codec = parse_codec(codec);
      }
      const Seconds step = simulate(profile, costs, uniform).step;
      EXPECT_LE(choice.step, step * 1.0011) << machine << " " << codec;
    }
    EXPECT_EQ(choice.step, simulate(profile, costs, choice.plan).step) << machine;
  }
}

TEST(CodecChoice, RefusesWhatItCannotReckonWith) {
  const StepProfile profile = profile_of({0.001});
  const ExchangeCosts costs = costs_of(kSlow, {rate_of("int8", 3.97, 0.007)});
  EXPECT_THROW((void)choose_codecs(profile, costs, plan_of(profile), {}, allowing({"int4"})),
               Error);
  CodecPolicy policy = allowing({"int8"});
  policy.least_gain = 1.0;
  EXPECT_THROW((void)choose_codecs(profile, costs, plan_of(profile), {}, policy), Error);
}

TEST(Matches, StarsStandForAnything) {
  for (const auto& [pattern, name] :
       std::vector<std::pair<const char*, const char*>>{{"a", "a"},
                                                        {"*", ""},
                                                        {"*", "a.b"},
                                                        {"a*", "a"},
                                                        {"*.bias", "fc1.bias"},
                                                        {"a*b*c", "aXbYbZc"},
                                                        {"**", "x"},
                                                        {"", ""}}) {
    EXPECT_TRUE(matches(pattern, name)) << pattern << " " << name;
  }
  for (const auto& [pattern, name] : std::vector<std::pair<const char*, const char*>>{
           {"a", "ab"}, {"a", ""}, {"", "a"}, {"*.bias", "fc1.bias2"}, {"a*b*c", "aXbYb"}}) {
    EXPECT_FALSE(matches(pattern, name)) << pattern << " " << name;
  }
}

}  // namespace
}  // namespace stretto
