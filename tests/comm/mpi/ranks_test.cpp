// SPDX-License-Identifier: Apache-2.0
// What one rank of an MPI job checks; mpi_test.py starts the job, for each MPI there is.
//
//   mpirun -n 3 mpi_ranks                 the tests that succeed
//   mpirun -n 3 mpi_ranks --fail NAME     one in which the job fails: every rank that lives to see
//                                         it prints `rank R: CODE: MESSAGE`

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm/conformance.hpp"
#include "stretto/comm/mpi/mpi.hpp"

namespace stretto::testing {
namespace {

using Clock = std::chrono::steady_clock;

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    MpiOptions options;
    options.timeout = std::chrono::seconds(30);
    communicator_ = connect_mpi(options);
  }
  void TearDown() override {
    if (!HasFailure()) {
      communicator_->barrier().wait();
    }
  }
  [[nodiscard]] Communicator& ranks() const { return *communicator_; }
  [[nodiscard]] int rank() const { return communicator_->rank(); }
  [[nodiscard]] int size() const { return communicator_->size(); }

  std::unique_ptr<Communicator> communicator_;
};

// The suite of all backends, on the ranks that mpirun started.
World ranks_of_this_job() {
  const RankEnvironment environment = detect_rank_environment(process_environment());
  return {"Mpi", environment.world_size, [](const RankBody& body) {
            const auto communicator = connect_mpi({.timeout = std::chrono::seconds(30)});
            body(*communicator);
            communicator->barrier().wait();
          }};
}
INSTANTIATE_TEST_SUITE_P(Mpi, Conformance, ::testing::Values(ranks_of_this_job()), name_of);

float float_at(int rank, std::size_t i) {
  return static_cast<float>(value_at(rank, i));
}
float sum_at(int size, std::size_t i) {
  float sum = 0;
  for (int rank = 0; rank < size; ++rank) {
    sum += float_at(rank, i);
  }
  return sum;
}
std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = float_at(rank, i);
  }
  return values;
}

TEST_F(Mpi, SegmentsOfEverySizeOfMessageArriveWhole) {
  // Around the sizes where the way a message takes changes: in its header, one segment, several.
  for (const std::size_t count :
       {0UL, 1UL, 4096UL, 4097UL, 8192UL, 65'536UL, 65'537UL, 327'681UL, 2'000'003UL}) {
    for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
      std::vector<float> values = values_of(rank(), count);
      ranks().all_reduce(view(std::span(values)), ReduceOp::kSum, {.algorithm = algorithm}).wait();
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[i], sum_at(size(), i)) << count << " element " << i;
      }
    }
  }
}

TEST_F(Mpi, SixteenBitFloatsNeedNoTypeOfMpi) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<std::uint16_t> values(50'001);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float value = float_at(rank(), i);
      values[i] = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    }
    ranks()
        .all_reduce({reinterpret_cast<std::byte*>(values.data()), values.size(), dtype, {}})
        .wait();
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(dtype == DType::kF16 ? f16_to_f32(values[i]) : bf16_to_f32(values[i]),
                sum_at(size(), i));
    }
  }
}

TEST_F(Mpi, ManyInFlightStartedInAnotherOrderOnEveryRank) {
  constexpr std::size_t kSlots = 40;
  constexpr std::size_t kCount = 30'000;  // several announced messages each
  const auto arena = ranks().allocate(Bytes(kSlots * kCount * 4));
  auto* const values = reinterpret_cast<float*>(arena->bytes().data());
  for (unsigned round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < kSlots * kCount; ++i) {
      values[i] = float_at(rank(), i + round);
    }
    std::vector<std::uint32_t> order(kSlots);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(
        order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank()) * 10 + round));
    std::vector<Work> works;
    for (const std::uint32_t slot : order) {
      CallOptions call{.slot = slot, .priority = static_cast<int>(slot % 5)};
      if (round == 1) {
        call.stream = 0;
      }
      works.push_back(ranks().all_reduce(
          view(std::span(values + slot * kCount, kCount)), ReduceOp::kSum, call));
    }
    for (const Work& work : works) {
      work.wait();
    }
    for (std::size_t i = 0; i < kSlots * kCount; ++i) {
      ASSERT_EQ(values[i], sum_at(size(), i + round)) << "round " << round;
    }
    ranks().barrier().wait();
  }
}

