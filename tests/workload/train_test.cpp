// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/train.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/plan/codec_choice.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/workload/mlp.hpp"
#include "stretto/workload/random.hpp"
#include "workload/ranks.hpp"

namespace stretto {
namespace {

constexpr std::size_t kFeatures = 16;
constexpr std::size_t kClasses = 4;

/// Images whose class is the quarter that is bright: learnable in a few steps.
Samples bright_quarters(std::size_t count, std::uint64_t seed) {
  Samples samples;
  SplitMix64 random(seed);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t label = random.next() % kClasses;
    for (std::size_t pixel = 0; pixel < kFeatures; ++pixel) {
      const std::uint64_t noise = random.next() % 100;
      samples.pixels.push_back(
          static_cast<std::uint8_t>(noise + (pixel / kClasses == label ? 150U : 0U)));
    }
    samples.labels.push_back(static_cast<std::uint8_t>(label));
  }
  return samples;
}

const Dataset& dataset() {
  static const Dataset data{"quarters",
                            kFeatures,
                            kClasses,
                            0.3F,
                            0.3F,
                            bright_quarters(600, 1),
                            bright_quarters(101, 2)};
  return data;
}

TrainOptions small() {
  TrainOptions options;
  options.widths = {kFeatures, 33, 20, kClasses};
  options.batch = 10;
  options.steps = 30;
  options.warmup = 2;
  options.plan = single_bucket_plan(mlp_tensors(options.widths));
  options.session.schedule = Schedule::kSerial;
  return options;
}

void use_direct(Plan& plan) {
  for (Bucket& bucket : plan.buckets) {
    bucket.algorithm = Algorithm::kDirect;
  }
}

std::vector<TrainResult> train_on(int ranks, const TrainOptions& options) {
  return on_ranks<TrainResult>(
      ranks, [&](Communicator& communicator) { return train(communicator, dataset(), options); });
}

TEST(Train, LearnsAndAllRanksAgree) {
  const std::vector<TrainResult> results = train_on(2, small());
  EXPECT_GT(results[0].accuracy, 0.9);
  EXPECT_LT(results[0].loss, 0.5);
  EXPECT_EQ(results[0].accuracy, results[1].accuracy);
  EXPECT_EQ(results[0].loss, results[1].loss);
  EXPECT_EQ(results[0].weights_hash, results[1].weights_hash);
}

TEST(Train, EveryScheduleAndPlanGivesTheSameBits) {
  for (const int ranks : {1, 2, 3}) {
    TrainOptions options = small();
    use_direct(options.plan);
    const std::uint64_t serial = train_on(ranks, options)[0].weights_hash;
    for (const Schedule schedule : {Schedule::kOverlap, Schedule::kPriority}) {
      options.session.schedule = schedule;
      for (const std::int64_t cap : {64, 1000, 4096}) {
        for (const int streams : {0, 1}) {
          options.plan = uniform_plan(mlp_tensors(options.widths), Bytes(cap));
          use_direct(options.plan);
          options.session.streams = streams;
          EXPECT_EQ(train_on(ranks, options)[0].weights_hash, serial)
              << to_string(schedule) << ", " << ranks << " ranks, cap " << cap << ", streams "
              << streams;
        }
      }
    }
    options.seed = 2;
    EXPECT_NE(train_on(ranks, options)[0].weights_hash, serial);
  }
}

// With one plan, whose cut the norm's last bits depend on.
TEST(Train, EveryOptimizerClippedOrNotGivesTheSameBitsUnderEverySchedule) {
  std::vector<std::uint64_t> all;
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    for (const double clip : {0.0, 0.5}) {
      TrainOptions options = small();
      options.optimizer = {.kind = kind, .weight_decay = 0.01F};
      options.learning_rate = kind == OptimizerKind::kSgd ? 0.05F : 0.003F;
      options.clip_norm = clip;
      options.plan = uniform_plan(mlp_tensors(options.widths), Bytes(1000));
      use_direct(options.plan);
      std::vector<std::uint64_t> hashes;
      for (const Schedule schedule : {Schedule::kSerial, Schedule::kOverlap, Schedule::kPriority}) {
        options.session.schedule = schedule;
        const TrainResult result = train_on(2, options)[0];
        EXPECT_GT(result.accuracy, 0.8) << to_string(kind);
        hashes.push_back(result.weights_hash);
      }
      EXPECT_EQ(hashes[0], hashes[1]) << to_string(kind) << ", clipped to " << clip;
      EXPECT_EQ(hashes[0], hashes[2]) << to_string(kind) << ", clipped to " << clip;
      all.push_back(hashes[0]);
    }
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end()) << "an option without effect";
}

