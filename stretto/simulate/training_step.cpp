// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/training_step.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/simulate/collective_cost.hpp"
#include "stretto/simulate/device.hpp"
#include "stretto/simulate/group.hpp"
#include "stretto/simulate/pipeline.hpp"
#include "stretto/simulate/transformer.hpp"

namespace stretto {
namespace {

constexpr double kElementBytes = 2.0;

int size_of(const Layout& layout, Dimension dimension) {
  switch (dimension) {
    case Dimension::kTensor:
      return layout.tensor;
    case Dimension::kData:
      return layout.data;
    case Dimension::kPipeline:
      break;
  }
  return layout.pipeline;
}

/// Ranks between two neighbours of this dimension.
int stride_of(const Layout& layout, Dimension dimension) {
  int stride = 1;
  for (const Dimension inner : layout.order) {
    if (inner == dimension) {
      break;
    }
    stride *= size_of(layout, inner);
  }
  return stride;
}

/// All groups of one kind are at work at once.
Machine group(const Machine& machine, int size, int stride) {
  if (size == 1) {  // without copying curves
    Machine alone;
    alone.levels = {machine.levels.front()};
    alone.levels.front().group_size = 1;
    return alone;
  }
  return group_view(machine, size, stride, stride);
}

Seconds exchange(const Machine& group, Collective collective, double bytes) {
  return collective_time(
      group, collective, Algorithm::kAuto, Bytes(static_cast<std::int64_t>(std::ceil(bytes))));
}

double input_bytes(const TransformerShape& shape, const Layout& layout) {
  return static_cast<double>(layout.micro_batch) * shape.sequence * shape.hidden * kElementBytes;
}

PassTime tensor_exchanges(const TransformerShape& shape,
                          const Layout& layout,
                          const Machine& machine) {
  if (layout.tensor == 1) {
    return {};
  }
  const Machine ranks = group(machine, layout.tensor, stride_of(layout, Dimension::kTensor));
  const Seconds both = 2.0 * exchange(ranks, Collective::kAllReduce, input_bytes(shape, layout));
  return {both, both};
}

PassTime expert_exchanges(const TransformerShape& shape,
                          const Layout& layout,
                          const Machine& machine) {
  if (layout.expert == 1) {
    return {};
  }
  const Machine ranks = group(machine, layout.expert, stride_of(layout, Dimension::kData));
  const double bytes = input_bytes(shape, layout) * shape.experts_per_token / layout.tensor;
  const Seconds both =
      2.0 * layout.expert_imbalance * exchange(ranks, Collective::kAllToAll, bytes);
  return {both, both};
}

/// What a chunk of layers takes, without embedding and head.
PassTime layers_time(const TransformerLayerTime& layer,
                     const PassTime& exchanges,
                     const Layout& layout,
                     int layers) {
  PassTime time;
  time.forward = layer.layer.forward + exchanges.forward;
  time.backward = layer.layer.backward + exchanges.backward;
  if (layout.recompute == Recompute::kFull) {
    time.backward += time.forward;
  }
  if (layout.recompute == Recompute::kAttention && !layout.fused_attention) {
    time.backward += layer.attention_core;
  }
  return {layers * time.forward, layers * time.backward};
}

/// The data-parallel groups of a stage: of its experts and of all else.
class GradientGroups {
 public:
  GradientGroups(const Layout& layout, const Machine& machine)
      : dense_(group(machine, layout.data, stride_of(layout, Dimension::kData))),
        experts_(group(machine,
                       layout.data / layout.expert,
                       stride_of(layout, Dimension::kData) * layout.expert)) {}

  [[nodiscard]] Seconds time(Collective collective, const StageParameters& parameters) const {
    return exchange(dense_, collective, kElementBytes * parameters.dense) +
           exchange(experts_, collective, kElementBytes * parameters.experts);
  }

