// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stretto/data/machine.hpp"

namespace stretto {

/// A machine of which nothing is known but how long one collective took on all its ranks, as NCCL
/// tests measure it. The curve counts for that collective; for all others one level of equal ranks
/// stands, of the latency and bandwidth with which a ring (broadcast and reduce: a pipelined chain)
/// takes the time of the line through the curve, by the formulas of docs/costs.md. How ranks lie on
/// nodes is in no curve. Basis kMeasured.
/// @throws Error kInvalidArgument: fewer than two ranks, no points, or times that are not above
///         zero.
[[nodiscard]] Machine machine_of_curve(std::string name, std::string source, CollectiveCurve curve);

}  // namespace stretto
