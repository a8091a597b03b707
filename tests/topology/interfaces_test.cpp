// SPDX-License-Identifier: Apache-2.0
#include "stretto/topology/interfaces.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace stretto {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

TEST(Interfaces, TheListHasTheSyntaxOfNccl) {
  const Names names = {"docker0", "eth0", "eth1", "ib0", "lo"};
  EXPECT_EQ(matching_interfaces("eth", names), (Names{"eth0", "eth1"}));
  EXPECT_EQ(matching_interfaces("eth1,ib", names), (Names{"eth1", "ib0"}));
  EXPECT_EQ(matching_interfaces("=eth", names), Names{});
  EXPECT_EQ(matching_interfaces("=eth0,lo", names), (Names{"eth0", "lo"}));
  EXPECT_EQ(matching_interfaces("^docker,lo", names), (Names{"eth0", "eth1", "ib0"}));
  EXPECT_EQ(matching_interfaces("^=eth0", names), (Names{"docker0", "eth1", "ib0", "lo"}));
  EXPECT_EQ(matching_interfaces("ib0:1", names), (Names{"ib0"}));
  EXPECT_EQ(matching_interfaces("eth2", names), Names{});
  EXPECT_EQ(matching_interfaces("", names), names);
}

/// A made-up /sys: two sockets of two cores, two GPUs, one of them on the second socket.
class FakeSystem : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "stretto-sys-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    put("proc/sys/kernel/hostname", "node7\n");
    for (int core = 0; core < 4; ++core) {
      const std::string path = "sys/devices/system/cpu/cpu" + std::to_string(core);
      put(path + "/topology/physical_package_id", std::to_string(core / 2) + "\n");
      fs::create_directories(root_ / path / ("node" + std::to_string(core / 2)));
    }
    put("sys/devices/system/cpu/cpufreq/x", "");
    put("sys/devices/system/cpu/cpu9/online", "0\n");  // offline: no topology
    put("sys/class/net/eth0/operstate", "up\n");
    put("sys/class/net/eth0/speed", "25000\n");
    put("sys/class/net/eth0/device/numa_node", "1\n");
    put("sys/class/net/lo/operstate", "unknown\n");
    put("sys/class/net/eth1/operstate", "down\n");
    put("sys/class/net/eth1/speed", "-1\n");
    put("sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void add_gpu(const std::string& bus, const std::string& numa) const {
    put("sys/bus/pci/devices/" + bus + "/class", "0x030200\n");
    put("sys/bus/pci/devices/" + bus + "/vendor", "0x10de\n");
    put("sys/bus/pci/devices/" + bus + "/numa_node", numa + "\n");
  }
  fs::path root_;
};

TEST_F(FakeSystem, CoresArePlacesBySocketWhereThereAreNoGpus) {
  const Host host = local_host(root_);
  EXPECT_EQ(host.name, "node7");
  ASSERT_EQ(host.places.size(), 4U);
  EXPECT_EQ(host.places[3].device, "core 3");
  EXPECT_EQ(host.places[3].socket, 1);
  EXPECT_EQ(host.places[3].numa, 1);
  ASSERT_EQ(host.networks.size(), 1U);
  EXPECT_EQ(host.networks[0].name, "eth0");
  EXPECT_EQ(host.networks[0].numa, 1);
  EXPECT_EQ(host.networks[0].bandwidth, BytesPerSecond(25e9 / 8));
}

TEST_F(FakeSystem, GpusArePlacesWhereThereAreSome) {
  add_gpu("0000:81:00.0", "1");
  add_gpu("0000:02:00.0", "-1");  // a kernel that does not say
  put("sys/bus/pci/devices/0000:03:00.0/class", "0x030000\n");
  put("sys/bus/pci/devices/0000:03:00.0/vendor", "0x1a03\n");  // the board's own screen
  const Host host = local_host(root_);
  ASSERT_EQ(host.places.size(), 2U);
  EXPECT_EQ(host.places[0].device, "GPU 0, 0000:02:00.0");
  EXPECT_EQ(host.places[1].device, "GPU 1, 0000:81:00.0");
  EXPECT_EQ(host.places[1].socket, 1);
}

TEST_F(FakeSystem, InterfacesSayWhatTheyAre) {
  const std::vector<Interface> interfaces = network_interfaces(root_);
  ASSERT_EQ(interfaces.size(), 3U);
  EXPECT_EQ(interfaces[0].name, "eth0");
  EXPECT_TRUE(interfaces[0].up);
  EXPECT_EQ(interfaces[0].megabits_per_s, 25000);
  EXPECT_FALSE(interfaces[1].up);
  EXPECT_EQ(interfaces[1].megabits_per_s, 0);
  EXPECT_TRUE(interfaces[2].up);
  EXPECT_EQ(rdma_adapters(root_), Names{"mlx5_0"});
  EXPECT_TRUE(rdma_adapters(root_ / "none").empty());
}

}  // namespace
}  // namespace stretto
