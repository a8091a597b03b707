// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.hpp"
#include "stretto/data/summary.hpp"
#include "stretto/report/report.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const auto summary =
      fuzz::parsed([&] { return summary_from_json(fuzz::text_of(data, size), "f"); });
  if (summary) {
    (void)text_summary(*summary);
    fuzz::require(to_json(summary_from_json(to_json(*summary), "again")) == to_json(*summary));
  }
  return 0;
}
