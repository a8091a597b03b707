// SPDX-License-Identifier: Apache-2.0
// Whose exposed time is: shares of what communicates at once, and modules that FSDP shards.
#include "stretto/analyze/modules.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/analyze/explain.hpp"
#include "stretto/analyze/shares.hpp"
#include "stretto/trace/trace.hpp"
#include "trace/trace_text.hpp"

namespace stretto {
namespace {

using testing::KinetoText;

constexpr double kUs = 1e-6;
constexpr const char* kGather = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage)";
constexpr const char* kScatter =
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)";

TEST(Shares, AnInstantOfTwoCountsHalfToEach) {
  const std::vector<IntervalSet> owners = {IntervalSet({{0, 100}}), IntervalSet({{50, 200}})};
  const std::vector<double> shares =
      detail::exposed_shares_ns(owners, IntervalSet({{0, 20}, {90, 110}}));
  EXPECT_EQ(shares, (std::vector<double>{30 + 20, 20 + 90}));
}

RC_GTEST_PROP(Shares, SumToWhatIsExposed, ()) {
  const auto sets = [](std::size_t most) {
    std::vector<IntervalSet> list;
    const auto count = *rc::gen::inRange<std::size_t>(1, most);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Interval> pieces;
      for (const int begin : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 200))) {
        pieces.push_back({begin, begin + *rc::gen::inRange(0, 30)});
      }
      list.emplace_back(std::move(pieces));
    }
    return list;
  };
  const std::vector<IntervalSet> owners = sets(5);
  const IntervalSet compute = sets(2).front();
  IntervalSet all;
  for (const IntervalSet& owner : owners) {
    all = unite(all, owner);
  }
  double sum = 0.0;
  for (const double share : detail::exposed_shares_ns(owners, compute)) {
    RC_ASSERT(share >= 0.0);
    sum += share;
  }
  const auto exposed = static_cast<double>(subtract(all, compute).measure_ns());
  RC_ASSERT(sum > exposed - 1e-6);
  RC_ASSERT(sum < exposed + 1e-6);
}

TEST(Modules, NamesInRangesOfFsdp) {
  EXPECT_EQ(module_of_range("FSDP::all_gather (layers.3)"), "layers.3");
  EXPECT_EQ(module_of_range("FSDP::all_gather_copy_out (model.layers.12) [pg=2]"),
            "model.layers.12");
  EXPECT_EQ(module_of_range("FSDP::post_backward_reduce (norm, output)"), "norm, output");
  EXPECT_EQ(module_of_range("FSDP::backward_prefetch for layers.2"), "layers.2");
  EXPECT_EQ(module_of_range("FSDP::all_gather"), "(root)");
  EXPECT_EQ(module_of_range("FullyShardedDataParallel._pre_forward"),
            "FullyShardedDataParallel._pre_forward");
  EXPECT_EQ(module_of_range("DistributedDataParallel.forward"), "");
  EXPECT_EQ(module_of_range("FSDP"), "");
}

std::string sized(const std::string& name, std::int64_t in, std::int64_t out) {
  return R"(, "Collective name": ")" + name + R"(", "In msg nelems": )" + std::to_string(in) +
         R"(, "Out msg nelems": )" + std::to_string(out) +
         R"(, "dtype": "BFloat16", "Group size": 2, "Process Group Name": "0")";
}

