// SPDX-License-Identifier: Apache-2.0
#include "stretto/compress/residual_state.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

ResidualState state_of(std::uint32_t rank, std::uint32_t world) {
  ResidualState state;
  state.world = world;
  state.rank = rank;
  state.step = 7;
  state.plan_hash = 42;
  const auto value = static_cast<float>(rank + 1);
  state.tensors.push_back({"a", {value, -value, 0.5F}, {}, {}, {}});
  state.tensors.push_back({"b", {value}, {10.0F * value}, {3.0F * value}, {{0, 1, 0.9}}});
  state.tensors.push_back({"", {}, {}, {}, {}});
  state.directions = {{1.0F, 2.0F}, {}};
  return state;
}

std::vector<ResidualState> job_of(std::uint32_t world) {
  std::vector<ResidualState> states;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    states.push_back(state_of(rank, world));
  }
  return states;
}

TEST(ResidualStateBytes, AreReadAsWritten) {
  const ResidualState state = state_of(2, 4);
  EXPECT_EQ(residual_state_from_bytes(to_bytes(state), "x"), state);
}

TEST(ResidualStateBytes, DamageIsSeenWhereverItIs) {
  const std::vector<std::byte> good = to_bytes(state_of(2, 4));
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{0x10};
    EXPECT_THROW((void)residual_state_from_bytes(bad, "x"), Error) << i;
    bad.assign(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(i));
    try {
      (void)residual_state_from_bytes(bad, "file.sres");
      ADD_FAILURE() << "cut at " << i;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kParse);
      EXPECT_EQ(error.detail().where, "file.sres");
    }
  }
}

TEST(ResidualStateRemap, AsManyRanksGetTheirOwnAsItIs) {
  const std::vector<ResidualState> job = job_of(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(remapped(job, rank, 3, true), job[rank]);
    EXPECT_EQ(remapped({&job[rank], 1}, rank, 3, true), job[rank]);
  }
}

TEST(ResidualStateRemap, TheMeanOrSumOfWhatIsNotSentStays) {
  for (const std::uint32_t older : {1U, 2U, 4U, 5U}) {
    for (const std::uint32_t world : {1U, 2U, 3U, 6U}) {
      for (const bool mean : {false, true}) {
        const std::vector<ResidualState> job = job_of(older);
        double before = 0;
        double after = 0;
        double velocity_before = 0;
        double velocity_after = 0;
        for (const ResidualState& state : job) {
          before += static_cast<double>(state.tensors[1].own[0]) +
                    static_cast<double>(state.tensors[1].sums[0]);
          velocity_before += static_cast<double>(state.tensors[1].velocity[0]);
        }
        for (std::uint32_t rank = 0; rank < world; ++rank) {
          const ResidualState got = remapped(job, rank, world, mean);
          EXPECT_EQ(got.step, 7U);
          after += static_cast<double>(got.tensors[1].own[0]);
          after += got.tensors[1].sums.empty() ? 0.0 : static_cast<double>(got.tensors[1].sums[0]);
          velocity_after += got.tensors[1].velocity.empty()
                                ? 0.0
                                : static_cast<double>(got.tensors[1].velocity[0]);
        }
        EXPECT_NEAR(mean ? after / world : after, mean ? before / older : before, 1e-5)
            << older << " to " << world;
        EXPECT_NEAR(mean ? velocity_after / world : velocity_after,
                    mean ? velocity_before / older : velocity_before,
                    1e-5);
      }
    }
  }
}

TEST(ResidualStateRemap, MissingTwiceAndStrangeStatesAreNamed) {
  const auto words = [](const std::vector<ResidualState>& states, std::uint32_t world) {
    try {
      (void)remapped(states, 0, world, true);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  std::vector<ResidualState> job = job_of(4);
  job.erase(job.begin() + 2);
  EXPECT_NE(words(job, 2).find("rank 2"), std::string::npos) << words(job, 2);
  EXPECT_EQ(words(job, 3), "nothing") << "rank 0 of 3 needs those of ranks 0 and 3";
  job = job_of(2);
  job.push_back(job[0]);
  EXPECT_NE(words(job, 3).find("twice"), std::string::npos) << words(job, 3);
  job = job_of(2);
  job[1].step = 8;
  EXPECT_NE(words(job, 2).find("step 8"), std::string::npos) << words(job, 2);
  job = job_of(2);
  job[1].tensors[0].name = "other";
  EXPECT_NE(words(job, 2), "nothing");
  EXPECT_NE(words({}, 2), "nothing");
}

}  // namespace
}  // namespace stretto
