// SPDX-License-Identifier: Apache-2.0
// What it would save to ask for parameters earlier, in steps that are worked out by hand.
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "stretto/analyze/certificate.hpp"
#include "stretto/analyze/explain.hpp"
#include "stretto/report/explanation.hpp"
#include "stretto/trace/trace.hpp"
#include "trace/trace_text.hpp"

namespace stretto {
namespace {

using testing::KinetoText;

constexpr double kUs = 1e-6;
constexpr const char* kGather = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage)";
constexpr const char* kScatter =
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage)";
constexpr const char* kReduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)";

std::string sized(const std::string& name, std::int64_t in, std::int64_t out) {
  return R"(, "Collective name": ")" + name + R"(", "In msg nelems": )" + std::to_string(in) +
         R"(, "Out msg nelems": )" + std::to_string(out) +
         R"(, "dtype": "Float", "Group size": 2, "Process Group Name": "0")";
}

/// Kernels of a step, in order of their launches; times in us from its begin.
class StepText {
 public:
  StepText(KinetoText& trace, int& id, std::int64_t at) : trace_(trace), id_(id), at_(at) {}

  void compute(std::int64_t begin, std::int64_t end) { run("gemm", begin, end, 7, ""); }
  void gather(std::int64_t begin, std::int64_t end, std::int64_t elements = 1000) {
    run(kGather, begin, end, 20, sized("_allgather_base", elements / 2, elements));
  }
  void scatter(std::int64_t begin, std::int64_t end, std::int64_t elements = 1000) {
    run(kScatter, begin, end, 21, sized("_reduce_scatter_base", elements, elements / 2));
  }
  void reduce(std::int64_t begin, std::int64_t end, std::int64_t elements) {
    run(kReduce, begin, end, 22, sized("allreduce", elements, elements));
  }

 private:
  void run(
      const char* name, std::int64_t begin, std::int64_t end, int stream, const std::string& more) {
    trace_.launch(at_ - 40 + launched_++, 1, 1, id_);
    trace_.kernel(name, at_ + begin, end - begin, stream, id_++, more);
  }

  KinetoText& trace_;
  int& id_;
  std::int64_t at_;
  std::int64_t launched_ = 0;
};

template <typename Fill>
Timeline steps_of(std::int64_t length, Fill fill) {
  KinetoText trace;
  trace.member(R"("distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2})");
  int id = 1;
  for (int step = 0; step < 3; ++step) {
    const std::int64_t at = 10'000 + length * step;
    trace.annotation("ProfilerStep#" + std::to_string(step), at - 50, 45);
    StepText text(trace, id, at);
    fill(text);
  }
  return read_trace_text(trace.text(), "rank0.json").timeline;
}

/// 4000 bytes are gathered or scattered in 100 us.
ExchangeCosts costs() {
  FittedExchange fitted;
  fitted.cost = {Seconds(0), 50e-9};
  fitted.of_halves = true;
  return costs_of(fitted, 2);
}

std::optional<Certificate> certificate_of(const Timeline& timeline) {
  return certify(timeline, analyze(timeline), costs());
}

/// Without prefetch: both modules wait for their parameters, and the optimizer for the last
/// gradients.
void fsdp2(StepText& step) {
  step.gather(0, 100);
  step.compute(100, 300);
  step.gather(300, 400);
  step.compute(400, 500);  // forward and
  step.compute(500, 700);  // backward of the second
  step.scatter(700, 800);
  step.compute(700, 900);  // backward of the first
  step.scatter(900, 1000);
  step.compute(1000, 1100);
}

TEST(ShardedCertificate, OfFsdp2WithoutPrefetch) {
  const auto certificate = certificate_of(steps_of(1100, fsdp2));
  ASSERT_TRUE(certificate);
  EXPECT_TRUE(certificate->sharded);
  EXPECT_NEAR(certificate->exposed_now.count(), 300 * kUs, 1e-12);
  EXPECT_NEAR(certificate->exposed_model.count(), 300 * kUs, 1e-9);
  // The second gather beside the forward pass of the first module; the first, and the last
  // scatter, stay.
  EXPECT_NEAR(certificate->exposed_best.count(), 200 * kUs, 1e-9);
  EXPECT_NEAR(certificate->recoverable.count(), 100 * kUs, 1e-9);
  // The optimizer is 100 us, and no trace says that it needs all gradients.
  EXPECT_NEAR(certificate->exposed_bound.count(), 100 * kUs, 1e-9);
  EXPECT_NE(
      certificate->settings.text.find("set_modules_to_forward_prefetch(layers[i + 1 : i + 2])"),
      std::string::npos)
      << certificate->settings.text;
}

