// SPDX-License-Identifier: Apache-2.0
// What all JSON forms have in common: nothing is lost, and every error says where it is.
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "data/generators.hpp"
#include "stretto/base/error.hpp"

namespace stretto {
namespace {

bool same(const Record& a, const Record& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// Where the type has no operator==, its JSON stands for it: that differs when a field does, and
// the fields themselves are looked at in the other tests.
RC_GTEST_PROP(Json, PlanRoundTrips, ()) {
  const Plan plan = testing::any_plan();
  const Plan again = plan_from_json(to_json(plan), "plan.json");
  RC_ASSERT(again.origin == plan.origin);
  RC_ASSERT(again.tensors == plan.tensors);
  RC_ASSERT(again.buckets == plan.buckets);
  RC_ASSERT(again.hash() == plan.hash());
}

RC_GTEST_PROP(Json, MachineRoundTrips, ()) {
  const Machine machine = testing::any_machine();
  const Machine again = machine_from_json(to_json(machine), "machine.json");
  RC_ASSERT(again.levels.size() == machine.levels.size());
  for (std::size_t l = 0; l < machine.levels.size(); ++l) {
    RC_ASSERT(again.levels[l].name == machine.levels[l].name);
    RC_ASSERT(again.levels[l].group_size == machine.levels[l].group_size);
    RC_ASSERT(again.levels[l].latency == machine.levels[l].latency);
    RC_ASSERT(again.levels[l].bandwidth == machine.levels[l].bandwidth);
  }
  RC_ASSERT(again.name == machine.name);
}

RC_GTEST_PROP(Json, StepProfileRoundTrips, ()) {
  const StepProfile profile = testing::any_profile();
  const StepProfile again = step_profile_from_json(to_json(profile), "profile.json");
  RC_ASSERT(to_json(again) == to_json(profile));
  RC_ASSERT(again.basis == profile.basis);
  RC_ASSERT(again.compute_end == profile.compute_end);
  for (std::size_t i = 0; i < profile.tensors.size(); ++i) {
    RC_ASSERT(again.tensors[i].ready == profile.tensors[i].ready);
    RC_ASSERT(again.tensors[i].shape == profile.tensors[i].shape);
  }
}

RC_GTEST_PROP(Json, TimelineRoundTrips, ()) {
  const Timeline timeline = testing::any_timeline();
  const Timeline again = timeline_from_json(to_json(timeline), "run.json");
  RC_ASSERT(to_json(again) == to_json(timeline));
  RC_ASSERT(again.names == timeline.names);
  RC_ASSERT(again.origin_unix_ns == timeline.origin_unix_ns);
  RC_ASSERT(again.records.size() == timeline.records.size());
  for (std::size_t i = 0; i < timeline.records.size(); ++i) {
    RC_ASSERT(same(again.records[i], timeline.records[i]));
  }
}

RC_GTEST_PROP(Json, SummaryRoundTrips, ()) {
  const Summary summary = testing::any_summary();
  const Summary again = summary_from_json(to_json(summary), "summary.json");
  RC_ASSERT(to_json(again) == to_json(summary));
  RC_ASSERT(again.step == summary.step);
  RC_ASSERT(again.first_launch == summary.first_launch);
  RC_ASSERT(again.bound == summary.bound);
  RC_ASSERT(again.scaling_efficiency == summary.scaling_efficiency);
  RC_ASSERT(again.buckets[0].bytes == summary.buckets[0].bytes);
  RC_ASSERT(again.per_rank[0].exposed == summary.per_rank[0].exposed);
}

Error error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "accepted";
  return {ErrorCode::kBackend, ""};
}

constexpr std::string_view kMachine =
    R"({"schema":"stretto.machine/1","name":"m","levels":[)"
    R"({"name":"link","group_size":4,"latency_s":5e-5,"bandwidth_bytes_per_s":625000000}]})";

/// kMachine with one part of its text replaced.
Error machine_error(std::string_view part, std::string_view by) {
  std::string text(kMachine);
  const std::size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos);
  text.replace(at, part.size(), by);
  return error_of([&] { (void)machine_from_json(text, "m.json"); });
}

TEST(Json, TheMachineOfTheseTestsIsGood) {
  const Machine machine = machine_from_json(kMachine, "m.json");
  EXPECT_EQ(machine.ranks(), 4);
  EXPECT_EQ(machine.levels[0].latency, Seconds(5e-5));
}

TEST(Json, SyntaxErrorsCarryTheByte) {
  const Error error = machine_error("\"name\":\"m\"", "\"name\":m");
  EXPECT_EQ(error.code(), ErrorCode::kParse);
  const std::size_t byte = kMachine.find(",\"name\"") + std::string_view(",\"name\":").size();
  EXPECT_EQ(error.detail().where, "m.json at byte " + std::to_string(byte));
}

TEST(Json, CutOffFilesAreSaidToBe) {
  const Error error = error_of([] { (void)machine_from_json(kMachine.substr(0, 60), "m.json"); });
  EXPECT_EQ(error.code(), ErrorCode::kParse);
  EXPECT_EQ(error.detail().where, "m.json at byte 60");
  EXPECT_EQ(error.detail().found, "the end of the text");
}

TEST(Json, WrongTypesCarryThePointer) {
  const Error error = machine_error("\"latency_s\":5e-5", "\"latency_s\":\"50us\"");
  EXPECT_EQ(error.code(), ErrorCode::kParse);
  EXPECT_EQ(error.detail().where, "m.json at /levels/0/latency_s");
  EXPECT_EQ(error.detail().found, "'50us'");
  EXPECT_EQ(error.detail().expected, "a number of zero or more");
}

TEST(Json, UnknownKeysNameTheNearest) {
  const Error error = machine_error("group_size", "groupsize");
  EXPECT_EQ(error.detail().where, "m.json at /levels/0");
  EXPECT_NE(error.detail().message.find("'groupsize'"), std::string::npos);
  EXPECT_NE(error.detail().help.find("Did you mean 'group_size'?"), std::string::npos);
}

TEST(Json, MissingKeysAreNamed) {
  const Error error = machine_error(",\"latency_s\":5e-5", "");
  EXPECT_EQ(error.detail().message, "key 'latency_s' is missing");
  EXPECT_EQ(error.detail().where, "m.json at /levels/0");
  EXPECT_NE(error.detail().found.find("'bandwidth_bytes_per_s'"), std::string::npos)
      << error.detail().found;
  EXPECT_EQ(error.detail().expected, "the key 'latency_s'");
}

TEST(Json, AnotherNounIsSaidToBe) {
  const Error error = error_of([] { (void)plan_from_json(kMachine, "m.json"); });
  EXPECT_EQ(error.detail().where, "m.json at /schema");
  EXPECT_EQ(error.detail().found, "'stretto.machine/1'");
  EXPECT_EQ(error.detail().expected, "'stretto.plan/1'");
}

TEST(Json, NumbersThatMeanNothingAreRejected) {
  for (const std::string_view number : {"-1",
                                        "0",
                                        "2.0",
                                        "1e2",
                                        "null",
                                        "[4]",
                                        "9223372036854775808",
                                        "18446744073709551615",
                                        "2147483648"}) {
    const Error error = machine_error("\"group_size\":4", "\"group_size\":" + std::string(number));
    EXPECT_EQ(error.code(), ErrorCode::kParse) << number;
    EXPECT_EQ(error.detail().where, "m.json at /levels/0/group_size") << number;
  }
  for (const std::string_view number : {"-1e-9", "true", "{}"}) {
    EXPECT_EQ(machine_error("5e-5", number).code(), ErrorCode::kParse) << number;
  }
  EXPECT_EQ(machine_error("625000000", "0").code(), ErrorCode::kParse);
  EXPECT_NE(machine_error("625000000", "1e999").detail().where.find("at byte "), std::string::npos);
  EXPECT_EQ(machine_error("[{", "[],\"x\":[{").code(), ErrorCode::kParse);
}

TEST(Json, RanksThatDoNotFitAreRejected) {
  const std::string level =
      R"({"name":"l","group_size":65536,"latency_s":0,"bandwidth_bytes_per_s":1})";
  const std::string text =
      R"({"schema":"stretto.machine/1","name":"m","levels":[)" + level + "," + level + "]}";
  EXPECT_EQ(error_of([&] { (void)machine_from_json(text, "m"); }).detail().where,
            "m at /levels/1/group_size");
}

TEST(Json, DeepNestingIsOnlyAnError) {
  const std::string text(1'000'000, '[');
  EXPECT_EQ(error_of([&] { (void)plan_from_json(text, "deep"); }).code(), ErrorCode::kParse);
  const std::string closed = text + std::string(1'000'000, ']');
  EXPECT_EQ(error_of([&] { (void)plan_from_json(closed, "deep"); }).code(), ErrorCode::kParse);
}

TEST(Json, PointersAreEscaped) {
  const std::string text = R"({"schema":"stretto.step_profile/1","a/b~c":1})";
  const Error error = error_of([&] { (void)step_profile_from_json(text, "p"); });
  EXPECT_NE(error.detail().message.find("'a/b~c'"), std::string::npos);
}

TEST(Json, NamesThatAreNotUtf8AreReplacedNotFatal) {
  Machine machine = machine_from_json(kMachine, "m");
  machine.name = "a\xff";
  EXPECT_EQ(machine_from_json(to_json(machine), "m").name, "a\xef\xbf\xbd");
}

TEST(Json, ResultsMayHaveMoreKeys) {
  std::string summary = to_json(Summary{});
  summary.insert(summary.find("\"steps\""), "\"new_key\":[1,2],\n ");
  EXPECT_NO_THROW((void)summary_from_json(summary, "s"));
  std::string timeline = to_json(Timeline{});
  timeline.insert(timeline.find("\"source\""), "\"new_key\":[1,2],\n ");
  EXPECT_NO_THROW((void)timeline_from_json(timeline, "t"));
}

}  // namespace
}  // namespace stretto
