// SPDX-License-Identifier: Apache-2.0
// Codecs on one core against memory bandwidth measured in the same run. One line per kernel:
// elements, bytes moved per element, best and median ms, 10^9 elements per second (best), and the
// part of the bound: time that moving the bytes would take at the bandwidth of o += g, over the
// time taken (both best of --runs).
//
//   codecs [--elements 16M] [--runs 15] [--only powersgd]
//
// --elements 128K stays in the second cache. Bytes moved are what the algorithm must read and
// write; a store to memory that is not read first costs a read too, and is counted once here, as
// in the bandwidth it is held against.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "stretto/base/instruction_set.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/base/units.hpp"
#include "stretto/compress/codec/block_codec.hpp"
#include "stretto/compress/codec/low_rank.hpp"
#include "stretto/compress/codec/selection.hpp"

namespace {

using namespace stretto;

struct Measured {
  double best_s = 0;
  double median_s = 0;
};

Measured measure(int runs, const std::function<void()>& body) {
  body();  // pages, caches, clock
  std::vector<double> times;
  for (int run = 0; run < runs; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return {*std::min_element(times.begin(), times.end()), median(times)};
}

// One rank's arithmetic of powersgd:4 for a square matrix, error feedback included: two products,
// orthonormal columns, reconstruction. The bound is of its 8 streams.
void run_powersgd(std::size_t count,
                  int runs,
                  const std::vector<float>& gradient,
                  const std::function<void(const char*, double, const Measured&)>& line) {
  constexpr std::size_t kRank = 4;
  const auto side = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
  std::vector<float> c = gradient;
  std::vector<float> residual(count, 0.0F);
  std::vector<float> next(count, 0.0F);
  std::vector<float> p(side * kRank);
  std::vector<float> q(side * kRank);
  std::vector<float> own(side * kRank);
  std::vector<double> scratch;
  normalise_columns(q, kRank, 1);
  const detail::LowRankKernels& kernels = detail::low_rank_kernels();
  const auto project = [&] {
    kernels.project(c.data(), residual.data(), side, side, q.data(), kRank, p.data());
  };
  const auto back = [&] {
    std::fill(own.begin(), own.end(), 0.0F);
    kernels.project_back(c.data(), side, side, p.data(), kRank, own.data());
  };
  const auto reconstruct = [&] {
    kernels.reconstruct(c.data(), side, side, p.data(), kRank, own.data(), own.data(), next.data());
  };
  line("powersgd:4 all, feedback", 32, measure(runs, [&] {
         project();
         orthonormalise(p, kRank, scratch);
         back();
         q = own;
         normalise_columns(q, kRank, 1);
         reconstruct();
         residual.swap(next);
       }));
  line("powersgd:4 P", 12, measure(runs, project));
  line("powersgd:4 orthonormalise", 0, measure(runs, [&] { orthonormalise(p, kRank, scratch); }));
  line("powersgd:4 Q", 4, measure(runs, back));
  line("powersgd:4 reconstruct", 16, measure(runs, reconstruct));
}

void run(std::size_t count, int runs, bool all) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(count);
  for (float& value : gradient) {
    value = normal(generator);
  }
  std::vector<float> residual(count, 0.0F);
  std::vector<float> next(count, 0.0F);
  std::vector<float> sum(count, 0.0F);
  std::vector<std::byte> wire(count * 4 + 4096);
  std::printf("%zu elements, %s\n", count, std::string(to_string(best_instruction_set())).c_str());

  const Measured add = measure(runs, [&] {
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] += gradient[i];
    }
  });
  const double bandwidth = 12.0 * static_cast<double>(count) / add.best_s;
  const auto line = [&](const char* name, double bytes, const Measured& time) {
    const auto elements = static_cast<double>(count);
    std::printf("%-28s %6.2f B %9.3f ms %9.3f ms %7.2f G/s %5.2f of the bound\n",
                name,
                bytes,
                time.best_s * 1e3,
                time.median_s * 1e3,
                elements / time.best_s / 1e9,
                bytes * elements / bandwidth / time.best_s);
  };
  line("o += g", 12, add);
  run_powersgd(count, runs, gradient, line);
  if (!all) {
    return;
  }

  struct Row {
    const char* name;
    BlockFormat format;
  };
  for (const Row& row : {Row{"fp16", BlockFormat::kFp16},
                         Row{"bf16", BlockFormat::kBf16},
                         Row{"int8", BlockFormat::kInt8},
                         Row{"int8 stochastic", BlockFormat::kInt8Stochastic},
                         Row{"int4", BlockFormat::kInt4},
                         Row{"onebit", BlockFormat::kOneBit}}) {
    const double payload =
        static_cast<double>(encoded_bytes(row.format, count)) / static_cast<double>(count);
    const std::string name = row.name;
    line((name + " encode").c_str(), 4 + payload, measure(runs, [&] {
           (void)encode(row.format, {gradient.data(), nullptr, nullptr, count}, 1, wire.data());
         }));
    line((name + " encode, feedback").c_str(), 12 + payload, measure(runs, [&] {
           (void)encode(row.format,
                        {gradient.data(), residual.data(), residual.data(), count},
                        1,
                        wire.data());
         }));
    line((name + " decode, add").c_str(), 8 + payload, measure(runs, [&] {
           (void)decode_add(row.format, wire.data(), sum.data(), count);
         }));
  }

  const std::size_t k = (count + 99) / 100;
  Selector selector;
  SparseValues chosen;
  const Measured ours = measure(runs, [&] {
    (void)selector.top_k({gradient.data(), nullptr, nullptr, count}, k, chosen);
  });
  line("top 1 %", 8, ours);
  std::fill(residual.begin(), residual.end(), 0.0F);
  line("top 1 %, feedback", 16, measure(runs, [&] {
         (void)selector.top_k({gradient.data(), residual.data(), next.data(), count}, k, chosen);
       }));
  std::vector<float> magnitudes(count);
  const Measured theirs = measure(std::min(runs, 3), [&] {
    std::transform(gradient.begin(), gradient.end(), magnitudes.begin(), [](float value) {
      return std::fabs(value);
    });
    std::nth_element(magnitudes.begin(),
                     magnitudes.begin() + static_cast<std::ptrdiff_t>(k),
                     magnitudes.end(),
                     std::greater<>());
  });
  line("|g| and std::nth_element", 8, theirs);
  std::printf("top 1 %% is %.1f times as fast as std::nth_element\n", theirs.best_s / ours.best_s);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::size_t elements = std::size_t{16} << 20;
    int runs = 15;
    bool all = true;
    for (int i = 1; i < argc; ++i) {
      const std::string flag = argv[i];
      if (flag == "--elements" && i + 1 < argc) {
        elements = static_cast<std::size_t>(parse_bytes(argv[++i]).count());
      } else if (flag == "--runs" && i + 1 < argc) {
        runs = std::stoi(argv[++i]);
      } else if (flag == "--only" && i + 1 < argc && std::string(argv[i + 1]) == "powersgd") {
        all = false;
        ++i;
      } else {
        std::fprintf(stderr, "unknown flag %s; see the top of benchmarks/codecs.cpp\n", argv[i]);
        return 2;
      }
    }
    run(elements, std::max(runs, 1), all);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
