// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "data/generators.hpp"
#include "stretto/base/error.hpp"
#include "stretto/data/plan_fit.hpp"

namespace stretto {
namespace {

Plan small_plan() {
  return {"by hand",
          {{"w", DType::kF32, {4, 3}}, {"s", DType::kF16, {}}, {"b", DType::kF32, {5}}},
          {{DType::kF32, 0, 8, 1, Algorithm::kRing},
           {DType::kF16, 0, 1, 0, Algorithm::kAuto},
           {DType::kF32, 8, 17, 0, Algorithm::kAuto}}};
}

Error invalid(const Plan& plan) {
  try {
    plan.validate();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "accepted";
  return {ErrorCode::kBackend, ""};
}

TEST(Plan, BucketsMayCutTensors) {
  const Plan plan = small_plan();
  plan.validate();
  EXPECT_EQ(plan.bytes(), Bytes(17 * 4 + 2));
  EXPECT_EQ(plan.offsets(), (std::vector<std::int64_t>{0, 0, 12}));
  const std::vector<TensorRange> last = plan.ranges(2);
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[0].tensor, 0U);
  EXPECT_EQ(last[0].begin, 8);
  EXPECT_EQ(last[0].end, 12);
  EXPECT_EQ(last[1].tensor, 2U);
  EXPECT_EQ(last[1].begin, 0);
  EXPECT_EQ(last[1].end, 5);
}

TEST(Plan, ValidateNamesWhatIsWrong) {
  Plan plan = small_plan();
  plan.buckets[0].end = 7;
  EXPECT_EQ(invalid(plan).detail().where, "tensor 'w'");
  plan = small_plan();
  plan.buckets[2].begin = 7;
  EXPECT_EQ(invalid(plan).detail().where, "bucket 2");
  plan = small_plan();
  plan.buckets[2].end = 18;
  EXPECT_EQ(invalid(plan).detail().where, "bucket 2");
  plan = small_plan();
  plan.buckets[2].end = 16;
  EXPECT_EQ(invalid(plan).detail().where, "tensor 'b'");
  plan = small_plan();
  plan.buckets[0].begin = -1;
  EXPECT_EQ(invalid(plan).detail().where, "bucket 0");
  plan = small_plan();
  plan.buckets.erase(plan.buckets.begin() + 1);
  EXPECT_EQ(invalid(plan).detail().where, "tensor 's'");
  plan = small_plan();
  plan.buckets.push_back({DType::kI64, 0, 0, 0, Algorithm::kAuto});
  EXPECT_EQ(invalid(plan).detail().message, "bucket is empty");
  plan.buckets.back().end = 1;
  EXPECT_EQ(invalid(plan).detail().where, "bucket 3");
  plan = small_plan();
  plan.tensors[2].shape = {5, -1};
  EXPECT_EQ(invalid(plan).detail().where, "tensor 'b'");
  plan.tensors[2].shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  EXPECT_EQ(invalid(plan).detail().where, "tensor 'b'");
}

RC_GTEST_PROP(Plan, RangesOfAllBucketsAreAllElementsOnce, ()) {
  const Plan plan = testing::any_plan();
  plan.validate();
  std::vector<std::vector<int>> seen;
  for (const TensorSpec& tensor : plan.tensors) {
    seen.emplace_back(static_cast<std::size_t>(tensor.elements()));
  }
  const std::vector<std::int64_t> offsets = plan.offsets();
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    std::int64_t at = plan.buckets[b].begin;
    for (const TensorRange& range : plan.ranges(b)) {
      RC_ASSERT(plan.tensors[range.tensor].dtype == plan.buckets[b].dtype);
      RC_ASSERT(offsets[range.tensor] + range.begin == at);
      RC_ASSERT(range.begin < range.end);
      at += range.end - range.begin;
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        ++seen[range.tensor].at(static_cast<std::size_t>(i));
      }
    }
    RC_ASSERT(at == plan.buckets[b].end);
  }
  for (const std::vector<int>& tensor : seen) {
    for (const int times : tensor) {
      RC_ASSERT(times == 1);
    }
  }
}

