// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/train.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "stretto/base/error.hpp"
#include "stretto/base/hash.hpp"
#include "stretto/workload/emulation_check.hpp"
#include "stretto/workload/mlp.hpp"
#include "stretto/workload/optimizer.hpp"
#include "stretto/workload/random.hpp"

namespace stretto {
namespace {

void load(const Dataset& dataset,
          const Samples& samples,
          std::span<const std::uint32_t> chosen,
          Mlp& mlp) {
  mlp.set_batch(chosen.size());
  const float scale = 1.0F / (255.0F * dataset.deviation);
  const float shift = dataset.mean / dataset.deviation;
  float* to = mlp.input().data();
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    const std::uint8_t* from = samples.pixels.data() + chosen[row] * dataset.features;
    for (std::size_t i = 0; i < dataset.features; ++i) {
      *to++ = static_cast<float>(from[i]) * scale - shift;
    }
    mlp.labels()[row] = samples.labels[chosen[row]];
  }
}

/// This rank's images, step by step.
class Shard {
 public:
  Shard(std::size_t samples, std::size_t batch, int rank, int ranks, std::uint64_t seed)
      : random_(seed ^ 0x5eedda7aU),
        rank_(static_cast<std::size_t>(rank)),
        ranks_(static_cast<std::size_t>(ranks)),
        order_(samples),
        batch_(batch) {
    std::iota(order_.begin(), order_.end(), 0U);
  }

  [[nodiscard]] std::size_t steps_per_epoch() const noexcept {
    return order_.size() / (batch_.size() * ranks_);
  }

  std::span<const std::uint32_t> next() {
    if (step_ == 0) {
      shuffle(std::span(order_), random_);
    }
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      batch_[i] = order_[(step_ * batch_.size() + i) * ranks_ + rank_];
    }
    step_ = (step_ + 1) % steps_per_epoch();
    return batch_;
  }

 private:
  SplitMix64 random_;
  std::size_t rank_;
  std::size_t ranks_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> batch_;
  std::size_t step_ = 0;
};

void check(const Dataset& dataset, const TrainOptions& options, int ranks) {
  const auto& widths = options.widths;
  if (widths.empty() || widths.front() != dataset.features || widths.back() < dataset.classes) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"the network does not fit the data",
         "layers",
         widths.empty() ? "none"
                        : fmt::format("{} inputs and {} outputs", widths.front(), widths.back()),
         fmt::format("{} inputs and at least {} outputs for {}",
                     dataset.features,
                     dataset.classes,
                     dataset.name),
         fmt::format("Example: {}-512-512-{}", dataset.features, dataset.classes)});
  }
  const std::size_t global = options.batch * static_cast<std::size_t>(ranks);
  if (global > dataset.train.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the data has not enough images for one step",
                 "batch",
                 fmt::format("{} ranks x {} images", ranks, options.batch),
                 fmt::format("at most {} in all", dataset.train.size()),
                 "Use a smaller batch or fewer ranks"});
  }
}

void check_clipping(const TrainOptions& options) {
  if (options.clip_norm > 0.0 && options.session.shard_optimizer &&
      options.session.schedule != Schedule::kPriority) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"a sharded optimizer updates before the last gradient has come, and clipping needs "
         "all",
         "clip_norm",
         fmt::format("schedule {}", to_string(options.session.schedule)),
         "schedule priority, which has the norm first",
         "Leave out one of the two, or use --schedule priority"});
  }
}

double accuracy(Communicator& communicator, const Dataset& dataset, std::size_t batch, Mlp& mlp) {
  std::vector<std::uint32_t> mine;
  for (auto i = static_cast<std::size_t>(communicator.rank()); i < dataset.test.size();
       i += static_cast<std::size_t>(communicator.size())) {
    mine.push_back(static_cast<std::uint32_t>(i));
  }
  std::array<std::int64_t, 1> correct = {0};
  for (std::size_t begin = 0; begin < mine.size(); begin += batch) {
    load(dataset,
         dataset.test,
         std::span(mine).subspan(begin, std::min(batch, mine.size() - begin)),
         mlp);
    for (std::size_t layer = 0; layer < mlp.layers(); ++layer) {
      mlp.forward_layer(layer);
    }
    correct[0] += static_cast<std::int64_t>(mlp.correct());
  }
  communicator.all_reduce(view(std::span(correct))).wait();
  return static_cast<double>(correct[0]) / static_cast<double>(dataset.test.size());
}

/// @throws Error kMismatch unless all ranks have the same.
std::uint64_t common_hash(Communicator& communicator, std::span<const float> weights) {
  const std::uint64_t hash = Hasher().add_raw(std::as_bytes(weights)).digest();
  std::array<std::int64_t, 1> lowest = {std::bit_cast<std::int64_t>(hash)};
  std::array<std::int64_t, 1> highest = lowest;
  const Work low = communicator.all_reduce(view(std::span(lowest)), ReduceOp::kMin);
  const Work high = communicator.all_reduce(view(std::span(highest)), ReduceOp::kMax);
  low.wait();
  high.wait();
  if (lowest != highest) {
    throw Error(ErrorCode::kMismatch,
                {"the ranks end with different weights",
                 fmt::format("rank {}", communicator.rank()),
                 fmt::format("weights hash {:016x}", hash),
                 "the same hash on every rank",
                 "Run with --verify 1 to find the step and bucket where they part"});
  }
  return hash;
}

