// SPDX-License-Identifier: Apache-2.0
// Every algorithm against its price in simulate/, on emulated machines: what it takes there, in the
// machine's own time, which a busy host does not change.

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/simulate/collective_cost.hpp"
#include "world.hpp"

namespace stretto::testing {
namespace {

Work start(Communicator& communicator,
           Collective collective,
           Algorithm algorithm,
           BufferView data,
           BufferView other) {
  const CallOptions options{.slot = 1, .algorithm = algorithm};
  switch (collective) {
    case Collective::kReduceScatter:
      return communicator.reduce_scatter(data, ReduceOp::kSum, options);
    case Collective::kAllGather:
      return communicator.all_gather(data, options);
    case Collective::kBroadcast:
      return communicator.broadcast(data, 0, options);
    case Collective::kReduce:
      return communicator.reduce(data, 0, ReduceOp::kSum, options);
    case Collective::kAllToAll:
      return communicator.all_to_all(data, other, options);
    default:
      return communicator.all_reduce(data, ReduceOp::kSum, options);
  }
}

// From one moment on all ranks, on the machine: an operation begins there when the one before it on
// its slot is over, and a barrier is over everywhere at nearly the same time.
Seconds time_of(Communicator& communicator,
                Collective collective,
                Algorithm algorithm,
                BufferView data,
                BufferView other,
                BufferView fill) {
  for (int attempt = 0; attempt < 200; ++attempt) {
    communicator.barrier().wait();
    const Work busy = communicator.all_reduce(fill, ReduceOp::kSum, {.slot = 1});
    const Work before = communicator.barrier({.slot = 1});
    const Work work = start(communicator, collective, algorithm, data, other);
    work.wait();
    before.wait();
    busy.wait();
    std::vector<std::int64_t> ends = {before.times().emulated_end.count(),
                                      work.times().emulated_end.count(),
                                      work.times().launched.count(),
                                      -busy.times().emulated_end.count()};
    communicator.all_reduce(view(std::span(ends)), ReduceOp::kMax).wait();
    if (ends[2] < -ends[3]) {  // else a rank came too late to begin with the others: once more
      return Seconds(static_cast<double>(ends[1] - ends[0]) * 1e-9);
    }
  }
  ADD_FAILURE() << "in 200 attempts some rank was always 15 ms late";
  return {};
}

// How far from its price an algorithm may be, as parts of it, below and above.
struct Tolerance {
  double below = 0.05;
  double above = 0.05;
};
Tolerance tolerance(const Machine& machine, Collective collective, Algorithm algorithm) {
  const auto ranks = static_cast<unsigned>(machine.ranks());
  if (algorithm == Algorithm::kDoubleBinaryTree) {
    // Flows in both directions meet, and on nodes the trees are in rank order, not level by level.
    if (machine.levels.size() > 1) {
      return {0.7, 0.9};
    }
    return collective == Collective::kAllReduce ? Tolerance{0.2, 0.7} : Tolerance{};
  }
  if (machine.levels.size() > 1) {
    // One rank may use all of its node's link here; the price is for a node of many.
    if (algorithm == Algorithm::kLeader) {
      return {0.7, 0.1};
    }
    const bool rooted = collective == Collective::kBroadcast || collective == Collective::kReduce;
    return rooted ? Tolerance{0.2, 0.25} : Tolerance{0.1, 0.15};  // trees in rank order again
  }
  if (algorithm == Algorithm::kPipelinedChain && collective == Collective::kAllReduce) {
    return {0.3, 0.05};  // over high latencies the way back does not meet the way out: at most
  }
  const bool folded =
      algorithm == Algorithm::kRecursiveDoubling || algorithm == Algorithm::kHalvingDoubling;
  if (folded && !std::has_single_bit(ranks) && collective != Collective::kAllGather) {
    return {0.3, 0.05};  // whose message is first on the neighbour's link is not decided: at most
  }
  return {};
}

class CostTwin : public ::testing::TestWithParam<const char*> {};

TEST_P(CostTwin, EveryAlgorithmTakesItsPrice) {
  if (kSanitized) {
    GTEST_SKIP()
        << "a sanitizer makes ranks too late to be timed; the conformance suite runs there";
  }
  const Machine machine = machine_from_spec(GetParam());
  ShmOptions options = test_options();
  options.emulate = machine;
  options.arena_capacity = Bytes(std::int64_t{32} << 20);
  run_threads(machine.ranks(), options, [&](Communicator& communicator) {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    // 15 ms on the machine: long enough for every rank to have started what comes after.
    const double slowest = machine.levels.back().bandwidth.value();
    const auto fill_count = static_cast<std::size_t>(slowest * 15e-3 / 2 / 4) / 256 * 256;
    const auto first = communicator.allocate(Bytes(static_cast<std::int64_t>(fill_count * 4)));
    const BufferView fill{first->bytes().data(), fill_count, DType::kF32, {}};
    for (const std::size_t kib : {std::size_t{48}, std::size_t{3000}}) {
      const std::size_t count = kib * 256 / (16 * ranks) * 16 * ranks;
      const auto arena = communicator.allocate(Bytes(static_cast<std::int64_t>(count * 4)));
      const auto second = communicator.allocate(Bytes(static_cast<std::int64_t>(count * 4)));
      const BufferView data{arena->bytes().data(), count, DType::kF32, {}};
      const BufferView other{second->bytes().data(), count, DType::kF32, {}};
      for (const Collective collective : {Collective::kAllReduce,
                                          Collective::kReduceScatter,
                                          Collective::kAllGather,
                                          Collective::kBroadcast,
                                          Collective::kReduce,
                                          Collective::kAllToAll}) {
        for (const AlgorithmCost& cost :
             compare_algorithms(machine, collective, Bytes(static_cast<std::int64_t>(count * 4)))) {
          if (!can_run(collective, cost.algorithm)) {
            continue;
          }
          const Tolerance allowed = tolerance(machine, collective, cost.algorithm);
          // A host that is late by many milliseconds can change the order in which links are taken.
          Seconds took{};
          bool within = false;
          for (int attempt = 0; attempt < 5 && !within; ++attempt) {
            took = time_of(communicator, collective, cost.algorithm, data, other, fill);
            const double off = (took - cost.time).count();
            within = off <= std::max(allowed.above * cost.time.count(), 100e-6) &&
                     -off <= std::max(allowed.below * cost.time.count(), 100e-6);
          }
          if (communicator.rank() == 0) {
            EXPECT_TRUE(within) << to_string(collective) << " " << to_string(cost.algorithm) << ", "
                                << kib << " KiB: took " << took.count() * 1e3 << " ms, price "
                                << cost.time.count() * 1e3 << " ms";
          }
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Machines,
                         CostTwin,
                         ::testing::Values("2@1GB/s,50us",
                                           "3@1GB/s,50us",
                                           "6@1GB/s,1ms",
                                           "8@1GB/s,1ms",
                                           "4@500MB/s,100us",
                                           "5@1GB/s,20us",
                                           "8@1GB/s,20us",
                                           "16@1GB/s,20us",
                                           "2x2@in=4GB/s,5us@out=500MB/s,50us",
                                           "2x4@in=4GB/s,5us@out=1GB/s,50us"));

}  // namespace
}  // namespace stretto::testing
