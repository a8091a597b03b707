// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/step_profile.hpp"

/// Plans by rule. `tensors` are in backward order; tensors of different dtypes never share a
/// bucket.
namespace stretto {

/// One bucket per dtype.
[[nodiscard]] Plan single_bucket_plan(std::vector<TensorSpec> tensors);

/// PyTorch DistributedDataParallel's rule: a bucket closes with the tensor that reaches its cap (so
/// it may exceed it); tensors are never split; the first bucket has its own, smaller cap. 25 MiB
/// and 1 MiB are PyTorch's defaults. An imitation of the rule, not PyTorch.
[[nodiscard]] Plan ddp_plan(std::vector<TensorSpec> tensors,
                            Bytes cap = Bytes(25 << 20),
                            Bytes first_cap = Bytes(1 << 20));

/// Buckets of at most `cap`, filled in order. With `split`, tensors are cut so that every bucket
/// but the last of a dtype is exactly `cap` (rounded down to whole elements, at least one);
/// without, a tensor larger than the cap has a bucket of its own.
[[nodiscard]] Plan uniform_plan(std::vector<TensorSpec> tensors, Bytes cap, bool split = true);

/// The tensors of a profile, in its order.
[[nodiscard]] std::vector<TensorSpec> tensors_of(const StepProfile& profile);

}  // namespace stretto
