// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.hpp"
#include "stretto/data/step_profile.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const auto profile =
      fuzz::parsed([&] { return profile_from_model_json(fuzz::text_of(data, size), "f", {}); });
  if (profile) {
    (void)step_profile_from_json(to_json(*profile), "again");
  }
  return 0;
}
