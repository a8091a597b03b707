// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stretto/data/timeline.hpp"

/// The same collective on several ranks. Private to analyze/: not installed.
namespace stretto::detail {

/// One call, by rank. Records are those of the Timeline.
struct MatchedCall {
  std::vector<const Record*> records;
  /// The shortest over ranks.
  [[nodiscard]] std::int64_t transfer_ns() const;
};

struct Matching {
  std::vector<MatchedCall> calls;
  std::int64_t unmatched = 0;  ///< Calls of groups of which several ranks are here, left alone.
  std::vector<std::string> notes;
};

/// Collectives that count: of a rank with device records those of its devices, else of its host.
[[nodiscard]] std::vector<const Record*> counted_collectives(const Timeline& timeline);

[[nodiscard]] Matching match_collectives(const Timeline& timeline);

}  // namespace stretto::detail
