// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/connect.hpp"

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include "stretto/comm/mpi/mpi.hpp"
#include "stretto/comm/shm/rendezvous.hpp"

namespace stretto {
namespace {

namespace fs = std::filesystem;

bool is_own_directory(const struct stat& found) {
  return S_ISDIR(found.st_mode) && found.st_uid == geteuid();
}

/// Ranks that were killed while they waited for others leave the directory that they made: no other
/// launcher knows of it. Where nobody listens, and nobody has begun to for a minute, nobody meets.
void remove_abandoned_beside(const fs::path& directory) {
  constexpr std::size_t kDigits = 16;  // of the job's hash
  constexpr std::time_t kYoung = 60;
  const std::string prefix = "stretto-" + std::to_string(getuid()) + "-";
  const auto is_derived = [&](const fs::path& path) {
    const std::string name = path.filename().string();
    return name.size() == prefix.size() + kDigits && name.starts_with(prefix);
  };
  if (!is_derived(directory)) {
    return;  // Given by STRETTO_RENDEZVOUS: what is beside it is none of ours.
  }
  std::error_code none;
  for (fs::directory_iterator entry(directory.parent_path(), none), end; !none && entry != end;
       entry.increment(none)) {
    struct stat found {};
    if (is_derived(entry->path()) && entry->path() != directory &&
        lstat(entry->path().c_str(), &found) == 0 && is_own_directory(found) &&
        found.st_mtime + kYoung < std::time(nullptr) && !detail::has_listener(entry->path())) {
      std::error_code ignored;
      fs::remove_all(entry->path(), ignored);
    }
  }
}

}  // namespace

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
  remove_abandoned_beside(directory);
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
  if (lstat(directory.c_str(), &found) != 0 || !is_own_directory(found) ||
      (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw Error(ErrorCode::kUnavailable,
                {"the rendezvous directory is not one that only this user can write",
                 directory.string(),
                 "",
                 "a directory of user " + std::to_string(geteuid()) + " with mode 0700",
                 "Somebody else may have put it there. Remove it, or set STRETTO_RENDEZVOUS to a "
                 "directory of your own."});
  }
  // Each rank has removed its socket when it comes here; the last one to come succeeds.
  const auto remove_if_empty = [&] {
    std::error_code ignored;
    if (environment.launcher != "stretto") {
      std::filesystem::remove(directory, ignored);
    }
  };
  try {
    auto communicator = connect_shm(directory, environment.rank, environment.world_size, options);
    if (environment.launcher != "stretto") {
      communicator->barrier().wait();
    }
    remove_if_empty();
    return communicator;
  } catch (...) {
    remove_if_empty();
    throw;
  }
}

}  // namespace stretto