TEST(Train, AShardedOptimizerGivesTheSameBitsWithAPartOfTheState) {
  for (const int ranks : {1, 2, 3}) {
    for (const Schedule schedule : {Schedule::kSerial, Schedule::kOverlap, Schedule::kPriority}) {
      TrainOptions options = small();
      options.optimizer.kind = OptimizerKind::kAdam;
      options.learning_rate = 0.003F;
      options.session.schedule = schedule;
      options.clip_norm = schedule == Schedule::kPriority ? 0.5 : 0.0;
      options.plan = uniform_plan(mlp_tensors(options.widths), Bytes(1000));
      use_direct(options.plan);
      const std::vector<TrainResult> replicated = train_on(ranks, options);
      options.session.shard_optimizer = true;
      const std::vector<TrainResult> sharded = train_on(ranks, options);
      EXPECT_EQ(sharded[0].weights_hash, replicated[0].weights_hash)
          << to_string(schedule) << ", " << ranks << " ranks";
      // Two numbers of 4 bytes per weight, of all ranks together.
      std::size_t sum = 0;
      for (const TrainResult& result : sharded) {
        sum += result.optimizer_bytes;
        EXPECT_LE(result.optimizer_bytes,
                  replicated[0].optimizer_bytes / static_cast<std::size_t>(ranks) +
                      options.plan.buckets.size() * 2 * 4 * 16);  // parts are multiples of 16
      }
      EXPECT_EQ(sum, static_cast<std::size_t>(2 * options.plan.bytes().count()));
      EXPECT_EQ(replicated[0].optimizer_bytes, sum);
    }
  }
  TrainOptions options = small();
  options.session.shard_optimizer = true;
  options.clip_norm = 1.0;
  EXPECT_EQ(error_of([&] { (void)train_on(2, options); }).code(), ErrorCode::kInvalidArgument);
}

