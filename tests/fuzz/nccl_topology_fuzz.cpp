// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.hpp"
#include "stretto/topology/nccl_xml.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const auto topology =
      fuzz::parsed([&] { return topology_from_nccl_xml(fuzz::text_of(data, size), "f"); });
  if (topology) {
    fuzz::require(topology->hosts.size() == 1 && topology->places() > 0);
    fuzz::require(!draw(*topology).empty());
    const auto machine = fuzz::parsed([&] { return machine_of(*topology); });
    fuzz::require(!machine || machine->ranks() == topology->places());
  }
  return 0;
}
