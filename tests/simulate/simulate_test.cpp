// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

/// Layers of 1 ms forward and 2 ms backward, each with one tensor of 1 MB, optimizer of 1 ms.
StepProfile small_profile(int layers = 4) {
  StepProfile profile;
  profile.model = "small";
  profile.batch = 8;
  for (int l = 0; l < layers; ++l) {
    profile.forward.push_back({"layer" + std::to_string(l), Seconds(1e-3)});
  }
  profile.forward_end = Seconds(layers * 1e-3);
  for (int l = layers; l-- > 0;) {
    profile.tensors.push_back({"layer" + std::to_string(l) + ".weight",
                               DType::kF32,
                               {250000},
                               profile.forward_end + Seconds((layers - l) * 2e-3)});
  }
  profile.backward_end = Seconds(layers * 3e-3);
  profile.compute_end = profile.backward_end + Seconds(1e-3);
  return profile;
}

std::vector<TensorSpec> tensors_of(const StepProfile& profile) {
  std::vector<TensorSpec> tensors;
  for (const ProfileTensor& tensor : profile.tensors) {
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  return tensors;
}

/// Buckets of `each` tensors of 250000 elements.
Plan plan_of(const StepProfile& profile, std::size_t each) {
  Plan plan;
  plan.tensors = tensors_of(profile);
  const std::size_t count = plan.tensors.size();
  for (std::size_t i = 0; i < count; i += each) {
    plan.buckets.push_back({DType::kF32,
                            static_cast<std::int64_t>(i * 250000),
                            static_cast<std::int64_t>(std::min(count, i + each) * 250000),
                            0,
                            Algorithm::kAuto});
  }
  return plan;
}

/// 0.5 ms and 1 ms per MB: 1.5 ms for one tensor.
ExchangeCosts some_costs(int ranks = 4) {
  ExchangeCosts costs;
  costs.all_reduce = ExchangeTime(std::vector<CostLine>{{Seconds(0.5e-3), 1e-9, {}}});
  costs.reduce_scatter = ExchangeTime(std::vector<CostLine>{{Seconds(0.25e-3), 0.5e-9, {}}});
  costs.all_gather = costs.reduce_scatter;
  costs.ranks = ranks;
  return costs;
}

void expect_ms(Seconds time, double ms) {
  EXPECT_NEAR(time.count() * 1e3, ms, 1e-6);
}

TEST(Simulate, OverlappedBucketsEndOneAfterTheOther) {
  const StepProfile profile = small_profile();
  SimulateOptions options;
  options.optimizer_per_bucket = false;
  const Simulation simulation = simulate(profile, some_costs(), plan_of(profile, 1), options);
  // Ready at 6, 8, 10, 12 ms, 1.5 ms each: the last ends at 13.5; then 1 ms of optimizer.
  expect_ms(simulation.communication_end, 13.5);
  expect_ms(simulation.step, 14.5);
}

TEST(Simulate, SerialWaitsForBackward) {
  const StepProfile profile = small_profile();
  SimulateOptions options;
  options.schedule = Schedule::kSerial;
  const Simulation simulation = simulate(profile, some_costs(), plan_of(profile, 4), options);
  expect_ms(simulation.communication_end, 12 + 0.5 + 4);
  expect_ms(simulation.step, 12 + 4.5 + 1);
}

TEST(Simulate, OptimizerFollowsEachBucket) {
  const StepProfile profile = small_profile();
  const Simulation simulation = simulate(profile, some_costs(), plan_of(profile, 1));
  // Three quarters of the optimizer fit between the end of backward and the last bucket.
  expect_ms(simulation.step, 13.5 + 0.25);
}

TEST(Simulate, StreamsOverlapLatenciesAndShareTheWire) {
  StepProfile profile = small_profile();
  for (ProfileTensor& tensor : profile.tensors) {
    tensor.ready = profile.backward_end;  // all at once
  }
  profile.compute_end = profile.backward_end;
  SimulateOptions options;
  const Plan plan = plan_of(profile, 1);
  expect_ms(simulate(profile, some_costs(), plan, options).communication_end, 12 + 4 * 1.5);
  options.streams = 0;
  expect_ms(simulate(profile, some_costs(), plan, options).communication_end, 12 + 4 * 1.0 + 0.5);
}

TEST(Simulate, TheSlowestRankHoldsEverybody) {
  const StepProfile profile = small_profile();
  SimulateOptions options;
  options.optimizer_per_bucket = false;
  options.compute_factor = {1.0, 1.0, 2.0, 1.0};
  const Simulation simulation = simulate(profile, some_costs(), plan_of(profile, 1), options);
  expect_ms(simulation.communication_end, 24 + 1.5);
  expect_ms(simulation.step, 24 + 1.5 + 2);  // its optimizer too
  std::vector<std::uint32_t> ranks;
  for (const Record& record : simulation.timeline.records) {
    if (record.kind == RecordKind::kStep) {
      ranks.push_back(record.rank);
    }
  }
  EXPECT_EQ(ranks, (std::vector<std::uint32_t>{0, 1, 2, 3}));
  // Of more than can be shown one of each speed.
  options.recorded_ranks = 2;
  const Simulation few = simulate(profile, some_costs(), plan_of(profile, 1), options);
  std::vector<std::uint32_t> shown;
  for (const Record& record : few.timeline.records) {
    if (record.kind == RecordKind::kStep) {
      shown.push_back(record.rank);
    }
  }
  EXPECT_EQ(shown, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(simulation.timeline.world_size, 4U);
}

TEST(Simulate, ComputeBesideCommunicationTakesLonger) {
  const StepProfile profile = small_profile();
  ExchangeCosts costs = some_costs();
  costs.compute_slowdown = 1.5;
  SimulateOptions options;
  options.optimizer_per_bucket = false;
  // After 6 ms each 2 ms of backward have 1.5 ms of communication beside them: 1 ms of work in
  // those, and 1 ms after.
  const Simulation simulation = simulate(profile, costs, plan_of(profile, 1), options);
  expect_ms(simulation.communication_end, 6 + 3 * 2.5 + 1.5);
}

TEST(Simulate, AccumulationCommunicatesOnce) {
  const StepProfile profile = small_profile();
  SimulateOptions options;
  options.accumulate = 3;
  options.optimizer_per_bucket = false;
  const Simulation simulation = simulate(profile, some_costs(), plan_of(profile, 1), options);
  expect_ms(simulation.step, 2 * 12 + 14.5);
  EXPECT_EQ(
      std::count_if(simulation.timeline.records.begin(),
                    simulation.timeline.records.end(),
                    [](const Record& record) { return record.kind == RecordKind::kCommunication; }),
      4);
}

TEST(Simulate, Zero1ReducesScattersAndGathersAfterTheUpdate) {
  const StepProfile profile = small_profile();
  SimulateOptions options;
  options.sharding = Sharding::kOptimizer;
  const Simulation simulation = simulate(profile, some_costs(), plan_of(profile, 4), options);
  // One bucket: reduce-scatter 0.25 + 2, a quarter of the optimizer, all-gather 2.25.
  expect_ms(simulation.step, 12 + 2.25 + 0.25 + 2.25);
}

TEST(Simulate, Zero3GathersBeforeEachUseAndPrefetches) {
  const StepProfile profile = small_profile();
  SimulateOptions options;
  options.sharding = Sharding::kParameters;
  options.prefetch = 0;
  // Each layer waits 0.75 ms for its parameters, forward and backward. Reduce-scatters (0.75)
  // go between: the wire has 2 ms of backward for a gather and a reduce-scatter.
  const Simulation late = simulate(profile, some_costs(), plan_of(profile, 1), options);
  options.prefetch = 1;
  const Simulation early = simulate(profile, some_costs(), plan_of(profile, 1), options);
  EXPECT_GT(late.step, early.step);
  // Only the first gather of each pass is left, the last reduce-scatter, and the optimizer's share.
  expect_ms(early.step, 0.75 + 4 + 8 + 0.75 + 0.75 + 0.0625);
}

TEST(Simulate, PriorityHidesWhatTheNextForwardDoesNotNeedYet) {
  const StepProfile profile = small_profile();
  ExchangeCosts costs = some_costs();
  costs.all_reduce = ExchangeTime(std::vector<CostLine>{{Seconds(1.2e-3), 2e-9, {}}});
  SimulateOptions options;
  // Ready at 6, 8, 10, 12 ms, 3.2 ms each: the last ends at 18.8; its quarter of the optimizer.
  expect_ms(simulate(profile, costs, plan_of(profile, 1), options).step, 19.05);
  options.schedule = Schedule::kPriority;
  // From the end of backward, where the next forward pass begins: until 0.4 the wire is busy, then
  // the first layer's exchange is the most urgent and goes until 3.6; its update and forward pass
  // until 4.85. The second's goes until 6.8, so the forward pass ends at 6.8 + 3 * 1.25, and 8 ms
  // of backward follow.
  expect_ms(simulate(profile, costs, plan_of(profile, 1), options).step, 18.55);
}

TEST(Simulate, UrgentSegmentsOvertake) {
  StepProfile profile = small_profile(2);
  profile.tensors[0].shape = {25000000};  // the last layer's: 100 MB, ready first
  Plan plan;
  plan.tensors = tensors_of(profile);
  plan.buckets = {{DType::kF32, 0, 25000000, 0, Algorithm::kAuto},
                  {DType::kF32, 25000000, 25250000, 0, Algorithm::kAuto}};
  SimulateOptions options;
  options.schedule = Schedule::kPriority;
  const auto urgent_took_ms = [&] {
    const Simulation simulation = simulate(profile, some_costs(), plan, options);
    double took = 0.0;
    for (const Record& record : simulation.timeline.records) {
      if (record.bucket == 1 && record.kind == RecordKind::kLaunched) {
        took -= static_cast<double>(record.begin_ns) * 1e-6 / 3;  // three steps are shown
      } else if (record.bucket == 1 && record.kind == RecordKind::kCommunication) {
        took += static_cast<double>(record.end_ns) * 1e-6 / 3;
      }
    }
    return took;
  };
  // Behind the large one, which began 2 ms before it; or after at most one segment of it.
  EXPECT_NEAR(urgent_took_ms(), 100.5 - 2.0 + 1.5, 1e-3);
  options.segment = Bytes(1 << 20);
  options.streams = 2;
  EXPECT_LE(urgent_took_ms(), 1.5 + 1.05);
}

TEST(Simulate, SegmentsThatNothingOvertakesAreNoEvents) {
  SimulateOptions options;
  options.schedule = Schedule::kPriority;
  options.segment = Bytes(1);
  for (const int streams : {1, 2, 0}) {
    options.streams = streams;
    const Simulation bytes =
        simulate(small_profile(), some_costs(), plan_of(small_profile(), 1), options);
    SimulateOptions whole = options;
    whole.segment = Bytes(1 << 20);  // one of each exchange
    const Simulation once =
        simulate(small_profile(), some_costs(), plan_of(small_profile(), 1), whole);
    // An exchange of a megabyte is no million events, but it can be overtaken after any byte.
    EXPECT_LE(bytes.events, 4 * once.events) << streams;
    EXPECT_LE(bytes.step, once.step + Seconds(1e-9)) << streams;
  }
}

TEST(Simulate, AHundredThousandEqualRanksAreOne) {
  const StepProfile profile = small_profile();
  const Simulation few = simulate(profile, some_costs(4), plan_of(profile, 1));
  const Simulation many = simulate(profile, some_costs(100000), plan_of(profile, 1));
  EXPECT_EQ(few.events, many.events);
  EXPECT_EQ(few.step, many.step);
}

TEST(Simulate, TheTimelineIsTheStep) {
  const StepProfile profile = small_profile();
  const Simulation simulation = simulate(profile, some_costs(), plan_of(profile, 2));
  std::int64_t end_ns = 0;
  std::int64_t ready = 0;
  for (const Record& record : simulation.timeline.records) {
    EXPECT_GE(record.begin_ns, 0);
    EXPECT_LE(record.begin_ns, record.end_ns);
    if (record.kind == RecordKind::kStep) {
      end_ns = record.end_ns;
    }
    ready += record.kind == RecordKind::kReady ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(end_ns) * 1e-9, simulation.step.count(), 1e-9);
  EXPECT_EQ(ready, 4);
  for (const Record& record : simulation.timeline.records) {
    EXPECT_LE(record.end_ns, end_ns);
  }
}

TEST(Simulate, RefusesWhatCannotBe) {
  const StepProfile profile = small_profile();
  const Plan plan = plan_of(profile, 1);
  const auto refuses = [&](auto change) {
    SimulateOptions options;
    ExchangeCosts costs = some_costs();
    change(options, costs);
    EXPECT_THROW((void)simulate(profile, costs, plan, options), Error);
  };
  refuses([](SimulateOptions& o, ExchangeCosts&) { o.streams = -1; });
  refuses([](SimulateOptions& o, ExchangeCosts&) { o.accumulate = 0; });
  refuses([](SimulateOptions& o, ExchangeCosts&) { o.prefetch = -1; });
  refuses([](SimulateOptions& o, ExchangeCosts&) { o.segment = Bytes(-1); });
  refuses([](SimulateOptions& o, ExchangeCosts&) { o.compute_factor = {1.0}; });
  refuses([](SimulateOptions& o, ExchangeCosts&) { o.compute_factor = {1.0, 0.0, 1.0, 1.0}; });
  refuses([](SimulateOptions&, ExchangeCosts& c) { c.compute_slowdown = 0.5; });
  refuses([](SimulateOptions&, ExchangeCosts& c) { c.ranks = 0; });
  refuses([](SimulateOptions& o, ExchangeCosts&) {
    o.schedule = Schedule::kPriority;
    o.sharding = Sharding::kParameters;
  });
  const StepProfile other = small_profile(3);
  try {
    (void)simulate(other, some_costs(), plan);
    FAIL() << "a plan for another model was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(error.detail().found.find("4 tensors"), std::string::npos);
  }
}

RC_GTEST_PROP(SimulateLaws, NeverQuickerThanComputeNorThanTheWire, ()) {
  StepProfile profile = small_profile(*rc::gen::inRange(1, 7));
  SimulateOptions options;
  options.schedule = *rc::gen::element(Schedule::kSerial, Schedule::kOverlap, Schedule::kPriority);
  options.streams = *rc::gen::inRange(0, 3);
  options.accumulate = *rc::gen::inRange(1, 3);
  options.optimizer_per_bucket = *rc::gen::arbitrary<bool>();
  options.segment = Bytes(*rc::gen::element(0, 100000, 1000000));
  const ExchangeCosts costs = some_costs();
  const Plan plan = plan_of(profile, static_cast<std::size_t>(*rc::gen::inRange(1, 4)));
  const Simulation simulation = simulate(profile, costs, plan, options);
  const Seconds compute = (options.accumulate - 1) * profile.backward_end + profile.compute_end;
  RC_ASSERT(simulation.step >= compute * (1 - 1e-9));
  double wire = 0.0;
  for (const Bucket& bucket : plan.buckets) {
    wire += 1e-9 * static_cast<double>(bucket.bytes().count());
  }
  RC_ASSERT(simulation.step.count() >= wire * (1 - 1e-9));
  // The same again gives the same.
  RC_ASSERT(simulate(profile, costs, plan, options).step == simulation.step);
}

RC_GTEST_PROP(SimulateLaws, FreeCommunicationCostsNothing, ()) {
  const StepProfile profile = small_profile(*rc::gen::inRange(1, 7));
  SimulateOptions options;
  options.schedule = *rc::gen::element(Schedule::kSerial, Schedule::kOverlap, Schedule::kPriority);
  options.sharding = *rc::gen::element(Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients);
  ExchangeCosts costs;
  const Simulation simulation = simulate(profile, costs, plan_of(profile, 1), options);
  RC_ASSERT(std::abs(simulation.step.count() - profile.compute_end.count()) <= 1e-9);
}

TEST(LayersOfTensors, ByNameElseByTime) {
  StepProfile profile = small_profile(3);
  EXPECT_EQ(layers_of_tensors(profile), (std::vector<std::size_t>{2, 1, 0}));
  profile.tensors[0].name = "head";  // of no layer: it was ready after a third of backward
  EXPECT_EQ(layers_of_tensors(profile), (std::vector<std::size_t>{2, 1, 0}));
}

}  // namespace
}  // namespace stretto
