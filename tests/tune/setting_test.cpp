// SPDX-License-Identifier: Apache-2.0
#include "stretto/tune/setting.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/tune/trial_log.hpp"

namespace stretto {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Grid, ReadsSeveralKnobs) {
  const auto knobs = parse_grid("buckets=1M,5M,planned,ratio=0.01,0.1");
  ASSERT_EQ(knobs.size(), 2U);
  EXPECT_EQ(knobs[0].name, "buckets");
  EXPECT_EQ(knobs[0].values, (std::vector<std::string>{"1M", "5M", "planned"}));
  EXPECT_EQ(knobs[1].name, "ratio");
  const auto settings = combinations(knobs);
  ASSERT_EQ(settings.size(), 6U);
  EXPECT_EQ(to_string(settings[0]), "buckets=1M ratio=0.01");
  EXPECT_EQ(to_string(settings[1]), "buckets=1M ratio=0.1");
  EXPECT_EQ(value_of(settings[5], "buckets"), "planned");
  EXPECT_EQ(value_of(settings[5], "streams"), std::nullopt);
  EXPECT_EQ(to_string(Setting{}), "default");
}

TEST(Grid, SaysWhatIsWrong) {
  EXPECT_NE(message_of([] { (void)parse_grid("1M,5M"); }).find("name of a knob"),
            std::string::npos);
  EXPECT_NE(message_of([] { (void)parse_grid("buckets=1M,,5M"); }).find("empty"),
            std::string::npos);
  EXPECT_NE(message_of([] { (void)parse_grid("buckets=1M,1M"); }).find("twice"), std::string::npos);
  EXPECT_NE(message_of([] { (void)parse_grid("a=1,a=2"); }).find("twice"), std::string::npos);
  EXPECT_NE(message_of([] { (void)parse_knob_values("=1"); }).find("no knob"), std::string::npos);
  std::vector<KnobValues> many(7, {"k", std::vector<std::string>(10, "v")});
  EXPECT_NE(message_of([&] { (void)combinations(many); }).find("too many"), std::string::npos);
}

TEST(Grid, ValuesOfVariablesMayHoldAnEqualsSign) {
  EXPECT_EQ(parse_knob_values("FLAGS=a=1,b=2").values, (std::vector<std::string>{"a=1", "b=2"}));
}

TEST(Shortlist, TakesTheQuickestAndOneOfThoseAlike) {
  const std::vector<Candidate> all = {
      {{{"buckets", "1M"}, {"streams", "1"}}, Seconds(1.0)},
      {{{"buckets", "1M"}, {"streams", "2"}}, Seconds(1.0)},
      {{{"buckets", "4M"}, {"streams", "1"}}, Seconds(1.5)},
      {{{"buckets", "?"}, {"streams", "1"}}, std::nullopt},
      {{{"buckets", "8M"}, {"streams", "1"}}, Seconds(0.5)},
  };
  const auto taken = shortlist(all, 4);
  ASSERT_EQ(taken.size(), 4U);
  EXPECT_EQ(taken[0].setting, all[4].setting);
  EXPECT_EQ(taken[1].setting, all[0].setting);
  EXPECT_EQ(taken[2].setting, all[2].setting);
  EXPECT_EQ(taken[3].setting, all[3].setting);
  EXPECT_EQ(shortlist(all, 9).back().setting, all[1].setting);
}

RC_GTEST_PROP(TrialLog, ReadsWhatItWrote, ()) {
  const auto time = [] {
    return *rc::gen::arbitrary<bool>()
               ? std::optional(Seconds(*rc::gen::inRange(0, 1 << 30) * 1e-9))
               : std::nullopt;
  };
  const auto text = [] { return *rc::gen::container<std::string>(rc::gen::inRange(' ', '~')); };
  std::vector<TrialRecord> records;
  std::string csv = trial_log_header();
  const int count = *rc::gen::inRange(0, 4);
  for (int i = 0; i < count; ++i) {
    TrialRecord record{*rc::gen::inRange<std::int64_t>(0, 1LL << 40),
                       text(),
                       text(),
                       *rc::gen::inRange<std::size_t>(0, 100),
                       time(),
                       time(),
                       time(),
                       time(),
                       std::nullopt,
                       Seconds(1.25),
                       text()};
    csv += to_csv(record);
    records.push_back(std::move(record));
  }
  RC_ASSERT(trials_from_csv(csv, "log") == records);
  // Killed while it wrote one more.
  RC_ASSERT(trials_from_csv(csv + "17,\"abc", "log") == records);
}

TEST(TrialLog, SaysWhatIsWrong) {
  EXPECT_NE(message_of([] { (void)trials_from_csv("a,b\n1,2\n", "x.csv"); }).find("no log"),
            std::string::npos);
  const std::string bad = message_of(
      [] { (void)trials_from_csv(trial_log_header() + "1,p,default,0,fast,,,,,1,\n", "x.csv"); });
  EXPECT_NE(bad.find("x.csv, line 2"), std::string::npos) << bad;
  EXPECT_NE(bad.find("'fast'"), std::string::npos) << bad;
  EXPECT_NE(message_of([] {
              (void)trials_from_csv(trial_log_header() + "1,2\n", "x.csv");
            }).find("11 columns"),
            std::string::npos);
}

TEST(TrialLog, KeepsOneTrialToALine) {
  TrialRecord record;
  record.error = "two\nlines \"quoted\"";
  const std::string line = to_csv(record);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_EQ(trials_from_csv(trial_log_header() + line, "x")[0].error, "two lines \"quoted\"");
}

}  // namespace
}  // namespace stretto
