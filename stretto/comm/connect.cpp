// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/connect.hpp"

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include "stretto/comm/mpi/mpi.hpp"

namespace stretto {

std::unique_ptr<Communicator> connect(const ShmOptions& options) {
  return connect(detect_rank_environment(process_environment()), options);
}

std::unique_ptr<Communicator> connect(const RankEnvironment& environment,
                                      const ShmOptions& options) {
  const std::filesystem::path directory = environment.rendezvous;
  if (environment.world_size == 1) {
    return connect_shm({}, 0, 1, options);
  }
  if (environment.local_world_size != environment.world_size) {
    if (started_by_mpi(process_environment()) && !options.emulate) {
      return connect_mpi({.timeout = options.timeout});
    }
    throw Error(ErrorCode::kUnavailable,
                {"this job spans several hosts, and backend shm is for one",
                 environment.launcher,
                 std::to_string(environment.local_world_size) + " of " +
                     std::to_string(environment.world_size) + " ranks on this host",
                 "all of them",
                 options.emulate ? "Machines are emulated on one host only."
                                 : "Start all ranks on one host, or by mpirun."});
  }
  // Other launchers make no directory: the first rank to come does.
  const bool made = mkdir(directory.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) {
    throw Error(
        ErrorCode::kUnavailable,
        {"cannot create the rendezvous directory: " + std::generic_category().message(errno),
         directory.string(),
         "",
         "",
         "Set TMPDIR or STRETTO_RENDEZVOUS to a writable directory."});
  }
  struct stat found {};
  if (lstat(directory.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
      found.st_uid != geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw Error(ErrorCode::kUnavailable,
                {"the rendezvous directory is not one that only this user can write",
                 directory.string(),
                 "",
                 "a directory of user " + std::to_string(geteuid()) + " with mode 0700",
                 "Somebody else may have put it there. Remove it, or set STRETTO_RENDEZVOUS to a "
                 "directory of your own."});
  }
  auto communicator = connect_shm(directory, environment.rank, environment.world_size, options);
  if (environment.launcher != "stretto") {
    // Everybody has been met and has removed or will remove its socket; the last one to do so
    // succeeds.
    communicator->barrier().wait();
    std::error_code ignored;
    std::filesystem::remove(directory, ignored);
  }
  return communicator;
}

}  // namespace stretto
