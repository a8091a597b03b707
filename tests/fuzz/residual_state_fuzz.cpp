// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "stretto/base/hash.hpp"
#include "stretto/compress/residual_state.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  std::vector<std::byte> bytes(size);
  if (size != 0) {
    std::memcpy(bytes.data(), data, size);
  }
  // A fuzzer does not guess checksums: the same bytes with the right one.
  std::vector<std::byte> summed = bytes;
  const std::uint64_t checksum = Hasher().add_raw(bytes).digest();
  summed.resize(size + sizeof(checksum));
  std::memcpy(summed.data() + size, &checksum, sizeof(checksum));
  for (const std::vector<std::byte>& one : {bytes, summed}) {
    if (const auto state = fuzz::parsed([&] { return residual_state_from_bytes(one, "f"); })) {
      fuzz::require(to_bytes(*state) == one);
      (void)fuzz::parsed([&] { return remapped({&*state, 1}, 0, 2, true); });
    }
  }
  return 0;
}
