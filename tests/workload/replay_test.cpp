// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/replay.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/run/recorder.hpp"
#include "stretto/workload/sampled_gradients.hpp"
#include "stretto/workload/stand_in.hpp"
#include "workload/ranks.hpp"

namespace stretto {
namespace {

StepProfile profile(DType dtype = DType::kF32) {
  StepProfile step;
  step.model = "three tensors";
  step.batch = 4;
  step.forward = {{"a", Seconds(0.0005)}, {"b", Seconds(0.0005)}};
  step.forward_end = Seconds(0.001);
  step.tensors = {{"b.weight", dtype, {70000}, Seconds(0.002)},
                  {"a.weight", dtype, {33, 3}, Seconds(0.003)},
                  {"a.bias", dtype, {1}, Seconds(0.003)}};
  step.backward_end = Seconds(0.003);
  step.compute_end = Seconds(0.004);
  return step;
}

ReplayOptions options_for(const StepProfile& step) {
  ReplayOptions options;
  options.plan = uniform_plan(tensors_of(step), Bytes(50000));
  options.steps = 4;
  options.warmup = 1;
  return options;
}

std::vector<ReplayResult> replay_on(int ranks,
                                    const StepProfile& step,
                                    const ReplayOptions& options) {
  return on_ranks<ReplayResult>(
      ranks, [&](Communicator& communicator) { return replay(communicator, step, options); });
}

TEST(Replay, ReducesEveryFloatingTypeRightly) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    for (const int ranks : {1, 3}) {
      for (const Schedule schedule : {Schedule::kOverlap, Schedule::kPriority}) {
        const StepProfile step = profile(dtype);
        ReplayOptions options = options_for(step);
        options.session.schedule = schedule;
        const std::vector<ReplayResult> results = replay_on(ranks, step, options);
        EXPECT_GT(results[0].values_checked, 0);
        EXPECT_EQ(results[0].timeline.steps_recorded, 4U);
      }
    }
  }
}

TEST(Replay, NothingIsReadyBeforeTheProfileSaysAndTheOptimizerFollows) {
  const StepProfile step = profile();
  ReplayOptions options = options_for(step);
  options.compute = Seconds(0.008);  // twice the profile's
  const Timeline timeline = replay_on(2, step, options)[0].timeline;
  std::size_t looked_at = 0;
  for (const Record& whole : timeline.records) {
    if (whole.kind != RecordKind::kStep) {
      continue;
    }
    for (const Record& record : timeline.records) {
      if (record.rank != whole.rank || record.step != whole.step) {
        continue;
      }
      const std::string& name = timeline.names[record.name];
      if (record.kind == RecordKind::kReady && name == "b.weight") {
        EXPECT_GE(record.begin_ns - whole.begin_ns, 4'000'000);
        ++looked_at;
      }
      if (record.kind == RecordKind::kOptimizer) {
        EXPECT_GE(record.begin_ns - whole.begin_ns, 6'000'000);
        ++looked_at;
      }
    }
  }
  // 2 ranks x 4 steps
  EXPECT_EQ(looked_at, 8 * (1 + options.plan.buckets.size()));
}

// How many forward records of `timeline` have an exchange of the step before beside them.
std::size_t hiding_forwards(const Timeline& timeline) {
  const auto hides = [&](const Record& compute) {
    return compute.kind == RecordKind::kForward &&
           std::any_of(timeline.records.begin(), timeline.records.end(), [&](const Record& record) {
             return record.kind == RecordKind::kCommunication && record.rank == compute.rank &&
                    record.step + 1 == compute.step && record.begin_ns < compute.end_ns &&
                    record.end_ns > compute.begin_ns;
           });
  };
  return static_cast<std::size_t>(
      std::count_if(timeline.records.begin(), timeline.records.end(), hides));
}

