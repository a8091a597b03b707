// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/diagnose.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "stretto/analyze/diagnose_case.hpp"

namespace stretto::detail {
namespace {

/// What makes communication slow is no cause of anything where next to none is exposed.
void make_notes_of_what_explains_little(const Case& of) {
  if (!of.all.summary || of.all.summary->exposed / of.all.summary->step >= kLittleExposed) {
    return;
  }
  for (Diagnosis& diagnosis : of.all.diagnoses) {
    for (const std::string_view id : {"exposed_module",
                                      "latency_bound",
                                      "straggler",
                                      "uneven_collectives",
                                      "uneven_all_to_all",
                                      "slow_group",
                                      "rank_order",
                                      "versions"}) {
      if (diagnosis.id == id) {
        diagnosis.weight = Weight::kNote;
      }
    }
  }
}

}  // namespace

std::string percent(double ratio) {
  return fmt::format("{:.1f} %", 100.0 * ratio);
}

bool Case::said(std::string_view id) const {
  return std::any_of(all.diagnoses.begin(), all.diagnoses.end(), [&](const Diagnosis& diagnosis) {
    return diagnosis.id == id;
  });
}

void diagnose(const Timeline& timeline, Explanation& explanation) {
  Case of{timeline, explanation};
  if (explanation.has_communication()) {
    for (const DeviceTotals& device : explanation.devices) {
      of.communication += static_cast<double>(device.communication_ns) / 1e9;
    }
    for (const Record& record : timeline.records) {
      // Their sum, as waiting is one: threads of the host communicate at the same time.
      if (explanation.host_only && record.kind == RecordKind::kCommunication) {
        of.communication += static_cast<double>(record.end_ns - record.begin_ns) / 1e9;
      }
    }
    if (explanation.summary) {
      look_at_share(of, *explanation.summary);
      look_at_schedule(of, *explanation.summary);
      look_at_last_bucket(of, *explanation.summary);
      look_at_pattern(of, *explanation.summary);
      look_at_modules(of, *explanation.summary);
    }
    look_at_cost(of);
    look_at_stragglers(of);
    look_at_all_to_all(of);
    look_at_streams(of);
    look_at_slowdown(of);
    look_at_spread(of);
    look_at_drift(of);
    for (Diagnosis& diagnosis : diagnose_setups(timeline)) {
      of.say(std::move(diagnosis));
    }
    make_notes_of_what_explains_little(of);
  }
  look_at_bucket_copies(of);
  look_at_unknown_streams(of);
  look_at_unknown_kernels(of);
  look_at_memory_bound(of);
  std::stable_sort(explanation.diagnoses.begin(),
                   explanation.diagnoses.end(),
                   [](const Diagnosis& a, const Diagnosis& b) { return a.weight > b.weight; });
}

}  // namespace stretto::detail
