// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/plan_agreement.hpp"

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "comm/world.hpp"
#include "stretto/base/error.hpp"

namespace stretto::testing {
namespace {

/// What each rank throws when rank r passes `values[r]` for settings named a, b, c...
std::vector<std::optional<Error>> agree(const std::vector<std::vector<std::string>>& values) {
  std::vector<std::optional<Error>> thrown(values.size());
  std::mutex mutex;
  run_threads(static_cast<int>(values.size()), test_options(), [&](Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    std::vector<NamedValue> mine;
    for (const std::string& value : values[rank]) {
      mine.push_back({std::string(1, static_cast<char>('a' + mine.size())), value});
    }
    try {
      agree_on_settings(communicator, mine);
    } catch (const Error& error) {
      const std::scoped_lock lock(mutex);
      thrown[rank] = error;
    }
    // Nobody is left in the agreement.
    communicator.barrier().wait();
  });
  return thrown;
}

TEST(Settings, TheFirstThatDiffersIsNamedOnEveryRank) {
  const auto thrown =
      agree({{"1", "", "x"}, {"1", "", "x"}, {"1", "two words", "y"}, {"2", "", "x"}});
  for (const std::optional<Error>& error : thrown) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kMismatch);
    EXPECT_EQ(error->detail().message, "b of rank 2 differs from that of rank 0");
    EXPECT_EQ(error->detail().where, "b, rank 2");
    EXPECT_EQ(error->detail().found, "two words");
    EXPECT_EQ(error->detail().expected, "none");
  }
}

RC_GTEST_PROP(Settings, ThrownIfAndOnlyIfAnyDiffers, ()) {
  const auto ranks = *rc::gen::inRange<std::size_t>(1, 4);
  const auto value = rc::gen::element<std::string>("", "1", "11");
  const auto values = *rc::gen::container<std::vector<std::vector<std::string>>>(
      ranks, rc::gen::container<std::vector<std::string>>(2, value));
  std::optional<std::string> expected;
  for (std::size_t rank = 0; rank < ranks && !expected; ++rank) {
    for (const std::size_t setting : {0U, 1U}) {
      if (!expected && values[rank][setting] != values[0][setting]) {
        expected = std::string(1, static_cast<char>('a' + setting)) + " of rank " +
                   std::to_string(rank) + " differs from that of rank 0";
      }
    }
  }
  for (const std::optional<Error>& error : agree(values)) {
    RC_ASSERT(error.has_value() == expected.has_value());
    if (expected) {  // RC_ASSERT evaluates both sides of an ||
      RC_ASSERT(error->detail().message == *expected);
    }
  }
}

}  // namespace
}  // namespace stretto::testing