TEST_F(Mpi, MessagesOfOneAddressKeepTheirOrderWhateverTheirSize) {
  const int next = (rank() + 1) % size();
  const int previous = (rank() + size() - 1) % size();
  if (size() == 1) {
    GTEST_SKIP() << "one rank";
  }
  std::vector<std::vector<std::int32_t>> out;
  std::vector<std::vector<std::int32_t>> in;
  std::vector<Work> works;
  for (std::int32_t i = 0; i < 60; ++i) {
    const std::size_t count = i % 3 == 0 ? 10 : i % 3 == 1 ? 9000 : 200'000;
    out.emplace_back(count, rank() * 100 + i);
    in.emplace_back(count, -1);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    works.push_back(ranks().send(view(std::span(out[i])), next));
  }
  if (rank() % 2 == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // all of it unexpected
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    works.push_back(ranks().recv(view(std::span(in[i])), previous));
  }
  for (const Work& work : works) {
    work.wait();
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto expected = previous * 100 + static_cast<std::int32_t>(i);
    ASSERT_EQ(std::count(in[i].begin(), in[i].end(), expected),
              static_cast<std::ptrdiff_t>(in[i].size()))
        << "message " << i;
  }
}

TEST_F(Mpi, AnUrgentOperationOvertakesAFatOne) {
  if (size() == 1) {
    GTEST_SKIP() << "alone, every operation is over at once";
  }
  std::vector<float> fat(std::size_t{24} << 20, 1.0F);
  std::vector<float> urgent(100'000, 1.0F);
  const Work first = ranks().all_reduce(view(std::span(fat)), ReduceOp::kSum, {.slot = 1});
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const Work second =
      ranks().all_reduce(view(std::span(urgent)), ReduceOp::kSum, {.slot = 2, .priority = 9});
  second.wait();
  first.wait();
  EXPECT_LT(second.times().ended, first.times().ended);
  EXPECT_EQ(fat[0], static_cast<float>(size()));
  EXPECT_EQ(urgent.back(), static_cast<float>(size()));
}

TEST_F(Mpi, TwoCommunicatorsDoNotMeet) {
  const auto other = connect_mpi({.timeout = std::chrono::seconds(30)});
  std::vector<float> a(70'000, 1.0F);
  std::vector<float> b(70'000, 2.0F);
  const Work first = ranks().all_reduce(view(std::span(a)), ReduceOp::kSum, {.slot = 1});
  const Work second = other->all_reduce(view(std::span(b)), ReduceOp::kSum, {.slot = 1});
  second.wait();
  first.wait();
  EXPECT_EQ(a.back(), static_cast<float>(size()));
  EXPECT_EQ(b.back(), 2.0F * static_cast<float>(size()));
}

TEST_F(Mpi, ARankThatComputesForLongIsNotLost) {
  // Silence counts after a third of the time-out: a second.
  const auto impatient = connect_mpi({.timeout = std::chrono::seconds(3)});
  if (rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1800));
  }
  impatient->barrier().wait();
}

TEST_F(Mpi, NothingPilesUpAndNothingIsLeftUncopied) {
  // Memory of a training loop is that of its first steps.
  std::vector<float> values(3'000'000, 1.0F);
  const auto step = [&] {
    std::vector<Work> works;
    for (std::uint32_t slot = 0; slot < 12; ++slot) {
      works.push_back(ranks().all_reduce(view(std::span(values).subspan(slot * 250'000, 250'000)),
                                         ReduceOp::kMean,
                                         {.slot = slot}));
    }
    for (const Work& work : works) {
      work.wait();
    }
  };
  const auto peak_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  for (int i = 0; i < 10; ++i) {
    step();
  }
  const long before = peak_kib();
  for (int i = 0; i < 40; ++i) {
    step();
  }
  EXPECT_LT(peak_kib() - before, 24 * 1024);
  EXPECT_EQ(values[2'999'999], 1.0F);
}

// ---------------------------------------------------------------- jobs that fail

using Scenario = std::function<void(Communicator&)>;

void reduce_for_ever(Communicator& ranks, std::size_t count) {
  std::vector<float> values(count, 1.0F);
  for (;;) {
    ranks.all_reduce(view(std::span(values)), ReduceOp::kMax).wait();
  }
}

void reduce_different_sizes(Communicator& ranks, std::size_t first, std::size_t others) {
  std::vector<float> values(ranks.rank() == 0 ? first : others, 1.0F);
  ranks.all_reduce(view(std::span(values)), ReduceOp::kSum, {.slot = 7}).wait();
}

const std::map<std::string, Scenario>& scenarios() {
  static const std::map<std::string, Scenario> all = {
      {"mismatch-short", [](Communicator& ranks) { reduce_different_sizes(ranks, 100, 200); }},
      {"mismatch-long",
       [](Communicator& ranks) { reduce_different_sizes(ranks, 500'000, 600'000); }},
      {"mismatch-type",
       [](Communicator& ranks) {
         std::vector<float> floats(300'000, 1.0F);
         std::vector<std::int32_t> integers(300'000, 1);
         const CallOptions call{.slot = 7};
         (ranks.rank() == 0 ? ranks.all_reduce(view(std::span(integers)), ReduceOp::kSum, call)
                            : ranks.all_reduce(view(std::span(floats)), ReduceOp::kSum, call))
             .wait();
       }},
      {"mismatch-both", [](Communicator& ranks) { reduce_different_sizes(ranks, 100, 600'000); }},
      {"abort",
       [](Communicator& ranks) {
         ranks.barrier().wait();
         if (ranks.rank() == 1) {
           std::this_thread::sleep_for(std::chrono::milliseconds(100));
           const Error reason(ErrorCode::kNeverReady, "tensor 'w' was never ready");
           ranks.abort(reason, 5, 3);
           throw Error(reason);
         }
         reduce_for_ever(ranks, 300'000);
       }},
      {"abort-while-idle",
       [](Communicator& ranks) {
         ranks.barrier().wait();
         if (ranks.rank() == 1) {
           const Error reason(ErrorCode::kNeverReady, "tensor 'w' was never ready");
           ranks.abort(reason, 5, 3);
           throw Error(reason);
         }
         std::this_thread::sleep_for(std::chrono::milliseconds(300));
         ranks.barrier().wait();
       }},
      {"leave",
       [](Communicator& ranks) {
         ranks.barrier().wait();
         if (ranks.rank() != 1) {
           ranks.barrier().wait();
         }
       }},
      {"kill",
       [](Communicator& ranks) {
         ranks.barrier().wait();
         std::thread killer;
         if (ranks.rank() == 1) {
           killer = std::thread([] {
             std::this_thread::sleep_for(std::chrono::milliseconds(200));
             raise(SIGKILL);
           });
         }
         reduce_for_ever(ranks, 300'000);
       }},
      {"for-ever", [](Communicator& ranks) { reduce_for_ever(ranks, 300'000); }},
      {"stop",
       [](Communicator& ranks) {
         ranks.barrier().wait();
         if (ranks.rank() == 1) {
           raise(SIGSTOP);
         }
         reduce_for_ever(ranks, 300'000);
       }},
      {"never-comes",
       [](Communicator& ranks) {
         if (ranks.rank() == 1) {
           std::this_thread::sleep_for(std::chrono::seconds(20));
         }
         ranks.barrier({.slot = 4}).wait();
       }},
  };
  return all;
}

int run_scenario(const std::string& name) {
  const auto began = Clock::now();
  std::unique_ptr<Communicator> ranks;
  try {
    ranks = connect_mpi({.timeout = std::chrono::seconds(6)});
    scenarios().at(name)(*ranks);
    std::printf("rank %d: ended well\n", ranks->rank());
  } catch (const Error& error) {
    const auto after = std::chrono::duration<double>(Clock::now() - began).count();
    std::printf("rank %d: %s: %s\n",
                ranks ? ranks->rank() : -1,
                std::string(to_string(error.code())).c_str(),
                error.what());
    if (ranks && after < 20) {
      // And it stays that way.
      try {
        ranks->barrier().wait();
        std::printf("rank %d: a failed communicator was used again\n", ranks->rank());
      } catch (const Error&) {
      }
    }
  }
  std::fflush(stdout);
  return 0;
}

/// One rank's report is enough, but a failure must be seen wherever it is.
class FailuresOnly : public ::testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) {
      std::printf("rank %d: %s:%d: %s\n",
                  rank_,
                  result.file_name() == nullptr ? "?" : result.file_name(),
                  result.line_number(),
                  result.summary());
    }
  }

 private:
  int rank_;
};

}  // namespace
}  // namespace stretto::testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 3 && std::string(argv[1]) == "--fail") {
    return stretto::testing::run_scenario(argv[2]);
  }
  const int rank = stretto::detect_rank_environment(stretto::process_environment()).rank;
  if (rank != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new stretto::testing::FailuresOnly(rank));
  }
  return RUN_ALL_TESTS();
}
