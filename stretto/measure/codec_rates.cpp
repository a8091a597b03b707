// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/codec_rates.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include "stretto/base/error.hpp"
#include "stretto/compress/codec/low_rank.hpp"
#include "stretto/compress/codec/selection.hpp"
#include "stretto/compress/exchanges.hpp"

namespace stretto {
namespace {

using Clock = std::chrono::steady_clock;

Seconds best_of(const CodecRateOptions& options, const std::function<void()>& body) {
  body();  // pages and caches
  const Clock::time_point begin = Clock::now();
  Seconds best = Seconds::max();
  for (int run = 0; run < options.least_runs || Clock::now() - begin < options.budget; ++run) {
    const Clock::time_point from = Clock::now();
    body();
    best = std::min<Seconds>(best, Clock::now() - from);
  }
  return std::max(best, Seconds(1e-9));
}

/// Sums of eight uniform numbers: near enough to normal, and the same on every machine.
std::vector<float> gradients(std::size_t count) {
  std::vector<float> values(count);
  std::uint64_t key = 1;
  for (float& value : values) {
    std::uint64_t bits = detail::mix_key(++key);
    int sum = 0;
    for (int byte = 0; byte < 8; ++byte, bits >>= 8U) {
      sum += static_cast<int>(bits & 0xffU);
    }
    // Each byte has mean 127.5 and variance (256^2 - 1) / 12.
    value = static_cast<float>((sum - 8 * 127.5) / std::sqrt(8.0 * 65535.0 / 12.0));
  }
  return values;
}

double norm(const std::vector<float>& values) {
  double squares = 0.0;
  for (const float value : values) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(squares);
}

/// What powersgd does to a bucket that is a square matrix, and some elements more.
struct SquareFactors {
  SquareFactors() = default;
  SquareFactors(std::size_t count, std::size_t columns)
      : side(static_cast<std::size_t>(std::sqrt(static_cast<double>(count)))),
        rank(columns),
        q(side * rank),
        p(side * rank),
        own(side * rank) {
    normalise_columns(q, rank, 1);
  }
  void encode(float* c, const float* residual) {
    kernels->project(c, residual, side, side, q.data(), rank, p.data());
    orthonormalise(p, rank, scratch);
    std::fill(own.begin(), own.end(), 0.0F);
    kernels->project_back(c, side, side, p.data(), rank, own.data());
  }
  void decode(float* c, float* left) const {
    kernels->reconstruct(c, side, side, p.data(), rank, own.data(), own.data(), left);
  }

  const detail::LowRankKernels* kernels = &detail::low_rank_kernels();
  std::size_t side = 0;
  std::size_t rank = 0;
  std::vector<float> q;
  std::vector<float> p;
  std::vector<float> own;
  std::vector<double> scratch;
};

}  // namespace

CodecRate measure_codec(const CodecSpec& codec, const CodecRateOptions& options) {
  if (!codec.lossy() || options.elements == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                {"there is no codec to measure",
                 "codec " + to_string(codec),
                 std::to_string(options.elements) + " elements",
                 "a codec other than none, and elements",
                 {}});
  }
  const std::size_t count = options.elements;
  const std::vector<float> gradient = gradients(count);
  std::vector<float> residual(count, 0.0F);
  std::vector<float> next(count, 0.0F);
  std::vector<float> sum(count, 0.0F);
  const bool feedback = codec.error_feedback;
  const auto input = [&](const float* kept) {
    return CodecInput{
        gradient.data(), feedback ? kept : nullptr, feedback ? next.data() : nullptr, count};
  };
  std::function<void(const float*)> encode_from;
  std::function<void()> add;
  std::vector<std::byte> wire;
  Selector selector;
  SparseValues chosen;
  SquareFactors factors;
  if (codec.kind == CodecKind::kPowerSgd) {
    factors = SquareFactors(count, static_cast<std::size_t>(codec.rank));
    wire.resize(sizeof(float) * (2 * factors.q.size() + count - factors.side * factors.side));
    sum = gradient;  // encoded where it is
    encode_from = [&](const float* kept) { factors.encode(sum.data(), feedback ? kept : nullptr); };
    add = [&] { factors.decode(sum.data(), feedback ? next.data() : nullptr); };
  } else if (exchange_of(codec) == CodecExchange::kTwoShot) {
    const BlockFormat format = detail::format_of(codec);
    wire.resize(encoded_bytes(format, count));
    encode_from = [&, format](const float* kept) {
      (void)encode(format, input(kept), 1, wire.data());
    };
    add = [&, format] { (void)decode_add(format, wire.data(), sum.data(), count); };
  } else {
    encode_from = [&](const float* kept) {
      const CodecInput c = input(kept);
      if (codec.kind == CodecKind::kTopK) {
        (void)selector.top_k(c, codec.chosen_of(count), chosen);
      } else if (codec.kind == CodecKind::kRandomK) {
        draw_indices(count, codec.chosen_of(count), 1, chosen.indices);
        (void)selector.at(c, chosen);
      } else if (codec.relative) {
        (void)selector.at_least_rms(c, codec.threshold, chosen);
      } else {
        (void)selector.at_least(c, static_cast<float>(codec.threshold), chosen);
      }
    };
    add = [&] {
      for (std::size_t i = 0; i < chosen.indices.size(); ++i) {
        sum[chosen.indices[i]] += chosen.values[i];
      }
    };
  }

  CodecRate rate;
  rate.codec = codec;
  // Once without a residual, for the error of one step.
  encode_from(residual.data());
  add();
  std::vector<float> left(count);
  for (std::size_t i = 0; i < count; ++i) {
    left[i] = gradient[i] - sum[i];
  }
  rate.error = norm(left) / norm(gradient);
  const std::size_t pair = exchange_of(codec) == CodecExchange::kGather ? 8 : 4;
  const std::size_t bytes = wire.empty() ? pair * chosen.indices.size() : wire.size();
  rate.ratio =
      4.0 * static_cast<double>(count) / static_cast<double>(std::max<std::size_t>(bytes, 1));

  residual = next;
  const auto all = 4.0 * static_cast<double>(count);
  rate.encode =
      BytesPerSecond(all / best_of(options, [&] { encode_from(residual.data()); }).count());
  rate.decode = BytesPerSecond(all / best_of(options, add).count());
  return rate;
}

std::vector<CodecSpec> usual_codecs() {
  std::vector<CodecSpec> codecs;
  for (const char* const text : {"fp16",
                                 "bf16",
                                 "int8",
                                 "int8:stochastic",
                                 "int4",
                                 "onebit",
                                 "topk:0.01",
                                 "threshold:3rms",
                                 "randomk:0.1",
                                 "powersgd:4"}) {
    codecs.push_back(parse_codec(text));
  }
  return codecs;
}

}  // namespace stretto
