// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/replay.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "stretto/base/error.hpp"
#include "stretto/data/plan_fit.hpp"
#include "stretto/workload/emulation_check.hpp"
#include "stretto/workload/sampled_gradients.hpp"
#include "stretto/workload/stand_in.hpp"

namespace stretto {
namespace {

double time_scale(const StepProfile& profile, const ReplayOptions& options) {
  if (!options.compute) {
    return 1.0;
  }
  if (profile.compute_end <= Seconds(0) || *options.compute < Seconds(0)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"the compute time cannot be stretched",
         "compute time",
         fmt::format(
             "{} in the profile, {} wanted", format(profile.compute_end), format(*options.compute)),
         "a profile with compute, and a time of zero or more",
         ""});
  }
  return *options.compute / profile.compute_end;
}

SessionOptions with_mean(SessionOptions options) {
  options.op = ReduceOp::kMean;
  return options;
}

struct Replayer {
  Replayer(Communicator& communicator, const StepProfile& of, const ReplayOptions& options)
      : profile(of),
        scale(time_scale(of, options)),
        session(communicator, options.plan, with_mean(options.session)),
        compute(options.mode),
        gradients(session, communicator.rank(), communicator.size()),
        exact(std::none_of(options.plan.buckets.begin(),
                           options.plan.buckets.end(),
                           [](const Bucket& bucket) { return bucket.codec.lossy(); })),
        across(options.session.schedule == Schedule::kPriority),
        uses(of.forward.size()) {
    const std::vector<std::size_t> layers = layers_of_tensors(of);
    for (std::size_t tensor = 0; tensor < layers.size() && !uses.empty(); ++tensor) {
      uses.at(layers[tensor]).push_back(tensor);
    }
    session.on_bucket(
        [this](std::size_t bucket, const std::vector<TensorRange>&) { update(bucket); });
  }

  /// Computes up to `at` of the profile and records it.
  void compute_to(Seconds at, RecordKind kind, std::string_view name) {
    const RecordScope scope(session.recorder(), kind, name);
    compute.advance_to(at * scale);
  }

  void update(std::size_t bucket) {
    const Seconds whole = (profile.compute_end - profile.backward_end) * scale;
    if (whole <= Seconds(0)) {
      return;
    }
    const RecordScope scope(session.recorder(), RecordKind::kOptimizer, "optimizer");
    compute.spend(whole *
                  (static_cast<double>(session.plan().buckets[bucket].bytes().count()) /
                   static_cast<double>(std::max<std::int64_t>(profile.bytes().count(), 1))));
  }

  /// The last step's gradients of these tensors are there. The clock of compute stands still.
  void wait_for(const std::vector<std::size_t>& tensors) {
    const Nanoseconds begin = monotonic_now();
    for (const std::size_t tensor : tensors) {
      session.wait(tensor);
    }
    compute.pause(monotonic_now() - begin);
  }

  /// What was reduced is looked at before the next backward pass writes it.
  void settle() {
    const Nanoseconds begin = monotonic_now();
    session.drain();
    if (exact && session.step() > 0) {
      gradients.verify(session.step() - 1);
    }
    compute.pause(monotonic_now() - begin);
  }

  void step() {
    compute.begin_step();
    Seconds at{};
    for (std::size_t l = 0; l < profile.forward.size(); ++l) {
      if (across) {
        wait_for(uses[l]);
      }
      const LayerTime& layer = profile.forward[l];
      at += layer.forward;
      compute_to(std::min(at, profile.forward_end), RecordKind::kForward, layer.name);
    }
    if (at < profile.forward_end) {
      if (across && profile.forward.empty()) {
        settle();  // nothing says what is read first
      }
      compute_to(profile.forward_end, RecordKind::kForward, "forward");
    }
    if (across && !profile.forward.empty()) {
      settle();
    }
    at = profile.forward_end;
    for (std::size_t i = 0; i < profile.tensors.size(); ++i) {
      const ProfileTensor& tensor = profile.tensors[i];
      if (tensor.ready > at) {
        compute_to(tensor.ready, RecordKind::kBackward, tensor.name);
        at = tensor.ready;
      }
      gradients.stamp(i, session.step());
      session.ready(i);
    }
    if (profile.backward_end > at) {
      compute_to(profile.backward_end, RecordKind::kBackward, "backward");
    }
    session.finish();
    if (!across) {
      settle();
    }
  }

  const StepProfile& profile;
  double scale;
  Session session;
  StandIn compute;  ///< After the Session, whose making brings all ranks here at once.
  SampledGradients gradients;
  bool exact;                                  ///< No codec loses bits.
  bool across;                                 ///< Gradients travel on under the next forward pass,
  std::vector<std::vector<std::size_t>> uses;  ///< where these layers read these tensors.
};

}  // namespace

ReplayResult replay(Communicator& communicator,
                    const StepProfile& profile,
                    const ReplayOptions& options) {
  require_fit(profile, options.plan);
  if (options.steps == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                {"there are no steps to replay", "steps", "0", "1 or more", ""});
  }
  Replayer replayer(communicator, profile, options);
  std::optional<CodecWatch> watch;
  if (options.watch_codecs) {
    watch.emplace(communicator, replayer.session, *options.watch_codecs);
  }
  EmulationCheck emulation(communicator);
  const std::uint32_t steps = options.warmup + options.steps;
  communicator.barrier().wait();
  for (std::uint32_t step = 0; step < steps; ++step) {
    if (step == options.warmup) {
      replayer.session.drain();
      communicator.barrier().wait();
      replayer.session.reset_recording();
    }
    replayer.step();
    if (watch && step >= options.session.codec_start) {
      watch->step_finished();
    }
    if (options.on_progress) {
      options.on_progress(StepProgress{step + 1, steps, 0.0});
    }
  }
  if (replayer.across) {
    replayer.settle();
  }
  ReplayResult result;
  result.timeline = gather_timelines(communicator, replayer.session.timeline());
  emulation.verify();
  std::array<std::int64_t, 1> checked = {replayer.gradients.values_checked()};
  communicator.all_reduce(view(std::span(checked))).wait();
  result.values_checked = checked[0];
  result.plan_hash = replayer.session.plan().hash();
  if (watch) {
    result.codec_switches = watch->switches();
  }
  result.compression = replayer.session.compression();
  return result;
}

}  // namespace stretto
