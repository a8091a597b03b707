// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.hpp"
#include "stretto/analyze/analyze.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/report/report.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const auto timeline =
      fuzz::parsed([&] { return timeline_from_json(fuzz::text_of(data, size), "f"); });
  if (!timeline) {
    return 0;
  }
  fuzz::require(timeline_from_json(to_json(*timeline), "again").records.size() ==
                timeline->records.size());
  (void)chrome_trace(*timeline);
  // What can be read can be analyzed, or it is said why not.
  (void)fuzz::parsed([&] { return text_timeline(*timeline, {.step = typical_step(*timeline)}); });
  const auto summary = fuzz::parsed([&] { return analyze(*timeline); });
  if (summary) {
    (void)summary_from_json(to_json(*summary), "summary");
    (void)text_summary(*summary);
  }
  return 0;
}
