// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stretto/comm/shm/shm.hpp"

namespace stretto::benchmarks {

/// Runs `body` in one process per rank; with `pin`, each on a core of its own as far as there are
/// cores. Returns 0 if all ended well.
inline int run_ranks(int ranks,
                     const ShmOptions& options,
                     bool pin,
                     const std::function<void(Communicator&)>& body) {
  std::string directory =
      (std::filesystem::temp_directory_path() / "stretto-bench-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) {
    std::perror("mkdtemp");
    return 1;
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      if (pin) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET(static_cast<std::size_t>(rank % static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))),
                &cpus);
        sched_setaffinity(0, sizeof cpus, &cpus);
      }
      int code = 0;
      try {
        body(*connect_shm(directory, rank, ranks, options));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        code = 1;
      }
      std::fflush(nullptr);
      _exit(code);
    }
    children.push_back(child);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed |= status;
  }
  std::filesystem::remove_all(directory);
  return failed == 0 ? 0 : 1;
}

}  // namespace stretto::benchmarks
