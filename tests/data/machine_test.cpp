// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/machine.hpp"

#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "data/generators.hpp"
#include "stretto/base/error.hpp"

namespace stretto {
namespace {

TEST(MachineSpec, OneLevel) {
  const Machine machine = machine_from_spec("4@5Gbit/s,50us");
  EXPECT_EQ(machine.name, "4@5Gbit/s,50us");
  ASSERT_EQ(machine.levels.size(), 1U);
  EXPECT_EQ(machine.ranks(), 4);
  EXPECT_EQ(machine.levels[0].group_size, 4);
  EXPECT_DOUBLE_EQ(machine.levels[0].bandwidth.value(), 625e6);
  EXPECT_DOUBLE_EQ(machine.levels[0].latency.count(), 50e-6);
}

TEST(MachineSpec, CountsOutermostFirstLevelsInnermostFirst) {
  const Machine machine = machine_from_spec("2x4@intra=20GB/s,2us@inter=1Gbit/s,50us");
  ASSERT_EQ(machine.levels.size(), 2U);
  EXPECT_EQ(machine.ranks(), 8);
  EXPECT_EQ(machine.levels[0].name, "intra");
  EXPECT_EQ(machine.levels[0].group_size, 4);
  EXPECT_DOUBLE_EQ(machine.levels[0].bandwidth.value(), 20e9);
  EXPECT_EQ(machine.levels[1].name, "inter");
  EXPECT_EQ(machine.levels[1].group_size, 2);
  EXPECT_DOUBLE_EQ(machine.levels[1].latency.count(), 50e-6);
}

TEST(MachineSpec, ErrorsNameThePartAndShowTheForm) {
  struct Case {
    std::string_view spec;
    std::string_view found;
  };
  for (const auto& [spec, found] : {
           Case{"", "''"},
           Case{"4", "'4'"},
           Case{"4@", "''"},
           Case{"4@5Gbit/s", "'5Gbit/s'"},
           Case{"4@5Gbit/s,50", "'50'"},
           Case{"4@5Gb,50us", "'5Gb'"},
           Case{"4@5Gbit/s,50us,1", "'5Gbit/s,50us,1'"},
           Case{"0@5Gbit/s,50us", "'0'"},
           Case{"-4@5Gbit/s,50us", "'-4'"},
           Case{"4 @5Gbit/s,50us", "'4 '"},
           Case{"2x@5Gbit/s,50us@5Gbit/s,50us", "''"},
           Case{"2x4@5Gbit/s,50us", "2 and 1"},
           Case{"4@5Gbit/s,50us@5Gbit/s,50us", "1 and 2"},
           Case{"65536x65536@1GB/s,1us@1GB/s,1us", "'65536'"},
       }) {
    try {
      (void)machine_from_spec(spec);
      ADD_FAILURE() << "accepted " << spec;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.detail().found, found) << spec;
      EXPECT_NE(error.detail().help.find("4@5Gbit/s,50us"), std::string::npos);
    }
  }
}

TEST(MachineCodecs, AreReadOnceEachAndNotAtRateZero) {
  const auto with = [](const std::string& codecs) {
    return R"({"schema": "stretto.machine/1", "name": "m", "levels": [{"name": "a",
      "group_size": 2, "latency_s": 1e-5, "bandwidth_bytes_per_s": 1e9}], "codecs": [)" +
           codecs + "]}";
  };
  const std::string int8 =
      R"({"codec": "int8", "encode_bytes_per_s": 8e9, "decode_bytes_per_s": 9e9, "ratio": 3.97,
      "error_ratio": 0.007})";
  const Machine machine = machine_from_json(with(int8), "m.json");
  ASSERT_EQ(machine.codecs.size(), 1U);
  EXPECT_EQ(machine.codecs[0].codec, parse_codec("int8"));
  EXPECT_DOUBLE_EQ(machine.codecs[0].encode.value(), 8e9);
  EXPECT_DOUBLE_EQ(machine.codecs[0].ratio, 3.97);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = int8;
    return with(text.replace(text.find(from), from.size(), to));
  };
  for (const std::string& wrong : {with(int8 + "," + int8),
                                   changed("int8", "none"),
                                   changed("int8", "int9"),
                                   changed("8e9", "0"),
                                   changed("9e9", "0"),
                                   changed("3.97", "0"),
                                   changed("3.97", "-1"),
                                   changed("\"ratio\"", "\"rate\"")}) {
    EXPECT_THROW((void)machine_from_json(wrong, "m.json"), Error) << wrong;
  }
}

TEST(Machine, MessagesCrossTheOutermostLevelOnWhichRanksDiffer) {
  const Machine machine = machine_from_spec("2x3x4@a=1GB/s,1us@b=1GB/s,1us@c=1GB/s,1us");
  EXPECT_EQ(machine.level_between(5, 5), -1);
  EXPECT_EQ(machine.level_between(0, 3), 0);
  EXPECT_EQ(machine.level_between(3, 4), 1);
  EXPECT_EQ(machine.level_between(0, 11), 1);
  EXPECT_EQ(machine.level_between(11, 12), 2);
  EXPECT_EQ(machine.level_between(0, 12), 2);
}

RC_GTEST_PROP(Machine, LevelBetweenIsSymmetricAndCountsPeers, ()) {
  const Machine machine = testing::any_machine();
  const int rank = *rc::gen::inRange(0, machine.ranks());
  std::vector<int> peers(machine.levels.size());
  for (int other = 0; other < machine.ranks(); ++other) {
    const int level = machine.level_between(rank, other);
    RC_ASSERT(level == machine.level_between(other, rank));
    RC_ASSERT((level == -1) == (rank == other));
    if (level >= 0) {
      ++peers.at(static_cast<std::size_t>(level));
    }
  }
  int inside = 1;
  for (std::size_t l = 0; l < machine.levels.size(); ++l) {
    RC_ASSERT(peers[l] == (machine.levels[l].group_size - 1) * inside);
    inside *= machine.levels[l].group_size;
  }
}

}  // namespace
}  // namespace stretto