TEST(Train, ACodecWithMomentumStandsForTheOptimizers) {
  TrainOptions options = small();
  options.learning_rate = 0.01F;
  options.steps = 60;
  options.plan = with_codec(uniform_plan(mlp_tensors(options.widths), Bytes(1000)),
                            parse_codec("topk:0.1:momentum=0.9:warmup=10"),
                            {"fc0.bias"});
  for (const Schedule schedule : {Schedule::kOverlap, Schedule::kPriority}) {
    options.session.schedule = schedule;
    const std::vector<TrainResult> results = train_on(2, options);  // ranks compare weights
    EXPECT_LT(results[0].loss, 0.9);
    EXPECT_GT(results[0].compression.counters.exchanges, 0);
  }
  // Before its codecs begin it is a run without, and with one rank nothing is encoded.
  TrainOptions exact = options;
  for (Bucket& bucket : exact.plan.buckets) {
    bucket.codec = {};
    bucket.algorithm = Algorithm::kDirect;
  }
  use_direct(options.plan);
  EXPECT_EQ(train_on(1, options)[0].weights_hash, train_on(1, exact)[0].weights_hash);
  EXPECT_NE(train_on(2, options)[0].weights_hash, train_on(2, exact)[0].weights_hash);
  options.session.codec_start = options.warmup + options.steps;
  EXPECT_EQ(train_on(2, options)[0].weights_hash, train_on(2, exact)[0].weights_hash);
  for (const bool adam : {false, true}) {
    TrainOptions wrong = options;
    wrong.optimizer.momentum = adam ? 0.9F : 0.5F;
    wrong.optimizer.kind = adam ? OptimizerKind::kAdam : OptimizerKind::kSgd;
    const Error error = error_of([&] { (void)train_on(1, wrong); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("sgd with momentum 0.9"), std::string::npos);
  }
}

TEST(Train, WatchedCodecsThatLoseAreTurnedOff) {
  TrainOptions options = small();
  options.plan = with_codec(options.plan, parse_codec("int8"), {});
  CodecWatchOptions watch;
  watch.window = 4;
  watch.trial_window = 2;
  watch.trial_every = 1;
  Seconds clock{};
  watch.now = [&clock] { return clock; };
  options.watch_codecs = watch;
  const auto results = on_ranks<TrainResult>(2, [&](Communicator& communicator) {
    TrainOptions mine = options;
    if (communicator.rank() == 0) {
      // Steps with codecs take ever longer.
      mine.on_progress = [&clock](const StepProgress& progress) {
        clock += Seconds(progress.step < 6 ? 2.0 : 1.0);
      };
    } else {
      mine.watch_codecs->now = [] { return Seconds(0); };
    }
    return train(communicator, dataset(), mine);
  });
  ASSERT_FALSE(results[0].codec_switches.empty());
  EXPECT_TRUE(results[0].codec_switches[0].changed);
  EXPECT_FALSE(results[0].codec_switches[0].codecs);
  EXPECT_TRUE(results[1].codec_switches.empty());
  EXPECT_EQ(results[0].weights_hash, results[1].weights_hash);
}

TEST(Train, RecordsEveryLayerAndBucketOfEveryStepAfterTheWarmUp) {
  TrainOptions options = small();
  options.session.schedule = Schedule::kOverlap;
  options.plan = uniform_plan(mlp_tensors(options.widths), Bytes(1024));
  const Timeline timeline = train_on(2, options)[0].timeline;
  EXPECT_EQ(timeline.steps_recorded, options.steps);
  const auto count = [&](RecordKind kind) {
    return static_cast<std::size_t>(
        std::count_if(timeline.records.begin(), timeline.records.end(), [&](const Record& record) {
          return record.kind == kind;
        }));
  };
  const std::size_t steps = 2 * std::size_t{options.steps};  // of both ranks
  const std::size_t layers = options.widths.size() - 1;
  EXPECT_EQ(count(RecordKind::kStep), steps);
  EXPECT_EQ(count(RecordKind::kForward), steps * layers);
  EXPECT_EQ(count(RecordKind::kBackward), steps * (layers + 1));  // and the loss
  EXPECT_EQ(count(RecordKind::kOptimizer), steps * options.plan.buckets.size());
  EXPECT_EQ(count(RecordKind::kReady), steps * options.plan.tensors.size());
  EXPECT_EQ(count(RecordKind::kCommunication), steps * options.plan.buckets.size());
}

TEST(Train, OnlyRankZeroHasTheTimeline) {
  EXPECT_TRUE(train_on(2, small())[1].timeline.records.empty());
}

TEST(Train, EpochsCountFullBatchesOnly) {
  TrainOptions options = small();
  options.steps = 0;
  options.epochs = 3;
  options.batch = 7;
  std::uint32_t last = 0;
  options.on_progress = [&](const StepProgress& progress) { last = progress.step; };
  const std::vector<TrainResult> results = train_on(1, options);
  EXPECT_EQ(results[0].steps, 3U * (600 / 7));
  EXPECT_EQ(last, results[0].steps);
}

TEST(Train, RejectsWhatDoesNotFit) {
  const auto code_of = [](const TrainOptions& options) {
    return error_of([&] { (void)train_on(1, options); }).code();
  };
  TrainOptions options = small();
  options.widths.front() = kFeatures + 1;
  EXPECT_EQ(code_of(options), ErrorCode::kInvalidArgument);
  options = small();
  options.widths.back() = kClasses - 1;
  EXPECT_EQ(code_of(options), ErrorCode::kInvalidArgument);
  options = small();
  options.batch = 601;
  EXPECT_EQ(code_of(options), ErrorCode::kInvalidArgument);
  options = small();
  options.widths[1] += 1;  // the plan is for another network now
  EXPECT_EQ(code_of(options), ErrorCode::kInvalidArgument);
  options = small();
  options.steps = 0;
  options.warmup = 1000;
  EXPECT_EQ(code_of(options), ErrorCode::kInvalidArgument);
}

TEST(LearningRate, StartsAtOneRanksRateIsScaledAfterATenthAndEndsAtZero) {
  EXPECT_FLOAT_EQ(learning_rate_at(0, 100, 0.1F, 4), 0.1F);
  EXPECT_FLOAT_EQ(learning_rate_at(5, 100, 0.1F, 4), 0.25F);
  EXPECT_FLOAT_EQ(learning_rate_at(10, 100, 0.1F, 4), 0.4F);
  EXPECT_FLOAT_EQ(learning_rate_at(55, 100, 0.1F, 4), 0.2F);
  EXPECT_NEAR(learning_rate_at(100, 100, 0.1F, 4), 0.0F, 1e-6F);
  EXPECT_FLOAT_EQ(learning_rate_at(0, 0, 0.1F, 1), 0.1F);
}

}  // namespace
}  // namespace stretto
