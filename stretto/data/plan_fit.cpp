// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/plan_fit.hpp"

#include <algorithm>
#include <string>

#include "stretto/base/error.hpp"

namespace stretto {

void require_fit(const StepProfile& profile, const Plan& plan) {
  const auto fits = [](const ProfileTensor& tensor, const TensorSpec& spec) {
    return tensor.name == spec.name && tensor.dtype == spec.dtype && tensor.shape == spec.shape;
  };
  if (std::equal(profile.tensors.begin(),
                 profile.tensors.end(),
                 plan.tensors.begin(),
                 plan.tensors.end(),
                 fits)) {
    return;
  }
  Plan wanted;
  for (const ProfileTensor& tensor : profile.tensors) {
    wanted.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  Plan found;
  found.tensors = plan.tensors;
  const PlanDifference first = difference(wanted, found);
  throw Error(ErrorCode::kInvalidArgument,
              {"the plan is for another model",
               "plan, " + first.where,
               first.found + "; " + std::to_string(plan.tensors.size()) + " tensors, " +
                   format(plan.bytes()) + " in all",
               first.expected + "; the " + std::to_string(profile.tensors.size()) + " tensors of " +
                   (profile.model.empty() ? "the profile" : profile.model) + ", " +
                   format(profile.bytes()) + " in all, in the order of its profile",
               "Make the plan from the same profile"});
}

}  // namespace stretto
