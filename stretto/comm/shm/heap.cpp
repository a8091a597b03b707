// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/shm/heap.hpp"

#include <string>
#include <utility>

#include <sys/mman.h>

namespace stretto::detail {
namespace {
constexpr std::size_t kPage = 4096;
}

class Heap::HeapArena final : public Arena {
 public:
  HeapArena(std::shared_ptr<Heap> heap, std::span<std::byte> whole, std::size_t used)
      : Arena(whole.first(used)), heap_(std::move(heap)), whole_(whole) {}
  ~HeapArena() override { heap_->free(whole_); }
  HeapArena(const HeapArena&) = delete;
  HeapArena& operator=(const HeapArena&) = delete;

 private:
  std::shared_ptr<Heap> heap_;  // arenas may outlive the communicator; its memory must too
  std::span<std::byte> whole_;
};

Heap::Heap(std::span<std::byte> memory, std::shared_ptr<const void> mapping)
    : memory_(memory), mapping_(std::move(mapping)) {
  free_[0] = memory.size();
}

std::unique_ptr<Arena> Heap::allocate(Bytes size) {
  if (size.count() < 0 || static_cast<std::size_t>(size.count()) > memory_.size()) {
    refuse(size);
  }
  const auto wanted = static_cast<std::size_t>(size.count());
  const std::size_t whole = std::max<std::size_t>((wanted + kPage - 1) / kPage * kPage, kPage);
  const std::scoped_lock lock(mutex_);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    if (range->second < whole) {
      continue;
    }
    const std::size_t offset = range->first;
    const std::size_t rest = range->second - whole;
    free_.erase(range);
    if (rest != 0) {
      free_[offset + whole] = rest;
    }
    std::byte* const at = memory_.data() + offset;
    return std::make_unique<HeapArena>(shared_from_this(), std::span(at, whole), wanted);
  }
  refuse(size);
}

void Heap::refuse(Bytes size) const {
  throw Error(
      ErrorCode::kUnavailable,
      {"no room for an arena",
       "shared memory of this rank",
       format(size) + " asked for",
       "at most " + format(Bytes(static_cast<std::int64_t>(memory_.size()))) + " for all arenas",
       "Take smaller buffers; a program may raise ShmOptions::arena_capacity."});
}

void Heap::free(std::span<std::byte> bytes) noexcept {
  madvise(bytes.data(), bytes.size(), MADV_REMOVE);  // gives the pages back, and zeroes them
  const std::scoped_lock lock(mutex_);
  auto offset = static_cast<std::size_t>(bytes.data() - memory_.data());
  std::size_t length = bytes.size();
  const auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + length) {
    length += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  free_[offset] = length;
}

}  // namespace stretto::detail
