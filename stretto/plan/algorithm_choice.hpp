// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "stretto/data/algorithm_table.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/exchange_time.hpp"

namespace stretto {

/// Which of `algorithms` is the cheapest on `machine` for every size up to `most`, by
/// collective_time(): measured curves first. `algorithms` are those that can be run: what a
/// communicator says (runnable_algorithms()). A curve that the machine has for kAuto is what the
/// communicator takes by itself, and may be the cheapest. Left out are the leader form and double
/// binary trees without a curve of their own: their prices are bounds. Sizes are looked at 8 to a
/// factor of 2; empty if none applies.
[[nodiscard]] AlgorithmTable algorithm_table(const Machine& machine,
                                             Collective collective,
                                             std::span<const Algorithm> algorithms,
                                             Bytes most);

/// What a communicator that uses the table takes for the collective on the machine, for planning.
[[nodiscard]] ExchangeTime table_time(const Machine& machine,
                                      Collective collective,
                                      const AlgorithmTable& table,
                                      Bytes most);

/// For people, a line for each rule: up to which size which algorithm, what it takes there, and
/// what the next best of `algorithms` would; each measured or by formula.
[[nodiscard]] std::string explain(const Machine& machine,
                                  const AlgorithmTable& table,
                                  std::span<const Algorithm> algorithms);

}  // namespace stretto
