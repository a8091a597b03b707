// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stretto/comm/shm/shm.hpp"

/// Worlds of ranks for tests: as threads of this process, where the thread sanitizer sees
/// everything, and as real processes, which is what users run.
namespace stretto::testing {

/// Built with a sanitizer that slows threads: ten to twenty times.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)  // g++
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)  // clang
inline constexpr bool kSanitized =
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

enum class RanksAs { kThreads, kProcesses };

using RankBody = std::function<void(Communicator&)>;

/// Small arenas: a sanitizer must shadow what is mapped.
inline ShmOptions test_options() {
  ShmOptions options;
  options.timeout = std::chrono::seconds(20);
  options.connect_timeout = std::chrono::seconds(20);
  options.arena_capacity = Bytes(std::int64_t{96} << 20);
  return options;
}

inline void run_threads(int size, const ShmOptions& options, const RankBody& body) {
  auto world = local_shm_world(size, options);
  std::vector<std::thread> threads;
  threads.reserve(world.size());
  for (auto& communicator : world) {
    threads.emplace_back([&body, mine = communicator.get()] {
      try {
        body(*mine);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << mine->rank() << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// A private directory, gone with the object. What is left in it then is a failure.
class RendezvousDirectory {
 public:
  RendezvousDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "stretto-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~RendezvousDirectory() {
    if (!std::filesystem::is_empty(path_)) {
      ADD_FAILURE() << "files left in the rendezvous directory";
    }
    std::filesystem::remove_all(path_);
  }
  RendezvousDirectory(const RendezvousDirectory&) = delete;
  RendezvousDirectory& operator=(const RendezvousDirectory&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Forks one process per rank; returns their pids. A child exits with 1 if a gtest check failed in
/// it.
inline std::vector<pid_t> fork_ranks(const std::filesystem::path& directory,
                                     int size,
                                     const ShmOptions& options,
                                     const RankBody& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      int code = 0;
      try {
        const auto communicator = connect_shm(directory, rank, size, options);
        body(*communicator);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        code = 1;
      }
      std::fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : code);
    }
    children.push_back(child);
  }
  return children;
}

/// Exit code, or 128 + signal.
inline int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline void run_processes(int size, const ShmOptions& options, const RankBody& body) {
  const RendezvousDirectory directory;
  int rank = 0;
  for (const pid_t child : fork_ranks(directory.path(), size, options, body)) {
    EXPECT_EQ(wait_for(child), 0) << "rank " << rank;
    ++rank;
  }
}

inline void run_ranks(RanksAs as, int size, const ShmOptions& options, const RankBody& body) {
  if (as == RanksAs::kThreads) {
    run_threads(size, options, body);
  } else {
    run_processes(size, options, body);
  }
}

/// Runs `body` and returns the code of the Error it throws; fails if it throws none.
inline ErrorCode code_of(const std::function<void()>& body, std::string* what = nullptr) {
  try {
    body();
  } catch (const Error& error) {
    if (what != nullptr) {
      *what = error.what();
    }
    return error.code();
  }
  ADD_FAILURE() << "no Error was thrown";
  return ErrorCode::kInvalidArgument;
}

}  // namespace stretto::testing
