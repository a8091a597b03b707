// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace stretto {

/// xxh64 over a canonical little-endian stream, the same on every host. Strings are preceded by
/// their length, so that ("ab","c") and ("a","bc") differ.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  Hasher& add(std::uint64_t value);
  Hasher& add(std::string_view text);
  Hasher& add_raw(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stretto
