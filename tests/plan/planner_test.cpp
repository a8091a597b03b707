// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/planner.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/data/models.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/plan/settings.hpp"

namespace stretto {
namespace {

StepProfile model(const std::string& name) {
  return profile_from_model_json(model_json(name), name, {});
}

ExchangeCosts costs_of(double latency_us, double gigabytes_per_s, int ranks = 8) {
  ExchangeCosts costs;
  const double per_byte = 2.0 * (ranks - 1) / ranks / (gigabytes_per_s * 1e9);
  costs.all_reduce =
      ExchangeTime(std::vector<CostLine>{{Seconds(latency_us * 1e-6), per_byte, Algorithm::kRing}});
  costs.reduce_scatter = costs.all_reduce.scaled(0.5, 0.5);
  costs.all_gather = costs.reduce_scatter;
  costs.ranks = ranks;
  return costs;
}

/// Random profiles with ragged sizes and times.
StepProfile some_profile() {
  StepProfile profile;
  profile.model = "random";
  const int layers = *rc::gen::inRange(1, 12);
  double at = 0.0;
  for (int l = 0; l < layers; ++l) {
    const double forward = *rc::gen::inRange(0, 20) * 1e-4;
    profile.forward.push_back({"l" + std::to_string(l), Seconds(forward)});
    at += forward;
  }
  profile.forward_end = Seconds(at);
  // Mostly in reverse order, several to a layer; sometimes in any order, or of no layer.
  const bool in_order = *rc::gen::arbitrary<bool>();
  int number = 0;
  for (int l = layers; l-- > 0;) {
    const int here = *rc::gen::inRange(1, 4);
    for (int k = 0; k < here; ++k) {
      at += *rc::gen::inRange(0, 40) * 1e-4;
      const int of = in_order ? l : *rc::gen::inRange(0, layers + 1);
      profile.tensors.push_back({"l" + std::to_string(of) + ".w" + std::to_string(number++),
                                 DType::kF32,
                                 {*rc::gen::inRange<std::int64_t>(1, 2000000)},
                                 Seconds(at)});
    }
  }
  if (*rc::gen::inRange(0, 4) == 0) {
    profile.forward.clear();  // as a trace
  }
  profile.backward_end = Seconds(at + *rc::gen::inRange(0, 10) * 1e-4);
  profile.compute_end = profile.backward_end + Seconds(*rc::gen::inRange(0, 30) * 1e-4);
  return profile;
}

SimulateOptions some_options() {
  SimulateOptions options;
  options.schedule = *rc::gen::element(Schedule::kSerial, Schedule::kOverlap, Schedule::kPriority);
  options.sharding = *rc::gen::element(
      Sharding::kNone, Sharding::kNone, Sharding::kGradients, Sharding::kParameters);
  if (options.sharding == Sharding::kParameters && options.schedule == Schedule::kPriority) {
    options.schedule = Schedule::kOverlap;  // the other is refused
  }
  options.streams = *rc::gen::element(1, 1, 0, 2);
  options.accumulate = *rc::gen::element(1, 1, 3);
  options.optimizer_per_bucket = *rc::gen::arbitrary<bool>();
  return options;
}

/// A line, the cheapest of two, or a curve.
ExchangeCosts some_costs() {
  ExchangeCosts costs = costs_of(*rc::gen::inRange(0, 2000), *rc::gen::inRange(1, 200) * 0.1);
  const int kind = *rc::gen::inRange(0, 3);
  const CostLine one = costs.all_reduce.lines()[0];
  if (kind == 1) {
    costs.all_reduce = ExchangeTime({one, {one.latency * 4.0, one.seconds_per_byte / 3, {}}});
  } else if (kind == 2) {
    std::vector<CurvePoint> points;
    for (std::int64_t size = 1000; size < 100000000; size *= 7) {
      points.push_back(
          {Bytes(size),
           one(Bytes(size)) * (1.0 + *rc::gen::inRange(0, 50) * 0.01) + Seconds(1e-9)});
    }
    costs.all_reduce = ExchangeTime(std::span<const CurvePoint>(points));
  }
  costs.reduce_scatter = costs.all_reduce.scaled(0.5, 0.5);
  costs.all_gather = costs.reduce_scatter;
  return costs;
}

RC_GTEST_PROP(Planner, NoStepIsBelowABoundAndNoAlternativeBelowTheOptimum, ()) {
  const StepProfile profile = some_profile();
  const ExchangeCosts costs = some_costs();
  const SimulateOptions options = some_options();
  const PlanResult result = plan(profile, costs, options);
  for (const Bound& bound : result.bounds) {
    RC_ASSERT(bound.step <= result.step * (1.0 + 1e-9));
    for (const Alternative& other : result.alternatives) {
      if (other.schedule == options.schedule) {
        RC_ASSERT(bound.step <= other.step * (1.0 + 1e-9));
      }
    }
  }
  for (const Alternative& other : result.alternatives) {
    // Cut tensors help the optimizer: those of 4 MiB are among the few sizes that are tried then.
    // So they may where several lines make two small exchanges cheaper than a large one.
    const bool cut = other.name.find("split") != std::string::npos;
    if (result.optimum_is_exact && other.schedule == options.schedule && !cut) {
      RC_ASSERT(result.step <= other.step * (1.0 + 1e-9));
    }
  }
  result.plan.validate();
  RC_ASSERT(result.plan.tensors == tensors_of(profile));
}

RC_GTEST_PROP(Planner, WhatIfsOnlyHelp, ()) {
  // More bandwidth, less latency, quicker compute: never a longer step.
  const StepProfile profile = some_profile();
  const ExchangeCosts costs = costs_of(500, 2.0);
  const Seconds step = plan(profile, costs).step;
  ExchangeCosts quicker = costs;
  quicker.all_reduce = costs.all_reduce.scaled(0.5, 0.7);
  RC_ASSERT(plan(profile, quicker).step <= step * (1.0 + 1e-9));
  RC_ASSERT(plan(scaled(profile, 0.8), costs).step <= step * (1.0 + 1e-9));
}

TEST(Planner, EveryModelOnAFewMachines) {
  for (const std::string& name : model_names()) {
    const StepProfile profile = model(name);
    for (const ExchangeCosts& costs : {costs_of(50, 0.6), costs_of(20, 12.0), costs_of(5, 100.0)}) {
      const PlanResult result = plan(profile, costs);
      SCOPED_TRACE(name);
      EXPECT_TRUE(result.optimum_is_exact);
      EXPECT_LE(result.bound, result.step);
      EXPECT_GE(result.step, result.compute);
      ASSERT_EQ(result.buckets.size(), result.plan.buckets.size());
      for (std::size_t b = 0; b < result.buckets.size(); ++b) {
        EXPECT_LE(result.buckets[b].ready, result.buckets[b].begin + Seconds(1e-9));
        EXPECT_LT(result.buckets[b].begin, result.buckets[b].end);
      }
      for (const Sensitivity& off : result.sensitivity) {
        EXPECT_GE(off.step, off.best_step);
      }
    }
  }
}

/// The step of a sensitivity row, which must be there, and what the best plan then takes.
Sensitivity row(const PlanResult& result, const std::string& what, double factor) {
  for (const Sensitivity& one : result.sensitivity) {
    if (one.what == what && one.factor == factor) {
      return one;
    }
  }
  ADD_FAILURE() << "no row of " << what << " times " << factor;
  return {};
}

TEST(Planner, SensitivityByHand) {
  // One gradient, ready when compute is over at 10 ms: 1 ms of latency and 4 ms on the wire follow.
  StepProfile profile;
  profile.model = "one";
  profile.forward = {{"w", Seconds(4e-3)}};
  profile.forward_end = Seconds(4e-3);
  profile.tensors = {{"w", DType::kF32, {1000000}, Seconds(10e-3)}};
  profile.backward_end = profile.compute_end = Seconds(10e-3);
  ExchangeCosts costs;
  costs.ranks = 2;
  costs.all_reduce = ExchangeTime(std::vector<CostLine>{{Seconds(1e-3), 1e-9, Algorithm::kRing}});
  const PlanResult result = plan(profile, costs);
  EXPECT_NEAR(result.step.count(), 15e-3, 1e-12);
  struct Case {
    const char* what;
    double factor;
    double step_ms;
  };
  for (const Case& c : {Case{"compute time", 0.8, 13.0},
                        Case{"compute time", 1.2, 17.0},
                        Case{"bandwidth", 0.8, 16.0},
                        Case{"bandwidth", 1.2, 11.0 + 4.0 / 1.2},
                        Case{"latency", 0.8, 14.8},
                        Case{"latency", 1.2, 15.2}}) {
    const Sensitivity off = row(result, c.what, c.factor);
    EXPECT_NEAR(off.step.count() * 1e3, c.step_ms, 1e-9) << c.what << " " << c.factor;
    EXPECT_NEAR(off.best_step.count() * 1e3, c.step_ms, 1e-9) << c.what << " " << c.factor;
  }
}

RC_GTEST_PROP(Planner, SensitivityHasTheSignOfItsInput, ()) {
  // More compute or latency, less bandwidth: never a shorter step, neither of this plan nor of the
  // one that would have been made. The other way round never a longer one.
  const StepProfile profile = some_profile();
  SimulateOptions options;
  options.schedule = *rc::gen::element(Schedule::kSerial, Schedule::kOverlap);
  options.optimizer_per_bucket = *rc::gen::arbitrary<bool>();
  const PlanResult result = plan(profile, some_costs(), options);
  for (const Sensitivity& off : result.sensitivity) {
    const bool worse = (off.what == "bandwidth") == (off.factor < 1.0);
    const double sign = worse ? 1.0 : -1.0;
    RC_ASSERT(sign * (off.step - result.step).count() >= -1e-9 * result.step.count());
    // The other plans that are tried are the same, all but those that cut tensors.
    RC_ASSERT(sign * (off.best_step - result.step).count() >= -2e-4 * result.step.count());
    RC_ASSERT(off.best_step <= off.step);
  }
  RC_ASSERT(result.sensitivity.size() == 6U);
}

TEST(Planner, PriorityExposesWhatTheNextForwardPassWaitsFor) {
  // Two layers, 1 ms forward and 2 ms backward each, 1 ms to exchange each: the second layer's
  // gradient is on the wire during the first one's backward pass. The first layer's, ready last and
  // needed first, nothing hides: forward + backward + T(n_1).
  StepProfile profile;
  profile.model = "two";
  profile.forward = {{"l0", Seconds(1e-3)}, {"l1", Seconds(1e-3)}};
  profile.forward_end = Seconds(2e-3);
  profile.tensors = {{"l1.w", DType::kF32, {250000}, Seconds(4e-3)},
                     {"l0.w", DType::kF32, {250000}, Seconds(6e-3)}};
  profile.backward_end = profile.compute_end = Seconds(6e-3);
  ExchangeCosts costs;
  costs.ranks = 2;
  costs.all_reduce = ExchangeTime(std::vector<CostLine>{{Seconds(0), 1e-9, Algorithm::kRing}});
  SimulateOptions options;
  options.schedule = Schedule::kPriority;
  const PlanResult hidden = plan(profile, costs, options);
  EXPECT_NEAR(hidden.step.count(), 7e-3, 1e-9);
  EXPECT_NEAR(hidden.exposed().count(), 1e-3, 1e-9);
  EXPECT_NEAR(hidden.bound.count(), 7e-3, 1e-9);
  // 4 ms each: the second's goes from 4 to 8, in the way of the first's, which is ready at 6. The
  // bound lets it interrupt: 11 ms (CrossIterationBounds.CycleAndDelivery); in segments it does.
  costs.all_reduce = ExchangeTime(std::vector<CostLine>{{Seconds(0), 4e-9, Algorithm::kRing}});
  options.segment = Bytes(10000);
  options.streams = 2;
  const PlanResult busy = plan(profile, costs, options);
  EXPECT_NEAR(busy.bound.count(), 11e-3, 1e-9);
  EXPECT_GE(busy.step, busy.bound);
  EXPECT_NEAR(busy.step.count(), 11e-3, 0.1e-3);
  EXPECT_NEAR(busy.exposed().count(), busy.step.count() - 6e-3, 1e-12);
  // Overlap ends with the last exchange: 4 + 2 x 4.
  options.schedule = Schedule::kOverlap;
  EXPECT_NEAR(plan(profile, costs, options).step.count(), 12e-3, 1e-9);
}

RC_GTEST_PROP(Planner, NoPlanThatIsSimulatedIsBelowABound, ()) {
  // The bounds are of the model: any cut and order of it, also one that no planner would make.
  const StepProfile profile = some_profile();
  const ExchangeCosts costs = some_costs();
  SimulateOptions options = some_options();
  options.segment = Bytes(*rc::gen::element(0, 100000, 1000000));
  const std::vector<Bound> bounds = plan(profile, costs, options).bounds;
  const std::vector<TensorSpec> tensors = tensors_of(profile);
  const Bytes cap(*rc::gen::inRange<std::int64_t>(1, 2 * profile.bytes().count()) + 20000);
  Plan any = *rc::gen::arbitrary<bool>() ? uniform_plan(tensors, cap, *rc::gen::arbitrary<bool>())
                                         : ddp_plan(tensors, cap, Bytes(1 + cap.count() / 3));
  for (Bucket& bucket : any.buckets) {
    bucket.priority = *rc::gen::inRange(-2, 3);
  }
  const Simulation simulation = simulate(profile, costs, any, options);
  for (const Bound& bound : bounds) {
    RC_ASSERT(bound.step <= simulation.step * (1.0 + 1e-9));
  }
}

RC_GTEST_PROP(Planner, WhatIsReckonedInOrderIsWhatIsSimulated, ()) {
  // The planner's candidates go through a shorter sum than simulate(); the result of one that no
  // optimizer time blurs is the same.
  const StepProfile profile = some_profile();
  const ExchangeCosts costs = some_costs();
  SimulateOptions options;
  options.schedule = *rc::gen::element(Schedule::kSerial, Schedule::kOverlap);
  options.accumulate = *rc::gen::element(1, 3);
  options.optimizer_per_bucket = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) {
    options.compute_factor.assign(static_cast<std::size_t>(costs.ranks), 1.0);
    options.compute_factor[2] = *rc::gen::element(0.5, 1.5);
  }
  for (const bool split : {true, false}) {
    for (const SweepPoint& point : sweep_caps(profile, costs, options, split, Bytes(100000), 1)) {
      const Plan plan = uniform_plan(tensors_of(profile), point.cap, split);
      const Seconds step = simulate(profile, costs, plan, options).step;
      RC_ASSERT(std::abs(point.step / step - 1.0) < 1e-9);
      RC_ASSERT(point.buckets == plan.buckets.size());
    }
  }
}

TEST(Planner, SlowerRanksAndAccumulationAreInTheBound) {
  const StepProfile profile = model("resnet50");
  const ExchangeCosts costs = costs_of(50, 12.0);
  SimulateOptions options;
  options.compute_factor.assign(8, 1.0);
  options.compute_factor[3] = 1.5;
  const PlanResult slow = plan(profile, costs, options);
  EXPECT_NEAR(slow.compute.count(), 1.5 * profile.compute_end.count(), 1e-12);
  options.compute_factor.clear();
  options.accumulate = 4;
  const PlanResult four = plan(profile, costs, options);
  EXPECT_NEAR(four.compute.count(), 4 * profile.compute_end.count(), 1e-12);
  EXPECT_LT(four.exposed(), slow.step);
}

TEST(Planner, RefusesAModelWithoutGradients) {
  StepProfile empty;
  empty.model = "empty";
  EXPECT_THROW((void)plan(empty, costs_of(1, 1)), Error);
}

TEST(BestDdpCap, IsTheBestOfAllCaps) {
  const StepProfile profile = model("vgg16");
  const ExchangeCosts costs = costs_of(100, 5.0);
  for (const bool own_first : {false, true}) {
    const BestCap best = best_ddp_cap(profile, costs, {}, own_first);
    for (std::int64_t kib = 64; kib < 600 << 10; kib += 1031) {
      const Bytes cap(kib << 10);
      const Plan other = ddp_plan(tensors_of(profile), cap, own_first ? Bytes(1 << 20) : cap);
      EXPECT_LE(best.step, simulate(profile, costs, other).step * (1 + 1e-9)) << kib;
    }
    EXPECT_EQ(best.plan.buckets, ddp_plan(tensors_of(profile), best.cap, best.first_cap).buckets);
  }
}

TEST(SweepCaps, EndsWithOneBucket) {
  const StepProfile profile = model("resnet50");
  const std::vector<SweepPoint> points =
      sweep_caps(profile, costs_of(50, 1.0), {}, true, Bytes(1 << 20), 1);
  EXPECT_EQ(points.front().cap, Bytes(1 << 20));
  EXPECT_EQ(points.back().cap, profile.bytes());
  EXPECT_EQ(points.back().buckets, 1U);
  EXPECT_TRUE(std::is_sorted(
      points.begin(), points.end(), [](const auto& a, const auto& b) { return a.cap < b.cap; }));
}

TEST(Settings, SayWhatTheySetAndKeepTheDefaultWhereItIsBest) {
  const StepProfile profile = model("gpt2_124m");
  const ExchangeCosts costs = costs_of(20, 12.0);
  const PlanResult planned = plan(profile, costs);
  const auto text = [&](Framework framework) {
    return settings_for(framework, profile, costs, planned, {}).text;
  };
  EXPECT_NE(text(Framework::kDdp).find("bucket_cap_mb="), std::string::npos);
  EXPECT_NE(text(Framework::kDdp).find("bucket_cap_mb_list=["), std::string::npos);
  EXPECT_NE(text(Framework::kFsdp).find("fully_shard(block"), std::string::npos);
  EXPECT_NE(text(Framework::kFsdp).find("list(model.h)"), std::string::npos);
  EXPECT_NE(text(Framework::kDeepSpeed).find("\"reduce_bucket_size\": "), std::string::npos);
  EXPECT_NE(text(Framework::kMegatron).find("--ddp-bucket-size "), std::string::npos);
  EXPECT_NE(text(Framework::kHorovod).find("HOROVOD_FUSION_THRESHOLD="), std::string::npos);
  EXPECT_EQ(text(Framework::kNccl).find("export"), std::string::npos) << "nothing follows";
  // Free communication: nothing to gain, nothing to set.
  const ExchangeCosts free;
  const PlanResult nothing = plan(profile, free);
  EXPECT_NE(settings_for(Framework::kDdp, profile, free, nothing, {}).text.find("No single cap"),
            std::string::npos);
}

TEST(Settings, OfFsdpWrapTheGroupsThatArePredicted) {
  const ExchangeCosts costs = costs_of(20, 12.0);
  const auto text = [&](const StepProfile& profile) {
    return settings_for(Framework::kFsdp, profile, costs, plan(profile, costs), {}).text;
  };
  // 16 blocks in four lists, in the order of the forward pass; the first convolution, the last
  // layer.
  const std::string resnet = text(model("resnet50"));
  EXPECT_NE(resnet.find("blocks = [*model.layer1, *model.layer2, *model.layer3, *model.layer4]\n"),
            std::string::npos)
      << resnet;
  EXPECT_NE(resnet.find("in 18 groups"), std::string::npos) << resnet;
  EXPECT_NE(resnet.find("2 of them are what lies before"), std::string::npos) << resnet;
  // Of a Sequential only what has parameters: the others would shift who gathers whom.
  const std::string vgg = text(model("vgg16"));
  EXPECT_NE(vgg.find("[block for block in [*model.features, *model.classifier] if any("),
            std::string::npos)
      << vgg;
  // Without a numbered block there is nothing to wrap but the whole.
  StepProfile flat = model("gpt2_124m");
  for (ProfileTensor& tensor : flat.tensors) {
    std::replace(tensor.name.begin(), tensor.name.end(), '.', '_');
  }
  EXPECT_EQ(text(flat).find("blocks ="), std::string::npos) << text(flat);
  EXPECT_NE(text(flat).find("in 1 group;"), std::string::npos) << text(flat);
}

TEST(Settings, OfNcclWhatFollows) {
  const StepProfile profile = model("gpt2_124m");
  Machine machine = machine_from_preset("dgx-h100x4");
  ASSERT_GT(machine.levels[0].in_switch_efficiency, 0.0);
  ExchangeCosts costs = exchange_costs(machine, Algorithm::kInSwitch, profile.bytes());
  costs.compute_slowdown = 1.25;
  const std::string text =
      settings_for(Framework::kNccl, profile, costs, plan(profile, costs), {}).text;
  EXPECT_NE(text.find("NCCL_COLLNET_ENABLE=1"), std::string::npos) << text;
  EXPECT_NE(text.find("1.25 times as long"), std::string::npos) << text;
}

TEST(CrossIterationBounds, CycleAndDelivery) {
  // Two layers, 1 ms forward and 2 ms backward each, 1 MB each at 1 ms per MB.
  const std::vector<GradientUse> gradients = {{Seconds(2e-3), Seconds(1e-3), Bytes(1000000)},
                                              {Seconds(4e-3), Seconds(2e-3), Bytes(1000000)}};
  const std::vector<CostLine> quick = {{Seconds(0), 1e-9, {}}};
  const std::vector<Bound> bounds = cross_iteration_bounds(gradients, Seconds(6e-3), quick);
  ASSERT_EQ(bounds.size(), 4U);
  EXPECT_NEAR(bounds[0].step.count(), 6e-3, 1e-12);  // compute
  EXPECT_NEAR(bounds[1].step.count(), 6e-3, 1e-12);  // 2 ms of wire
  EXPECT_NEAR(bounds[2].step.count(), 7e-3, 1e-12);  // F + B + T(n_1)
  EXPECT_NEAR(bounds[3].step.count(), 7e-3, 1e-12);
  const std::vector<CostLine> slow = {{Seconds(0), 4e-9, {}}};
  const std::vector<Bound> busy = cross_iteration_bounds(gradients, Seconds(6e-3), slow);
  EXPECT_NEAR(busy[1].step.count(), 8e-3, 1e-12);
  EXPECT_NEAR(busy[2].step.count(), 10e-3, 1e-12);
  // Released at 2 and 4 (from the end of forward), 4 ms each, then 1 and 2 ms of forward: the
  // first layer's from 4 to 8, the rest of the second's until 10, and 1 ms.
  EXPECT_NEAR(busy[3].step.count(), 11e-3, 1e-12);
}

TEST(Settings, CapsAreWhatPythonMakesOfThem) {
  // A cap above the bucket's own size would not close it.
  const StepProfile profile = model("bert_large");
  const ExchangeCosts costs = costs_of(14.0 * 20, 12.5);
  const PlanResult planned = plan(profile, costs);
  const std::string text = settings_for(Framework::kDdp, profile, costs, planned, {}).text;
  const std::string key = "bucket_cap_mb_list=[";
  const std::size_t begin = text.find(key);
  ASSERT_NE(begin, std::string::npos) << text;
  std::size_t at = begin + key.size();
  for (const Bucket& bucket : planned.plan.buckets) {
    std::size_t used = 0;
    const double mb = std::stod(text.substr(at), &used);
    EXPECT_EQ(static_cast<std::int64_t>(mb * 1024 * 1024), bucket.bytes().count());
    at += used + 2;
  }
}

}  // namespace
}  // namespace stretto