 private:
  Machine dense_;
  Machine experts_;
};

/// ZeRO 3 moves weights and gradients of a chunk beside its compute.
PassTime beside_weights(const PassTime& compute,
                        const GradientGroups& groups,
                        const StageParameters& stage,
                        int virtual_stages) {
  const StageParameters chunk = {stage.dense / virtual_stages, stage.experts / virtual_stages};
  const Seconds gather = groups.time(Collective::kAllGather, chunk);
  const Seconds scatter = groups.time(Collective::kReduceScatter, chunk);
  return {std::max(compute.forward, gather), std::max(compute.backward, gather + scatter)};
}

Seconds pipeline_send(const TransformerShape& shape, const Layout& layout, const Machine& machine) {
  if (layout.pipeline == 1) {
    return {};
  }
  const Machine ranks = group(machine, layout.pipeline, stride_of(layout, Dimension::kPipeline));
  return exchange(ranks, Collective::kSend, input_bytes(shape, layout) / layout.tensor);
}

PipelineWork pipeline_work(const TransformerShape& shape,
                           const Layout& layout,
                           const DeviceModel& device,
                           const Machine& machine,
                           const TrainingStep& step,
                           const GradientGroups& groups) {
  const int chunks = layout.pipeline * layout.virtual_stages;
  const PassTime exchanges = {step.tensor_exchanges.forward + step.expert_exchanges.forward,
                              step.tensor_exchanges.backward + step.expert_exchanges.backward};
  const TransformerLayerTime layer = layer_time(shape, layout, device);
  const PassTime layers = layers_time(layer, exchanges, layout, shape.layers / chunks);
  const PassTime embedding = embedding_time(shape, layout, device);
  const PassTime head = head_time(shape, layout, device);
  PipelineWork work;
  work.schedule = layout.schedule;
  work.stages = layout.pipeline;
  work.micro_batches = layout.micro_batches();
  work.send = pipeline_send(shape, layout, machine);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    PassTime time = layers;
    if (chunk == 0) {
      time = {time.forward + embedding.forward, time.backward + embedding.backward};
    }
    if (chunk == chunks - 1) {
      time = {time.forward + head.forward, time.backward + head.backward};
    }
    if (layout.zero_stage == 3) {
      const int stage = chunk % layout.pipeline;
      time = beside_weights(
          time, groups, stage_parameters(shape, layout, stage), layout.virtual_stages);
    }
    work.forward.push_back(time.forward);
    work.backward.push_back(time.backward);
  }
  return work;
}

/// The last backward pass of a stage: the gradients it adds to are final when it has passed them.
/// Every stage has as many passes.
const PipelineOp& last_op(const PipelineRun& run, int stage, int stages) {
  const std::size_t each = run.ops.size() / static_cast<std::size_t>(stages);
  return run.ops[each * (static_cast<std::size_t>(stage) + 1) - 1];
}

Seconds reduced_at(const PipelineOp& last, Seconds exchange_time, bool overlap, int layers) {
  if (!overlap) {
    return last.end + exchange_time;
  }
  const double share = 1.0 / layers;
  const Seconds first_ready = last.begin + share * (last.end - last.begin);
  return std::max(first_ready + exchange_time, last.end + share * exchange_time);
}

}  // namespace

TrainingStep simulate_training(const TransformerShape& shape,
                               const Layout& layout,
                               const DeviceModel& device,
                               const Machine& machine) {
  check_layout(shape, layout);
  TrainingStep step;
  step.memory = memory_per_rank(shape, layout);
  step.tensor_exchanges = tensor_exchanges(shape, layout, machine);
  step.expert_exchanges = expert_exchanges(shape, layout, machine);
  const GradientGroups groups(layout, machine);
  step.pipeline = simulate_pipeline(pipeline_work(shape, layout, device, machine, step, groups));

  const double shared = layout.zero_stage >= 1 ? layout.data : 1.0;
  const double rate = device.memory_bandwidth.value() * device.memory_efficiency;
  Seconds all_reduced = step.pipeline.end;
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    const StageParameters parameters = stage_parameters(shape, layout, stage);
    // ZeRO 3 has reduced pass by pass.
    const Seconds exchange_time =
        layout.zero_stage == 3 ? Seconds{} : groups.time(Collective::kAllReduce, parameters);
    step.reduced.push_back(reduced_at(last_op(step.pipeline, stage, layout.pipeline),
                                      exchange_time,
                                      layout.overlap_gradients,
                                      shape.layers / layout.pipeline));
    all_reduced = std::max(all_reduced, step.reduced.back());
    const double own = (parameters.dense + parameters.experts) / shared;
    step.optimizer =
        std::max(step.optimizer, Seconds(own * layout.optimizer_bytes_per_parameter / rate));
  }
  step.step = all_reduced + step.optimizer;
  return step;
}

