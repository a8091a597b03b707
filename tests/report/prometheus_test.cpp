// SPDX-License-Identifier: Apache-2.0
#include "stretto/report/prometheus.hpp"

#include <string>

#include <gtest/gtest.h>

namespace stretto {
namespace {

Report report_of(Summary summary, std::string name) {
  Report report;
  report.summaries.push_back({std::move(name), std::move(summary)});
  return report;
}

Summary one_rank() {
  Summary summary;
  summary.communication = Seconds(0.25);
  summary.per_rank.push_back({3, Seconds(2.0), Seconds(1.5), Seconds(0.25), Seconds(0.125)});
  BucketSummary bucket;
  bucket.collective = Collective::kAllReduce;
  bucket.bytes = Bytes(4096);
  bucket.exposed_share = Seconds(0.125);
  summary.buckets.push_back(bucket);
  return summary;
}

TEST(Prometheus, OneFamilyPerMetricInBaseUnits) {
  const std::string text = prometheus_text(report_of(one_rank(), "run"));
  EXPECT_NE(text.find("# HELP stretto_step_seconds Length of a training step, median over steps\n"
                      "# TYPE stretto_step_seconds gauge\n"
                      "stretto_step_seconds{run=\"run\",rank=\"3\"} 2\n"),
            std::string::npos);
  EXPECT_NE(text.find("\nstretto_exposed_comm_seconds{run=\"run\",rank=\"3\"} 0.125\n"),
            std::string::npos);
  EXPECT_NE(text.find("\nstretto_bucket_bytes{run=\"run\",bucket=\"0\",op=\"all_reduce\"} 4096\n"),
            std::string::npos);
  EXPECT_EQ(text.find("stretto_bound_seconds"), std::string::npos);
  EXPECT_TRUE(text.ends_with('\n'));
}

TEST(Prometheus, WithoutCommunicationNothingIsExposedAndNothingSaysZero) {
  Summary summary = one_rank();
  summary.communication = {};
  EXPECT_EQ(prometheus_text(report_of(summary, "r")).find("stretto_exposed_comm_seconds"),
            std::string::npos);
}

TEST(Prometheus, HostileNamesStayInsideTheirLabel) {
  const std::string text = prometheus_text(report_of(one_rank(), "a\"} 1\nfake{x=\"\\"));
  EXPECT_NE(text.find(R"(run="a\"} 1\nfake{x=\"\\",rank)"), std::string::npos);
  EXPECT_EQ(text.find("\nfake"), std::string::npos);
}

}  // namespace
}  // namespace stretto
