// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "stretto/comm/transport.hpp"

namespace stretto::detail {

/// Memory that can be lent, for operations on memory that cannot. Some is kept when an operation is
/// over: a transport takes tens of microseconds to give it back to the kernel. Behind the engine's
/// lock.
class Stages {
 public:
  explicit Stages(Transport& transport) : transport_(transport) {}

  /// Little for an operation of few bytes, so that many can be in flight; else 1 MiB.
  [[nodiscard]] std::unique_ptr<Arena> take(std::size_t bytes) {
    const bool small = bytes <= kSmall / 2;
    std::vector<std::unique_ptr<Arena>>& kept = small ? small_ : large_;
    if (kept.empty()) {
      return transport_.allocate(Bytes(static_cast<std::int64_t>(small ? kSmall : kLarge)));
    }
    std::unique_ptr<Arena> stage = std::move(kept.back());
    kept.pop_back();
    return stage;
  }
  void give_back(std::unique_ptr<Arena> stage) {
    std::vector<std::unique_ptr<Arena>>& kept = stage->bytes().size() == kSmall ? small_ : large_;
    if (kept.size() < kKept) {
      kept.push_back(std::move(stage));
    }
  }

 private:
  static constexpr std::size_t kLarge = std::size_t{1} << 20;
  static constexpr std::size_t kSmall = std::size_t{64} << 10;
  static constexpr std::size_t kKept = 4;  // of each size

  Transport& transport_;
  std::vector<std::unique_ptr<Arena>> small_;
  std::vector<std::unique_ptr<Arena>> large_;
};

}  // namespace stretto::detail
