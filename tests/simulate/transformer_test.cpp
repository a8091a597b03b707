// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/transformer.hpp"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/simulate/device.hpp"

namespace stretto {
namespace {

TransformerShape gpt3() {
  TransformerShape shape;
  shape.layers = 96;
  shape.hidden = 12288;
  shape.heads = 96;
  shape.sequence = 2048;
  shape.vocab = 51200;
  return shape;
}

/// A device without launch times, on which rates can be reckoned by hand.
DeviceModel simple_device() {
  DeviceModel device;
  device.peak_flops_per_s = 100e12;
  device.memory_bandwidth = BytesPerSecond(1e12);
  device.tiles_at_once = 100;
  return device;
}

TEST(DeviceModel, GemmTakesWholeRoundsOfTiles) {
  const DeviceModel device = simple_device();
  // 10 x 10 tiles: one full round.
  const double flops = 2.0 * 1280 * 1280 * 8192;
  EXPECT_NEAR(gemm_time(device, {1280, 1280, 8192}).count(), flops / 100e12, 1e-9);
  // One column more: 110 tiles take two rounds of 100, whatever the second does.
  const Seconds two = gemm_time(device, {1280, 1281, 8192});
  EXPECT_NEAR(two.count(), 2.0 * 1280 * 1281 * 8192 / 100e12 * 200 / 110, 1e-9);
}

TEST(DeviceModel, GemmIsNeverQuickerThanItsBytesOrItsLaunch) {
  DeviceModel device = simple_device();
  // Scores of one head: 64 deep, so bytes count. 2 x 64 x 2048 in and 2048^2 out.
  const double bytes = 2.0 * (2 * 64 * 2048 + 2048.0 * 2048);
  device.peak_flops_per_s = 1e16;
  EXPECT_NEAR(gemm_time(device, {2048, 2048, 64}).count(), bytes / 1e12, 1e-12);
  device.launch = Seconds(1.0);
  EXPECT_EQ(gemm_time(device, {2048, 2048, 64}), Seconds(1.0));
  EXPECT_EQ(elementwise_time(device, 1.0, 3), Seconds(3.0));
  EXPECT_EQ(elementwise_time(device, 2e12, 3), Seconds(6.0));
}

TEST(DeviceModel, UnknownPresetIsAnErrorWithTheKnownOnes) {
  for (const auto name : device_preset_names()) {
    EXPECT_EQ(device_preset(name).name, name);
  }
  EXPECT_EQ(device_preset("a100-80g").basis, Basis::kMeasured);
  EXPECT_EQ(device_preset("h100-80g").basis, Basis::kAssumed);
  try {
    (void)device_preset("a100");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(error.detail().expected.find("a100-80g"), std::string::npos);
  }
}

TEST(Transformer, ParametersOfPublishedModels) {
  // Narayanan et al. 2021, table 1: 174.6 billion.
  EXPECT_NEAR(parameters(gpt3()) / 1e9, 174.6, 0.05);
  // Llama 2 7B: 6.738 billion, of which position embeddings none; ours has 2048 x 4096 of them and
  // 13 h per layer in place of 2 h of norms.
  TransformerShape llama;
  llama.layers = 32;
  llama.hidden = 4096;
  llama.heads = 32;
  llama.ffn = 11008;
  llama.gated_ffn = true;
  llama.sequence = 2048;
  llama.vocab = 32000;
  llama.tied_embeddings = false;
  EXPECT_NEAR(parameters(llama) / 6.738e9, 1.0, 0.002);
}

TEST(Transformer, FewerKeyAndValueHeadsShrinkTheProjection) {
  TransformerShape shape = gpt3();
  const double whole = parameters(shape);
  shape.kv_heads = 8;
  // K and V of 12 times fewer heads: 2 h^2 (1 - 1/12) less per layer.
  EXPECT_DOUBLE_EQ(whole - parameters(shape), 96 * 2.0 * 12288 * 12288 * 11 / 12);
}

TEST(Transformer, StagesHoldAllParameters) {
  Layout layout;
  layout.pipeline = 8;
  layout.tensor = 4;
  double sum = 0.0;
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    sum += 4 * stage_parameters(gpt3(), layout, stage).dense;
  }
  // Position embeddings are on every tensor rank, and the tied projection is a second copy.
  const double copies = 3.0 * 2048 * 12288 + 51200.0 * 12288;
  EXPECT_NEAR(sum, parameters(gpt3()) + copies, 1.0);
  layout.pipeline = 1;
  EXPECT_NEAR(
      4 * stage_parameters(gpt3(), layout, 0).dense, parameters(gpt3()) + 3.0 * 2048 * 12288, 1.0);
}

TEST(Transformer, ExpertsAreSharedByExpertRanks) {
  TransformerShape shape = gpt3();
  shape.experts = 16;
  shape.experts_per_token = 2;
  Layout layout;
  layout.data = 8;
  layout.expert = 8;
  layout.global_batch = 8;
  const StageParameters stage = stage_parameters(shape, layout, 0);
  EXPECT_DOUBLE_EQ(stage.experts, 96.0 * 8 * 12288 * 12288 * 16 / 8);
  layout.expert = 1;
  EXPECT_DOUBLE_EQ(stage_parameters(shape, layout, 0).experts, 8 * stage.experts);
}

TEST(Memory, ActivationsAsInKorthikantiTable2) {
  TransformerShape shape = gpt3();
  Layout layout;
  layout.tensor = 8;
  layout.pipeline = 8;
  layout.global_batch = 64;
  const double sbh = 2048.0 * 12288;
  const double scores = 5.0 * 96 * 2048 / 12288;
  // 8 micro-batches in flight, 12 layers each: all 96 layers once.
  EXPECT_NEAR(
      memory_per_rank(shape, layout).activations, 96 * sbh * (10 + 24.0 / 8 + scores / 8), 1.0);
  layout.sequence_parallel = true;
  EXPECT_NEAR(memory_per_rank(shape, layout).activations, 96 * sbh / 8 * (34 + scores), 1.0);
  layout.recompute = Recompute::kAttention;
  EXPECT_NEAR(memory_per_rank(shape, layout).activations, 96 * sbh / 8 * 34, 1.0);
  layout.recompute = Recompute::kFull;
  EXPECT_NEAR(
      memory_per_rank(shape, layout).activations, 96 * sbh * 2 + sbh / 8 * (34 + scores), 1.0);
  // Interleaved: 1 + (p-1)/(pv) times as much.
  layout.recompute = Recompute::kAttention;
  layout.schedule = PipelineSchedule::kInterleaved;
  layout.virtual_stages = 3;
  EXPECT_NEAR(memory_per_rank(shape, layout).activations, 96 * sbh / 8 * 34 * (1 + 7.0 / 24), 1.0);
  layout.virtual_stages = 1;
  layout.schedule = PipelineSchedule::kGPipe;
  EXPECT_NEAR(memory_per_rank(shape, layout).activations, 64 * 12 * sbh / 8 * 34, 1.0);
}

TEST(Memory, ZeroSharesMoreWithEachStage) {
  TransformerShape shape = gpt3();
  Layout layout;
  layout.data = 64;
  layout.global_batch = 64;
  const double psi = parameters(shape);
  // ZeRO, figure 1: (2 + 2 + K) psi with K = 12.
  const MemoryPerRank none = memory_per_rank(shape, layout);
  EXPECT_NEAR(none.weights + none.gradients + none.optimizer, 16 * psi, 1.0);
  const std::vector<double> expected = {16, 4 + 12.0 / 64, 2 + 14.0 / 64, 16.0 / 64};
  for (int stage = 0; stage <= 3; ++stage) {
    layout.zero_stage = stage;
    const MemoryPerRank memory = memory_per_rank(shape, layout);
    EXPECT_NEAR((memory.weights + memory.gradients + memory.optimizer) / psi,
                expected[static_cast<std::size_t>(stage)],
                1e-9);
  }
}

TEST(LayerTime, LargeProductsTakeTheirFlops) {
  // 24 s h^2 of products forward (no attention), 12 288 wide: within a few percent of all time.
  DeviceModel device = simple_device();
  device.memory_bandwidth = BytesPerSecond(1e15);
  Layout layout;
  layout.micro_batch = 4;
  const double rows = 4.0 * 2048;
  const double h = 12288;
  const double flops = 24 * rows * h * h + 4 * rows * 2048 * h;
  const TransformerLayerTime time = layer_time(gpt3(), layout, device);
  EXPECT_NEAR(time.layer.forward.count() / (flops / 100e12), 1.0, 0.03);
  EXPECT_NEAR(time.layer.backward / time.layer.forward, 2.0, 0.03);
  EXPECT_LT(time.attention_core, 0.1 * time.layer.forward);
}

TEST(LayerTime, SequenceParallelismSharesNormsAndDropouts) {
  const DeviceModel device = device_preset("a100-80g");
  Layout layout;
  layout.tensor = 8;
  const Seconds whole = layer_time(gpt3(), layout, device).layer.forward;
  layout.sequence_parallel = true;
  EXPECT_LT(layer_time(gpt3(), layout, device).layer.forward, whole);
}

TEST(LayerTime, FusedAttentionWritesNoScores) {
  const DeviceModel device = device_preset("a100-80g");
  TransformerShape shape = gpt3();
  shape.sequence = 8192;
  Layout layout;
  layout.tensor = 8;
  const TransformerLayerTime whole = layer_time(shape, layout, device);
  const double kept = memory_per_rank(shape, layout).activations;
  layout.fused_attention = true;
  const TransformerLayerTime fused = layer_time(shape, layout, device);
  EXPECT_LT(fused.attention_core, 0.5 * whole.attention_core);
  // What is left are the products below the diagonal: 2 s^2 h / t, at the rate of a product.
  const double flops = 2.0 * 8192 * 8192 * 12288 / 8;
  EXPECT_NEAR(fused.attention_core.count(),
              flops / (device.peak_flops_per_s * device.gemm_efficiency),
              1e-9);
  EXPECT_NEAR(
      kept - memory_per_rank(shape, layout).activations, 96 * 5.0 * 96 * 8192 * 8192 / 8, 1.0);
}

TEST(LayerTime, TheBusiestExpertRankCounts) {
  const DeviceModel device = device_preset("a100-80g");
  TransformerShape shape = gpt3();
  shape.experts = 8;
  shape.experts_per_token = 2;
  Layout layout;
  layout.data = 8;
  layout.expert = 8;
  layout.global_batch = 8;
  const Seconds even = layer_time(shape, layout, device).layer.forward;
  layout.expert_imbalance = 1.5;
  EXPECT_GT(layer_time(shape, layout, device).layer.forward, 1.2 * even);
}

TEST(Routing, ImbalanceIsTheLargestSumOverTheMean) {
  const std::vector<double> even(16, 3.0);
  EXPECT_DOUBLE_EQ(routing_imbalance(even), 1.0);
  // All to rank 0 of 2: its column has all 4, the mean is 2.
  const std::vector<double> one = {2, 0, 2, 0};
  EXPECT_DOUBLE_EQ(routing_imbalance(one), 2.0);
  EXPECT_THROW((void)routing_imbalance(std::vector<double>{1, 2, 3}), Error);
  EXPECT_THROW((void)routing_imbalance(std::vector<double>{}), Error);
  EXPECT_THROW((void)routing_imbalance(std::vector<double>{0}), Error);
  EXPECT_THROW((void)routing_imbalance(std::vector<double>{-1}), Error);
}

TEST(CheckLayout, SaysWhatDoesNotDivide) {
  struct Case {
    std::function<void(TransformerShape&, Layout&)> change;
    std::string says;
  };
  const std::vector<Case> cases = {
      {[](TransformerShape&, Layout& l) { l.tensor = 5; }, "heads"},
      {[](TransformerShape& s, Layout&) { s.heads = 7; }, "hidden"},
      {[](TransformerShape& s, Layout& l) { s.kv_heads = 2, l.tensor = 4; }, "kv_heads"},
      {[](TransformerShape&, Layout& l) { l.pipeline = 7; }, "layers"},
      {[](TransformerShape&, Layout& l) { l.data = 3; }, "global_batch"},
      {[](TransformerShape&, Layout& l) { l.micro_batch = 0; }, "micro_batch"},
      {[](TransformerShape& s, Layout&) { s.vocab = 0; }, "vocab"},
      {[](TransformerShape&, Layout& l) { l.virtual_stages = 2; }, "interleaved"},
      {[](TransformerShape&, Layout& l) {
         l.schedule = PipelineSchedule::kInterleaved, l.pipeline = 3;
       },
       "micro-batches"},
      {[](TransformerShape&, Layout& l) { l.expert = 2; }, "data"},
      {[](TransformerShape&, Layout& l) { l.data = 2, l.expert = 2; }, "experts"},
      {[](TransformerShape& s, Layout& l) { s.experts = 3, l.data = 2, l.expert = 2; }, "experts"},
      {[](TransformerShape& s, Layout& l) {
         s.sequence = 2047, l.tensor = 2, l.sequence_parallel = true;
       },
       "sequence"},
      {[](TransformerShape&, Layout& l) { l.zero_stage = 4; }, "ZeRO"},
      {[](TransformerShape&, Layout& l) { l.expert_imbalance = 0.5; }, "expert_imbalance"},
  };
  Layout base;
  base.global_batch = 64;
  EXPECT_NO_THROW(check_layout(gpt3(), base));
  for (const Case& one : cases) {
    TransformerShape shape = gpt3();
    Layout layout = base;
    one.change(shape, layout);
    try {
      check_layout(shape, layout);
      ADD_FAILURE() << one.says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(error.detail().message.find(one.says), std::string::npos) << error.what();
    }
  }
}

RC_GTEST_PROP(LayerTime, MoreSamplesNeverTakeLessAndMoreRanksNeverMore, ()) {
  const DeviceModel device = device_preset("a100-80g");
  TransformerShape shape = gpt3();
  shape.hidden = 64 * 2 * *rc::gen::inRange(1, 64);
  shape.heads = 64;
  shape.sequence = 128 * *rc::gen::inRange(1, 17);
  Layout layout;
  layout.micro_batch = 1 << *rc::gen::inRange(0, 5);
  layout.tensor = 1 << *rc::gen::inRange(0, 4);
  const TransformerLayerTime one = layer_time(shape, layout, device);
  RC_ASSERT(one.attention_core <= one.layer.forward);
  Layout more = layout;
  more.micro_batch *= 2;
  RC_ASSERT(layer_time(shape, more, device).layer.forward >= one.layer.forward * (1 - 1e-12));
  Layout wider = layout;
  wider.tensor *= 2;
  RC_ASSERT(memory_per_rank(shape, wider).total() < memory_per_rank(shape, layout).total());
}

}  // namespace
}  // namespace stretto
