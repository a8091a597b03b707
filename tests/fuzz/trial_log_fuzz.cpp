// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fuzz/fuzz.hpp"
#include "stretto/tune/setting.hpp"
#include "stretto/tune/trial_log.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const std::string_view text = fuzz::text_of(data, size);
  (void)fuzz::parsed([&] { return parse_grid(text); });
  (void)fuzz::parsed([&] { return parse_knob_values(text); });
  if (const auto records = fuzz::parsed([&] { return trials_from_csv(text, "input"); })) {
    std::string again = trial_log_header();
    for (const TrialRecord& record : *records) {
      again += to_csv(record);
    }
    fuzz::require(trials_from_csv(again, "again").size() == records->size());
  }
  return 0;
}
