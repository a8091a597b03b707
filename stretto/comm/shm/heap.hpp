// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "stretto/comm/communicator.hpp"

namespace stretto::detail {

/// Hands out the heap of a rank's own segment: first fit, whole pages, zeroed. Arenas are few and
/// long-lived, so a map of free ranges is enough. Thread-safe. Freed pages go back to the system.
class Heap : public std::enable_shared_from_this<Heap> {
 public:
  /// `mapping` is kept as long as the heap or an arena of it lives.
  Heap(std::span<std::byte> memory, std::shared_ptr<const void> mapping);

  /// @throws Error kUnavailable when no free range is long enough.
  [[nodiscard]] std::unique_ptr<Arena> allocate(Bytes size);
  [[nodiscard]] bool contains(const std::byte* data, std::size_t bytes) const noexcept {
    return data >= memory_.data() && bytes <= memory_.size() &&
           data <= memory_.data() + (memory_.size() - bytes);
  }

 private:
  class HeapArena;
  [[noreturn]] void refuse(Bytes size) const;
  void free(std::span<std::byte> bytes) noexcept;

  std::span<std::byte> memory_;
  std::shared_ptr<const void> mapping_;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // offset -> bytes
};

}  // namespace stretto::detail
