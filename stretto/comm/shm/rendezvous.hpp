// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/comm/shm/segment.hpp"

namespace stretto::detail {

/// What a rank gets from each peer when they meet. Entry `rank` itself is empty.
struct Meeting {
  std::vector<FileDescriptor> files;    ///< The peers' segments, and our own.
  std::vector<FileDescriptor> sockets;  ///< Stay open: their hanging up is a peer's death.
  std::vector<int> pids;
};

/// Meets all other ranks in `directory`: rank r listens on `rank-<r>.sock`, connects to all lower
/// ranks and is connected to by all higher ones; each pair swaps its size, its layout and its file.
/// Removes its socket file once everybody has been met.
/// `machine` is a hash of what is emulated; ranks must agree on it.
/// @throws Error kTimeout naming the ranks that did not come, kMismatch, kUnavailable.
[[nodiscard]] Meeting meet(const std::filesystem::path& directory,
                           int rank,
                           int size,
                           const SegmentLayout& layout,
                           FileDescriptor own,
                           Nanoseconds timeout,
                           std::uint64_t machine);

/// Whether a process listens in `directory` for other ranks to come.
[[nodiscard]] bool has_listener(const std::filesystem::path& directory);

}  // namespace stretto::detail
