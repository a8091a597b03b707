// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "stretto/analyze/certificate.hpp"

/// Private to analyze/: not installed.
namespace stretto::detail {

/// Of a step whose parameters are gathered and whose gradients are scattered (FSDP, ZeRO): what it
/// would save to ask for parameters earlier. Absent where sizes or launches are not recorded, where
/// all_reduces carry gradients as well, or the costs make the step much longer than it was.
[[nodiscard]] std::optional<Certificate> certify_sharded(const Timeline& timeline,
                                                         const Summary& summary,
                                                         const ExchangeCosts& costs);

}  // namespace stretto::detail
