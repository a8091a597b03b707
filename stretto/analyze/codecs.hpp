// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stretto/analyze/steps.hpp"
#include "stretto/data/summary.hpp"
#include "stretto/data/timeline.hpp"

namespace stretto::detail {

/// Of the records that codec_records.hpp describes. A codec counts in the steps in which a rank
/// encoded with it.
[[nodiscard]] std::vector<CodecSummary> summarize_codecs(const Timeline& timeline,
                                                         const std::vector<Step>& steps);

}  // namespace stretto::detail
