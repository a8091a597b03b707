// SPDX-License-Identifier: Apache-2.0
// What hosts and versions of ranks say.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "analyze/trace_files.hpp"
#include "stretto/analyze/explain.hpp"

namespace stretto {
namespace {

using testing::KinetoText;

/// A rank of four, with an all_reduce in the group "tp" that has one of `pairs`, and a small one in
/// the group of the others.
KinetoText rank_of(int rank, const std::string& host, int tp, const std::string& nccl) {
  KinetoText trace;
  trace.member(R"("distributedInfo": {"backend": "nccl", "rank": )" + std::to_string(rank) +
               R"(, "world_size": 4, "nccl_version": ")" + nccl + R"("})");
  trace.member(R"("host_name": ")" + host + R"(")");
  trace.member(R"("cuda_runtime_version": "12.8.93")").member(R"("hip_runtime_version": "N/A")");
  trace.member(R"("cuda_runtime_version": 12040)");
  trace.kernel("gemm", 0, 50, 7, 1000);
  const auto all_reduce = [&](int at, const std::string& group, std::int64_t elements) {
    trace.kernel(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
        at,
        100,
        20,
        at,
        R"(, "Collective name": "allreduce", "In msg nelems": )" + std::to_string(elements) +
            R"(, "Out msg nelems": )" + std::to_string(elements) +
            R"(, "dtype": "Float", "Group size": 2, "Process Group Name": ")" + group + R"(")");
  };
  all_reduce(100, "tp" + std::to_string(tp), 1'000'000);
  all_reduce(300, "dp" + std::to_string(rank - tp), 1'000);
  return trace;
}

const Diagnosis* find(const Explanation& explanation, const std::string& id) {
  for (const Diagnosis& diagnosis : explanation.diagnoses) {
    if (diagnosis.id == id) {
      return &diagnosis;
    }
  }
  return nullptr;
}

TEST(Setups, AreReadFromATrace) {
  const Trace trace = testing::read_ranks({rank_of(0, "a", 0, "2.27.5")});
  ASSERT_EQ(trace.timeline.setups.size(), 1U);
  EXPECT_EQ(trace.timeline.setups[0].host, "a");
  const std::vector<std::pair<std::string, std::string>> versions = {
      {"cuda_runtime_version", "12.8.93 / 12040"}, {"nccl_version", "2.27.5"}};
  EXPECT_EQ(trace.timeline.setups[0].versions, versions);
  const Timeline again = timeline_from_json(to_json(trace.timeline), "t");
  ASSERT_EQ(again.setups.size(), 1U);
  EXPECT_EQ(again.setups[0].versions, versions);
}

TEST(Setups, VersionsThatDifferAreNamedWithTheirRanks) {
  const auto explained = [](const std::string& other) {
    return explain(testing::read_ranks({rank_of(0, "a", 0, "2.27.5"),
                                        rank_of(1, "a", 0, "2.27.5"),
                                        rank_of(2, "b", 2, other),
                                        rank_of(3, "b", 2, "2.27.5")})
                       .timeline);
  };
  const Explanation mixed = explained("2.26.2");
  const Diagnosis* versions = find(mixed, "versions");
  ASSERT_NE(versions, nullptr);
  EXPECT_EQ(versions->evidence, "nccl_version 2.26.2 on rank 2, 2.27.5 on ranks 0-1, 3");
  EXPECT_EQ(find(explained("2.27.5"), "versions"), nullptr);
}

TEST(Setups, TheBusiestGroupsShouldStayOnAHost) {
  const auto explained = [](const std::vector<std::string>& hosts) {
    std::vector<KinetoText> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      ranks.push_back(rank_of(rank, hosts[static_cast<std::size_t>(rank)], rank / 2 * 2, "2.27.5"));
    }
    return explain(testing::read_ranks(ranks).timeline);
  };
  const Explanation apart = explained({"a", "b", "a", "b"});
  const Diagnosis* order = find(apart, "rank_order");
  ASSERT_NE(order, nullptr);
  EXPECT_NE(order->evidence.find("rank 0 on 'a', rank 1 on 'b'"), std::string::npos)
      << order->evidence;
  EXPECT_EQ(find(explained({"a", "a", "b", "b"}), "rank_order"), nullptr)
      << "only the small ones leave a host";
  EXPECT_EQ(find(explained({"a", "b", "c", "d"}), "rank_order"), nullptr) << "none fits on a host";
}

}  // namespace
}  // namespace stretto
