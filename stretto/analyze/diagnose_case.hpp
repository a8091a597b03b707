// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "stretto/analyze/diagnose.hpp"

/// The single diagnoses: each says something of a Case, or nothing. Private to analyze/: not
/// installed.
namespace stretto::detail {

using Weight = Diagnosis::Weight;

/// A recording that is looked at, and what has been found in it.
struct Case {
  const Timeline& timeline;
  Explanation& all;
  double communication = 0.0;  // seconds, all devices

  void say(Diagnosis diagnosis) const { all.diagnoses.push_back(std::move(diagnosis)); }
  [[nodiscard]] bool said(std::string_view id) const;
};

// Both are printed with the diagnoses that they lead to.
inline constexpr double kLittleExposed = 0.05;  // of the step
inline constexpr std::int64_t kSmallBytes = 65536;

/// `12.3 %`.
[[nodiscard]] std::string percent(double ratio);

// Of a step (diagnose_step.cpp).
void look_at_share(Case& of, const Summary& s);
void look_at_schedule(Case& of, const Summary& s);
void look_at_last_bucket(Case& of, const Summary& s);
void look_at_pattern(Case& of, const Summary& s);
void look_at_modules(Case& of, const Summary& s);

// Of the collectives of all steps (diagnose_calls.cpp).
void look_at_cost(Case& of);
void look_at_stragglers(Case& of);
void look_at_all_to_all(Case& of);
void look_at_spread(Case& of);
void look_at_drift(Case& of);

// Of what else devices do (diagnose_devices.cpp).
void look_at_streams(Case& of);
void look_at_slowdown(Case& of);
void look_at_bucket_copies(Case& of);
void look_at_unknown_streams(Case& of);
void look_at_unknown_kernels(Case& of);
void look_at_memory_bound(Case& of);

}  // namespace stretto::detail
