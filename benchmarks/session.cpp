// SPDX-License-Identifier: Apache-2.0
// What a Session costs the thread that computes:
//   ready() when it completes no bucket, and when it does (2 ranks, median and 99th percentile of
//   single calls less the clock's own cost, and of whole runs of calls); a step of arithmetic with
//   a Session of one rank beside the same arithmetic without; memory: what a rank holds beside its
//   gradients.
//
//   session

#include "stretto/run/session.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "ranks.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/plan/fixed_plans.hpp"

namespace {

using namespace stretto;

std::int64_t now_ns() {
  return monotonic_now().count();
}

std::vector<TensorSpec> tensors_of_size(std::size_t count, std::int64_t elements) {
  std::vector<TensorSpec> tensors;
  for (std::size_t i = 0; i < count; ++i) {
    tensors.push_back({"t" + std::to_string(i), DType::kF32, {elements}});
  }
  return tensors;
}

double clock_cost_ns() {
  std::vector<double> costs;
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t begin = now_ns();
    costs.push_back(static_cast<double>(now_ns() - begin));
  }
  return median(costs);
}

void ready_cost(Communicator& communicator) {
  const double clock_ns = clock_cost_ns();
  constexpr std::size_t kTensors = 200;
  constexpr int kSteps = 60;
  {
    Session session(communicator, single_bucket_plan(tensors_of_size(kTensors, 1000)));
    std::vector<double> runs;
    for (int step = 0; step < kSteps; ++step) {
      const std::int64_t begin = now_ns();
      for (std::size_t i = 0; i + 1 < kTensors; ++i) {
        session.ready(i);
      }
      runs.push_back(static_cast<double>(now_ns() - begin) / (kTensors - 1));
      session.ready(kTensors - 1);
      session.finish();
    }
    if (communicator.rank() == 0) {
      std::printf("ready(), no bucket completes: median %.1f ns a call over runs of %zu\n",
                  median(runs),
                  kTensors - 1);
    }
  }
  for (const int gap_us : {0, 200}) {
    Session session(communicator, uniform_plan(tensors_of_size(kTensors, 1000), Bytes(4000)));
    std::vector<double> calls;
    for (int step = 0; step < kSteps; ++step) {
      for (std::size_t i = 0; i < kTensors; ++i) {
        // With a gap the communicator's thread has gone to sleep: the call must wake it.
        for (const std::int64_t until = now_ns() + gap_us * 1000; now_ns() < until;) {
        }
        const std::int64_t begin = now_ns();
        session.ready(i);
        calls.push_back(static_cast<double>(now_ns() - begin) - clock_ns);
      }
      session.finish();
    }
    if (communicator.rank() == 0) {
      std::printf("ready(), completes a bucket, %s: median %.2f us, 99 %% %.2f us\n",
                  gap_us == 0 ? "back to back " : "200 us apart ",
                  median(calls) * 1e-3,
                  quantile(calls, 0.99) * 1e-3);
    }
  }
}

// About 20 ms of arithmetic in `parts` parts.
double arithmetic(double seed) {
  double value = seed;
  for (int i = 0; i < 30'000; ++i) {
    value = value * 1.0000001 + 1e-9;
  }
  return value;
}

void step_overhead(Communicator& communicator) {
  constexpr std::size_t kTensors = 160;  // like ResNet-50
  Session session(communicator, uniform_plan(tensors_of_size(kTensors, 1000), Bytes(1 << 16)));
  std::vector<double> with;
  std::vector<double> without;
  double sink = 0;
  for (int step = 0; step < 300; ++step) {  // in turn, so that a drift of the machine meets both
    std::int64_t begin = now_ns();
    for (std::size_t i = 0; i < kTensors; ++i) {
      sink += arithmetic(sink);
    }
    without.push_back(static_cast<double>(now_ns() - begin));
    begin = now_ns();
    for (std::size_t i = 0; i < kTensors; ++i) {
      sink += arithmetic(sink);
      session.ready(i);
    }
    session.finish();
    with.push_back(static_cast<double>(now_ns() - begin));
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < with.size(); ++i) {
    ratios.push_back(with[i] / without[i]);
  }
  std::printf(
      "compute-only step: %.3f ms without, %.3f ms with a Session; paired ratio median %.4f (p10 "
      "%.4f, p90 %.4f)%s\n",
      median(without) * 1e-6,
      median(with) * 1e-6,
      median(ratios),
      quantile(ratios, 0.1),
      quantile(ratios, 0.9),
      sink == 12345.0 ? "!" : "");
}

// This rank's share of memory: pages mapped by two ranks count half in each (PSS).
double share_mib() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string line;
  while (std::getline(rollup, line)) {
    if (line.starts_with("Pss:")) {
      return std::stod(line.substr(4)) / 1024;
    }
  }
  return 0;
}

void memory(Communicator& communicator) {
  double before = share_mib();
  const std::int64_t elements = (std::int64_t{256} << 20) / 4;
  Session session(communicator, uniform_plan({{"w", DType::kF32, {elements}}}, Bytes(4 << 20)));
  for (int step = 0; step < 3; ++step) {
    std::ranges::fill(as_span<float>(session.gradient(0)), 1.0F);
    session.ready(0);
    session.finish();
  }
  double after = share_mib();
  communicator.all_reduce(view(std::span(&before, 1))).wait();
  communicator.all_reduce(view(std::span(&after, 1))).wait();
  if (communicator.rank() == 0) {
    const double ranks = communicator.size();
    std::printf(
        "memory of all ranks: %.1f MiB before the Session, %.1f MiB after 3 steps with 256 MiB of "
        "gradients on each of "
        "%.0f: %.2f MiB per rank beside them\n",
        before,
        after,
        ranks,
        (after - before) / ranks - 256);
  }
}

}  // namespace

int main() {
  const int failed = benchmarks::run_ranks(2, {}, false, ready_cost) |
                     benchmarks::run_ranks(1, {}, true, step_overhead) |
                     benchmarks::run_ranks(2, {}, true, memory);
  return failed;
}
