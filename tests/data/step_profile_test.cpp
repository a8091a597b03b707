// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/step_profile.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/data/models.hpp"

namespace stretto {
namespace {

Error error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "accepted";
  return {ErrorCode::kBackend, ""};
}

TEST(Models, AllAreThereAndComplete) {
  // Tensors, parameters and the forward multiply-adds per sample that their publishers state, or
  // that follow from the shapes (GPT-2's output layer is tied and counted).
  struct Expected {
    std::size_t tensors;
    double parameters;
    double giga_multiply_adds;
  };
  const std::map<std::string, Expected> expected = {
      {"bert_large", {391, 335'141'888, 155.2}},
      {"gpt2_124m", {148, 124'439'808, 126.5}},
      {"gpt2_1p5b", {580, 1'557'611'200, 1592}},
      {"llama2_7b", {291, 6'738'415'616, 27063}},
      {"llama3_70b", {723, 70'553'706'496, 569358}},
      {"llama3_8b", {291, 8'030'261'248, 61478}},
      {"resnet50", {161, 25'557'032, 4.089}},
      {"vgg16", {32, 138'357'544, 15.47}},
  };
  ASSERT_EQ(model_names().size(), expected.size());
  for (const std::string& name : model_names()) {
    const AssumedDevice device;
    const StepProfile profile = profile_from_model_json(model_json(name), name, device);
    const Expected& should = expected.at(name);
    EXPECT_EQ(profile.tensors.size(), should.tensors) << name;
    EXPECT_EQ(static_cast<double>(profile.bytes().count()), 4 * should.parameters) << name;
    const double multiply_adds =
        profile.forward_end.count() * device.flops_per_s / 2 / static_cast<double>(profile.batch);
    EXPECT_NEAR(multiply_adds / 1e9 / should.giga_multiply_adds, 1.0, 1e-3) << name;
    EXPECT_NEAR(profile.backward_end / profile.forward_end, 3.0, 1e-9) << name;
    EXPECT_EQ(profile.basis, Basis::kAssumed);
    // The JSON reader holds the order of all times.
    EXPECT_EQ(to_json(step_profile_from_json(to_json(profile), name)), to_json(profile));
  }
}

TEST(Models, NamesThatAreNearAreSuggested) {
  const Error error = error_of([] { (void)model_json("resnet-50"); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(error.detail().help.find("'resnet50'"), std::string::npos);
}

constexpr std::string_view kModel = R"({"model": "m", "config": {"ctx": 10}, "params": [
  {"name": "wte.weight", "shape": [7, 2], "numel": 14, "tied": "head.weight"},
  {"name": "a.weight", "shape": [2, 3], "numel": 6},
  {"name": "a.bias", "shape": [3], "numel": 3},
  {"name": "b.weight", "shape": [3, 2], "numel": 6}]})";

TEST(ModelProfile, FollowsItsAssumptions) {
  // One multiply-add per second: forward takes a 60, b 60, tied head 140 s; backward twice that.
  const StepProfile profile =
      profile_from_model_json(kModel, "m", {.flops_per_s = 2.0, .batch = 1});
  ASSERT_EQ(profile.forward.size(), 4U);
  EXPECT_EQ(profile.forward[0].forward, Seconds(0));
  EXPECT_EQ(profile.forward[1].name, "a");
  EXPECT_EQ(profile.forward[1].forward, Seconds(60));
  EXPECT_EQ(profile.forward[3].name, "head");
  EXPECT_EQ(profile.forward[3].forward, Seconds(140));
  EXPECT_EQ(profile.forward_end, Seconds(260));
  ASSERT_EQ(profile.tensors.size(), 4U);
  EXPECT_EQ(profile.tensors[0].name, "b.weight");
  EXPECT_EQ(profile.tensors[0].ready, Seconds(260 + 280 + 120));
  EXPECT_EQ(profile.tensors[1].name, "a.bias");
  EXPECT_EQ(profile.tensors[1].ready, Seconds(780));
  EXPECT_EQ(profile.tensors[2].name, "a.weight");
  EXPECT_EQ(profile.tensors[2].ready, Seconds(780));
  EXPECT_EQ(profile.tensors[3].name, "wte.weight");
  EXPECT_EQ(profile.tensors[3].ready, Seconds(780));
  EXPECT_EQ(profile.compute_end, Seconds(780));
  for (const std::string_view assumption : {"1 sample per", "10 positions", "2 x forward"}) {
    EXPECT_NE(profile.assumptions.find(assumption), std::string::npos) << profile.assumptions;
  }
}

TEST(ModelProfile, BatchAndRateScaleAllTimes) {
  const StepProfile profile =
      profile_from_model_json(kModel, "m", {.flops_per_s = 8.0, .batch = 2});
  EXPECT_EQ(profile.batch, 2);
  EXPECT_EQ(profile.compute_end, Seconds(390));
}

TEST(ModelProfile, BadDevicesAreRejected) {
  for (const double rate : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(error_of([&] {
                (void)profile_from_model_json(kModel, "m", {rate, 1});
              }).code(),
              ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(error_of([&] {
              (void)profile_from_model_json(kModel, "m", {1e12, -1});
            }).code(),
            ErrorCode::kInvalidArgument);
}

TEST(ModelProfile, TablesAreChecked) {
  std::string text(kModel);
  text.replace(text.find("\"numel\": 6"), 10, "\"numel\": 5");
  EXPECT_EQ(error_of([&] { (void)profile_from_model_json(text, "m.json", {}); }).detail().where,
            "m.json at /params/1/numel");
  EXPECT_EQ(
      error_of([] { (void)profile_from_model_json(R"({"model":"m","params":[]})", "m.json", {}); })
          .detail()
          .where,
      "m.json at /params");
}

TEST(StepProfile, TimesMayNotGoBackwards) {
  const StepProfile profile =
      profile_from_model_json(kModel, "m", {.flops_per_s = 2.0, .batch = 1});
  StepProfile broken = profile;
  broken.tensors[1].ready = Seconds(1);
  EXPECT_EQ(error_of([&] { (void)step_profile_from_json(to_json(broken), "p"); }).detail().where,
            "p at /tensors/1/ready_s");
  broken = profile;
  broken.backward_end = Seconds(779);
  EXPECT_EQ(error_of([&] { (void)step_profile_from_json(to_json(broken), "p"); }).detail().where,
            "p at /backward_end_s");
  broken = profile;
  broken.compute_end = Seconds(3);
  EXPECT_EQ(error_of([&] { (void)step_profile_from_json(to_json(broken), "p"); }).detail().where,
            "p at /compute_end_s");
}

}  // namespace
}  // namespace stretto
