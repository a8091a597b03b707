// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/codec_spec.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/simulate/simulate.hpp"

namespace stretto {

/// What may be encoded, and what it must bring.
struct CodecPolicy {
  /// What the user allows; all of them lose something. ExchangeCosts must have their prices.
  std::vector<CodecSpec> allowed;
  Bytes least_bytes{64 << 10};     ///< Smaller buckets stay as they are.
  double least_ratio = 1.5;        ///< Of a bucket's bytes to its encoding's.
  double least_gain = 0.03;        ///< Of the step; for less no gradient is made inexact.
  std::vector<std::string> exact;  ///< Names of tensors whose buckets stay as they are; `*` in them
                                   ///< stands for anything.
};

/// The codec of one bucket, and in words why that one or none.
struct BucketCodec {
  CodecSpec codec;
  std::string why;
};

struct CodecChoice {
  Plan plan;                         ///< That was given, with codecs.
  std::vector<BucketCodec> buckets;  ///< One for each of the plan's.
  Seconds exact_step{};              ///< Predicted without codecs,
  Seconds step{};                    ///< and with those chosen; the same if there are none.
};

/// Codecs for the buckets of `plan`, by the predicted step: communication that compute hides is
/// worth nothing, so a bucket gets a codec only if the step is longer without. First the quickest
/// codec for every bucket, or one for all if that is quicker; then, bucket by bucket, the least
/// lossy that costs no time (a thousandth of the step in all). No codecs at all if they win less
/// than least_gain.
/// @throws Error kInvalidArgument: an allowed codec without price, or policy numbers that are not
///         possible; and as simulate().
[[nodiscard]] CodecChoice choose_codecs(const StepProfile& profile,
                                        const ExchangeCosts& costs,
                                        const Plan& plan,
                                        const SimulateOptions& options,
                                        const CodecPolicy& policy);

/// The same for a step whose buckets may be cut as codecs want them: for exchanges as they are, or
/// for those with one of the codecs, whichever makes the shortest step.
/// @throws Error as plan() and choose_codecs().
[[nodiscard]] CodecChoice plan_codecs(const StepProfile& profile,
                                      const ExchangeCosts& costs,
                                      const SimulateOptions& options,
                                      const CodecPolicy& policy);

/// The plan with `codec` for its buckets of f32, but for those that hold a tensor of these names
/// (see CodecPolicy::exact).
[[nodiscard]] Plan with_codec(Plan plan,
                              const CodecSpec& codec,
                              const std::vector<std::string>& exact);

/// Whether `name` is what `pattern` says; `*` in it stands for any characters, none too.
[[nodiscard]] bool matches(std::string_view pattern, std::string_view name) noexcept;

}  // namespace stretto
