// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/cost_formulas.hpp"
#include "stretto/simulate/exchange_time.hpp"

namespace stretto {

/// Time of one collective over all ranks of `group` (a machine, or a group_view of one). `size` is
/// the whole tensor, as in cost_formulas.hpp; of send and recv it is the message, over the
/// outermost level. Zero bytes and one rank take no time.
///
/// A curve of the machine for this collective and number of ranks comes first: that of the
/// algorithm, else that of kAuto. Between its points it is straight in log(size) and log(time),
/// below the first it is that time, above the last it goes on by seconds_per_byte_beyond(); what
/// was measured may fall with the size, and so does this. Without a curve the formulas hold: on one
/// level those of cost_formulas.hpp, on several the ones in docs/costs.md. kAuto takes the cheapest
/// that applies, kDirect left out: only Stretto's own communicators run it, and it must be asked
/// for.
///
/// kDirect, kRing and so on are *flat*: ranks in order, ignorant of levels. kHierarchical is
/// reduce_scatter inside, all_reduce of the n/g between, all_gather inside, by rings, through any
/// number of levels. kHierarchicalPipelined overlaps the levels: the largest bandwidth term instead
/// of their sum. kLeader reduces all n to one rank of each group, which has only its own share of
/// the group's link. kInSwitch needs a level with in_switch_efficiency; levels without are crossed
/// as by kHierarchicalPipelined. kParameterServer: rank 0 serves the others.
/// @throws Error kInvalidArgument: an algorithm that does not do this collective, or not on this
/// machine; it says which do.
[[nodiscard]] Seconds collective_time(const Machine& group,
                                      Collective collective,
                                      Algorithm algorithm,
                                      Bytes size);

struct AlgorithmCost {
  Algorithm algorithm = Algorithm::kAuto;  ///< kAuto: a curve of whatever the library chose.
  Seconds time{};
  Basis basis = Basis::kAssumed;  ///< kMeasured for curves; formulas have the machine's basis.
};
/// All that apply, cheapest first. An algorithm with its own curve stands with that alone.
/// @throws Error kInvalidArgument: a collective that nothing here has a price for.
[[nodiscard]] std::vector<AlgorithmCost> compare_algorithms(const Machine& group,
                                                            Collective collective,
                                                            Bytes size);

/// The same for planning. Lines where all candidates are affine in the size: one for an algorithm,
/// for kAuto those of all affine ones (without the two whose best number of segments depends on the
/// size). Else a curve: the measured points, or the formula at 8 sizes per factor of 2 from 1 byte
/// to `most`.
/// @throws Error as collective_time.
[[nodiscard]] ExchangeTime exchange_time(const Machine& group,
                                         Collective collective,
                                         Algorithm algorithm,
                                         Bytes most);

}  // namespace stretto
