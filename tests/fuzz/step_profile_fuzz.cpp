// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.hpp"
#include "stretto/data/step_profile.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const auto profile =
      fuzz::parsed([&] { return step_profile_from_json(fuzz::text_of(data, size), "f"); });
  if (profile) {
    fuzz::require(step_profile_from_json(to_json(*profile), "again").bytes() == profile->bytes());
  }
  return 0;
}