/// Three steps of 1000 us of two sharded layers. layers.0 is gathered for forward with nothing
/// beside it, and for backward by the prefetch inside of layers.1's range.
KinetoText fsdp2() {
  KinetoText trace;
  int id = 1;
  for (int step = 0; step < 3; ++step) {
    const std::int64_t at = 10'000 + 1000 * step;
    trace.annotation("ProfilerStep#" + std::to_string(step), at - 500, 990);
    const auto run = [&](const char* name,
                         std::int64_t launch,
                         int thread,
                         std::int64_t begin,
                         std::int64_t end,
                         int stream,
                         const std::string& more = "") {
      trace.launch(at + launch, 1, thread, id);
      trace.kernel(name, at + begin, end - begin, stream, id++, more);
    };
    trace.annotation("FSDP::pre_forward (layers.0)", at - 450, 40);
    trace.annotation("FSDP::all_gather (layers.0)", at - 445, 10);
    run(kGather, -440, 1, 0, 100, 20, sized("_allgather_base", 1000, 2000));
    run("forward", -405, 1, 100, 200, 7);
    trace.annotation("FSDP::all_gather (layers.1)", at - 400, 10);
    run(kGather, -395, 1, 100, 250, 20, sized("_allgather_base", 1000, 2000));
    run("forward", -380, 1, 250, 300, 7);
    // On the thread of autograd; the main thread waits in a range of its own.
    trace.annotation("FSDP::post_forward", at - 370, 300);
    trace.annotation("FSDP::pre_backward (layers.1)", at - 350, 50, 2);
    trace.annotation("FSDP::backward_prefetch for layers.0", at - 345, 20, 2);
    trace.annotation("FSDP::all_gather (layers.0)", at - 340, 10, 2);
    run(kGather, -335, 2, 400, 500, 20, sized("_allgather_base", 1000, 2000));
    run("backward", -310, 2, 300, 650, 7);
    trace.annotation("FSDP::post_backward_reduce (layers.1)", at - 290, 10, 2);
    run(kScatter, -285, 2, 600, 700, 20, sized("_reduce_scatter_base", 2000, 1000));
    trace.annotation("FSDP::post_backward_reduce (layers.0)", at - 270, 10, 2);
    run(kScatter, -265, 2, 680, 900, 21, sized("_reduce_scatter_base", 2000, 1000));
    run("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", -240, 2, 900, 920, 20);  // in no range
    run("optimizer", -230, 2, 920, 1000, 7);
  }
  return trace;
}

TEST(Modules, OfAnFsdp2StepAsWorkedOutByHand) {
  const Explanation explanation = explain(read_trace_text(fsdp2().text(), "rank0.json").timeline);
  ASSERT_TRUE(explanation.summary);
  EXPECT_NEAR(explanation.summary->exposed.count(), 420 * kUs, 1e-12);
  const std::vector<ModuleSummary>& modules = explanation.modules;
  ASSERT_EQ(modules.size(), 4U);
  EXPECT_EQ(modules[0].module, "layers.0");
  EXPECT_EQ(modules[0].collective, Collective::kReduceScatter);
  EXPECT_NEAR(modules[0].exposed_share.count(), 210 * kUs, 1e-12) << "half of 680 to 700";
  EXPECT_NEAR(modules[0].total.count(), 220 * kUs, 1e-12);
  EXPECT_EQ(modules[1].module, "layers.0");
  EXPECT_EQ(modules[1].collective, Collective::kAllGather);
  EXPECT_NEAR(modules[1].exposed_share.count(), 100 * kUs, 1e-12);
  EXPECT_NEAR(modules[1].total.count(), 200 * kUs, 1e-12) << "with the prefetched one";
  EXPECT_EQ(modules[1].calls, 2.0);
  EXPECT_EQ(modules[1].bytes, Bytes(2 * 4000));
  EXPECT_EQ(modules[2].module, "layers.1");
  EXPECT_EQ(modules[2].collective, Collective::kAllGather);
  EXPECT_NEAR(modules[2].exposed_share.count(), 50 * kUs, 1e-12);
  EXPECT_EQ(modules[3].module, "layers.1");
  EXPECT_EQ(modules[3].collective, Collective::kReduceScatter);
  EXPECT_NEAR(modules[3].exposed_share.count(), 40 * kUs, 1e-12);
}

TEST(Modules, ADiagnosisNamesTheOneThatIsWaitedForMost) {
  const Explanation explanation = explain(read_trace_text(fsdp2().text(), "rank0.json").timeline);
  std::size_t said = 0;
  for (const Diagnosis& diagnosis : explanation.diagnoses) {
    if (diagnosis.id == "exposed_module") {
      ++said;
      EXPECT_NE(diagnosis.finding.find("'layers.0'"), std::string::npos) << diagnosis.finding;
      EXPECT_NE(diagnosis.evidence.find("310.0 us of 420.0 us"), std::string::npos)
          << diagnosis.evidence;
    }
  }
  EXPECT_EQ(said, 1U);
}

