// SPDX-License-Identifier: Apache-2.0
#include "stretto/topology/topology.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/topology/nccl_xml.hpp"
#include "stretto/topology/rank_files.hpp"
#include "stretto/topology/toml.hpp"
#include "topology/files.hpp"
#include "workload/ranks.hpp"

namespace stretto {
namespace {

constexpr const char* kTwoHosts = R"(hosts = ["a", "b"]
devices = 4
sockets = 2
inside = { bandwidth = "100GB/s", latency = "2us" }
network = { bandwidth = "10GB/s", latency = "20us" }
)";

Error parse_failure(const std::string& text) {
  return error_of([&] { (void)topology_from_toml(text, "t.toml"); });
}

TEST(TopologyToml, IsAMachineOfHostsAndDevices) {
  const Topology topology = topology_from_toml(kTwoHosts, "t.toml");
  ASSERT_EQ(topology.hosts.size(), 2U);
  EXPECT_EQ(topology.hosts[1].name, "b");
  EXPECT_EQ(topology.hosts[1].places[2].socket, 1);
  EXPECT_EQ(topology.host_of(3), 0);
  EXPECT_EQ(topology.host_of(4), 1);
  const Machine machine = machine_of(topology);
  ASSERT_EQ(machine.levels.size(), 2U);
  EXPECT_EQ(machine.levels[0].group_size, 4);
  EXPECT_EQ(machine.levels[0].bandwidth, BytesPerSecond(100e9));
  EXPECT_EQ(machine.levels[1].group_size, 2);
  EXPECT_DOUBLE_EQ(machine.levels[1].latency.count(), 20e-6);
  EXPECT_EQ(machine.basis, Basis::kAssumed);
}

TEST(TopologyToml, WithSocketLinksHasALevelMore) {
  const Topology topology =
      topology_from_toml(corpus_file("topology_toml/cluster.txt"), "cluster.toml");
  const Machine machine = machine_of(topology);
  ASSERT_EQ(machine.levels.size(), 3U);
  EXPECT_EQ(machine.ranks(), 32);
  EXPECT_EQ(machine.levels[0].name, "socket");
  EXPECT_EQ(machine.levels[1].bandwidth, BytesPerSecond(40e9));
  EXPECT_EQ(topology.place_of_rank()[1], 8);
  const std::string drawn = draw(topology);
  EXPECT_NE(drawn.find("rank 28  device 7"), std::string::npos) << drawn;
  EXPECT_EQ(draw(topology, false).find("rank"), std::string::npos);
}

TEST(TopologyToml, ErrorsSayLineAndColumnAndWhatWasMeant) {
  const std::string text = kTwoHosts;
  EXPECT_EQ(parse_failure(text + "devics = 3\n").detail().where, "t.toml:6:1");
  EXPECT_NE(parse_failure(text + "socktes = 3\n").detail().help.find("'sockets'"),
            std::string::npos);
  EXPECT_EQ(parse_failure("hosts = 2\ndevices = 0\n").detail().where, "t.toml:2:11");
  EXPECT_EQ(parse_failure("hosts = [").code(), ErrorCode::kParse);
  EXPECT_NE(parse_failure("devices = 2\n").detail().message.find("'hosts'"), std::string::npos);
  EXPECT_NE(parse_failure("hosts = 2\ndevices = 2\ninside = { bandwidth = \"fast\", latency = "
                          "\"1us\" }\n")
                .detail()
                .where.find("t.toml:3:"),
            std::string::npos);
  EXPECT_EQ(parse_failure("hosts = 2\ndevices = 3\nsockets = 2\n").detail().found,
            "3 devices, 2 sockets");
  EXPECT_EQ(parse_failure(text + "ranks = [[0, 1, 2, 3], [4, 5, 6, 6]]\n").detail().found,
            "rank 6 twice");
  EXPECT_EQ(parse_failure(text + "ranks = [[0, 1, 2, 3]]\n").detail().expected, "8 places");
}

TEST(TopologyToml, OnlyCommentsMayBeMoreThanAscii) {
  EXPECT_EQ(
      topology_from_toml("# 四台主机、八卡\n" + std::string(kTwoHosts) + "# \"é\n", "t").places(),
      8);
  EXPECT_EQ(parse_failure("hosts = 2\nname = \"# 节点\"\n").detail().where, "t.toml:2:11");
  // What a fuzzer found: toml++ 3.3 takes U+FEFD for impossible.
  EXPECT_EQ(parse_failure("Z\xef\xbb\xbd").code(), ErrorCode::kParse);
}

TEST(NcclTopology, HasGpusBySocketTheirLinksAndTheNetwork) {
  const Topology topology =
      topology_from_nccl_xml(corpus_file("nccl_topology/dgx.txt"), "topo.xml");
  ASSERT_EQ(topology.hosts.size(), 1U);
  const Host& host = topology.hosts[0];
  ASSERT_EQ(host.places.size(), 4U);
  EXPECT_EQ(host.places[1].device, "GPU 1, 0000:0f:00.0");
  EXPECT_EQ(host.places[1].socket, 0);
  EXPECT_EQ(host.places[2].socket, 1);
  EXPECT_EQ(host.places[2].numa, 1);
  // 12 NVLinks of 20 GB/s; the fourth has 8 of them, and the slowest sets the pace.
  EXPECT_EQ(host.places[0].bandwidth, BytesPerSecond(240e9));
  EXPECT_EQ(host.places[3].bandwidth, BytesPerSecond(160e9));
  EXPECT_EQ(topology.inside.bandwidth, BytesPerSecond(160e9));
  ASSERT_EQ(host.networks.size(), 1U);
  EXPECT_EQ(host.networks[0].name, "mlx5_0");
  EXPECT_EQ(host.networks[0].bandwidth, BytesPerSecond(25e9));
  EXPECT_EQ(machine_of(topology).ranks(), 4);
}

TEST(NcclTopology, WithoutNvlinkHasPci) {
  const Topology topology =
      topology_from_nccl_xml(corpus_file("nccl_topology/pcie.txt"), "topo.xml");
  EXPECT_EQ(topology.hosts[0].places[0].bandwidth, BytesPerSecond(12e9));
  EXPECT_EQ(topology.inside.bandwidth, BytesPerSecond(3e9));  // four lanes
  EXPECT_EQ(topology.network.bandwidth, BytesPerSecond(1.25e9));
}

TEST(NcclTopology, WhatIsNoneIsRefused) {
  const auto refused = [](const std::string& text) {
    return error_of([&] { (void)topology_from_nccl_xml(text, "f.xml"); });
  };
  EXPECT_EQ(refused("<system version=\"1\"><cpu>").code(), ErrorCode::kParse);
  EXPECT_NE(refused("<system version=\"1\"><cpu>").detail().where.find("f.xml at byte"),
            std::string::npos);
  EXPECT_EQ(refused("").code(), ErrorCode::kParse);
  EXPECT_NE(refused("<graph/>").detail().found.find("graph"), std::string::npos);
  EXPECT_EQ(refused("<system version=\"2\"/>").detail().expected, "1");
  EXPECT_EQ(refused("<system version=\"1\"><cpu/></system>").detail().found, "none");
}

TEST(Topology, UnlikeHostsAreNoMachine) {
  Topology topology = topology_from_toml(kTwoHosts, "t.toml");
  topology.hosts[1].places.pop_back();
  const Error error = error_of([&] { (void)machine_of(topology); });
  EXPECT_EQ(error.detail().found, "from 3 to 4 places");
  topology.hosts.clear();
  EXPECT_THROW(check(topology), Error);
}

// What each launcher does with its file is the launcher's; that the file says what is meant is
// ours.
class RankFiles : public ::testing::Test {
 protected:
  static std::string emit(RankFile kind, const std::vector<int>& places) {
    return rank_file(kind, topology_from_toml(kTwoHosts, "t.toml"), places);
  }
  const std::vector<int> in_order_ = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<int> dealt_ = {0, 4, 1, 5, 2, 6, 3, 7};
};

TEST_F(RankFiles, RankfileAndSlurmNameEveryRanksHost) {
  const std::string rankfile = emit(RankFile::kRankfile, dealt_);
  EXPECT_NE(rankfile.find("rank 0=a slot=0\nrank 1=b slot=0\nrank 2=a slot=1\n"),
            std::string::npos);
  EXPECT_NE(emit(RankFile::kSlurm, dealt_).find("a\nb\na\nb\na\nb\na\nb\nEND\n"),
            std::string::npos);
}

TEST_F(RankFiles, LaunchersThatCountHostByHostTakeNoOtherOrder) {
  for (const RankFile kind : {RankFile::kTorchrun, RankFile::kPyTorchJob, RankFile::kMpiJob}) {
    const Error error = error_of([&] { (void)emit(kind, dealt_); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.detail().where, to_string(kind));
    EXPECT_NE(emit(kind, in_order_).find('4'), std::string::npos);
  }
  const std::string torchrun = emit(RankFile::kTorchrun, {4, 5, 7, 6, 0, 1, 2, 3});
  EXPECT_NE(torchrun.find("b: CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1,3,2 torchrun "
                          "--nnodes=2 --node-rank=0 --nproc-per-node=4 --master-addr=b"),
            std::string::npos)
      << torchrun;
  EXPECT_NE(emit(RankFile::kPyTorchJob, in_order_).find("hostNetwork: true"), std::string::npos);
  EXPECT_NE(emit(RankFile::kMpiJob, in_order_).find("slotsPerWorker: 4"), std::string::npos);
}

TEST_F(RankFiles, ARankMapTurnsTheRanksOfNowIntoTheOrderWanted) {
  Topology topology = topology_from_toml(kTwoHosts, "t.toml");
  topology.rank_at = {0, 2, 4, 6, 1, 3, 5, 7};
  const std::string map = rank_file(RankFile::kRankMap, topology, in_order_);
  // Rank 1 of now is the first on b: it becomes 4.
  EXPECT_NE(map.find("\n0 4 1 5 2 6 3 7\n"), std::string::npos) << map;
}

TEST_F(RankFiles, NamesGoBothWays) {
  for (const char* name :
       {"rank-map", "rankfile", "slurm", "torchrun", "cuda", "pytorchjob", "mpijob"}) {
    EXPECT_EQ(to_string(rank_file_from_string(name)), name);
  }
  EXPECT_THROW((void)rank_file_from_string("pbs"), Error);
}

}  // namespace
}  // namespace stretto