namespace {

std::int64_t ns(Seconds time) {
  return std::llround(time.count() * 1e9);
}

class TimelineWriter {
 public:
  TimelineWriter(const TransformerShape& shape, const Layout& layout, const TrainingStep& step)
      : shape_(shape), layout_(layout), step_(step) {
    timeline_.source = "simulate";
    timeline_.world_size = static_cast<std::uint32_t>(layout.ranks());
    timeline_.steps_total = 1;
    timeline_.steps_recorded = 1;
  }

  Timeline write() {
    for (int stage = 0; stage < layout_.pipeline; ++stage) {
      sequence_ = 0;
      add(stage, "step", RecordKind::kStep, Lane::kStep, Seconds(0), step_.step);
      for (const PipelineOp& op : step_.pipeline.ops) {
        if (op.stage == stage) {
          add_pass(op);
        }
      }
      const Seconds begin = reduction_begin(stage);
      const Seconds reduced = step_.reduced[static_cast<std::size_t>(stage)];
      if (layout_.data > 1 && reduced > begin) {
        Record& record = add(
            stage, "gradients", RecordKind::kCommunication, Lane::kCommunication, begin, reduced);
        record.collective = Collective::kAllReduce;
        const StageParameters own = stage_parameters(shape_, layout_, stage);
        record.bytes = std::llround(kElementBytes * (own.dense + own.experts));
      }
      add(stage,
          "optimizer",
          RecordKind::kOptimizer,
          Lane::kCompute,
          step_.step - step_.optimizer,
          step_.step);
    }
    return std::move(timeline_);
  }

 private:
  Record& add(
      int stage, std::string_view name, RecordKind kind, Lane lane, Seconds begin, Seconds end) {
    Record record;
    record.begin_ns = ns(begin);
    record.end_ns = ns(end);
    record.name = timeline_.name_id(name);
    record.rank = static_cast<std::uint32_t>(stage * stride_of(layout_, Dimension::kPipeline));
    record.kind = kind;
    record.lane = lane;
    if (kind == RecordKind::kCommunication) {
      record.sequence = sequence_++;
    }
    timeline_.records.push_back(record);
    return timeline_.records.back();
  }

  /// Exchanges within the stage stand after the compute of their pass, in one piece.
  void add_pass(const PipelineOp& op) {
    const Seconds inside = exchanges_of(op);
    const Seconds computed = op.end - std::min(inside, op.end - op.begin);
    const auto kind = op.backward ? RecordKind::kBackward : RecordKind::kForward;
    const std::string_view name = op.backward ? "backward" : "forward";
    Record& pass = add(op.stage, name, kind, Lane::kCompute, op.begin, computed);
    pass.sequence = static_cast<std::uint32_t>(op.micro_batch);
    if (inside > Seconds(0)) {
      Record& record = add(op.stage,
                           "within the stage",
                           RecordKind::kCommunication,
                           Lane::kCommunication,
                           computed,
                           op.end);
      record.collective = layout_.tensor > 1 ? Collective::kAllReduce : Collective::kAllToAll;
    }
  }

  [[nodiscard]] Seconds exchanges_of(const PipelineOp& op) const {
    const int layers = shape_.layers / (layout_.pipeline * layout_.virtual_stages);
    const Seconds forward = step_.tensor_exchanges.forward + step_.expert_exchanges.forward;
    if (!op.backward) {
      return layers * forward;
    }
    Seconds backward = step_.tensor_exchanges.backward + step_.expert_exchanges.backward;
    if (layout_.recompute == Recompute::kFull) {
      backward += forward;
    }
    return layers * backward;
  }

  [[nodiscard]] Seconds reduction_begin(int stage) const {
    const PipelineOp& last = last_op(step_.pipeline, stage, layout_.pipeline);
    if (!layout_.overlap_gradients) {
      return last.end;
    }
    return last.begin + (last.end - last.begin) / (shape_.layers / layout_.pipeline);
  }

  const TransformerShape& shape_;
  const Layout& layout_;
  const TrainingStep& step_;
  Timeline timeline_;
  std::uint32_t sequence_ = 0;
};

}  // namespace

Timeline training_timeline(const TransformerShape& shape,
                           const Layout& layout,
                           const TrainingStep& step) {
  return TimelineWriter(shape, layout, step).write();
}

}  // namespace stretto
