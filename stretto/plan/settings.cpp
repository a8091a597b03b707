// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/settings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/plan/fixed_plans.hpp"

namespace stretto {
namespace {

constexpr std::array<std::string_view, 6> kNames = {
    "ddp", "fsdp", "deepspeed", "megatron", "horovod", "nccl"};
constexpr double kMiB = 1 << 20;

/// One model and its costs, with what each setting is tried on.
struct Trial {
  const StepProfile& profile;
  const ExchangeCosts& costs;
  const PlanResult& planned;
  SimulateOptions options;

  [[nodiscard]] Seconds step(const Plan& plan) const {
    return simulate(profile, costs, plan, options).step;
  }
};

/// Frameworks run the optimizer when all gradients are there.
Trial framework_trial(const StepProfile& profile,
                      const ExchangeCosts& costs,
                      const PlanResult& planned,
                      const SimulateOptions& options) {
  Trial trial{profile, costs, planned, options};
  trial.options.schedule = Schedule::kOverlap;
  trial.options.optimizer_per_bucket = false;
  trial.options.recorded_ranks = 0;
  return trial;
}

/// The shortest decimal number x for which Python's int(x * 1024 * 1024) is `size`: PyTorch closes
/// a bucket when its bytes reach that, so a cap a little too large swallows the next tensor.
std::string mib(Bytes size) {
  const double exact = static_cast<double>(size.count()) / kMiB;
  double unit = 1.0;
  for (int digits = 0; digits < 15; ++digits, unit *= 10.0) {
    std::string text = fmt::format("{:.{}f}", std::ceil(exact * unit) / unit, digits);
    if (static_cast<std::int64_t>(std::stod(text) * kMiB) == size.count()) {
      return text;
    }
  }
  return fmt::format("{:.17g}", exact);
}

/// The roundest number of MiB near the best cap that costs at most a thousandth of the step.
BestCap rounded(const Trial& trial, const BestCap& best) {
  const double mib = static_cast<double>(best.cap.count()) / kMiB;
  double unit = std::pow(10.0, std::floor(std::log10(mib)));
  for (int digits = 1; digits <= 5; ++digits, unit /= 10.0) {
    const double nearest = std::round(mib / unit);
    for (const double units : {nearest, nearest + 1.0, nearest - 1.0}) {
      const Bytes cap(static_cast<std::int64_t>(units * unit * kMiB));
      if (cap <= Bytes(0)) {
        continue;
      }
      BestCap round{cap, cap, ddp_plan(tensors_of(trial.profile), cap, cap), {}};
      round.step = trial.step(round.plan);
      if (round.step <= best.step * 1.001) {
        return round;
      }
    }
  }
  return best;
}

Settings for_ddp(const Trial& trial) {
  const BestCap best =
      rounded(trial, best_ddp_cap(trial.profile, trial.costs, trial.options, false));
  const Plan usual = ddp_plan(tensors_of(trial.profile));
  const Seconds usual_step = trial.step(usual);
  Settings settings;
  settings.step = trial.step(best.plan);
  if (settings.step >= usual_step * (1.0 - 1e-6)) {
    settings.step = usual_step;
    settings.text = fmt::format(
        "# No single cap is better than the default (25 MiB, first bucket 1 MiB): {} per step.\n"
        "model = DistributedDataParallel(model, gradient_as_bucket_view=True)\n",
        format(usual_step));
  } else {
    settings.text = fmt::format(
        "# The best single cap: {} per step ({} buckets), against {} with the default of 25 MiB.\n"
        "# PyTorch from before its pull request 121640 (2024) keeps 1 MiB for the first bucket; "
        "there\n"
        "# also set\n"
        "#   torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = {}\n"
        "model = DistributedDataParallel(\n"
        "    model, bucket_cap_mb={}, gradient_as_bucket_view=True)\n",
        format(settings.step),
        best.plan.buckets.size(),
        format(usual_step),
        best.cap.count(),
        mib(best.cap));
  }
  // A cap of a bucket's own size is reached with its last tensor: the list gives the plan exactly,
  // if no tensor is cut and the profile's order is the one PyTorch finds in its first step.
  std::vector<std::string> caps;
  Plan whole = trial.planned.plan;
  const std::vector<std::vector<TensorRange>> ranges = whole.all_ranges();
  for (std::size_t b = 0; b < whole.buckets.size(); ++b) {
    for (const TensorRange& range : ranges[b]) {
      if (range.begin != 0 || range.end != whole.tensors[range.tensor].elements()) {
        return settings;
      }
    }
    caps.push_back(mib(whole.buckets[b].bytes()));
  }
  const Seconds listed = trial.step(whole);
  if (listed < settings.step * (1.0 - 1e-6)) {
    settings.text += fmt::format(
        "# PyTorch 2.13 and later take one cap per bucket, in the order of the backward pass: {}.\n"
        "#   DistributedDataParallel(model, bucket_cap_mb_list=[{}],\n"
        "#                           gradient_as_bucket_view=True)\n",
        format(listed),
        fmt::join(caps, ", "));
  }
  return settings;
}

/// Up to and with the first number in it: `layers.3.mlp.up` is of `layers.3`.
std::string block_of(const std::string& tensor) {
  std::size_t begin = 0;
  while (begin < tensor.size()) {
    const std::size_t dot = std::min(tensor.find('.', begin), tensor.size());
    const std::string part = tensor.substr(begin, dot - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) {
      return tensor.substr(0, dot);
    }
    begin = dot + 1;
  }
  return {};
}

/// Of `layers.3` it is `layers`; of a number alone, and of no block, nothing.
std::string container_of(const std::string& block) {
  const std::size_t dot = block.rfind('.');
  return dot == std::string::npos ? std::string() : block.substr(0, dot);
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
    names.push_back(name);
  }
}

/// One bucket per wrapped module, and one for each stretch between them: near to FSDP2's groups.
struct WrappedPlan {
  Plan plan;
  std::vector<std::string> blocks;      ///< With their number, in the order of the backward pass.
  std::vector<std::string> containers;  ///< What holds them, in the order of the forward pass.
  std::size_t between = 0;              ///< Buckets of no block.
};

WrappedPlan wrapped_plan(const std::vector<TensorSpec>& tensors) {
  WrappedPlan wrapped;
  Plan& plan = wrapped.plan;
  plan.origin = "one bucket per wrapped module";
  plan.tensors = tensors;
  std::array<std::int64_t, std::size(kAllDTypes)> at{};
  std::string open;
  for (const TensorSpec& tensor : tensors) {
    const std::string block = block_of(tensor.name);
    add_once(wrapped.blocks, block);
    add_once(wrapped.containers, container_of(block));
    const auto index = static_cast<std::size_t>(tensor.dtype);
    const std::int64_t begin = at[index];
    at[index] += tensor.elements();
    if (tensor.elements() == 0) {
      continue;
    }
    if (!plan.buckets.empty() && block == open && plan.buckets.back().dtype == tensor.dtype) {
      plan.buckets.back().end = at[index];
    } else {
      plan.buckets.push_back({tensor.dtype, begin, at[index], 0, Algorithm::kAuto});
      wrapped.between += block.empty() ? 1U : 0U;
    }
    open = block;
  }
  std::reverse(wrapped.containers.begin(), wrapped.containers.end());
  return wrapped;
}

/// The Python list of all blocks: an index in it is how far ahead one may gather.
std::string list_of_blocks(const WrappedPlan& wrapped) {
  std::string lists;
  if (wrapped.containers.size() == 1) {
    lists = fmt::format("list(model.{})", wrapped.containers[0]);
  } else {
    lists = fmt::format("[*model.{}]", fmt::join(wrapped.containers, ", *model."));
  }
  // Numbers that are left out are modules without parameters (an activation), which are no groups.
  for (const std::string& container : wrapped.containers) {
    std::size_t blocks = 0;
    std::size_t end = 0;
    for (const std::string& block : wrapped.blocks) {
      if (container_of(block) == container) {
        ++blocks;
        end = std::max<std::size_t>(end, std::stoul(block.substr(block.rfind('.') + 1)) + 1);
      }
    }
    if (blocks < end) {
      return fmt::format("[block for block in {} if any(True for _ in block.parameters())]", lists);
    }
  }
  return lists;
}

Settings for_fsdp(Trial trial) {
  const WrappedPlan wrapped = wrapped_plan(tensors_of(trial.profile));
  const Plan& plan = wrapped.plan;
  trial.options.sharding = Sharding::kParameters;
  Settings settings;
  settings.step = Seconds(INFINITY);
  int prefetch = 1;
  for (int ahead = 1; ahead <= 4; ++ahead) {
    trial.options.prefetch = ahead;
    const Seconds step = trial.step(plan);
    if (step < settings.step * (1.0 - 1e-6)) {
      settings.step = step;
      prefetch = ahead;
    }
  }
  // Kept after forward, parameters are gathered once per step: what ZeRO-2 does at its end.
  trial.options.sharding = Sharding::kGradients;
  const Seconds kept = trial.step(plan);
  settings.text = fmt::format("# {} of parameters in {} group{}; predicted {} per step.\n",
                              format(plan.bytes()),
                              plan.buckets.size(),
                              plan.buckets.size() == 1 ? "" : "s",
                              format(settings.step));
  if (wrapped.containers.empty()) {
    settings.text +=
        "# No name of a tensor has a numbered block (layers.3...), so none is wrapped by itself.\n"
        "from torch.distributed.fsdp import fully_shard\n"
        "fully_shard(model)\n";
  } else {
    if (wrapped.between > 1) {
      settings.text += fmt::format(
          "# {} of them are what lies before, between and behind the blocks; fully_shard(model) "
          "makes one\n# group of these.\n",
          wrapped.between);
    }
    settings.text += fmt::format(
        "from torch.distributed.fsdp import fully_shard\n"
        "blocks = {}\n"
        "for block in blocks:\n"
        "    fully_shard(block, reshard_after_forward=True)\n"
        "fully_shard(model)\n",
        list_of_blocks(wrapped));
  }
  if (prefetch > 1 && !wrapped.containers.empty()) {
    settings.text += fmt::format(
        "for i, block in enumerate(blocks):  # {0} ahead, forward and backward\n"
        "    block.set_modules_to_forward_prefetch(blocks[i + 1:i + {1}])\n"
        "    block.set_modules_to_backward_prefetch(blocks[max(0, i - {0}):i][::-1])\n",
        prefetch,
        prefetch + 1);
  }
  settings.text += fmt::format(
      "# reshard_after_forward=False keeps the parameters, {} more per rank: predicted {}.\n",
      format(
          Bytes(plan.bytes().count() / std::max(1, trial.costs.ranks) * (trial.costs.ranks - 1))),
      format(kept));
  return settings;
}

/// The best cap for rules that close a bucket before it would pass the cap.
struct WholeCap {
  Bytes cap{};
  Seconds step{};
  std::size_t buckets = 0;
};
WholeCap best_whole_cap(const Trial& trial) {
  WholeCap best;
  best.step = Seconds(INFINITY);
  for (const SweepPoint& point :
       sweep_caps(trial.profile, trial.costs, trial.options, false, Bytes(64 << 10), 8)) {
    if (point.step < best.step * (1.0 - 1e-6)) {
      best = {point.cap, point.step, point.buckets};
    }
  }
  return best;
}

std::int64_t element_size(const StepProfile& profile) {
  std::int64_t elements = 0;
  for (const ProfileTensor& tensor : profile.tensors) {
    elements += tensor.elements();
  }
  return std::max<std::int64_t>(1, profile.bytes().count() / std::max<std::int64_t>(1, elements));
}

Settings for_deepspeed(Trial trial) {
  if (trial.options.sharding == Sharding::kNone) {
    trial.options.sharding = Sharding::kGradients;
  }
  const WholeCap best = best_whole_cap(trial);
  const Seconds usual = trial.step(uniform_plan(
      tensors_of(trial.profile), Bytes(500000000 * element_size(trial.profile)), false));
  const std::int64_t elements = best.cap.count() / element_size(trial.profile);
  const int stage = static_cast<int>(trial.options.sharding);
  Settings settings;
  settings.step = best.step;
  settings.text = fmt::format(
      "{{\n"
      "  \"zero_optimization\": {{\n"
      "    \"stage\": {},\n"
      "    \"overlap_comm\": true,\n"
      "    \"contiguous_gradients\": true,\n"
      "    \"reduce_bucket_size\": {},\n"
      "    \"{}\": {}\n"
      "  }}\n"
      "}}\n",
      stage,
      elements,
      stage == 3 ? "stage3_prefetch_bucket_size" : "allgather_bucket_size",
      elements);
  settings.note = fmt::format(
      "sizes are elements, not bytes; predicted {} per step, against {} with the default of 5e8",
      format(best.step),
      format(usual));
  return settings;
}

Settings for_megatron(const Trial& trial) {
  // Megatron closes a bucket with the parameter that reaches the size, as DDP does.
  const BestCap best = best_ddp_cap(trial.profile, trial.costs, trial.options, false);
  const std::int64_t element = element_size(trial.profile);
  const std::int64_t usual_elements =
      std::max<std::int64_t>(40000000, std::int64_t{1000000} * trial.costs.ranks);
  const Bytes usual_cap(usual_elements * element);
  const Seconds usual = trial.step(ddp_plan(tensors_of(trial.profile), usual_cap, usual_cap));
  Settings settings;
  settings.step = trial.step(best.plan);
  settings.text = fmt::format(
      "--overlap-grad-reduce --ddp-bucket-size {}\n"
      "# elements of {} bytes; predicted {} per step, against {} with the default of {}.\n"
      "# With tensor parallelism CUDA_DEVICE_MAX_CONNECTIONS=1 can serialise what should overlap\n"
      "# (Megatron-LM issue 1468): look at a trace.\n",
      (best.cap.count() + element - 1) / element,
      element,
      format(settings.step),
      format(usual),
      usual_elements);
  return settings;
}

Settings for_horovod(const Trial& trial) {
  const WholeCap best = best_whole_cap(trial);
  const Bytes usual_cap(128 << 20);
  const Seconds usual = trial.step(uniform_plan(tensors_of(trial.profile), usual_cap, false));
  // A cycle is how long a tensor may wait to be fused: a tenth of a bucket's time costs little.
  const double cycle_ms =
      std::clamp(trial.costs.all_reduce(best.cap).count() * 1e3 / 10.0, 0.1, 10.0);
  Settings settings;
  settings.step = best.step;
  settings.text = fmt::format(
      "export HOROVOD_FUSION_THRESHOLD={}\n"
      "export HOROVOD_CYCLE_TIME={:.2g}\n"
      "# bytes and ms; predicted {} per step, against {} with the default of 128 MiB. The cycle "
      "time\n"
      "# is a tenth of one bucket's exchange, a rule and not a simulation.\n",
      best.cap.count(),
      cycle_ms,
      format(best.step),
      format(usual));
  return settings;
}

Settings for_nccl(const Trial& trial) {
  const auto& buckets = trial.planned.buckets;
  const auto in_switch =
      std::count_if(buckets.begin(), buckets.end(), [](const PlannedBucket& bucket) {
        return bucket.algorithm == Algorithm::kInSwitch;
      });
  Settings settings;
  settings.step = trial.planned.step;
  if (in_switch > 0) {
    settings.text += fmt::format(
        "# {} of {} exchanges are priced as added by the switches:\n"
        "export NCCL_COLLNET_ENABLE=1  # InfiniBand (SHARP), with its plugin; off by default\n"
        "export NCCL_NVLS_ENABLE=1     # NVLink switches\n",
        in_switch,
        buckets.size());
  }
  if (trial.costs.compute_slowdown > 1.0) {
    settings.text += fmt::format(
        "# Compute is taken to need {:.2f} times as long beside communication. NCCL_MAX_CTAS=N\n"
        "# bounds the thread blocks that NCCL takes from it; no N follows from a plan, so try "
        "some\n"
        "# and compare what stretto analyze says.\n",
        trial.costs.compute_slowdown);
  }
  settings.text += settings.text.empty()
                       ? "# Nothing: no variable of NCCL follows from this plan. Which of ring and "
                         "tree it takes, it\n# chooses by size.\n"
                       : "";
  return settings;
}

}  // namespace

std::string_view to_string(Framework framework) noexcept {
  return kNames[static_cast<std::size_t>(framework)];
}

Framework framework_from_string(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      return static_cast<Framework>(i);
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              {"no such framework", {}, quote(name), "one of " + join(kNames), {}});
}

Settings settings_for(Framework framework,
                      const StepProfile& profile,
                      const ExchangeCosts& costs,
                      const PlanResult& planned,
                      const SimulateOptions& options) {
  const Trial trial = framework_trial(profile, costs, planned, options);
  Settings settings;
  switch (framework) {
    case Framework::kDdp:
      settings = for_ddp(trial);
      break;
    case Framework::kFsdp:
      settings = for_fsdp(trial);
      break;
    case Framework::kDeepSpeed:
      settings = for_deepspeed(trial);
      break;
    case Framework::kMegatron:
      settings = for_megatron(trial);
      break;
    case Framework::kHorovod:
      settings = for_horovod(trial);
      break;
    case Framework::kNccl:
      settings = for_nccl(trial);
      break;
  }
  settings.framework = framework;
  return settings;
}

}  // namespace stretto
