// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/algorithm_table.hpp"

namespace stretto {

Algorithm AlgorithmTable::choose(Collective collective, Bytes size) const noexcept {
  Algorithm chosen = Algorithm::kAuto;
  for (const AlgorithmRule& rule : rules) {
    if (rule.collective == collective) {
      chosen = rule.algorithm;
      if (size <= rule.up_to) {
        break;
      }
    }
  }
  return chosen;
}

}  // namespace stretto
