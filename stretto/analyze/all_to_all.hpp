// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "stretto/analyze/collectives.hpp"
#include "stretto/analyze/matching.hpp"

/// Private to analyze/: not installed.
namespace stretto::detail {

[[nodiscard]] std::optional<AllToAllBalance> all_to_all_balance(const Timeline& timeline,
                                                                const Matching& matching);

}  // namespace stretto::detail
