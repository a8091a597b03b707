// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stretto/report/html.hpp"

namespace stretto {

/// The numbers of a report's runs and summaries in Prometheus' text format 0.0.4: seconds and
/// bytes, gauges, one sample per rank (`rank`) or bucket (`bucket`, `op`) of each run (`run`). What
/// is not known has no sample.
[[nodiscard]] std::string prometheus_text(const Report& report);

}  // namespace stretto