TEST(Replay, UnderPriorityExchangesAreHiddenUnderTheNextForwardPass) {
  StepProfile step = profile();
  step.tensors[0].shape = {200000};  // 800 kB, 4 ms on this network
  ReplayOptions options = options_for(step);
  options.session.schedule = Schedule::kPriority;
  ShmOptions network;
  network.emulate = machine_from_spec("2@200MB/s,20us");
  constexpr int kAttempts = 5;
  for (int attempt = 1;; ++attempt) {
    try {
      const ReplayResult result = on_ranks<ReplayResult>(
          2,
          [&](Communicator& communicator) { return replay(communicator, step, options); },
          network)[0];
      EXPECT_GT(result.values_checked, 0);
      EXPECT_GT(hiding_forwards(result.timeline), 0U);
      EXPECT_EQ(std::count_if(result.timeline.records.begin(),
                              result.timeline.records.end(),
                              [](const Record& r) { return r.kind == RecordKind::kOptimizer; }),
                static_cast<std::ptrdiff_t>(6 * options.plan.buckets.size()))
          << "two ranks, four steps, the last of which is updated after its end";
      return;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kBackend) << error.what();
      if (attempt == kAttempts) {
        GTEST_SKIP() << "this host cannot keep up with the emulated network right now";
      }
    }
  }
}

TEST(Replay, ArithmeticStandsInForCompute) {
  const StepProfile step = profile();
  ReplayOptions options = options_for(step);
  options.mode = ComputeMode::kBusy;
  EXPECT_GT(replay_on(2, step, options)[0].values_checked, 0);
}

TEST(Replay, RejectsWhatDoesNotFit) {
  const StepProfile step = profile();
  ReplayOptions options = options_for(step);
  options.plan.tensors[0].name = "other";
  EXPECT_EQ(error_of([&] { (void)replay_on(1, step, options); }).code(),
            ErrorCode::kInvalidArgument);
  options = options_for(step);
  options.steps = 0;
  EXPECT_EQ(error_of([&] { (void)replay_on(1, step, options); }).code(),
            ErrorCode::kInvalidArgument);
  StepProfile empty = step;
  empty.compute_end = Seconds(0);
  options = options_for(step);
  options.compute = Seconds(1);
  EXPECT_EQ(error_of([&] { (void)replay_on(1, empty, options); }).code(),
            ErrorCode::kInvalidArgument);
}

TEST(SampledGradients, FindsAWrongSampleAndAWrongNeighbour) {
  const std::vector<std::unique_ptr<Communicator>> world = local_shm_world(1);
  const StepProfile step = profile();
  Session session(*world[0], single_bucket_plan(tensors_of(step)));
  SampledGradients gradients(session, 0, 1);
  const auto run_step = [&] {
    const std::uint32_t number = session.step();
    for (std::size_t tensor = 0; tensor < session.tensors(); ++tensor) {
      gradients.stamp(tensor, number);
      session.ready(tensor);
    }
    session.finish();
    return number;
  };
  std::uint32_t number = run_step();
  gradients.verify(number);
  const std::span<float> values = as_span<float>(session.gradient(0));
  for (const std::size_t element : {std::size_t{0}, std::size_t{1}, values.size() - 1}) {
    number = run_step();
    const float right = values[element];
    values[element] += 1.0F;
    const Error error = error_of([&] { gradients.verify(number); });
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
    EXPECT_NE(error.detail().where.find("b.weight"), std::string::npos);
    values[element] = right;
    gradients.verify(number);
  }
}

TEST(StandIn, WaitsAtLeastAsLongAsItSays) {
  StandIn compute(ComputeMode::kWait);
  const Nanoseconds begin = monotonic_now();
  compute.begin_step();
  compute.advance_to(Seconds(0.002));
  EXPECT_GE(monotonic_now() - begin, std::chrono::milliseconds(2));
  compute.advance_to(Seconds(0.001));  // already past
  compute.spend(Seconds(0.001));
  EXPECT_GE(monotonic_now() - begin, std::chrono::milliseconds(3));
}

}  // namespace
}  // namespace stretto
