// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/plan/planner.hpp"

namespace stretto {

/// Frameworks whose settings a plan can be put into.
enum class Framework : std::uint8_t { kDdp, kFsdp, kDeepSpeed, kMegatron, kHorovod, kNccl };
[[nodiscard]] std::string_view to_string(Framework framework) noexcept;
/// @throws Error kInvalidArgument listing the known names.
[[nodiscard]] Framework framework_from_string(std::string_view name);

/// Lines to paste, and the step that is predicted with them: a framework that takes one number
/// cannot always follow a plan.
struct Settings {
  Framework framework = Framework::kDdp;
  std::string text;  ///< Python, JSON, flags or shell, ready to paste; comments say what they do.
  std::string note;  ///< What could not be said in a comment (JSON has none).
  Seconds step{};
};

/// What to set in `framework` for this model and these costs.
///
/// - ddp: bucket_cap_mb, a round number near the best single cap by PyTorch's rule (since its pull
///   request 121640 the first bucket has the same); for 2.13 and later bucket_cap_mb_list, which
///   gives the plan's own buckets;
/// - fsdp: which modules to wrap, how many to prefetch, whether to reshard after forward, by
///   simulation of each;
/// - deepspeed: reduce_bucket_size and its companions, which count elements, not bytes;
/// - megatron: --ddp-bucket-size, in elements;
/// - horovod: HOROVOD_FUSION_THRESHOLD in bytes, HOROVOD_CYCLE_TIME in ms;
/// - nccl: the environment variables that follow from the plan, below any of these: those for
///   reduction in switches where an exchange is priced so, the one that bounds what NCCL takes from
///   compute where compute is slowed. The choice between ring and tree is left to NCCL, which makes
///   it by size.
/// Every text says what is predicted with the framework's default too; for ddp no cap is given
/// where the default is as good.
/// @throws Error as plan().
[[nodiscard]] Settings settings_for(Framework framework,
                                    const StepProfile& profile,
                                    const ExchangeCosts& costs,
                                    const PlanResult& planned,
                                    const SimulateOptions& options);

}  // namespace stretto
