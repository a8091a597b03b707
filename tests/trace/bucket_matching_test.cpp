// SPDX-License-Identifier: Apache-2.0
// Buckets are the same collective on every rank, also where ranks do other things beside.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "analyze/trace_files.hpp"
#include "stretto/trace/trace.hpp"
#include "trace/trace_text.hpp"

namespace stretto {
namespace {

using testing::KinetoText;
using testing::read_ranks;

/// A collective of a rank; its size in bytes names it.
struct Called {
  std::string name;  // as a kernel has it
  std::int64_t bytes;
  std::string group;
  std::int64_t sequence = -1;
  std::string members = "[0, 1]";
};

KinetoText rank_of(int rank, const std::vector<Called>& calls) {
  KinetoText text;
  text.member(R"("distributedInfo": {"backend": "nccl", "rank": )" + std::to_string(rank) +
              R"(, "world_size": 2})");
  text.annotation("ProfilerStep#1", 0, 50);
  std::int64_t at = 100;
  int id = 1;
  for (const Called& call : calls) {
    std::string more;
    if (!call.group.empty()) {
      more = R"(, "Collective name": "x", "In msg nelems": )" + std::to_string(call.bytes) +
             R"(, "Out msg nelems": 0, "dtype": "Byte", "Group size": 2, "Process Group Name": ")" +
             call.group + R"(", "Process Group Ranks": ")" + call.members + '"' +
             (call.sequence < 0 ? "" : R"(, "Seq": )" + std::to_string(call.sequence));
    }
    text.launch(id, 1, 1, id);
    text.kernel("ncclDevKernel_" + call.name, at, 10, 20, id++, more);
    at += 20;
  }
  return text;
}

/// Of each rank's collectives, in order, the bucket.
std::map<std::uint32_t, std::vector<std::uint32_t>> buckets_of(const Trace& trace) {
  std::map<std::uint32_t, std::vector<std::pair<std::int64_t, std::uint32_t>>> ordered;
  for (const Record& record : trace.timeline.records) {
    if (record.kind == RecordKind::kCommunication) {
      ordered[record.rank].emplace_back(record.begin_ns, record.bucket);
    }
  }
  std::map<std::uint32_t, std::vector<std::uint32_t>> buckets;
  for (auto& [rank, list] : ordered) {
    std::sort(list.begin(), list.end());
    for (const auto& [begin, bucket] : list) {
      buckets[rank].push_back(bucket);
    }
  }
  return buckets;
}

bool says(const Trace& trace, std::string_view part) {
  return std::any_of(trace.notes.begin(), trace.notes.end(), [&](const std::string& note) {
    return note.find(part) != std::string::npos;
  });
}

using Numbers = std::vector<std::uint32_t>;

TEST(BucketMatching, BySequenceWhereOneRankHasMore) {
  const Trace trace = read_ranks(
      {rank_of(0, {{"AllReduce", 1, "0", 10}, {"AllReduce", 3, "0", 12}}),
       rank_of(1,
               {{"AllReduce", 1, "0", 10}, {"AllReduce", 2, "0", 11}, {"AllReduce", 3, "0", 12}})});
  const auto buckets = buckets_of(trace);
  EXPECT_EQ(buckets.at(0), (Numbers{0, 1}));
  EXPECT_EQ(buckets.at(1), (Numbers{0, 2, 1}));
  EXPECT_TRUE(says(trace, "the collectives of 1 step are not the same on all ranks"));
  EXPECT_TRUE(says(trace, "1 are not on all ranks of their group"));
  // What belongs to a bucket moves with it.
  for (const Record& record : trace.timeline.records) {
    if (record.kind == RecordKind::kLaunched && record.bucket == 1) {
      EXPECT_EQ(record.bytes, 3) << "rank " << record.rank;
    }
  }
}

TEST(BucketMatching, ByGroupWhereTheOrderDiffers) {
  const Trace trace = read_ranks(
      {rank_of(0, {{"AllReduce", 1, "a"}, {"AllGather", 2, "b"}, {"AllReduce", 3, "a"}}),
       rank_of(1, {{"AllGather", 2, "b"}, {"AllReduce", 1, "a"}, {"AllReduce", 3, "a"}})});
  EXPECT_EQ(buckets_of(trace).at(1), (Numbers{1, 0, 2}));
  EXPECT_TRUE(says(trace, "0 are not on all ranks of their group"));
}

TEST(BucketMatching, SameKindsInAnotherOrderAreToldByTheirNumbers) {
  const Trace trace =
      read_ranks({rank_of(0, {{"AllReduce", 1, "a", 7}, {"AllReduce", 2, "a", 8}}),
                  rank_of(1, {{"AllReduce", 2, "a", 8}, {"AllReduce", 1, "a", 7}})});
  EXPECT_EQ(buckets_of(trace).at(1), (Numbers{1, 0}));
}

/// Ranks of two tensor-parallel groups do the same in each.
TEST(BucketMatching, GroupsThatNoOtherRankIsInStandForEachOther) {
  const Trace trace =
      read_ranks({rank_of(0, {{"AllReduce", 1, "tp", 3, "[0, 2]"}, {"AllReduce", 2, "dp", 5}}),
                  rank_of(1, {{"AllReduce", 1, "tp", 4, "[1, 3]"}, {"AllReduce", 2, "dp", 5}})});
  EXPECT_EQ(buckets_of(trace).at(1), (Numbers{0, 1}));
  EXPECT_FALSE(says(trace, "not the same on all ranks"));
}

TEST(BucketMatching, WithoutMetadataByOrderAmongTheirKind) {
  const Trace trace =
      read_ranks({rank_of(0, {{"AllReduce", 0, ""}, {"AllReduce", 0, ""}}),
                  rank_of(1, {{"AllGather", 0, ""}, {"AllReduce", 0, ""}, {"AllReduce", 0, ""}})});
  EXPECT_EQ(buckets_of(trace).at(1), (Numbers{2, 0, 1}));
  EXPECT_TRUE(says(trace, "1 are not on all ranks of their group"));
}

}  // namespace
}  // namespace stretto