TEST(Plan, HashCoversAllButTheOrigin) {
  const Plan plan = small_plan();
  Plan other = plan;
  other.origin = "elsewhere";
  EXPECT_EQ(other.hash(), plan.hash());
  const std::vector<void (*)(Plan&)> changes = {
      [](Plan& p) { p.tensors[0].name = "v"; },
      [](Plan& p) { p.tensors[0].dtype = DType::kI32; },
      [](Plan& p) {
        p.tensors[0].shape = {3, 4};
      },
      [](Plan& p) { p.buckets[0].dtype = DType::kI32; },
      [](Plan& p) { p.buckets[0].begin = 1; },
      [](Plan& p) { p.buckets[0].end = 7; },
      [](Plan& p) { p.buckets[0].priority = -1; },
      [](Plan& p) { p.buckets[0].algorithm = Algorithm::kDirect; },
      [](Plan& p) { std::swap(p.buckets[0], p.buckets[1]); },
      [](Plan& p) { p.buckets.pop_back(); },
      [](Plan& p) { p.tensors.pop_back(); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    other = plan;
    changes[i](other);
    EXPECT_NE(other.hash(), plan.hash()) << i;
    EXPECT_FALSE(difference(plan, other).where.empty()) << i;
  }
}

// A change of this number means that plans of two versions of the library never match.
TEST(Plan, HashIsTheSameOnEveryHost) {
  EXPECT_EQ(small_plan().hash(), 813677481488417166U);
}

TEST(Plan, DifferenceSpeaksOfTensorsAndBuckets) {
  const Plan plan = small_plan();
  EXPECT_TRUE(difference(plan, plan).where.empty());
  Plan other = plan;
  other.tensors[0].shape = {4, 2};
  EXPECT_EQ(difference(plan, other).where, "tensor 'w'");
  EXPECT_EQ(difference(plan, other).expected, "shape [4, 3]");
  EXPECT_EQ(difference(plan, other).found, "shape [4, 2]");
  other = plan;
  other.tensors[1].name = "t";
  EXPECT_EQ(difference(plan, other).where, "tensor 1");
  EXPECT_EQ(difference(plan, other).found, "'t' f16 []");
  other = plan;
  other.buckets[1].priority = 5;
  EXPECT_EQ(difference(plan, other).where, "bucket 1");
  EXPECT_EQ(difference(plan, other).found, "elements [0, 1) of f16, priority 5, auto");
}

TEST(Plan, JsonIsForHandsToo) {
  const std::string_view text = R"({"schema": "stretto.plan/1",
    "tensors": [{"name": "w", "dtype": "f32", "shape": [6]}],
    "buckets": [{"dtype": "f32", "begin_element": 0, "end_element": 6}]})";
  const Plan plan = plan_from_json(text, "p");
  EXPECT_EQ(plan.buckets.at(0).algorithm, Algorithm::kAuto);
  std::string broken(text);
  broken.replace(broken.find("6}]"), 1, "5");
  try {
    (void)plan_from_json(broken, "p");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.detail().where, "tensor 'w'");
  }
}

TEST(Plan, WhatFollowsFromTheElementsIsCheckedWhereItIsSaid) {
  const auto refused = [](std::string_view bucket) {
    const std::string text = R"({"schema": "stretto.plan/1",
      "tensors": [{"name": "w", "dtype": "f32", "shape": [6]},
                  {"name": "b", "dtype": "f32", "shape": [2]}],
      "buckets": [{"dtype": "f32", "begin_element": 0, "end_element": 8)" +
                             std::string(bucket) + "}]}";
    try {
      (void)plan_from_json(text, "p");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kParse);
      return error.detail().where + ": " + error.detail().found + ", not " +
             error.detail().expected;
    }
    return std::string("taken");
  };
  EXPECT_EQ(refused(""), "taken");
  EXPECT_EQ(refused(R"(, "bytes": 32, "tensors": ["w", "b"])"), "taken");
  EXPECT_EQ(refused(R"(, "bytes": 16)"),
            "p at /buckets/0/bytes: 16, not 32, of elements [0, 8) of f32");
  EXPECT_EQ(refused(R"(, "tensors": ["w", "c"])"), "p at /buckets/0/tensors/1: 'c', not 'b'");
  EXPECT_EQ(refused(R"(, "tensors": ["w"])"), "p at /buckets/0/tensors: no more, not 'b'");
  EXPECT_EQ(refused(R"(, "tensors": ["w", "b", "w"])"),
            "p at /buckets/0/tensors/2: 'w', not no more");
}

TEST(RequireFit, NamesTheFirstTensorThatIsAnotherOne) {
  StepProfile profile;
  profile.model = "m";
  profile.tensors = {{"w", DType::kF32, {6}, Seconds(1)}, {"b", DType::kF32, {2}, Seconds(2)}};
  Plan plan;
  plan.tensors = {{"w", DType::kF32, {6}}, {"b", DType::kF32, {2}}};
  EXPECT_NO_THROW(require_fit(profile, plan));
  const auto refused = [&] {
    try {
      require_fit(profile, plan);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.detail();
    }
    return ErrorDetail{};
  };
  plan.tensors[1].shape = {3};
  EXPECT_EQ(refused().where, "plan, tensor 'b'");
  EXPECT_NE(refused().found.find("[3]"), std::string::npos);
  EXPECT_NE(refused().expected.find("[2]"), std::string::npos);
  plan.tensors.pop_back();
  EXPECT_EQ(refused().where, "plan, tensor 1");
  EXPECT_NE(refused().found.find("1 tensors"), std::string::npos);
  EXPECT_NE(refused().expected.find("the 2 tensors of m"), std::string::npos);
}

}  // namespace
}  // namespace stretto
