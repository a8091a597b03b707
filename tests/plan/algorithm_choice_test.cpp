// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/algorithm_choice.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "stretto/simulate/collective_cost.hpp"

namespace stretto {
namespace {

const std::vector<Algorithm> kSome = {Algorithm::kRing,
                                      Algorithm::kRecursiveDoubling,
                                      Algorithm::kHalvingDoubling,
                                      Algorithm::kHierarchical};

TEST(AlgorithmTable, ChoosesByCollectiveAndSize) {
  const AlgorithmTable table{{{Collective::kAllReduce, Bytes(100), Algorithm::kRing, {}},
                              {Collective::kAllReduce, Bytes(200), Algorithm::kBruck, {}},
                              {Collective::kBroadcast, Bytes(50), Algorithm::kBinomialTree, {}}}};
  EXPECT_EQ(table.choose(Collective::kAllReduce, Bytes(0)), Algorithm::kRing);
  EXPECT_EQ(table.choose(Collective::kAllReduce, Bytes(100)), Algorithm::kRing);
  EXPECT_EQ(table.choose(Collective::kAllReduce, Bytes(101)), Algorithm::kBruck);
  EXPECT_EQ(table.choose(Collective::kAllReduce, Bytes(1 << 30)), Algorithm::kBruck);
  EXPECT_EQ(table.choose(Collective::kBroadcast, Bytes(51)), Algorithm::kBinomialTree);
  EXPECT_EQ(table.choose(Collective::kAllGather, Bytes(1)), Algorithm::kAuto);
}

TEST(AlgorithmChoice, IsTheCheapestOfThoseAllowedAtEverySize) {
  for (const char* const spec : {"8@1GB/s,50us", "6@10GB/s,1us", "2x4@a=20GB/s,2us@b=1GB/s,50us"}) {
    const Machine machine = machine_from_spec(spec);
    const Bytes most(64 << 20);
    const AlgorithmTable table = algorithm_table(machine, Collective::kAllReduce, kSome, most);
    ASSERT_GE(table.rules.size(), 2U) << spec;  // small and large differ
    EXPECT_EQ(table.rules.back().up_to, most);
    for (Bytes size(8); size <= most; size = Bytes(size.count() * 2)) {
      const Algorithm chosen = table.choose(Collective::kAllReduce, size);
      for (const Algorithm other : kSome) {
        EXPECT_LE(collective_time(machine, Collective::kAllReduce, chosen, size).count(),
                  1.03 * collective_time(machine, Collective::kAllReduce, other, size).count())
            << spec << " " << to_string(chosen) << " " << to_string(other);
      }
    }
  }
}

TEST(AlgorithmChoice, AMeasuredCurveDecides) {
  Machine machine = machine_from_spec("4@1GB/s,50us");
  machine.curves.push_back({Collective::kAllReduce,
                            Algorithm::kHalvingDoubling,
                            4,
                            {{Bytes(1), Seconds(1e-6)}, {Bytes(1 << 20), Seconds(1e-6)}}});
  const AlgorithmTable table =
      algorithm_table(machine, Collective::kAllReduce, kSome, Bytes(1 << 20));
  ASSERT_EQ(table.rules.size(), 1U);
  EXPECT_EQ(table.rules[0].algorithm, Algorithm::kHalvingDoubling);
  const std::string why = explain(machine, table, kSome);
  EXPECT_NE(why.find("halving_doubling takes 1.000 us"), std::string::npos) << why;
  EXPECT_NE(why.find("would take"), std::string::npos) << why;
}

TEST(AlgorithmChoice, WhatTheCommunicatorTakesByItselfCountsWhereItWasMeasured) {
  Machine machine = machine_from_spec("4@1GB/s,50us");
  machine.curves.push_back({Collective::kAllReduce,
                            Algorithm::kAuto,
                            4,
                            {{Bytes(1), Seconds(1e-6)}, {Bytes(1 << 20), Seconds(1e-6)}}});
  const AlgorithmTable table =
      algorithm_table(machine, Collective::kAllReduce, kSome, Bytes(1 << 20));
  ASSERT_EQ(table.rules.size(), 1U);
  EXPECT_EQ(table.rules[0].algorithm, Algorithm::kAuto);
  const std::string why = explain(machine, table, kSome);
  EXPECT_NE(why.find("(measured)"), std::string::npos) << why;
  EXPECT_NE(why.find("(by formula)"), std::string::npos) << why;
}

TEST(AlgorithmChoice, IsEmptyWhereThereIsNothingToChoose) {
  EXPECT_TRUE(
      algorithm_table(machine_from_spec("1@1GB/s,1us"), Collective::kAllReduce, kSome, Bytes(1000))
          .rules.empty());
  EXPECT_TRUE(algorithm_table(machine_from_spec("4@1GB/s,1us"),
                              Collective::kAllReduce,
                              std::vector<Algorithm>{Algorithm::kBruck},
                              Bytes(1000))
                  .rules.empty());
}

TEST(AlgorithmChoice, TableTimeIsWhatTheChosenOnesTake) {
  const Machine machine = machine_from_spec("8@1GB/s,50us");
  const Bytes most(16 << 20);
  const AlgorithmTable table = algorithm_table(machine, Collective::kAllReduce, kSome, most);
  const ExchangeTime time = table_time(machine, Collective::kAllReduce, table, most);
  for (Bytes size(1024); size <= most; size = Bytes(size.count() * 4)) {
    const double chosen =
        collective_time(
            machine, Collective::kAllReduce, table.choose(Collective::kAllReduce, size), size)
            .count();
    EXPECT_NEAR(time(size).count(), chosen, 0.01 * chosen);
  }
}

}  // namespace
}  // namespace stretto
