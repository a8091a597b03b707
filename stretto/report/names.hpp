// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stretto/data/summary.hpp"
#include "stretto/data/timeline.hpp"

namespace stretto::detail {

/// What to call a record: its own name, else its kind.
[[nodiscard]] inline std::string_view label_of(const Timeline& timeline, const Record& record) {
  const bool named = record.name < timeline.names.size() && !timeline.names[record.name].empty();
  return named ? std::string_view(timeline.names[record.name]) : to_string(record.kind);
}

/// For people: what a bucket's communication began after.
[[nodiscard]] std::string_view words_of(WaitedFor reason) noexcept;

}  // namespace stretto::detail
