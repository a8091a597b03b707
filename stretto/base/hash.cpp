// SPDX-License-Identifier: Apache-2.0
#include "stretto/base/hash.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

// Compiled in, so that users of the library need no libxxhash of their own.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace stretto {

struct Hasher::State {
  XXH64_state_t xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  XXH64_reset(&state_->xxh, 0);
}
Hasher::~Hasher() = default;

Hasher& Hasher::add(std::uint64_t value) {
  std::array<std::byte, sizeof value> little_endian{};
  for (std::byte& byte : little_endian) {
    byte = static_cast<std::byte>(value & 0xffU);
    value >>= 8U;
  }
  return add_raw(little_endian);
}

Hasher& Hasher::add(std::string_view text) {
  add(std::uint64_t{text.size()});
  return add_raw(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

Hasher& Hasher::add_raw(std::span<const std::byte> bytes) {
  XXH64_update(&state_->xxh, bytes.data(), bytes.size());
  return *this;
}

std::uint64_t Hasher::digest() const {
  return XXH64_digest(&state_->xxh);
}

}  // namespace stretto