/// Gloo runs on a thread of its own, when it has one free: c10d's call tells the range.
TEST(Modules, OfHostRowsByTheMomentTheyAreIssued) {
  KinetoText trace;
  trace.annotation("FSDP::all_gather (a)", 100, 20);
  trace.slice("cpu_op", "c10d::_allgather_base_", "105", "5", "1");
  trace.annotation("FSDP::all_gather (b)", 130, 20);
  trace.slice("cpu_op", "c10d::_allgather_base_", "135", "5", "1");
  trace.slice("cpu_op", "aten::mm", "150", "50", "1");
  trace.slice("user_annotation", "gloo:_all_gather_base", "110", "25", "9");
  trace.slice("user_annotation", "gloo:_all_gather_base", "140", "30", "9");
  const Explanation explanation = explain(read_trace_text(trace.text(), "rank0.json").timeline);
  ASSERT_TRUE(explanation.host_only);
  ASSERT_EQ(explanation.modules.size(), 2U);
  EXPECT_EQ(explanation.modules[0].module, "a");
  EXPECT_NEAR(explanation.modules[0].exposed_share.count(), 25 * kUs, 1e-12);
  EXPECT_EQ(explanation.modules[1].module, "b");
  EXPECT_NEAR(explanation.modules[1].exposed_share.count(), 10 * kUs, 1e-12);
}

/// Gloo's row of a reduce_scatter says all_reduce; and what a gather's says is what goes in.
TEST(Modules, ScattersThatGlooRunsAsAllReduces) {
  KinetoText trace;
  trace.member(
      R"("distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2, "pg_count": 1})");
  const auto row = [&](const char* name, const char* ts, const char* dims) {
    trace.slice("user_annotation",
                name,
                ts,
                "10",
                "9",
                R"("Input Dims": [[)" + std::string(dims) + R"(]], "Input type": ["float"])");
  };
  trace.annotation("FSDP::all_gather (a)", 100, 10);
  trace.slice("cpu_op", "c10d::_allgather_base_", "105", "2", "1");
  row("gloo:all_gather", "110", "500");
  trace.annotation("FSDP::post_backward_reduce (a)", 130, 10);
  trace.slice("cpu_op", "c10d::_reduce_scatter_base_", "135", "2", "1");
  row("gloo:all_reduce", "140", "1000");
  trace.slice("cpu_op", "c10d::allreduce_", "155", "2", "1");  // a norm
  row("gloo:all_reduce", "160", "1");
  const Trace read = read_trace_text(trace.text(), "rank0.json");
  const Explanation explanation = explain(read.timeline);
  ASSERT_EQ(explanation.modules.size(), 2U);
  for (const ModuleSummary& module : explanation.modules) {
    EXPECT_EQ(module.module, "a");
    EXPECT_EQ(module.bytes, Bytes(4000)) << to_string(module.collective);
    EXPECT_NE(module.collective, Collective::kAllReduce);
  }
  ASSERT_TRUE(explanation.summary);
  ASSERT_EQ(explanation.summary->buckets.size(), 3U);
  EXPECT_EQ(explanation.summary->buckets[2].collective, Collective::kAllReduce);
  EXPECT_TRUE(explanation.summary->buckets[1].ready);
  EXPECT_NE(read.files[0].notes[0].find("1 reduce_scatters ran as gloo's all_reduce"),
            std::string::npos);
}

TEST(Modules, DeepSpeedIsKnownByItsRanges) {
  for (const auto& [range, name] :
       {std::pair("PartitionedParameterCoordinator.fetch_sub_module", "ZeRO-3"),
        std::pair("DeepSpeedZeroOptimizer.reduce_ipg_grads", "ZeRO-1 or 2")}) {
    KinetoText trace;
    trace.annotation(range, 0, 20);
    trace.launch(5, 1, 1, 1).kernel(kGather, 50, 100, 20, 1);
    trace.launch(7, 1, 1, 2).kernel(kScatter, 150, 10, 20, 2);
    bool said = false;
    for (const Diagnosis& diagnosis :
         explain(read_trace_text(trace.text(), "rank0.json").timeline).diagnoses) {
      if (diagnosis.id == "pattern") {
        said = true;
        EXPECT_NE(diagnosis.finding.find(name), std::string::npos) << diagnosis.finding;
        EXPECT_EQ(diagnosis.advice.find("stage3_prefetch_bucket_size") != std::string::npos,
                  std::string(name) == "ZeRO-3");
      }
    }
    EXPECT_TRUE(said);
  }
}

TEST(Modules, NoneWithoutFsdp) {
  KinetoText trace;
  trace.annotation("DistributedDataParallel.forward", 0, 100);
  trace.launch(10, 1, 1, 1).kernel(kGather, 50, 10, 20, 1);
  EXPECT_TRUE(explain(read_trace_text(trace.text(), "rank0.json").timeline).modules.empty());
}

}  // namespace
}  // namespace stretto
