// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

/// What the page may ask. Each takes the question as JSON and gives the answer as JSON; times in
/// seconds, sizes in bytes. A question that cannot be answered throws, and the page gets the text
/// (see exceptions.cpp).
namespace stretto::page {

using Json = nlohmann::ordered_json;

/// `{"model" or "profile", "machine" or "fitted", "buckets", ...}` as viewer/src/model.ts writes
/// it: the numbers of `stretto plan --json` and `stretto simulate --json`, with a timeline to draw.
[[nodiscard]] Json what_if(const Json& question);

/// `{"machine", "collective", "bytes"}`: what each algorithm takes, cheapest first.
[[nodiscard]] Json collective_times(const Json& question);

/// `{"machine", "places": [...], "bytes"}`: a ring over ranks at these places.
[[nodiscard]] Json ring(const Json& question);

/// `{"model", "machine", "device", "experts", "data", "tensor", "pipeline", "expert",
/// "micro_batch", "global_batch"}`: a step of a transformer laid out so, and what travels.
[[nodiscard]] Json layout(const Json& question);

/// `{"codec", "gradient": [...], "residual": [...]}`: what arrives, what is left, what travels.
[[nodiscard]] Json compress(const Json& question);

/// `{}`: names of models, machine presets and devices.
[[nodiscard]] Json names();

}  // namespace stretto::page
