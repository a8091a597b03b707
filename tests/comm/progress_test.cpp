// SPDX-License-Identifier: Apache-2.0
// What the engine's own thread does: nothing while there is nothing to do, and the urgent first.
#include <chrono>
#include <ctime>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "world.hpp"

namespace stretto::testing {
namespace {

using std::chrono::milliseconds;

Nanoseconds processor_time() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + Nanoseconds(used.tv_nsec);
}

// A thread that polled would take all of the time.
constexpr milliseconds kWait{500};
constexpr milliseconds kNothing = kWait / 5;

TEST(Progress, AnIdleRankBurnsNoProcessor) {
  run_processes(2, test_options(), [](Communicator& communicator) {
    communicator.barrier().wait();
    const Nanoseconds before = processor_time();
    std::this_thread::sleep_for(kWait);
    EXPECT_LT(processor_time() - before, kNothing);
    communicator.barrier().wait();
  });
}

TEST(Progress, NorDoesOneThatWaitsForALatePeer) {
  run_processes(2, test_options(), [](Communicator& communicator) {
    const auto arena = communicator.allocate(Bytes(4096));
    const BufferView data{arena->bytes().data(), 1024, DType::kF32, {}};
    for (const Progress progress : {Progress::kBackground, Progress::kCaller}) {
      communicator.barrier().wait();
      if (communicator.rank() == 1) {
        std::this_thread::sleep_for(kWait);
      }
      const Nanoseconds before = processor_time();
      communicator.all_reduce(data, ReduceOp::kSum, {.progress = progress}).wait();
      EXPECT_LT(processor_time() - before, kNothing);
    }
  });
}

TEST(Progress, AnUrgentOperationOvertakesALargeOne) {
  run_processes(2, test_options(), [](Communicator& communicator) {
    constexpr std::size_t kLarge = std::size_t{8} << 20;  // elements: some milliseconds
    const auto arena = communicator.allocate(Bytes(4 * (kLarge + 1024)));
    const BufferView large{arena->bytes().data(), kLarge, DType::kF32, {}};
    const BufferView small{arena->bytes().data() + 4 * kLarge, 1024, DType::kF32, {}};
    // A rank that loses its core in between starts the urgent one too late to overtake: then again.
    std::optional<bool> overtook;
    for (std::uint32_t attempt = 0; attempt < 50 && !overtook.value_or(false); ++attempt) {
      communicator.barrier().wait();
      const Work slow = communicator.all_reduce(large, ReduceOp::kSum, {.slot = 0, .priority = 0});
      const Work urgent =
          communicator.all_reduce(small, ReduceOp::kSum, {.slot = 1, .priority = 9});
      urgent.wait();
      slow.wait();
      std::vector<std::int32_t> both = {urgent.times().ended < slow.times().ended ? 1 : 0};
      communicator.all_reduce(view(std::span(both)), ReduceOp::kMin).wait();
      overtook = both[0] == 1;
    }
    EXPECT_TRUE(overtook.value_or(false));
  });
}

}  // namespace
}  // namespace stretto::testing