void check_momentum(const TrainOptions& options) {
  for (const Bucket& bucket : options.plan.buckets) {
    const double momentum = bucket.codec.momentum;
    const bool fits = options.optimizer.kind == OptimizerKind::kSgd &&
                      options.optimizer.momentum == static_cast<float>(momentum);
    if (momentum > 0.0 && !fits) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"a codec with momentum stands for this momentum of the optimizer",
                   "codec " + to_string(bucket.codec),
                   options.optimizer.kind == OptimizerKind::kSgd
                       ? fmt::format("momentum {}", options.optimizer.momentum)
                       : std::string(to_string(options.optimizer.kind)),
                   fmt::format("sgd with momentum {}", momentum),
                   "Give both the same; for other optimizers leave the codec's out"});
    }
  }
}

/// What a step needs, made once.
struct Trainer {
  Trainer(Communicator& communicator, const Dataset& data, const TrainOptions& options)
      : dataset(data),
        mlp(options.widths, options.batch, options.seed),
        clip_norm(options.clip_norm),
        across(options.session.schedule == Schedule::kPriority),
        sharded(options.session.shard_optimizer),
        encodes_from(communicator.size() > 1 ? options.session.codec_start
                                             : std::numeric_limits<std::uint32_t>::max()),
        shard(data.train.size(),
              options.batch,
              communicator.rank(),
              communicator.size(),
              options.seed),
        session(communicator, options.plan, session_options(options)),
        optimizer(find_state(communicator), options.optimizer) {
    if (session.plan().tensors != mlp.tensors()) {
      throw Error(
          ErrorCode::kInvalidArgument,
          {"the plan is for another network",
           "plan",
           fmt::format("{} tensors, {}", session.tensors(), format(session.plan().bytes())),
           fmt::format("the {} tensors of this one, in backward order", mlp.tensors().size()),
           "Make the plan with the same --layers"});
    }
    std::size_t offset = 0;
    for (std::size_t tensor = 0; tensor < session.tensors(); ++tensor) {
      layer_names.push_back(
          mlp.tensors()[tensor].name.substr(0, mlp.tensors()[tensor].name.find('.')));
      offsets.push_back(offset);
      offset += session.gradient(tensor).count;
    }
    if (options.session.shard_optimizer) {
      mlp.move_weights({as_span<float>(session.parameter(0)).data(), mlp.weights().size()});
    }
    if (clip_norm > 0.0 && !across) {
      return;  // the norm comes after the last bucket
    }
    session.on_bucket([this](std::size_t bucket, const std::vector<TensorRange>& ranges) {
      update(bucket, ranges);
    });
  }

  /// Where each bucket's part of the optimizer's state begins; returns how many elements all have.
  std::size_t find_state(const Communicator& communicator) {
    std::size_t elements = 0;
    for (const Bucket& bucket : session.plan().buckets) {
      const auto count = static_cast<std::size_t>(bucket.end - bucket.begin);
      state.push_back(elements);
      const Part mine = part_of(count, communicator.size(), communicator.rank());
      elements += sharded ? mine.end - mine.begin : count;
    }
    return elements;
  }

  static SessionOptions session_options(const TrainOptions& options) {
    SessionOptions session = options.session;
    session.op = ReduceOp::kMean;
    session.optimizer_momentum =
        options.optimizer.kind == OptimizerKind::kSgd ? options.optimizer.momentum : 0.0;
    session.reduce_first = options.clip_norm > 0.0 && session.schedule == Schedule::kPriority;
    return session;
  }

  void update(std::size_t bucket, const std::vector<TensorRange>& ranges) {
    std::size_t at = state[bucket];
    const bool velocity =
        session.plan().buckets[bucket].codec.momentum > 0.0 && updates > encodes_from;
    const RecordScope scope(session.recorder(), RecordKind::kOptimizer, "optimizer");
    for (const TensorRange& range : ranges) {
      const auto begin = static_cast<std::size_t>(range.begin);
      const auto size = static_cast<std::size_t>(range.end - range.begin);
      const std::size_t first = offsets[range.tensor] + begin;
      optimizer.step(at,
                     mlp.weights().subspan(first, size),
                     as_span<float>(session.gradient(range.tensor)).subspan(begin, size),
                     rate,
                     scale,
                     updates,
                     velocity);
      at += size;
    }
  }

