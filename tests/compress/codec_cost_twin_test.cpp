// SPDX-License-Identifier: Apache-2.0
// Exchanges with a codec against their price in simulate/, on emulated machines. What encodes and
// decodes is priced at what this run of it took; the wire is the machine's, whatever the host does.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/world.hpp"
#include "compress/vectors.hpp"
#include "stretto/compress/compressed_bucket.hpp"
#include "stretto/simulate/simulate.hpp"

namespace stretto::testing {
namespace {

constexpr std::size_t kCount = std::size_t{1} << 20;
constexpr Bytes kBytes(4 * kCount);

struct Timed {
  Seconds time{};
  double encode_s = 0.0;
  double decode_s = 0.0;
};

// As time_of() in cost_twin_test.cpp: all begin when the barrier before is over, on the machine.
Timed time_of(Communicator& communicator,
              const CodecSpec& codec,
              Algorithm algorithm,
              BufferView data,
              BufferView fill) {
  for (int attempt = 0; attempt < 200; ++attempt) {
    const auto bucket = compressed_bucket(communicator, codec, data.count);
    Residuals residuals(data.count);
    const std::span<float> values = as_span<float>(data);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((i * 2654435761U + static_cast<unsigned>(attempt)) % 1000);
    }
    communicator.barrier().wait();
    const Work busy = communicator.all_reduce(fill, ReduceOp::kSum, {.slot = 1});
    const Work before = communicator.barrier({.slot = 1});
    const Work work = bucket->all_reduce(
        data, ReduceOp::kSum, &residuals, 0, 0, {.slot = 1, .algorithm = algorithm});
    work.wait();
    before.wait();
    busy.wait();
    const CodecCounters& counters = bucket->counters();
    std::vector<std::int64_t> ends = {before.times().emulated_end.count(),
                                      work.times().emulated_end.count(),
                                      work.times().launched.count(),
                                      -busy.times().emulated_end.count(),
                                      counters.encode.count(),
                                      counters.decode.count()};
    communicator.all_reduce(view(std::span(ends)), ReduceOp::kMax).wait();
    if (ends[2] < -ends[3]) {
      return {Seconds(static_cast<double>(ends[1] - ends[0]) * 1e-9),
              static_cast<double>(ends[4]) * 1e-9,
              static_cast<double>(ends[5]) * 1e-9};
    }
  }
  ADD_FAILURE() << "in 200 attempts some rank was always 15 ms late";
  return {};
}

/// The price with rates at which processor() is what was measured.
Seconds price(Machine machine, const CodecSpec& codec, Algorithm algorithm, const Timed& timed) {
  const double ratio =
      codec.kind == CodecKind::kInt8 ? 4.0 / (1.0 + 4.0 / 512.0) : 4.0 / (8.0 * codec.fraction);
  const auto cost_at = [&](double encode, double decode) {
    machine.codecs = {{codec, BytesPerSecond(encode), BytesPerSecond(decode), ratio, 0.01}};
    return *exchange_costs(machine, algorithm, kBytes).codec(codec);
  };
  constexpr double kFast = 1e30;
  const double encode = cost_at(1.0, kFast).processor(kBytes).count() / timed.encode_s;
  const double decode = cost_at(kFast, 1.0).processor(kBytes).count() / timed.decode_s;
  return cost_at(encode, decode)(kBytes);
}

TEST(CodecCostTwin, ExchangesTakeTheirPriceWithinAndOverNodes) {
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer makes ranks too late to be timed";
  }
  const Machine machine = machine_from_spec("2x2@intra=10Gbit/s,20us@inter=100Mbit/s,50us");
  ShmOptions options = test_options();
  options.emulate = machine;
  options.arena_capacity = Bytes(std::int64_t{64} << 20);
  run_threads(machine.ranks(), options, [&](Communicator& communicator) {
    const std::size_t fill_count = 96 * 1024 / 4;  // 15 ms
    const auto first = communicator.allocate(Bytes(fill_count * 4));
    const BufferView fill{first->bytes().data(), fill_count, DType::kF32, {}};
    const auto memory = communicator.allocate(kBytes);
    const BufferView data{memory->bytes().data(), kCount, DType::kF32, {}};
    for (const char* const text : {"topk:0.1", "int8"}) {
      const CodecSpec codec = parse_codec(text);
      for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kHierarchical}) {
        const Timed timed = time_of(communicator, codec, algorithm, data, fill);
        const Seconds wanted = price(machine, codec, algorithm, timed);
        if (communicator.rank() == 0) {
          EXPECT_GT(timed.time, wanted * 0.85) << text << " " << to_string(algorithm);
          EXPECT_LT(timed.time, wanted * 1.15) << text << " " << to_string(algorithm);
        }
      }
    }
  });
}

}  // namespace
}  // namespace stretto::testing
