// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"

namespace stretto {

/// One line of a table: this algorithm for this collective up to this size.
struct AlgorithmRule {
  Collective collective = Collective::kAllReduce;
  Bytes up_to{};  ///< Of the whole tensor, included.
  Algorithm algorithm = Algorithm::kAuto;
  Seconds time{};  ///< What it is expected to take at `up_to`.
};

/// Which algorithm a communicator takes for kAuto, by collective and size. Filled by plan/
/// (algorithm_table()), read by Communicator::use().
struct AlgorithmTable {
  std::vector<AlgorithmRule> rules;  ///< Of one collective: sizes increase.

  /// The first rule that reaches `size`; beyond the last one, that; without any, kAuto.
  [[nodiscard]] Algorithm choose(Collective collective, Bytes size) const noexcept;
};

}  // namespace stretto
