// SPDX-License-Identifier: Apache-2.0
// fp32 sum all-reduce, in place, by local ranks as processes. One line per size, the same columns
// as other all-reduce harnesses print: bytes, ranks, median us, min us, max us, bus GB/s, CPU share
// of rank 0, runs, ok. A call's time is the maximum over ranks.
//
//   all_reduce [--ranks 2] [--buffers arena|private] [--produce 0|1] [--algorithm direct|ring]
//              [--min 4] [--max 256M] [--budget SECONDS_PER_SIZE] [--background] [--time max|rank0]
//
// --produce 1 rewrites the buffer before every call, untimed, as a backward pass would, so that
// cache lines really cross; times then include no second call in a row. --produce 0 reads the clock
// once per 50 calls up to 64 KiB.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <sys/resource.h>

#include "ranks.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/base/units.hpp"
#include "stretto/comm/shm/shm.hpp"

namespace {

using namespace stretto;

struct Options {
  int ranks = 2;
  bool arena = true;
  bool produce = false;
  bool background = false;
  bool rank0 = false;
  Algorithm algorithm = Algorithm::kAuto;
  std::size_t min_bytes = 4;
  std::size_t max_bytes = std::size_t{256} << 20;
  double budget_s = 0.4;
};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

void run(Communicator& communicator, const Options& options) {
  std::unique_ptr<Arena> arena;
  std::vector<float> own;
  std::span<float> all;
  if (options.arena) {
    arena = communicator.allocate(Bytes(static_cast<std::int64_t>(options.max_bytes)));
    all = {reinterpret_cast<float*>(arena->bytes().data()), options.max_bytes / 4};
  } else {
    own.resize(options.max_bytes / 4);
    all = own;
  }
  std::fill(all.begin(), all.end(), 0.0F);
  const CallOptions call{
      .algorithm = options.algorithm,
      .progress = options.background ? Progress::kBackground : Progress::kCaller};
  const auto rank = static_cast<float>(communicator.rank());
  for (std::size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 4) {
    const std::span<float> data = all.first(bytes / 4);
    std::fill(data.begin(), data.end(), 0.0F);
    const auto once = [&] { communicator.all_reduce(view(data), ReduceOp::kSum, call).wait(); };
    communicator.barrier().wait();
    once();
    once();
    double begin = now_s();
    once();
    std::int64_t runs = static_cast<std::int64_t>(
        std::clamp(options.budget_s / std::max(now_s() - begin, 1e-7), 7.0, 2000.0));
    const int block = !options.produce && bytes <= 65536 ? 50 : 1;
    if (block > 1) {
      runs = std::max<std::int64_t>(9, runs / block);
    }
    communicator.broadcast(view(std::span(&runs, 1)), 0).wait();
    std::vector<double> times(static_cast<std::size_t>(runs));
    bool ok = true;
    communicator.barrier({.progress = Progress::kCaller}).wait();
    const double cpu_begin = cpu_s();
    const double wall_begin = now_s();
    for (std::size_t i = 0; i < times.size(); ++i) {
      const auto stamp = static_cast<float>(i % 7);
      if (options.produce) {
        std::fill(data.begin(), data.end(), stamp + rank);
        communicator.barrier({.progress = Progress::kCaller}).wait();
      }
      begin = now_s();
      for (int k = 0; k < block; ++k) {
        once();
      }
      times[i] = (now_s() - begin) / block;
      if (options.produce) {
        const auto ranks = static_cast<float>(options.ranks);
        for (std::size_t k = 0; k < data.size(); k += 997) {
          ok &= data[k] == ranks * stamp + ranks * (ranks - 1) / 2;
        }
      }
    }
    const double cpu_share = (cpu_s() - cpu_begin) / (now_s() - wall_begin);
    if (!options.rank0) {
      communicator.all_reduce(view(std::span(times)), ReduceOp::kMax).wait();
    }
    std::fill(data.begin(), data.end(), rank + 1);
    once();
    const auto expected = static_cast<float>(options.ranks * (options.ranks + 1)) / 2;
    ok &= std::all_of(
        data.begin(), data.end(), [expected](float value) { return value == expected; });
    if (communicator.rank() == 0) {
      const double median_s = median(times);
      const auto [least, most] = std::minmax_element(times.begin(), times.end());
      std::printf(
          "%zu,%d,%.3f,%.3f,%.3f,%.4f,%.2f,%zu,%s\n",
          bytes,
          options.ranks,
          median_s * 1e6,
          *least * 1e6,
          *most * 1e6,
          2.0 * (options.ranks - 1) / options.ranks * static_cast<double>(bytes) / median_s / 1e9,
          cpu_share,
          times.size(),
          ok ? "ok" : "WRONG");
      std::fflush(stdout);
    }
  }
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--background") {
      options.background = true;
      continue;
    }
    if (i + 1 == argc) {
      std::fprintf(stderr, "%s needs a value\n", flag.c_str());
      std::exit(2);
    }
    const std::string value = argv[++i];
    if (flag == "--ranks") {
      options.ranks = std::stoi(value);
    } else if (flag == "--buffers") {
      options.arena = value == "arena";
    } else if (flag == "--produce") {
      options.produce = value == "1";
    } else if (flag == "--time") {
      options.rank0 = value == "rank0";
    } else if (flag == "--algorithm") {
      options.algorithm = algorithm_from_string(value);
    } else if (flag == "--min") {
      options.min_bytes = static_cast<std::size_t>(parse_bytes(value).count());
    } else if (flag == "--max") {
      options.max_bytes = static_cast<std::size_t>(parse_bytes(value).count());
    } else if (flag == "--budget") {
      options.budget_s = std::stod(value);
    } else {
      std::fprintf(
          stderr, "unknown flag %s; see the top of benchmarks/all_reduce.cpp\n", flag.c_str());
      std::exit(2);
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    return benchmarks::run_ranks(
        options.ranks, {}, true, [&](Communicator& communicator) { run(communicator, options); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
