// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/data/machine.hpp"

namespace stretto {
namespace {

TEST(MachinePreset, ANodeAndSeveral) {
  const Machine one = machine_from_preset("dgx-h100");
  ASSERT_EQ(one.levels.size(), 2U);  // its network is known, though nothing crosses it
  EXPECT_EQ(one.levels[1].group_size, 1);
  EXPECT_EQ(one.ranks(), 8);
  EXPECT_EQ(one.name, "dgx-h100");
  const Machine four = machine_from_preset("dgx-h100x4");
  ASSERT_EQ(four.levels.size(), 2U);
  EXPECT_EQ(four.ranks(), 32);
  EXPECT_EQ(four.levels[0].group_size, 8);
  EXPECT_EQ(four.levels[1].group_size, 4);
  EXPECT_DOUBLE_EQ(four.levels[1].bandwidth.value(), 400e9);
  EXPECT_GT(four.levels[0].in_switch_efficiency, 0.0);
  EXPECT_EQ(machine_from_preset("dgx-h100x1").ranks(), 8);
}

TEST(MachinePreset, FlatNetworks) {
  EXPECT_EQ(machine_from_preset("10gbe").ranks(), 8);
  const Machine sixteen = machine_from_preset("10gbex16");
  ASSERT_EQ(sixteen.levels.size(), 1U);
  EXPECT_EQ(sixteen.ranks(), 16);
  // Less than the line: headers.
  EXPECT_LT(sixteen.levels[0].bandwidth.value(), 1.25e9);
  EXPECT_GT(sixteen.levels[0].bandwidth.value(), 1.1e9);
}

TEST(MachinePreset, EachIsAValidMachineThatNamesItsSource) {
  const auto names = preset_names();
  for (const std::string_view wanted : {"dgx-a100",
                                        "dgx-h100",
                                        "dgx-b200",
                                        "v100-pcie",
                                        "ascend-910b",
                                        "1gbe",
                                        "10gbe",
                                        "25gbe",
                                        "100gbe",
                                        "ib-hdr",
                                        "ib-ndr"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), wanted), names.end()) << wanted;
  }
  for (const std::string& name : names) {
    const Machine machine = machine_from_preset(name + "x3");
    EXPECT_EQ(machine.ranks() % 3, 0) << name;
    EXPECT_FALSE(machine.source.empty()) << name;
    EXPECT_EQ(machine.basis, Basis::kAssumed);
    EXPECT_EQ(to_json(machine_from_json(to_json(machine), "again")), to_json(machine)) << name;
  }
}

TEST(MachinePreset, ErrorsNameTheNearestAndAll) {
  try {
    (void)machine_from_preset("dgx-h10x4");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.detail().found, "'dgx-h10x4'");
    EXPECT_NE(error.detail().help.find("Did you mean 'dgx-h100'"), std::string::npos)
        << error.detail().help;
    EXPECT_NE(error.detail().help.find("ib-ndr"), std::string::npos);
  }
  for (const std::string_view wrong :
       {"dgx-h100x0", "dgx-h100x999999999", "10gbex99999999999", "dgx-h100x", "x4", "", "dgx"}) {
    EXPECT_THROW((void)machine_from_preset(wrong), Error) << wrong;
  }
}

TEST(MachineText, IsASpecOrAPreset) {
  EXPECT_EQ(machine_from_text("2x4@20GB/s,2us@1Gbit/s,50us").ranks(), 8);
  EXPECT_EQ(machine_from_text("dgx-a100x2").ranks(), 16);
  EXPECT_EQ(machine_from_text("1gbex2").ranks(), 2);
  const auto message = [](std::string_view text) {
    try {
      (void)machine_from_text(text);
    } catch (const Error& error) {
      return error.detail().message;
    }
    return std::string();
  };
  EXPECT_EQ(message("4"), "no bandwidth and latency given");
  EXPECT_EQ(message("2x4"), "no bandwidth and latency given");
  EXPECT_EQ(message("dgx-a200"), "there is no such machine preset");
}

}  // namespace
}  // namespace stretto
