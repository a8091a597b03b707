// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "stretto/comm/communicator.hpp"
#include "stretto/data/machine.hpp"

/// Backend `shm`: ranks on one host, over shared memory.
///
/// Every rank owns one sealed memfd, passed to its peers over Unix sockets in the rendezvous
/// directory; nothing is ever created in /dev/shm and nothing is left in the directory once all
/// ranks are connected. A rank's death is seen by its sockets hanging up.
namespace stretto {

/// More ranks than this have no place in the shared memory of one job.
inline constexpr int kMaxShmRanks = 256;

struct ShmOptions {
  Nanoseconds timeout = std::chrono::seconds(30);          ///< Of every operation.
  Nanoseconds connect_timeout = std::chrono::seconds(60);  ///< For all ranks to arrive.
  Bytes arena_capacity{};  ///< All arenas of this rank; 0 = the host's memory. Not used until
                           ///< touched.
  /// Deliver messages as this machine would, instead of at once. Must have exactly `size` ranks.
  std::optional<Machine> emulate;
  /// With `emulate`: places[r] is where rank r sits on the machine, whose places are numbered
  /// innermost first; the same on all ranks. Empty: rank r at place r.
  std::vector<int> places;
  /// Which ranks are near each other, for the hierarchical algorithms; the same on all ranks.
  /// Empty: the levels of the emulated machine, as its places say, else none.
  RankGroups groups;
};

/// Connects rank `rank` of `size`; returns when all ranks are connected. `directory` must exist, be
/// private to the user and the same for all ranks.
/// @throws Error kTimeout naming the ranks that are missing; kMismatch when ranks disagree on size;
///         kUnavailable when sockets or memory cannot be had.
[[nodiscard]] std::unique_ptr<Communicator> connect_shm(const std::filesystem::path& directory,
                                                        int rank,
                                                        int size,
                                                        const ShmOptions& options = {});

/// All ranks of a world inside this process, for tests and for learning: element r is rank r, to be
/// used by a thread of its own.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> local_shm_world(
    int size, const ShmOptions& options = {});

}  // namespace stretto
