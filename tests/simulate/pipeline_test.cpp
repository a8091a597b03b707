// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/pipeline.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/simulate/training_step.hpp"

namespace stretto {
namespace {

PipelineWork even(PipelineSchedule schedule, int stages, int chunks_per_stage, int micro_batches) {
  PipelineWork work;
  work.schedule = schedule;
  work.stages = stages;
  work.micro_batches = micro_batches;
  const auto chunks = static_cast<std::size_t>(stages) * static_cast<std::size_t>(chunks_per_stage);
  work.forward.assign(chunks, Seconds(1.0 / chunks_per_stage));
  work.backward.assign(chunks, Seconds(2.0 / chunks_per_stage));
  return work;
}

constexpr auto kGPipe = PipelineSchedule::kGPipe;
constexpr auto k1F1B = PipelineSchedule::kOneForwardOneBackward;
constexpr auto kInterleaved = PipelineSchedule::kInterleaved;

TEST(Pipeline, BubbleOfEvenStagesIsTheFormula) {
  for (const auto& [stages, m] : {std::pair(1, 3), {2, 2}, {4, 4}, {4, 12}, {8, 64}}) {
    const double expected = (stages - 1.0) / m;
    EXPECT_NEAR(simulate_pipeline(even(kGPipe, stages, 1, m)).bubble, expected, 1e-9);
    EXPECT_NEAR(simulate_pipeline(even(k1F1B, stages, 1, m)).bubble, expected, 1e-9);
    for (const int v : {2, 3}) {
      const double interleaved = (stages - 1.0) / (v * m);
      EXPECT_NEAR(simulate_pipeline(even(kInterleaved, stages, v, m)).bubble, interleaved, 1e-9)
          << stages << " stages, " << m << " micro-batches, " << v << " chunks";
    }
  }
}

TEST(Pipeline, TwoStagesTwoMicroBatchesByHand) {
  // Stage 0: F0 F1 .. B0 B1; stage 1: F0 B0 F1 B1, each send taking half a second.
  PipelineWork work = even(k1F1B, 2, 1, 2);
  work.send = Seconds(0.5);
  const PipelineRun run = simulate_pipeline(work);
  std::map<std::tuple<int, bool, int>, std::pair<double, double>> at;
  for (const PipelineOp& op : run.ops) {
    at[{op.stage, op.backward, op.micro_batch}] = {op.begin.count(), op.end.count()};
  }
  using Interval = std::pair<double, double>;
  EXPECT_EQ((at[{0, false, 0}]), Interval(0, 1));
  EXPECT_EQ((at[{0, false, 1}]), Interval(1, 2));
  EXPECT_EQ((at[{1, false, 0}]), Interval(1.5, 2.5));
  EXPECT_EQ((at[{1, true, 0}]), Interval(2.5, 4.5));
  EXPECT_EQ((at[{0, true, 0}]), Interval(5, 7));
  EXPECT_EQ((at[{1, false, 1}]), Interval(4.5, 5.5));
  EXPECT_EQ((at[{1, true, 1}]), Interval(5.5, 7.5));
  EXPECT_EQ((at[{0, true, 1}]), Interval(8, 10));
  EXPECT_EQ(run.end, Seconds(10));
}

TEST(Pipeline, TheSlowestStageSetsThePace) {
  PipelineWork work = even(k1F1B, 4, 1, 100);
  work.forward[2] = Seconds(2);
  work.backward[2] = Seconds(4);
  // 100 x 6, and the way there and back: twice 1 + 2.
  EXPECT_EQ(pipeline_bound(work), Seconds(606));
  // One forward pass ahead is not enough to cover the first way to the last stage and back: stage 2
  // waits from 6 to 7.
  EXPECT_EQ(simulate_pipeline(work).end, Seconds(607));
}

/// Every pass once, in an order that respects its inputs, one at a time on each stage.
void check_run(const PipelineWork& work, const PipelineRun& run) {
  std::map<std::tuple<int, int, bool>, PipelineOp> ops;
  std::map<int, Seconds> free;
  for (const PipelineOp& op : run.ops) {
    RC_ASSERT(op.stage == op.chunk % work.stages);
    RC_ASSERT(op.begin >= free[op.stage]);
    free[op.stage] = op.end;
    RC_ASSERT(ops.emplace(std::tuple(op.chunk, op.micro_batch, op.backward), op).second);
  }
  const auto chunks = static_cast<int>(work.forward.size());
  RC_ASSERT(ops.size() == 2 * work.forward.size() * static_cast<std::size_t>(work.micro_batches));
  const Seconds send = work.stages > 1 ? work.send : Seconds(0);
  for (const auto& entry : ops) {
    const PipelineOp& op = entry.second;
    if (!op.backward && op.chunk > 0) {
      RC_ASSERT(op.begin >= ops.at({op.chunk - 1, op.micro_batch, false}).end + send);
    }
    if (op.backward && op.chunk < chunks - 1) {
      RC_ASSERT(op.begin >= ops.at({op.chunk + 1, op.micro_batch, true}).end + send);
    }
    if (op.backward) {
      RC_ASSERT(op.begin >= ops.at({op.chunk, op.micro_batch, false}).end);
    }
  }
}

RC_GTEST_PROP(Pipeline, NoScheduleBeatsTheBoundAndAllRunEverythingInOrder, ()) {
  PipelineWork work;
  work.schedule = *rc::gen::element(kGPipe, k1F1B, kInterleaved);
  work.stages = *rc::gen::inRange(1, 7);
  const int v = work.schedule == kInterleaved ? *rc::gen::inRange(1, 4) : 1;
  work.micro_batches = *rc::gen::inRange(1, 12);
  if (work.schedule == kInterleaved) {
    work.micro_batches *= work.stages;
  }
  const auto times = rc::gen::container<std::vector<int>>(
      static_cast<std::size_t>(work.stages) * static_cast<std::size_t>(v), rc::gen::inRange(0, 20));
  for (const int time : *times) {
    work.forward.emplace_back(time);
  }
  for (const int time : *times) {
    work.backward.emplace_back(time);
  }
  work.send = Seconds(*rc::gen::inRange(0, 5));
  const PipelineRun run = simulate_pipeline(work);
  check_run(work, run);
  RC_ASSERT(run.end >= pipeline_bound(work));
  RC_ASSERT(run.bubble >= 0.0);
}

TEST(Pipeline, ErrorsSayWhatDoesNotFit) {
  EXPECT_THROW((void)simulate_pipeline({}), Error);
  PipelineWork odd = even(kInterleaved, 4, 2, 6);
  EXPECT_THROW((void)simulate_pipeline(odd), Error);
  EXPECT_THROW((void)pipeline_bound(odd), Error);
  PipelineWork chunks = even(k1F1B, 4, 2, 8);
  EXPECT_THROW((void)simulate_pipeline(chunks), Error);
  PipelineWork negative = even(k1F1B, 4, 1, 8);
  negative.backward[3] = Seconds(-1);
  EXPECT_THROW((void)simulate_pipeline(negative), Error);
  PipelineWork missing = even(k1F1B, 4, 1, 8);
  missing.backward.pop_back();
  EXPECT_THROW((void)simulate_pipeline(missing), Error);
}

TransformerShape small_model() {
  TransformerShape shape;
  shape.layers = 8;
  shape.hidden = 2048;
  shape.heads = 16;
  shape.sequence = 1024;
  shape.vocab = 51200;
  return shape;
}

Machine two_nodes() {
  return machine_from_spec("2x8@nvlink=200GB/s,2us@net=50GB/s,10us");
}

Layout sixteen_ranks() {
  Layout layout;
  layout.data = 2;
  layout.tensor = 4;
  layout.pipeline = 2;
  layout.micro_batch = 2;
  layout.global_batch = 32;
  return layout;
}

TEST(TrainingStep, PartsAddUp) {
  const DeviceModel device = device_preset("a100-80g");
  const Layout layout = sixteen_ranks();
  const TrainingStep step = simulate_training(small_model(), layout, device, two_nodes());
  EXPECT_GT(step.tensor_exchanges.forward, Seconds(0));
  EXPECT_EQ(step.expert_exchanges.forward, Seconds(0));
  ASSERT_EQ(step.reduced.size(), 2U);
  // The reduction comes after the passes, the optimizer after all reductions.
  EXPECT_GT(step.reduced[0], step.pipeline.end);
  EXPECT_EQ(step.step, std::max(step.reduced[0], step.reduced[1]) + step.optimizer);
}

TEST(TrainingStep, OverlapHidesGradientsButNotTheLastLayers) {
  const DeviceModel device = device_preset("a100-80g");
  Layout layout = sixteen_ranks();
  const TrainingStep serial = simulate_training(small_model(), layout, device, two_nodes());
  layout.overlap_gradients = true;
  const TrainingStep overlap = simulate_training(small_model(), layout, device, two_nodes());
  EXPECT_LT(overlap.step, serial.step);
  EXPECT_GT(overlap.reduced[0], overlap.pipeline.end);
}

TEST(TrainingStep, RecomputationCostsWhatItRepeats) {
  const DeviceModel device = device_preset("a100-80g");
  Layout layout = sixteen_ranks();
  const auto end = [&](Recompute recompute) {
    layout.recompute = recompute;
    return simulate_training(small_model(), layout, device, two_nodes()).pipeline.end;
  };
  const Seconds none = end(Recompute::kNone);
  const Seconds attention = end(Recompute::kAttention);
  const Seconds full = end(Recompute::kFull);
  EXPECT_LT(none, attention);
  EXPECT_LT(attention, full);
  // A forward pass is a third of forward and backward.
  EXPECT_NEAR(full / none, 4.0 / 3.0, 0.1);
}

TEST(TrainingStep, TensorParallelRanksBelongInTheNode) {
  const DeviceModel device = device_preset("a100-80g");
  Layout layout = sixteen_ranks();
  const Seconds inside = simulate_training(small_model(), layout, device, two_nodes()).step;
  layout.order = {Dimension::kPipeline, Dimension::kData, Dimension::kTensor};
  const Seconds across = simulate_training(small_model(), layout, device, two_nodes()).step;
  EXPECT_LT(inside, across);
}

TEST(TrainingStep, ExpertsExchangeAndImbalanceCosts) {
  const DeviceModel device = device_preset("a100-80g");
  TransformerShape shape = small_model();
  shape.experts = 8;
  shape.experts_per_token = 2;
  Layout layout = sixteen_ranks();
  layout.data = 8;
  layout.tensor = 1;
  layout.expert = 8;
  const TrainingStep even = simulate_training(shape, layout, device, two_nodes());
  EXPECT_GT(even.expert_exchanges.forward, Seconds(0));
  layout.expert_imbalance = 2.0;
  const TrainingStep uneven = simulate_training(shape, layout, device, two_nodes());
  EXPECT_NEAR(uneven.expert_exchanges.forward / even.expert_exchanges.forward, 2.0, 1e-9);
  EXPECT_GT(uneven.step, even.step);
}

TEST(TrainingStep, ZeroSharesTheOptimizersWork) {
  const DeviceModel device = device_preset("a100-80g");
  Layout layout = sixteen_ranks();
  const TrainingStep none = simulate_training(small_model(), layout, device, two_nodes());
  layout.zero_stage = 1;
  const TrainingStep one = simulate_training(small_model(), layout, device, two_nodes());
  EXPECT_NEAR(none.optimizer / one.optimizer, 2.0, 1e-9);
  EXPECT_LT(one.memory.total(), none.memory.total());
  layout.zero_stage = 3;
  const TrainingStep three = simulate_training(small_model(), layout, device, two_nodes());
  EXPECT_EQ(three.reduced[0], three.pipeline.end);
}

TEST(TrainingStep, LayoutsThatTheMachineCannotHoldAreErrors) {
  Layout layout = sixteen_ranks();
  layout.data = 4;
  EXPECT_THROW(
      (void)simulate_training(small_model(), layout, device_preset("a100-80g"), two_nodes()),
      Error);
}

TEST(TrainingTimeline, ShowsEveryStageAndFillsTheStep) {
  const DeviceModel device = device_preset("a100-80g");
  const TransformerShape shape = small_model();
  const Layout layout = sixteen_ranks();
  const TrainingStep step = simulate_training(shape, layout, device, two_nodes());
  const Timeline timeline = training_timeline(shape, layout, step);
  EXPECT_EQ(timeline.world_size, 16U);
  std::map<RecordKind, int> count;
  std::set<std::uint32_t> ranks;
  std::int64_t end = 0;
  for (const Record& record : timeline.records) {
    ++count[record.kind];
    ranks.insert(record.rank);
    EXPECT_LE(record.begin_ns, record.end_ns);
    end = std::max(end, record.end_ns);
  }
  // Two stages, 8 ranks apart, 8 micro-batches each; exchanges within each pass, and gradients.
  EXPECT_EQ(ranks, (std::set<std::uint32_t>{0, 8}));
  EXPECT_EQ(count[RecordKind::kForward], 16);
  EXPECT_EQ(count[RecordKind::kBackward], 16);
  EXPECT_EQ(count[RecordKind::kCommunication], 32 + 2);
  EXPECT_EQ(count[RecordKind::kOptimizer], 2);
  EXPECT_EQ(count[RecordKind::kStep], 2);
  EXPECT_NEAR(static_cast<double>(end), step.step.count() * 1e9, 2.0);
  // It is a Timeline like any other.
  EXPECT_EQ(timeline_from_json(to_json(timeline), "test").records.size(), timeline.records.size());
}

}  // namespace
}  // namespace stretto
