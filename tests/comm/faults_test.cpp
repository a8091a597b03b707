// SPDX-License-Identifier: Apache-2.0
// What goes wrong between ranks ends in a typed error on every rank, soon, and leaves nothing
// behind.

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "stretto/comm/connect.hpp"
#include "world.hpp"

namespace stretto::testing {
namespace {

using Clock = std::chrono::steady_clock;

// What ranks in processes tell the test: memory they all share.
template <typename T>
class Shared {
 public:
  Shared()
      : value_(new (mmap(
            nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T{}) {}
  ~Shared() { munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() { return value_; }
  T& operator*() { return *value_; }

 private:
  T* value_;
};

struct Report {
  std::array<std::atomic<int>, 8> code;               // ErrorCode + 1 of each rank
  std::array<std::atomic<bool>, 8> names_the_victim;  // its message does
  std::atomic<int> busy;                              // ranks that run collectives
};

// Rank `victim` is killed while all ranks run collectives without end; true if it was in time.
void kill_one(int size, int victim, std::chrono::microseconds after, bool emulated, bool lending) {
  Shared<Report> report;
  ShmOptions options = test_options();
  if (emulated) {
    options.emulate = machine_from_spec(std::to_string(size) + "@1GB/s,100us");
  }
  const RendezvousDirectory directory;
  const auto children =
      fork_ranks(directory.path(), size, options, [&](Communicator& communicator) {
        const std::size_t count = lending ? 50'000 : 100;
        const auto arena =
            communicator.allocate(Bytes(static_cast<std::int64_t>(count * sizeof(float))));
        const BufferView data{arena->bytes().data(), count, DType::kF32, {}};
        report->busy.fetch_add(1);
        std::string what;
        const ErrorCode code = code_of(
            [&] {
              for (std::uint64_t round = 0;; ++round) {
                communicator
                    .all_reduce(
                        data,
                        ReduceOp::kMax,
                        {.algorithm = round % 2 == 0 ? Algorithm::kDirect : Algorithm::kRing,
                         .progress = round % 3 == 0 ? Progress::kCaller : Progress::kBackground})
                    .wait();
              }
            },
            &what);
        const auto rank = static_cast<std::size_t>(communicator.rank());
        report->names_the_victim[rank] =
            what.find("rank " + std::to_string(victim)) != std::string::npos;
        report->code[rank] = static_cast<int>(code) + 1;
        // And it stays that way.
        EXPECT_EQ(code_of([&] { communicator.barrier().wait(); }), ErrorCode::kPeerLost);
      });
  while (report->busy.load() < size) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  std::this_thread::sleep_for(after);
  const auto killed = Clock::now();
  kill(children[static_cast<std::size_t>(victim)], SIGKILL);
  for (int rank = 0; rank < size; ++rank) {
    const int code = wait_for(children[static_cast<std::size_t>(rank)]);
    if (rank == victim) {
      EXPECT_EQ(code, 128 + SIGKILL);
      continue;
    }
    EXPECT_EQ(code, 0) << "rank " << rank;
    EXPECT_EQ(report->code[static_cast<std::size_t>(rank)],
              static_cast<int>(ErrorCode::kPeerLost) + 1)
        << "rank " << rank;
    EXPECT_TRUE(report->names_the_victim[static_cast<std::size_t>(rank)]) << "rank " << rank;
  }
  // The promise is one second; a sanitizer on a loaded machine is not held to it.
  EXPECT_LT(Clock::now() - killed, std::chrono::seconds(10));
}

TEST(Faults, AKilledRankIsNamedByAllOthers) {
  std::mt19937 generator(1);
  for (int round = 0; round < 6; ++round) {
    for (const bool emulated : {false, true}) {
      for (const bool lending : {false, true}) {
        kill_one(3, round % 3, std::chrono::microseconds(generator() % 5000), emulated, lending);
      }
    }
  }
}

TEST(Faults, ARankThatDiesBetweenOperationsIsFoundByTheNext) {
  Shared<Report> report;
  const RendezvousDirectory directory;
  const auto children =
      fork_ranks(directory.path(), 2, test_options(), [&](Communicator& communicator) {
        communicator.barrier().wait();
        if (communicator.rank() == 1) {
          kill(getpid(), SIGKILL);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        std::string what;
        EXPECT_EQ(code_of([&] { communicator.barrier().wait(); }, &what), ErrorCode::kPeerLost);
        EXPECT_NE(what.find("rank 1"), std::string::npos) << what;
        EXPECT_NE(what.find("pid"), std::string::npos) << what;
      });
  EXPECT_EQ(wait_for(children[0]), 0);
  EXPECT_EQ(wait_for(children[1]), 128 + SIGKILL);
}

TEST(Faults, LeavingWhileOthersStillNeedYouIsSaid) {
  for (const RanksAs as : {RanksAs::kThreads, RanksAs::kProcesses}) {
    if (as == RanksAs::kThreads) {
      auto world = local_shm_world(2, test_options());
      world[1].reset();
      std::string what;
      EXPECT_EQ(code_of([&] { world[0]->barrier().wait(); }, &what), ErrorCode::kPeerLost);
      EXPECT_NE(what.find("closed"), std::string::npos) << what;
    } else {
      run_processes(2, test_options(), [](Communicator& communicator) {
        if (communicator.rank() == 0) {
          std::string what;
          EXPECT_EQ(code_of([&] { communicator.barrier().wait(); }, &what), ErrorCode::kPeerLost);
          EXPECT_NE(what.find("rank 1"), std::string::npos) << what;
        }
      });
    }
  }
}

TEST(Faults, FinishingFirstAndLeavingHarmsNobody) {
  for (int round = 0; round < 20; ++round) {
    run_threads(3, test_options(), [](Communicator& communicator) {
      std::vector<float> values(3000, 1.0F);
      communicator.all_reduce(view(std::span(values))).wait();
      EXPECT_EQ(values[2999], 3.0F);
    });
  }
}

TEST(Faults, ASilentRankIsATimeOutThatSaysWhich) {
  ShmOptions options = test_options();
  options.timeout = std::chrono::milliseconds(300);
  run_processes(2, options, [](Communicator& communicator) {
    if (communicator.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      return;
    }
    std::vector<float> values(100);
    std::string what;
    EXPECT_EQ(
        code_of(
            [&] {
              communicator.all_reduce(view(std::span(values)), ReduceOp::kSum, {.slot = 9}).wait();
            },
            &what),
        ErrorCode::kTimeout);
    EXPECT_NE(what.find("rank 1"), std::string::npos) << what;
    EXPECT_NE(what.find("slot 9"), std::string::npos) << what;
    EXPECT_NE(what.find("all_reduce"), std::string::npos) << what;
  });
}

TEST(Faults, DifferentSizesAreAMismatchOnBothSides) {
  for (const std::size_t count : {10UL, 50'000UL}) {
    for (const bool emulated : {false, true}) {
      ShmOptions options = test_options();
      if (emulated) {
        options.emulate = machine_from_spec("2@1GB/s,100us");
      }
      run_threads(2, options, [count](Communicator& communicator) {
        const std::size_t mine = count + (communicator.rank() == 1 ? 32 : 0);
        const auto arena = communicator.allocate(Bytes(static_cast<std::int64_t>(mine * 4)));
        EXPECT_EQ(code_of([&] {
                    communicator.all_reduce({arena->bytes().data(), mine, DType::kF32, {}}).wait();
                  }),
                  ErrorCode::kMismatch);
      });
    }
  }
}

TEST(Faults, DifferentTypesOperationsAndCollectivesAreMismatchesThatNameBothSides) {
  const auto expect = [](const std::vector<std::string>& texts,
                         const std::function<Work(Communicator&, BufferView)>& start) {
    for (const bool emulated : {false, true}) {
      ShmOptions options = test_options();
      if (emulated) {
        options.emulate = machine_from_spec("2@1GB/s,100us");
      }
      run_threads(2, options, [&](Communicator& communicator) {
        const auto arena = communicator.allocate(Bytes(80'000));
        std::string what;
        EXPECT_EQ(
            code_of(
                [&] {
                  start(communicator, {arena->bytes().data(), 20'000, DType::kF32, {}}).wait();
                },
                &what),
            ErrorCode::kMismatch);
        // The rank that learns of it by the other's abort says less.
        if (what.find("disagree") != std::string::npos) {
          for (const std::string& text : texts) {
            EXPECT_NE(what.find(text), std::string::npos) << what;
          }
        }
      });
    }
  };
  expect({"all_reduce (sum) of f32", "all_reduce (sum) of i32"},
         [](Communicator& communicator, BufferView data) {
           data.dtype = communicator.rank() == 0 ? DType::kF32 : DType::kI32;
           return communicator.all_reduce(data);
         });
  expect({"all_reduce (mean) of f32", "all_reduce (max) of f32"},
         [](Communicator& communicator, BufferView data) {
           return communicator.all_reduce(
               data, communicator.rank() == 0 ? ReduceOp::kMean : ReduceOp::kMax);
         });
  expect({"reduce_scatter (sum) of f32", "all_gather of f32"},
         [](Communicator& communicator, BufferView data) {
           return communicator.rank() == 0 ? communicator.reduce_scatter(data)
                                           : communicator.all_gather(data);
         });
}

TEST(Faults, AMismatchThatArrivedEarlyTouchesNothing) {
  run_processes(2, test_options(), [](Communicator& communicator) {
    const std::size_t count = communicator.rank() == 0 ? 4096 : std::size_t{1} << 22;
    const auto arena = communicator.allocate(Bytes(static_cast<std::int64_t>(count * 4)));
    std::vector<float> other(20);
    if (communicator.rank() == 1) {
      // In flight while rank 0's message comes in, so that it is here before its receive.
      const Work early = communicator.recv(view(std::span(other)), 0);
      early.wait();
    } else {
      const Work first = communicator.all_reduce(
          {arena->bytes().data(), count, DType::kF32, {}}, ReduceOp::kSum, {.slot = 5});
      try {
        communicator.send(view(std::span(other)), 1).wait();
      } catch (const Error& error) {
        // It arrived, but rank 1 may have ended the job before this rank hears so.
        EXPECT_EQ(error.code(), ErrorCode::kMismatch) << error.what();
      }
      EXPECT_EQ(code_of([&] { first.wait(); }), ErrorCode::kMismatch);
      return;
    }
    EXPECT_EQ(code_of([&] {
                communicator
                    .all_reduce({arena->bytes().data(), count, DType::kF32, {}},
                                ReduceOp::kSum,
                                {.slot = 5})
                    .wait();
              }),
              ErrorCode::kMismatch);
  });
}

TEST(Faults, ASocketLeftByAKilledRankIsReplaced) {
  const RendezvousDirectory directory;
  ShmOptions options = test_options();
  const pid_t child = fork();
  if (child == 0) {
    (void)code_of([&] { (void)connect_shm(directory.path(), 0, 2, options); });
    _exit(0);
  }
  while (!std::filesystem::exists(directory.path() / "rank-0.sock")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(child, SIGKILL);
  EXPECT_EQ(wait_for(child), 128 + SIGKILL);
  for (const pid_t rank : fork_ranks(directory.path(), 2, options, [](Communicator& communicator) {
         communicator.barrier().wait();
       })) {
    EXPECT_EQ(wait_for(rank), 0);
  }
}

TEST(Faults, RanksThatEmulateDifferentMachinesAreRefused) {
  const RendezvousDirectory directory;
  ShmOptions options = test_options();
  ShmOptions other = options;
  other.emulate = machine_from_spec("2@1GB/s,1us");
  std::thread first([&] {
    EXPECT_EQ(code_of([&] { (void)connect_shm(directory.path(), 0, 2, options); }),
              ErrorCode::kMismatch);
  });
  EXPECT_EQ(code_of([&] { (void)connect_shm(directory.path(), 1, 2, other); }),
            ErrorCode::kMismatch);
  first.join();
}

TEST(Faults, AnArenaThatCannotBeIsRefused) {
  auto world = local_shm_world(1, test_options());
  EXPECT_EQ(code_of([&] { (void)world[0]->allocate(Bytes(-1)); }), ErrorCode::kUnavailable);
  EXPECT_EQ(code_of([&] { (void)world[0]->allocate(Bytes(std::int64_t{1} << 50)); }),
            ErrorCode::kUnavailable);
}

TEST(Faults, AnAbortReachesEverybodyWithItsCodeAndPlace) {
  run_processes(3, test_options(), [](Communicator& communicator) {
    if (communicator.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      communicator.abort(Error(ErrorCode::kNeverReady, "told so"), 41, 3);
    }
    std::string what;
    std::vector<float> values(5000);
    EXPECT_EQ(code_of(
                  [&] {
                    for (;;) {
                      communicator.all_reduce(view(std::span(values))).wait();
                    }
                  },
                  &what),
              ErrorCode::kNeverReady);
    if (communicator.rank() != 2) {
      EXPECT_NE(what.find("rank 2"), std::string::npos) << what;
      EXPECT_NE(what.find("step 41, bucket 3"), std::string::npos) << what;
    }
  });
}

TEST(Faults, DestroyingACommunicatorFailsWhatIsInFlight) {
  auto world = local_shm_world(2, test_options());
  std::vector<float> values(5000);
  const Work work = world[0]->all_reduce(view(std::span(values)));
  world[0].reset();
  EXPECT_TRUE(work.done());
  EXPECT_EQ(code_of([&] { work.wait(); }), ErrorCode::kBackend);
}

TEST(Faults, RanksThatDoNotComeAreNamed) {
  const RendezvousDirectory directory;
  ShmOptions options = test_options();
  options.connect_timeout = std::chrono::milliseconds(100);
  std::string what;
  EXPECT_EQ(code_of([&] { (void)connect_shm(directory.path(), 1, 3, options); }, &what),
            ErrorCode::kTimeout);
  EXPECT_NE(what.find("rank 0, 2"), std::string::npos) << what;
}

TEST(Faults, WhoOnlyWaitsForTheMissingIsNotMissing) {
  const RendezvousDirectory directory;
  ShmOptions options = test_options();
  options.connect_timeout = std::chrono::milliseconds(600);
  std::array<std::string, 4> what;
  std::vector<std::thread> ranks;
  for (const int rank : {3, 0, 2}) {  // The later ones see the earlier ones give up.
    ranks.emplace_back([&, rank] {
      EXPECT_EQ(code_of([&] { (void)connect_shm(directory.path(), rank, 4, options); },
                        &what[static_cast<std::size_t>(rank)]),
                ErrorCode::kTimeout);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  for (const std::size_t rank : {0U, 2U, 3U}) {
    EXPECT_NE(what[rank].find("no sign of rank 1 after"), std::string::npos) << what[rank];
  }
}

TEST(Faults, MeetingsOfTheDeadAreRemovedByTheNext) {
  namespace fs = std::filesystem;
  const RendezvousDirectory parent;
  const auto named = [&](const std::string& job) {
    return parent.path() / ("stretto-" + std::to_string(getuid()) + "-" + job);
  };
  const fs::path dead = named("00000000000000aa");
  const fs::path young = named("00000000000000bb");
  const fs::path alive = named("00000000000000cc");
  const fs::path other = named("not-of-a-job");
  for (const fs::path& path : {dead, young, alive, other}) {
    fs::create_directory(path);
  }
  const auto wait_in = [](const fs::path& directory, std::chrono::milliseconds timeout) {
    ShmOptions options = test_options();
    options.connect_timeout = timeout;
    (void)connect_shm(directory, 0, 2, options);
  };
  // One is killed while it waits, the other goes on.
  std::vector<pid_t> waiting;
  for (const fs::path& path : {dead, alive}) {
    waiting.push_back(fork());
    if (waiting.back() == 0) {
      EXPECT_THROW(wait_in(path, std::chrono::seconds(60)), Error);
      _exit(0);
    }
    while (!fs::exists(path / "rank-0.sock")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  kill(waiting[0], SIGKILL);
  EXPECT_EQ(wait_for(waiting[0]), 128 + SIGKILL);
  EXPECT_TRUE(fs::exists(dead / "rank-0.sock"));
  for (const fs::path& path : {dead, alive, other}) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  }
  RankEnvironment environment;
  environment.launcher = "torchrun";
  environment.world_size = 2;
  environment.local_world_size = 2;
  environment.rendezvous = named("00000000000000dd").string();
  ShmOptions options = test_options();
  options.connect_timeout = std::chrono::milliseconds(50);
  EXPECT_EQ(code_of([&] { (void)connect(environment, options); }), ErrorCode::kTimeout);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_FALSE(fs::exists(environment.rendezvous));  // Its own, where nobody came.
  for (const fs::path& path : {young, alive, other}) {
    EXPECT_TRUE(fs::exists(path)) << path;
  }
  kill(waiting[1], SIGKILL);
  wait_for(waiting[1]);
  for (const fs::path& path : {young, alive, other}) {
    fs::remove_all(path);
  }
}

TEST(Faults, TwoProcessesWithOneRankAreRefused) {
  const RendezvousDirectory directory;
  ShmOptions options = test_options();
  options.connect_timeout = std::chrono::milliseconds(500);
  std::thread first([&] {
    EXPECT_EQ(code_of([&] { (void)connect_shm(directory.path(), 0, 2, options); }),
              ErrorCode::kTimeout);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(code_of([&] { (void)connect_shm(directory.path(), 0, 2, options); }),
            ErrorCode::kUnavailable);
  first.join();
}

TEST(Faults, BadArgumentsAreRefusedAtOnce) {
  auto world = local_shm_world(2, test_options());
  Communicator& communicator = *world[0];
  std::vector<float> values(4);
  const auto refused = [&](const std::function<void()>& body) {
    EXPECT_EQ(code_of(body), ErrorCode::kInvalidArgument);
  };
  refused([&] { (void)communicator.broadcast(view(std::span(values)), 2); });
  refused([&] { (void)communicator.broadcast(view(std::span(values)), -1); });
  refused([&] { (void)communicator.send(view(std::span(values)), 0); });
  refused([&] { (void)communicator.recv(view(std::span(values)), 7); });
  refused([&] {
    (void)communicator.all_reduce(view(std::span(values)), ReduceOp::kSum, {.slot = kMaxSlot + 1});
  });
  refused([&] { (void)communicator.all_reduce({nullptr, 4, DType::kF32, {}}); });
  BufferView device = view(std::span(values));
  device.device.kind = DeviceKind::kCuda;
  refused([&] { (void)communicator.all_reduce(device); });
  refused([&] { (void)connect_shm({}, 3, 2); });
  refused([&] { (void)local_shm_world(0); });
  ShmOptions wrong;
  wrong.emulate = machine_from_spec("3@1GB/s,1us");
  refused([&] { (void)local_shm_world(2, wrong); });
}

}  // namespace
}  // namespace stretto::testing
