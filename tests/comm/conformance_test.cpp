// SPDX-License-Identifier: Apache-2.0
// The suite on shared memory: ranks as threads and as processes, in place and on emulated machines,
// with and without groups.

#include "conformance.hpp"

namespace stretto::testing {
namespace {

World world(RanksAs as, int size, const std::string& kind, const ShmOptions& options) {
  return {(as == RanksAs::kThreads ? "Threads" : "Processes") + std::to_string(size) + kind,
          size,
          [as, size, options](const RankBody& body) { run_ranks(as, size, options, body); }};
}

// Pairs, and pairs of pairs; the last ones are smaller where the ranks do not come out even.
RankGroups pairs_of(int size) {
  RankGroups groups(2);
  for (int rank = 0; rank < size; ++rank) {
    groups[0].push_back(rank / 2);
    groups[1].push_back(rank / 4);
  }
  return groups;
}

std::vector<World> worlds() {
  std::vector<World> all;
  const auto emulated = [](const std::string& machine) {
    ShmOptions options = test_options();
    options.emulate = machine_from_spec(machine);
    return options;
  };
  ShmOptions grouped = test_options();
  const std::vector<int> sizes = kSanitized ? std::vector{1, 2, 3, 4, 6}  // ten times as slow
                                            : std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (const int size : sizes) {
    // NOLINTNEXTLINE(performance-inefficient-vector-operation): a handful
    all.push_back(world(RanksAs::kThreads, size, "", test_options()));
  }
  for (const int size : {5, 7}) {
    grouped.groups = pairs_of(size);
    all.push_back(world(RanksAs::kThreads, size, "InPairs", grouped));
  }
  for (const int size : {2, 3, 5}) {
    all.push_back(world(RanksAs::kProcesses, size, "", test_options()));
  }
  all.push_back(world(RanksAs::kThreads, 3, "Emulated", emulated("3@10GB/s,1us")));
  all.push_back(world(RanksAs::kProcesses, 2, "Emulated", emulated("2@10GB/s,1us")));
  all.push_back(
      world(RanksAs::kProcesses, 4, "EmulatedNodes", emulated("2x2@a=20GB/s,1us@b=10GB/s,1us")));
  return all;
}
INSTANTIATE_TEST_SUITE_P(Shm, Conformance, ::testing::ValuesIn(worlds()), name_of);

}  // namespace
}  // namespace stretto::testing
