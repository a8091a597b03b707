// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.hpp"
#include "stretto/data/plan.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const auto plan = fuzz::parsed([&] { return plan_from_json(fuzz::text_of(data, size), "f"); });
  if (plan) {
    const Plan again = plan_from_json(to_json(*plan), "again");
    fuzz::require(again.hash() == plan->hash() && difference(*plan, again).where.empty());
  }
  return 0;
}