  double step(float learning_rate) {
    Recorder& recorder = session.recorder();
    {
      const RecordScope scope(recorder, RecordKind::kCompute, "input");
      load(dataset, dataset.train, shard.next(), mlp);
    }
    for (std::size_t layer = 0; layer < mlp.layers(); ++layer) {
      if (across) {
        session.wait(bias_of(layer));
        session.wait(bias_of(layer) + 1);
      }
      const RecordScope scope(recorder, RecordKind::kForward, layer_name(layer));
      mlp.forward_layer(layer);
    }
    double loss = 0.0;
    {
      const RecordScope scope(recorder, RecordKind::kBackward, "loss");
      loss = mlp.loss();
    }
    for (std::size_t layer = mlp.layers(); layer > 0; --layer) {
      const RecordScope scope(recorder, RecordKind::kBackward, layer_name(layer - 1));
      mlp.backward_layer(layer - 1, gradient_at, on_gradient);
    }
    // Outside of the record: a thread that loses its core in there would seem to compute, and hide
    // the exchange that it waits for.
    session.ready(session.tensors() - 1);
    rate = learning_rate;  // of the updates that follow, some of them in the next call
    ++updates;
    session.finish();
    if (clip_norm > 0.0) {
      scale = clip_scale(session.gradient_norm(), clip_norm);
      for (std::size_t b = 0; !across && b < session.plan().buckets.size(); ++b) {
        update(b, session.plan().ranges(b));
      }
    }
    return loss;
  }

  /// Of the layer's two tensors the first; its weight follows.
  [[nodiscard]] std::size_t bias_of(std::size_t layer) const {
    return 2 * (mlp.layers() - 1 - layer);
  }

  [[nodiscard]] std::string_view layer_name(std::size_t layer) const {
    return layer_names[bias_of(layer)];
  }

  const Dataset& dataset;
  Mlp mlp;
  double clip_norm;
  bool across;  ///< Updates reach into the next forward pass.
  bool sharded;
  std::uint32_t encodes_from;  ///< The first step with codecs.
  Shard shard;
  Session session;
  std::vector<std::size_t> state;  ///< Of each bucket the first element in the optimizer.
  Optimizer optimizer;
  std::vector<std::string> layer_names;  ///< One per tensor.
  std::vector<std::size_t> offsets;
  float rate = 0.0F;
  float scale = 1.0F;
  std::uint32_t updates = 0;
  Mlp::GradientAt gradient_at = [this](std::size_t i) { return session.gradient(i); };
  Mlp::OnGradient on_gradient = [this](std::size_t i) {
    if (i + 1 < session.tensors()) {  // the last comes when the layer's record has ended
      session.ready(i);
    }
  };
};

}  // namespace

float learning_rate_at(std::uint32_t step, std::uint32_t steps, float base, int ranks) noexcept {
  constexpr float kWarmUp = 0.1F;
  const float done = static_cast<float>(step) / static_cast<float>(std::max(steps, 1U));
  const float scaled = base * static_cast<float>(ranks);
  return done < kWarmUp ? base + (scaled - base) * done / kWarmUp
                        : scaled * (1.0F - done) / (1.0F - kWarmUp);
}

TrainResult train(Communicator& communicator, const Dataset& dataset, const TrainOptions& options) {
  check(dataset, options, communicator.size());
  check_clipping(options);
  check_momentum(options);
  Trainer trainer(communicator, dataset, options);
  const std::uint32_t steps =
      options.steps != 0
          ? options.warmup + options.steps
          : options.epochs * static_cast<std::uint32_t>(trainer.shard.steps_per_epoch());
  if (steps <= options.warmup) {
    throw Error(ErrorCode::kInvalidArgument,
                {"no steps are left after the warm-up",
                 "steps",
                 fmt::format("{} steps, {} of them warm-up", steps, options.warmup),
                 "at least one more",
                 ""});
  }
  std::optional<CodecWatch> watch;
  if (options.watch_codecs) {
    watch.emplace(communicator, trainer.session, *options.watch_codecs);
  }
  EmulationCheck emulation(communicator);
  std::array<double, 1> loss = {0.0};
  communicator.barrier().wait();
  for (std::uint32_t step = 0; step < steps; ++step) {
    if (step == options.warmup) {
      trainer.session.drain();
      communicator.barrier().wait();
      trainer.session.reset_recording();
    }
    loss[0] =
        trainer.step(learning_rate_at(step, steps, options.learning_rate, communicator.size()));
    if (watch && step >= options.session.codec_start) {
      watch->step_finished();
    }
    if (options.on_progress) {
      options.on_progress(StepProgress{step + 1, steps, loss[0]});
    }
  }

  trainer.session.drain();
  TrainResult result;
  result.timeline = gather_timelines(communicator, trainer.session.timeline());
  emulation.verify();
  communicator.all_reduce(view(std::span(loss)), ReduceOp::kMean).wait();
  result.loss = loss[0];
  result.accuracy = accuracy(communicator, dataset, options.batch, trainer.mlp);
  result.weights_hash = common_hash(communicator, trainer.mlp.weights());
  result.plan_hash = trainer.session.plan().hash();
  if (watch) {
    result.codec_switches = watch->switches();
  }
  result.compression = trainer.session.compression();
  result.optimizer_bytes = trainer.optimizer.state_bytes();
  result.steps = steps;
  result.kernels = trainer.mlp.kernels().name;
  return result;
}

}  // namespace stretto
