// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace stretto::detail {

/// Memory of a power of two bytes, aligned for any kernel.
struct MpiBuffer {
  struct Free {
    void operator()(std::byte* memory) const noexcept {
      ::operator delete[](memory, std::align_val_t(64));
    }
  };
  std::unique_ptr<std::byte[], Free> data;  // NOLINT(*-avoid-c-arrays): uninitialised on purpose
  std::size_t bytes = 0;
};

/// Keeps what is given back, so that in a training loop no message allocates after the first step.
class MpiBuffers {
 public:
  [[nodiscard]] MpiBuffer take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(bytes < kSmallest ? kSmallest : bytes);
    std::vector<MpiBuffer>& kept = kept_.at(static_cast<std::size_t>(std::countr_zero(size)));
    if (kept.empty()) {
      return {std::unique_ptr<std::byte[], MpiBuffer::Free>(  // NOLINT(*-avoid-c-arrays): as above
                  static_cast<std::byte*>(::operator new[](size, std::align_val_t(64)))),
              size};
    }
    MpiBuffer buffer = std::move(kept.back());
    kept.pop_back();
    kept_bytes_ -= size;
    return buffer;
  }
  void give_back(MpiBuffer buffer) {
    if (buffer.data != nullptr && kept_bytes_ + buffer.bytes <= kMostKept) {
      kept_bytes_ += buffer.bytes;
      kept_[static_cast<std::size_t>(std::countr_zero(buffer.bytes))].push_back(std::move(buffer));
    }
  }

 private:
  static constexpr std::size_t kSmallest = 64;
  static constexpr std::size_t kMostKept = std::size_t{512} << 20;
  std::array<std::vector<MpiBuffer>, 64> kept_;
  std::size_t kept_bytes_ = 0;
};

/// Objects at fixed addresses, used again.
template <typename T>
class MpiPool {
 public:
  [[nodiscard]] T& take() {
    if (free_.empty()) {
      all_.push_back(std::make_unique<T>());
      return *all_.back();
    }
    T& object = *free_.back();
    free_.pop_back();
    object = T();
    return object;
  }
  void give_back(T& object) { free_.push_back(&object); }

 private:
  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> free_;
};

}  // namespace stretto::detail
