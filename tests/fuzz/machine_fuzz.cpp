// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.hpp"
#include "stretto/data/machine.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const std::string_view text = fuzz::text_of(data, size);
  for (const auto& machine : {fuzz::parsed([&] { return machine_from_json(text, "f"); }),
                              fuzz::parsed([&] { return machine_from_text(text); })}) {
    if (machine) {
      fuzz::require(machine->ranks() >= 1);
      (void)machine->level_between(0, machine->ranks() - 1);
      fuzz::require(machine_from_json(to_json(*machine), "again").ranks() == machine->ranks());
    }
  }
  return 0;
}
