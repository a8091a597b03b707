// SPDX-License-Identifier: Apache-2.0
// The recording that is part of the program (examples/traces). The numbers are those of a plain
// program in decimal arithmetic (shared/traces/reference_overlap.py); none is Stretto's own.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/analyze/devices.hpp"
#include "stretto/analyze/explain.hpp"
#include "stretto/trace/trace.hpp"

namespace stretto {
namespace {

Trace read_examples() {
  return read_traces(find_traces({STRETTO_EXAMPLES_DIR}));
}

TEST(Examples, TwoRanksOfPyTorchOverGloo) {
  const Trace trace = read_examples();
  EXPECT_TRUE(trace.notes.empty());
  EXPECT_EQ(trace.timeline.world_size, 2U);
  ASSERT_EQ(trace.files.size(), 2U);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const TraceFile& file = trace.files[rank];
    EXPECT_EQ(file.rank, rank);
    EXPECT_EQ(file.rank_from, "metadata");
    EXPECT_EQ(file.backend, "gloo");
    EXPECT_EQ(file.steps_from, "ProfilerStep");
    EXPECT_EQ(file.events, 1579U);
    EXPECT_EQ(file.lost, 0U);
    EXPECT_TRUE(file.notes.empty());
  }
}

TEST(Examples, ExposedIsGlooLessOperators) {
  const Trace trace = read_examples();
  EXPECT_TRUE(device_totals(trace.timeline).empty());
  const std::vector<HostTotals> hosts = host_totals(trace.timeline);
  ASSERT_EQ(hosts.size(), 2U);
  EXPECT_EQ(hosts[0].communication_count, 8);
  EXPECT_EQ(hosts[0].communication_ns, 34845746);
  EXPECT_EQ(hosts[0].compute_ns, 61101136);
  EXPECT_EQ(hosts[0].exposed_ns, 30515819);
  EXPECT_EQ(hosts[1].communication_count, 8);
  EXPECT_EQ(hosts[1].communication_ns, 49356006);
  EXPECT_EQ(hosts[1].compute_ns, 81847808);
  EXPECT_EQ(hosts[1].exposed_ns, 29920622);
}

TEST(Examples, BucketsHaveSizesAndAreMatched) {
  const Explanation explanation = explain(read_examples().timeline);
  EXPECT_TRUE(explanation.host_only);
  EXPECT_TRUE(explanation.steps_marked);
  EXPECT_EQ(explanation.collectives.matched, 8);
  EXPECT_EQ(explanation.collectives.unmatched, 0);
  ASSERT_TRUE(explanation.summary);
  EXPECT_EQ(explanation.summary->steps, 4U);
  const std::vector<BucketSummary>& buckets = explanation.summary->buckets;
  ASSERT_EQ(buckets.size(), 2U);
  // PyTorch's rules: the last layers until 1 MiB, then all the others.
  EXPECT_EQ(buckets[0].bytes, Bytes(4 * (512 * 10 + 10 + 512 * 512 + 512)));
  EXPECT_EQ(buckets[1].bytes, Bytes(4 * (2 * (512 * 512 + 512) + 784 * 512 + 512)));
  for (const BucketSummary& bucket : buckets) {
    EXPECT_EQ(bucket.collective, Collective::kAllReduce);
    EXPECT_LE(bucket.ready, bucket.started);
  }
  EXPECT_GT(explanation.summary->exposed, Seconds(0));
}

/// Two ranks with fully_shard: which module each collective is of, and that its scatters are such,
/// stand in no row of gloo's.
TEST(Examples, Fsdp2NamesItsModules) {
  const Trace trace = read_traces(find_traces({STRETTO_EXAMPLES_DIR "/../fsdp2"}));
  EXPECT_EQ(trace.timeline.world_size, 2U);
  const Explanation explanation = explain(trace.timeline);
  ASSERT_TRUE(explanation.summary);
  EXPECT_EQ(explanation.summary->steps, 3U);
  // Each layer is gathered for forward and backward, the root's head once; each is scattered once.
  constexpr std::int64_t kLayer = 4 * (256 * 256 + 256);
  constexpr std::int64_t kHead = 4 * (256 * 10 + 10);
  std::map<std::pair<std::string, Collective>, std::pair<double, std::int64_t>> modules;
  for (const ModuleSummary& module : explanation.modules) {
    modules[{module.module, module.collective}] = {module.calls, module.bytes.count()};
  }
  std::map<std::pair<std::string, Collective>, std::pair<double, std::int64_t>> expected;
  for (const char* layer : {"layers.0", "layers.1", "layers.2"}) {
    expected[{layer, Collective::kAllGather}] = {2.0, 2 * kLayer};
    expected[{layer, Collective::kReduceScatter}] = {1.0, kLayer};
  }
  expected[{"(root)", Collective::kAllGather}] = {1.0, kHead};
  expected[{"(root)", Collective::kReduceScatter}] = {1.0, kHead};
  EXPECT_EQ(modules, expected);
  EXPECT_EQ(explanation.collectives.matched, 3 * (7 + 4));
  EXPECT_EQ(explanation.collectives.unmatched, 0);
}

}  // namespace
}  // namespace stretto
