// SPDX-License-Identifier: Apache-2.0
// How quick the planner and the simulator are, one core:
//
//   exact plan and bound of 100 000 tensors; the seed's find_best (48 layers) as in
//   peers/sim_ref.py; evaluations of a plan of ResNet-50's 161 tensors; simulated events; a step on
//   100 000 ranks, all alike and all different.
//
// Each line: what, median and spread of `runs` repeats, unit.
//
//   plan [RUNS]

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "stretto/base/statistics.hpp"
#include "stretto/data/models.hpp"
#include "stretto/plan/bound.hpp"
#include "stretto/plan/bucketing.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/plan/planner.hpp"

namespace {

using stretto::Bytes;
using stretto::Seconds;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Median and spread of `once`, which returns the value to report.
void report(const char* what, const char* unit, int runs, const std::function<double()>& once) {
  std::vector<double> values(static_cast<std::size_t>(runs));
  (void)once();
  for (double& value : values) {
    value = once();
  }
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  std::printf("%-52s %12.4g [%.4g-%.4g] %s\n", what, stretto::median(values), *least, *most, unit);
  std::fflush(stdout);
}

std::vector<stretto::ReadyBytes> many_gradients(std::size_t count) {
  std::vector<stretto::ReadyBytes> gradients;
  std::uint64_t state = 1;
  double at = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    at += static_cast<double>(state >> 50) * 1e-9;
    gradients.push_back({Seconds(at), Bytes(static_cast<std::int64_t>(1 + (state >> 45)))});
  }
  return gradients;
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::max(1, static_cast<int>(std::strtol(argv[1], nullptr, 10))) : 9;
  double sink = 0.0;

  const auto gradients = many_gradients(100000);
  const stretto::ExchangeTime line(
      std::vector<stretto::CostLine>{{Seconds(50e-6), 1e-10, stretto::Algorithm::kRing}});
  report("exact plan and bound, 100 000 tensors", "ms", runs, [&] {
    const double begin = now_s();
    sink += stretto::earliest_buckets(gradients, line).communication_end.count();
    sink += stretto::release_bound(gradients, line.lines()).count();
    return (now_s() - begin) * 1e3;
  });

  std::vector<stretto::ReadyBytes> layers;
  for (int l = 1; l <= 48; ++l) {
    layers.push_back({Seconds(4e-3 * l), Bytes(4 << 20)});
  }
  const stretto::ExchangeTime link(
      std::vector<stretto::CostLine>{{Seconds(2e-4), 8.0 / 25e9, stretto::Algorithm::kAuto}});
  report("find_best of 48 layers, even buckets of every size", "us", runs, [&] {
    constexpr int kTimes = 1000;
    const double begin = now_s();
    for (int i = 0; i < kTimes; ++i) {
      sink += stretto::best_even_buckets(layers, link.lines()[0]).communication_end.count();
    }
    return (now_s() - begin) * 1e6 / kTimes;
  });
  report("the exact optimum of 48 layers, any buckets", "us", runs, [&] {
    constexpr int kTimes = 1000;
    const double begin = now_s();
    for (int i = 0; i < kTimes; ++i) {
      sink += stretto::earliest_buckets(layers, link).communication_end.count();
    }
    return (now_s() - begin) * 1e6 / kTimes;
  });

  const stretto::StepProfile profile =
      stretto::profile_from_model_json(stretto::model_json("resnet50"), "resnet50", {});
  std::vector<stretto::ReadyBytes> tensors;
  for (const stretto::ProfileTensor& tensor : profile.tensors) {
    tensors.push_back({tensor.ready, tensor.bytes()});
  }
  const std::vector<std::size_t> ends = stretto::earliest_buckets(tensors, line).ends;
  report("evaluations of a plan, 161 tensors", "per s", runs, [&] {
    constexpr int kTimes = 20000;
    const double begin = now_s();
    for (int i = 0; i < kTimes; ++i) {
      sink += stretto::communication_end(tensors, ends, line).count();
    }
    return kTimes / (now_s() - begin);
  });

  stretto::ExchangeCosts costs;
  costs.all_reduce = line;
  costs.ranks = 8;
  report("plan() of ResNet-50 with alternatives, sensitivity", "ms", runs, [&] {
    const double begin = now_s();
    sink += stretto::plan(profile, costs).step.count();
    return (now_s() - begin) * 1e3;
  });

  const stretto::Plan plan =
      stretto::uniform_plan(stretto::tensors_of(profile), Bytes(256 << 10), true);
  const auto simulated = [&](int ranks, bool alike, double& events) {
    stretto::ExchangeCosts many = costs;
    many.ranks = ranks;
    stretto::SimulateOptions options;
    options.recorded_ranks = 0;
    if (!alike) {
      for (int r = 0; r < ranks; ++r) {
        options.compute_factor.push_back(1.0 + 1e-6 * r);
      }
    }
    const double begin = now_s();
    const stretto::Simulation simulation = stretto::simulate(profile, many, plan, options);
    events = static_cast<double>(simulation.events);
    sink += simulation.step.count();
    return now_s() - begin;
  };
  double events = 0.0;
  report("a step on 100 000 equal ranks", "ms", runs, [&] {
    return simulated(100000, true, events) * 1e3;
  });
  report("a step on 2 000 ranks, all different", "ms", runs, [&] {
    return simulated(2000, false, events) * 1e3;
  });
  report("  its events", "per s", runs, [&] {
    const double elapsed = simulated(2000, false, events);
    return events / elapsed;
  });
  report("a step on 100 000 ranks, all different", "s", std::min(runs, 3), [&] {
    return simulated(100000, false, events);
  });
  return sink == 0.0 ? 1 : 0;
}
