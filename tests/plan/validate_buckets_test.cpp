// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/validate_buckets.hpp"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace stretto {
namespace {

TEST(ValidateBuckets, MissingFilesAreSaid) {
  const auto rows = validate_buckets("no/such/directory");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].test_rows, 0);
  EXPECT_NE(rows[0].note.find("not in the directory"), std::string::npos);
}

TEST(ValidateBuckets, FindsTheQuickerBucketSizeOfPyTorch) {
  const std::string directory = STRETTO_VALIDATION_DIR;
  if (!std::filesystem::exists(directory + "/train_pytorch_ddp_bucket.csv")) {
    GTEST_SKIP() << "no measurements in " << directory;
  }
  const auto rows = validate_buckets(directory);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].calibration_rows, 2);
  EXPECT_EQ(rows[0].test_rows, 8);
  EXPECT_LE(rows[0].mean_error, 0.036);
  EXPECT_NE(rows[0].note.find("4 of 4"), std::string::npos) << rows[0].note;
}

}  // namespace
}  // namespace stretto
