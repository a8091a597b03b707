// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stretto/analyze/explain.hpp"

/// Private to analyze/: not installed.
namespace stretto::detail {

[[nodiscard]] std::optional<Slowdown> measure_slowdown(const Timeline& timeline);

/// Whether it is more than chance: the rule of the diagnosis `slowed_compute`.
[[nodiscard]] bool is_slowed(const Slowdown& slowdown, const std::vector<DeviceTotals>& devices);

/// What the ranks' hosts and versions say: groups spread over hosts, versions that differ.
[[nodiscard]] std::vector<Diagnosis> diagnose_setups(const Timeline& timeline);

/// Adds the diagnoses to an explanation that has all else.
void diagnose(const Timeline& timeline, Explanation& explanation);

}  // namespace stretto::detail
