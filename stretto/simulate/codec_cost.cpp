// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/codec_cost.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace stretto {
namespace {

// Elements that a two-shot exchange encodes, sends and decodes at a time.
constexpr double kChunk = 64.0 * 1024.0;

double bytes_of(Bytes size) noexcept {
  return static_cast<double>(size.count());
}

}  // namespace

CodecCost::CodecCost(const CodecRate& rate,
                     ExchangeTime all_reduce,
                     ExchangeTime all_gather,
                     int ranks,
                     std::optional<Inside> inside)
    : rate_(rate),
      exchange_(exchange_of(rate.codec)),
      wire_(exchange_ == CodecExchange::kGather ? std::move(all_gather) : std::move(all_reduce)),
      ranks_(inside ? ranks / inside->ranks : ranks),
      inside_(std::move(inside)) {}

Bytes CodecCost::encoded(Bytes gradients) const noexcept {
  if (rate_.codec.count > 0) {  // a number of elements, however long the bucket is
    const auto elements = static_cast<std::size_t>(gradients.count() / 4);
    const std::size_t each = exchange_ == CodecExchange::kGather ? 8 : 4;
    return Bytes(static_cast<std::int64_t>(each * rate_.codec.chosen_of(elements)));
  }
  if (exchange_ == CodecExchange::kLowRank) {  // as one square matrix
    const double side = std::sqrt(bytes_of(gradients) / 4.0);
    const double factors = 4.0 * 2.0 * rate_.codec.rank * std::ceil(side);
    return Bytes(std::llround(std::min(factors, bytes_of(gradients))));
  }
  return Bytes(std::llround(std::ceil(bytes_of(gradients) / rate_.ratio)));
}

Bytes CodecCost::on_wire(Bytes gradients) const noexcept {
  const Bytes one = encoded(gradients);
  return exchange_ == CodecExchange::kGather ? Bytes(one.count() * ranks_) : one;
}

Seconds CodecCost::inside(Bytes gradients) const noexcept {
  return inside_ ? inside_->reduce_scatter(gradients) + inside_->all_gather(gradients) : Seconds(0);
}

Seconds CodecCost::processor(Bytes gradients) const noexcept {
  const double n = bytes_of(gradients) / (inside_ ? inside_->ranks : 1);
  if (ranks_ < 2 || n <= 0.0) {
    return Seconds(0);
  }
  double encoded_n = n;
  double decoded_n = n;
  if (exchange_ == CodecExchange::kTwoShot) {
    encoded_n += n / ranks_;
    decoded_n += n;
  } else if (exchange_ == CodecExchange::kGather) {
    decoded_n *= ranks_;
  }
  return Seconds(encoded_n / rate_.encode.value() + decoded_n / rate_.decode.value());
}

Seconds CodecCost::off_wire(Bytes gradients) const noexcept {
  const Bytes size = on_wire(gradients);
  const Seconds wire = wire_(size);
  const Seconds work = processor(gradients);
  Seconds latency = std::min(wire, wire_.latency(size));
  const Seconds beside = wire - latency;
  if (inside_) {
    latency += std::min(
        inside(gradients),
        inside_->reduce_scatter.latency(gradients) + inside_->all_gather.latency(gradients));
  }
  if (exchange_ == CodecExchange::kLowRank) {
    return 2.0 * latency + work;
  }
  if (exchange_ != CodecExchange::kTwoShot) {
    return latency + work;
  }
  const double encoders = ranks_ * (inside_ ? inside_->ranks : 1);
  const double chunks = std::max(1.0, bytes_of(gradients) / 4.0 / encoders / kChunk);
  return latency + std::max(work, beside) + std::min(work, beside) / chunks - beside;
}

Seconds CodecCost::operator()(Bytes gradients) const noexcept {
  const Bytes size = on_wire(gradients);
  const Seconds wire = wire_(size);
  Seconds bytes = wire - std::min(wire, wire_.latency(size));
  if (inside_) {
    const Seconds latency =
        inside_->reduce_scatter.latency(gradients) + inside_->all_gather.latency(gradients);
    bytes += std::max(Seconds(0), inside(gradients) - latency);
  }
  return bytes + off_wire(gradients);
}

ExchangeTime CodecCost::curve(Bytes most) const {
  if (ranks_ < 2) {
    return {};
  }
  constexpr double kFactor = 1.0905077326652577;  // 2^(1/8)
  std::vector<CurvePoint> points;
  double size = 4.0;
  for (;; size = std::max(size + 4.0, size * kFactor)) {
    const Bytes at(std::min<std::int64_t>(most.count(), std::llround(size)));
    points.push_back({at, std::max((*this)(at), Seconds(1e-12))});
    if (at >= most) {
      return ExchangeTime(std::span<const CurvePoint>(points));
    }
  }
}

CodecCost CodecCost::scaled(double latency, double seconds_per_byte) const {
  CodecCost result = *this;
  result.wire_ = wire_.scaled(latency, seconds_per_byte);
  if (inside_) {
    result.inside_->reduce_scatter = inside_->reduce_scatter.scaled(latency, seconds_per_byte);
    result.inside_->all_gather = inside_->all_gather.scaled(latency, seconds_per_byte);
  }
  return result;
}

std::vector<CodecCost> codec_costs(std::span<const CodecRate> rates,
                                   const ExchangeTime& all_reduce,
                                   const ExchangeTime& all_gather,
                                   int ranks) {
  std::vector<CodecCost> costs;
  for (const CodecRate& rate : rates) {
    costs.emplace_back(rate, all_reduce, all_gather, ranks);
  }
  return costs;
}

}  // namespace stretto
