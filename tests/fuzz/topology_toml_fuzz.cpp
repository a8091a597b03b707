// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.hpp"
#include "stretto/topology/toml.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const auto topology =
      fuzz::parsed([&] { return topology_from_toml(fuzz::text_of(data, size), "f"); });
  if (topology && topology->places() < 10000) {
    const auto machine = fuzz::parsed([&] { return machine_of(*topology); });
    fuzz::require(!machine || machine->ranks() == topology->places());
    fuzz::require(!draw(*topology).empty());
    fuzz::require(topology->place_of_rank().size() == static_cast<std::size_t>(topology->places()));
  }
  return 0;
}
