// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stretto/data/plan.hpp"
#include "stretto/data/step_profile.hpp"

namespace stretto {

/// Whether a plan is for this profile's gradients: the same names, dtypes and shapes in the same
/// order, which is that of the arena the plan's buckets are ranges of. Times may differ. Linear in
/// the tensors and without allocating, where they agree.
/// @throws Error kInvalidArgument naming the first tensor that is another one. The buckets are not
///         looked at: that is Plan::validate().
void require_fit(const StepProfile& profile, const Plan& plan);

}  // namespace stretto