TEST(ShardedCertificate, NothingIsToBeHadWhereAllIsAskedForInTime) {
  const auto certificate = certificate_of(steps_of(1000, [](StepText& step) {
    step.gather(0, 100);
    step.gather(100, 200);
    step.compute(100, 300);
    step.compute(300, 400);
    step.compute(400, 600);
    step.scatter(600, 700);
    step.compute(600, 800);
    step.scatter(800, 900);
    step.compute(900, 1000);
  }));
  ASSERT_TRUE(certificate);
  EXPECT_NEAR(certificate->exposed_model.count(), 200 * kUs, 1e-9);
  EXPECT_EQ(certificate->recoverable, Seconds(0));
  EXPECT_NE(certificate->settings.text.find("# none"), std::string::npos);
}

/// ZeRO-1: what is gathered is what the optimizer has made, and cannot be asked for before.
TEST(ShardedCertificate, WhatTheOptimizerMakesIsNotAskedForEarlier) {
  const auto certificate = certificate_of(steps_of(1000, [](StepText& step) {
    step.compute(0, 700);
    step.scatter(700, 800);
    step.compute(800, 900);
    step.gather(900, 1000);
  }));
  ASSERT_TRUE(certificate);
  EXPECT_NEAR(certificate->exposed_model.count(), 200 * kUs, 1e-9);
  EXPECT_EQ(certificate->recoverable, Seconds(0));
  // The gradients may have been ready but for the last byte; parameters, too, may travel before.
  EXPECT_LE(certificate->exposed_bound, certificate->exposed_best);
}

TEST(ShardedCertificate, NoneIsClaimedWhereReplicasExchangeGradientsToo) {
  EXPECT_FALSE(certificate_of(steps_of(1200, [](StepText& step) {
    fsdp2(step);
    step.reduce(1100, 1200, 1000);
  })));
  EXPECT_TRUE(certificate_of(steps_of(1110, [](StepText& step) {
    fsdp2(step);
    step.reduce(1100, 1110, 2);  // a norm
  })));
}

TEST(ShardedCertificate, CostsThatCannotBeTheRecordingsGiveNone) {
  const Timeline timeline = steps_of(1100, fsdp2);
  FittedExchange fitted;
  fitted.cost = {Seconds(10e-3), 50e-9};
  EXPECT_FALSE(certify(timeline, analyze(timeline), costs_of(fitted, 2)));
}

/// From the recording to the verdict, with costs fitted to its own two sizes.
TEST(ShardedCertificate, StandsInTheAnswer) {
  Timeline timeline = steps_of(1250, [](StepText& step) {
    step.gather(0, 200, 2000);
    step.compute(200, 400);
    step.gather(400, 500);
    step.compute(500, 600);
    step.compute(600, 800);
    step.scatter(800, 900);
    step.compute(800, 900);
    step.scatter(900, 1100, 2000);
    step.compute(1100, 1250);
  });
  Explanation explanation = explain(timeline);
  EXPECT_FALSE(explanation.certificate) << "three calls of one rank hold waiting for the other";
  const auto records = timeline.records.size();
  for (std::size_t i = 0; i < records; ++i) {
    Record other = timeline.records[i];
    other.rank = 1;
    timeline.records.push_back(other);
  }
  explanation = explain(timeline);
  ASSERT_TRUE(explanation.fitted);
  EXPECT_TRUE(explanation.fitted->of_halves);
  ASSERT_TRUE(explanation.certificate);
  EXPECT_NEAR(explanation.certificate->recoverable.count(), 100 * kUs, 1e-9);
  EXPECT_NE(verdict(explanation).find("parameters asked for earlier would save about 100.0 us"),
            std::string::npos)
      << verdict(explanation);
  EXPECT_NE(text_explanation(explanation).find("no order could avoid"), std::string::npos);
}

}  // namespace
}  // namespace stretto
