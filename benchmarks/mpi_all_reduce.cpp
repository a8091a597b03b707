// SPDX-License-Identifier: Apache-2.0
// All-reduce over backend mpi, one line per size on rank 0; network.py starts it beside its peers.
//
//   mpirun -n 2 bench_mpi_all_reduce [--background] [ALGORITHM [LEAST [MOST [SECONDS]]]]
//
// bytes, median, least and most of the times of a call in microseconds, and the processor time of
// this rank's process as a share of the time. With --background nobody waits by polling: the main
// thread sleeps in between, as a training step that computes would not poll.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include "stretto/comm/mpi/mpi.hpp"

using namespace stretto;
using Clock = std::chrono::steady_clock;

namespace {

double processor_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double since_us(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool background = !words.empty() && words[0] == "--background";
  if (background) {
    words.erase(words.begin());
  }
  const auto word = [&words](std::size_t i, const char* otherwise) {
    return words.size() > i ? words[i] : std::string(otherwise);
  };
  const Algorithm algorithm = algorithm_from_string(word(0, "auto"));
  const std::size_t least = std::stoul(word(1, "4"));
  const std::size_t most = std::stoul(word(2, "67108864"));
  const double budget_s = std::stod(word(3, "0.5"));

  const auto ranks = connect_mpi();
  const auto arena = ranks->allocate(Bytes(static_cast<std::int64_t>(most)));
  auto* const values = reinterpret_cast<float*>(arena->bytes().data());
  std::uint32_t slot = 0;
  for (std::size_t bytes = least; bytes <= most; bytes *= 4) {
    const std::size_t count = bytes / sizeof(float);
    std::fill_n(values, count, 1.0F);
    const auto call = [&] {
      const Work work =
          ranks->all_reduce(view(std::span(values, count)),
                            ReduceOp::kMax,
                            {.slot = slot,
                             .algorithm = algorithm,
                             .progress = background ? Progress::kBackground : Progress::kCaller});
      while (background && !work.done()) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      work.wait();
    };
    call();
    call();
    // As many calls on every rank: rank 0's estimate holds.
    const auto before = Clock::now();
    call();
    double repeat = std::clamp(budget_s * 1e6 / std::max(since_us(before), 1.0), 5.0, 2000.0);
    ranks->broadcast(view(std::span(&repeat, 1)), 0).wait();
    std::vector<double> times;
    const double processor = processor_s();
    const auto begin = Clock::now();
    for (int i = 0; i < static_cast<int>(repeat); ++i) {
      const auto at = Clock::now();
      call();
      times.push_back(since_us(at));
    }
    const double wall_us = since_us(begin);
    const double share = (processor_s() - processor) * 1e6 / wall_us;
    std::sort(times.begin(), times.end());
    if (ranks->rank() == 0) {
      std::printf("%zu,%.1f,%.1f,%.1f,%.3f,%zu,%s\n",
                  bytes,
                  times[times.size() / 2],
                  times.front(),
                  times.back(),
                  share,
                  times.size(),
                  values[count - 1] == 1.0F ? "ok" : "WRONG");
      std::fflush(stdout);
    }
    ++slot;
  }
  ranks->barrier().wait();
  return 0;
}
