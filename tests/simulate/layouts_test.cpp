// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/layouts.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/simulate/training_step.hpp"

namespace stretto {
namespace {

TransformerShape model(int layers, int hidden, int heads) {
  TransformerShape shape;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = heads;
  shape.sequence = 2048;
  shape.vocab = 51200;
  return shape;
}

Machine nodes(int count) {
  return machine_from_spec(std::to_string(count) + "x8@nvlink=230GB/s,3us@net=200GB/s,5us");
}

LayoutOptions options_for(int global_batch) {
  LayoutOptions options;
  options.global_batch = global_batch;
  return options;
}

TEST(RankLayouts, SmallModelOnOneNodeIsDataParallel) {
  const auto ranked =
      rank_layouts(model(12, 1024, 16), device_preset("a100-80g"), nodes(1), options_for(64));
  ASSERT_FALSE(ranked.empty());
  EXPECT_EQ(ranked.front().layout.data, 8);
  EXPECT_EQ(ranked.front().layout.recompute, Recompute::kNone);
}

TEST(RankLayouts, AModelThatFitsNoDeviceIsSplit) {
  // 175 billion parameters on 64 devices of 80 GB: tensor in the node, pipeline across nodes, as in
  // Narayanan et al. 2021.
  const auto ranked =
      rank_layouts(model(96, 12288, 96), device_preset("a100-80g"), nodes(8), options_for(64));
  ASSERT_FALSE(ranked.empty());
  const Layout& best = ranked.front().layout;
  EXPECT_GE(best.tensor * best.pipeline, 32);
  EXPECT_LE(best.tensor, 8);
  for (const RankedLayout& one : ranked) {
    EXPECT_LE(one.memory.total(), 0.9 * 80e9);
  }
}

TEST(RankLayouts, NothingFitsIsEmpty) {
  const auto ranked =
      rank_layouts(model(96, 12288, 96), device_preset("a100-80g"), nodes(1), options_for(8));
  EXPECT_TRUE(ranked.empty());
}

TEST(RankLayouts, ExpertsAreLaidOut) {
  TransformerShape shape = model(8, 2048, 16);
  shape.experts = 8;
  shape.experts_per_token = 2;
  const auto ranked = rank_layouts(shape, device_preset("h100-80g"), nodes(1), options_for(64));
  ASSERT_FALSE(ranked.empty());
  const bool any = std::any_of(
      ranked.begin(), ranked.end(), [](const RankedLayout& one) { return one.layout.expert > 1; });
  EXPECT_TRUE(any);
}

TEST(RankLayouts, OptionsThatNothingCouldFitAreErrors) {
  const DeviceModel device = device_preset("a100-80g");
  EXPECT_THROW((void)rank_layouts(model(0, 1024, 16), device, nodes(1), options_for(8)), Error);
  EXPECT_THROW((void)rank_layouts(model(8, 1024, 16), device, nodes(1), options_for(0)), Error);
  LayoutOptions options = options_for(8);
  options.memory_share = 0.0;
  EXPECT_THROW((void)rank_layouts(model(8, 1024, 16), device, nodes(1), options), Error);
}

RC_GTEST_PROP(RankLayouts, SortedDistinctFittingAndReproducible, ()) {
  const TransformerShape shape =
      model(*rc::gen::element(4, 6, 12), *rc::gen::element(1024, 2048), 16);
  const Machine machine = nodes(*rc::gen::inRange(1, 3));
  const DeviceModel device = device_preset(*rc::gen::elementOf(device_preset_names()));
  LayoutOptions options = options_for(*rc::gen::element(16, 24, 64));
  options.virtual_stages = {1, 2};
  const auto ranked = rank_layouts(shape, device, machine, options);
  using Key = std::tuple<int, int, int, int, int, int, int>;
  std::set<Key> seen;
  Seconds last{};
  for (const RankedLayout& one : ranked) {
    const Layout& l = one.layout;
    RC_ASSERT(one.step >= last);
    last = one.step;
    RC_ASSERT(l.ranks() == machine.ranks());
    RC_ASSERT(l.global_batch == options.global_batch);
    RC_ASSERT(seen.insert({l.data,
                           l.tensor,
                           l.pipeline,
                           l.virtual_stages,
                           l.micro_batch,
                           static_cast<int>(l.recompute),
                           l.zero_stage})
                  .second);
  }
  options.most = 3;
  const auto few = rank_layouts(shape, device, machine, options);
  RC_ASSERT(few.size() == std::min<std::size_t>(3, ranked.size()));
  for (std::size_t i = 0; i < few.size(); ++i) {
    RC_ASSERT(few[i].step == ranked[i].step);
    RC_ASSERT(few[i].step == simulate_training(shape, few[i].layout, device, machine).step);
  }
}

}  // namespace
}  // namespace stretto
