// SPDX-License-Identifier: Apache-2.0
// How well an emulated machine keeps its own clock: all-reduces against the formula of their
// algorithm,
//
//   direct: 2 a + 2 (P-1)/P n/B        ring: 2 (P-1) a + 2 (P-1)/P n/B
//
// for ranks and rates with ranks x rate <= 4 GB/s. Median of `runs` calls, timed from a common
// start by the slowest rank. One line per case: machine, algorithm, bytes, formula ms, measured ms,
// deviation us and percent, and whether it is within 3 % or 100 us.
//
//   emulation [RUNS]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ranks.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/base/units.hpp"

namespace {

using namespace stretto;

void run(Communicator& communicator, const Machine& machine, std::size_t runs) {
  const double ranks = communicator.size();
  const double latency_s = machine.levels[0].latency.count();
  const double rate = machine.levels[0].bandwidth.value();
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
    for (const std::size_t bytes :
         {std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{8} << 20}) {
      const double messages = algorithm == Algorithm::kRing ? 2 * (ranks - 1) : 2;
      const double formula_s =
          messages * latency_s + 2 * (ranks - 1) / ranks * static_cast<double>(bytes) / rate;
      if (formula_s > 1.5) {
        continue;
      }
      const auto arena = communicator.allocate(Bytes(static_cast<std::int64_t>(bytes)));
      const BufferView data{arena->bytes().data(), bytes / 4, DType::kF32, {}};
      std::vector<double> times(runs);
      for (double& time : times) {
        communicator.barrier().wait();
        const Work work = communicator.all_reduce(data, ReduceOp::kSum, {.algorithm = algorithm});
        work.wait();
        std::vector<std::int64_t> last = {work.times().launched.count(),
                                          work.times().ended.count()};
        communicator.all_reduce(view(std::span(last)), ReduceOp::kMax).wait();
        time = static_cast<double>(last[1] - last[0]) * 1e-9;
      }
      if (communicator.rank() == 0) {
        const double measured_s = median(times);
        const double off_s = measured_s - formula_s;
        const bool within = std::abs(off_s) <= std::max(100e-6, 0.03 * formula_s);
        std::printf("%-20s %-6s %8zu  %9.3f  %9.3f  %+8.1f us  %+6.2f %%  %s\n",
                    machine.name.c_str(),
                    std::string(to_string(algorithm)).c_str(),
                    bytes,
                    formula_s * 1e3,
                    measured_s * 1e3,
                    off_s * 1e6,
                    off_s / formula_s * 100,
                    within ? "within" : "OUTSIDE");
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t runs = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 7;
  std::printf("%-20s %-6s %8s  %9s  %9s  %11s  %8s\n",
              "machine",
              "algo",
              "bytes",
              "formula",
              "measured",
              "off",
              "");
  std::fflush(stdout);
  int failed = 0;
  for (const char* const spec : {"2@100Mbit/s,50us",
                                 "2@1Gbit/s,50us",
                                 "2@10Gbit/s,20us",
                                 "3@10Gbit/s,20us",
                                 "4@1Gbit/s,50us",
                                 "4@5Gbit/s,100us",
                                 "8@1Gbit/s,50us",
                                 "8@4Gbit/s,20us"}) {
    ShmOptions options;
    options.emulate = machine_from_spec(spec);
    failed |= benchmarks::run_ranks(
        options.emulate->ranks(), options, false, [&](Communicator& communicator) {
          run(communicator, *options.emulate, runs);
        });
  }
  return failed;
}
