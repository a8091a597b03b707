// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/fixed_plans.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "data/generators.hpp"
#include "stretto/base/error.hpp"
#include "stretto/data/models.hpp"

namespace stretto {
namespace {

std::vector<std::int64_t> sizes(const Plan& plan) {
  std::vector<std::int64_t> bytes;
  for (const Bucket& bucket : plan.buckets) {
    bytes.push_back(bucket.bytes().count());
  }
  return bytes;
}

/// fp32 vectors of so many elements.
std::vector<TensorSpec> vectors(const std::vector<std::int64_t>& elements) {
  std::vector<TensorSpec> tensors;
  for (const std::int64_t n : elements) {
    tensors.push_back({"t" + std::to_string(tensors.size()), DType::kF32, {n}});
  }
  return tensors;
}

/// Number of the last tensor that bucket b holds a part of.
std::size_t completed_by(const Plan& plan, std::size_t b) {
  std::size_t last = 0;
  for (const TensorRange& range : plan.ranges(b)) {
    last = std::max(last, range.tensor);
  }
  return last;
}

void check_laws(const Plan& plan) {
  plan.validate();  // every element in exactly one bucket
  for (std::size_t b = 1; b < plan.buckets.size(); ++b) {
    RC_ASSERT(completed_by(plan, b - 1) <= completed_by(plan, b));
  }
}

TEST(DdpPlan, ABucketClosesWithTheTensorThatReachesTheCap) {
  const Plan plan = ddp_plan(vectors({1, 2, 3, 9, 1, 1}), Bytes(16), Bytes(8));
  EXPECT_EQ(sizes(plan), (std::vector<std::int64_t>{12, 48, 8}));
}

TEST(DdpPlan, DefaultsOnResnet50) {
  const StepProfile profile =
      profile_from_model_json(model_json("resnet50"), "resnet50", AssumedDevice{});
  const Plan plan = ddp_plan(tensors_of(profile));
  // The classifier alone passes 1 MiB; the rest is cut at 25 MiB.
  ASSERT_EQ(plan.buckets.size(), 5U);
  EXPECT_EQ(plan.buckets[0].bytes(), Bytes(4 * (2'048'000 + 1000)));
  for (std::size_t b = 1; b + 1 < plan.buckets.size(); ++b) {
    EXPECT_GE(plan.buckets[b].bytes(), 25_MiB);
  }
}

RC_GTEST_PROP(DdpPlan, KeepsItsRules, ()) {
  const std::vector<TensorSpec> tensors = testing::any_tensors();
  const Bytes cap(*rc::gen::inRange(1, 300));
  const Bytes first_cap(*rc::gen::inRange(1, 300));
  const Plan plan = ddp_plan(tensors, cap, first_cap);
  RC_ASSERT(plan.tensors == tensors);
  check_laws(plan);
  std::map<DType, std::size_t> closed;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    const std::vector<TensorRange> ranges = plan.ranges(b);
    for (const TensorRange& range : ranges) {  // never split
      RC_ASSERT(range.begin == 0 && range.end == tensors[range.tensor].elements());
    }
    const Bytes limit = closed[bucket.dtype]++ == 0 ? first_cap : cap;
    RC_ASSERT(bucket.bytes() - tensors[ranges.back().tensor].bytes() < limit);
    const bool last =
        std::none_of(plan.buckets.begin() + static_cast<std::ptrdiff_t>(b) + 1,
                     plan.buckets.end(),
                     [&](const Bucket& other) { return other.dtype == bucket.dtype; });
    RC_ASSERT((last || bucket.bytes() >= limit));
  }
}

RC_GTEST_PROP(UniformPlan, SplitBucketsAreFull, ()) {
  const std::vector<TensorSpec> tensors = testing::any_tensors();
  const Bytes cap(*rc::gen::inRange(1, 300));
  const Plan plan = uniform_plan(tensors, cap);
  check_laws(plan);
  for (const Bucket& bucket : plan.buckets) {
    const auto size = static_cast<std::int64_t>(size_of(bucket.dtype));
    const std::int64_t full = std::max<std::int64_t>(1, cap.count() / size);
    const bool last = std::none_of(plan.buckets.begin(), plan.buckets.end(), [&](const Bucket& o) {
      return o.dtype == bucket.dtype && o.begin > bucket.begin;
    });
    const std::int64_t elements = bucket.end - bucket.begin;
    RC_ASSERT((elements == full || (last && elements < full)));
  }
}

RC_GTEST_PROP(UniformPlan, WholeTensorsStayUnderTheCapOrAlone, ()) {
  const std::vector<TensorSpec> tensors = testing::any_tensors();
  const Bytes cap(*rc::gen::inRange(1, 300));
  const Plan plan = uniform_plan(tensors, cap, false);
  check_laws(plan);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const std::vector<TensorRange> ranges = plan.ranges(b);
    for (const TensorRange& range : ranges) {
      RC_ASSERT(range.begin == 0 && range.end == tensors[range.tensor].elements());
    }
    RC_ASSERT((ranges.size() == 1 || plan.buckets[b].bytes() <= cap));
  }
}

RC_GTEST_PROP(SingleBucketPlan, HasOneBucketPerDtype, ()) {
  const std::vector<TensorSpec> tensors = testing::any_tensors();
  const Plan plan = single_bucket_plan(tensors);
  check_laws(plan);
  std::map<DType, int> count;
  for (const Bucket& bucket : plan.buckets) {
    RC_ASSERT(++count[bucket.dtype] == 1);
  }
}

TEST(UniformPlan, CapsWithoutMeaningAreRejected) {
  EXPECT_THROW((void)uniform_plan(vectors({1}), Bytes(0)), Error);
  EXPECT_THROW((void)uniform_plan(vectors({1}), Bytes(-4), false), Error);
  EXPECT_THROW((void)ddp_plan(vectors({1}), Bytes(4), Bytes(0)), Error);
  EXPECT_THROW((void)uniform_plan(vectors({std::int64_t{1} << 40}), Bytes(4)), Error);
}

}  // namespace
}  // namespace stretto
