// SPDX-License-Identifier: Apache-2.0
#include "stretto/compress/compressed_bucket.hpp"

#include <string>
#include <utility>

#include "stretto/compress/codec/selection.hpp"
#include "stretto/compress/exchanges.hpp"

namespace stretto {

CodecCounters& CodecCounters::operator+=(const CodecCounters& other) noexcept {
  exchanges += other.exchanges;
  not_finite += other.not_finite;
  dense_bytes += other.dense_bytes;
  sent_bytes += other.sent_bytes;
  encode += other.encode;
  decode += other.decode;
  return *this;
}

Work CompressedBucket::all_reduce(BufferView data,
                                  ReduceOp op,
                                  Residuals* residuals,
                                  std::size_t begin,
                                  std::uint32_t step,
                                  CallOptions options) {
  const auto refuse = [&](std::string message, std::string found, std::string expected) {
    throw Error(ErrorCode::kInvalidArgument,
                {std::move(message),
                 "codec " + to_string(codec_),
                 std::move(found),
                 std::move(expected),
                 {}});
  };
  if (data.dtype != DType::kF32 || data.count != count_) {
    refuse("the buffer is not the bucket this codec was made for",
           std::to_string(data.count) + " of " + std::string(to_string(data.dtype)),
           std::to_string(count_) + " of f32");
  }
  if (op != ReduceOp::kSum && op != ReduceOp::kMean) {
    refuse("encoded gradients can be added only", std::string(to_string(op)), "sum or mean");
  }
  if (options.algorithm == Algorithm::kAuto) {
    options.algorithm = Algorithm::kDirect;
  }
  if (!can_ride(codec_, options.algorithm)) {
    refuse("this codec has an exchange of its own",
           std::string(to_string(options.algorithm)),
           "direct or auto");
  }
  input_ = {};
  input_.data = data;
  if (op == ReduceOp::kMean) {
    input_.factor = 1.0F / static_cast<float>(communicator_->size());
  }
  if (codec_.error_feedback && residuals != nullptr) {
    input_.own = residuals->own(begin);
    input_.next_own = residuals->next_own(begin);
    input_.of_sums = residuals->of_sums(begin);
    input_.next_of_sums = residuals->next_of_sums(begin);
  }
  if (codec_.momentum > 0.0 && residuals != nullptr) {
    input_.velocity = residuals->velocity(begin);
    input_.next_velocity = residuals->next_velocity(begin);
  }
  input_.step = step;
  intervals_.clear();
  input_.key = detail::mix_key((std::uint64_t{step} << 40) ^ begin);
  finite_ = true;
  if (communicator_->size() > 1) {
    ++counters_.exchanges;
    counters_.dense_bytes += static_cast<std::int64_t>(data.size_bytes());
  }
  return communicator_->all_reduce_by(*this, data, op, options);
}

void CompressedBucket::set_directions(std::span<const float> directions) {
  if (!directions.empty()) {
    throw Error(ErrorCode::kMismatch,
                {"this codec has no directions to take up",
                 "codec " + to_string(codec_),
                 std::to_string(directions.size()) + " numbers",
                 "none",
                 "Restore what the same plan has saved."});
  }
}

bool can_ride(const CodecSpec& codec, Algorithm algorithm) noexcept {
  if (algorithm == Algorithm::kAuto || algorithm == Algorithm::kDirect ||
      algorithm == Algorithm::kHierarchical) {
    return true;
  }
  const bool additive = codec.kind == CodecKind::kFp16 || codec.kind == CodecKind::kBf16 ||
                        codec.kind == CodecKind::kRandomK || codec.kind == CodecKind::kPowerSgd;
  return additive && can_run(Collective::kAllReduce, algorithm);
}

std::unique_ptr<CompressedBucket> compressed_bucket(Communicator& communicator,
                                                    const CodecSpec& codec,
                                                    std::size_t count,
                                                    std::vector<MatrixPart> matrices) {
  if (count > Selector::kMostElements) {
    throw Error(ErrorCode::kInvalidArgument,
                {"a compressed bucket has too many elements",
                 "codec " + to_string(codec),
                 std::to_string(count),
                 "at most " + std::to_string(Selector::kMostElements),
                 "Cut it into several buckets."});
  }
  std::unique_ptr<CompressedBucket> bucket;
  if (!codec.lossy()) {
    throw Error(ErrorCode::kInvalidArgument, "a bucket without codec is not compressed");
  }
  switch (exchange_of(codec)) {
    case CodecExchange::kGather:
      bucket = detail::gather_exchange(communicator, codec, count);
      break;
    case CodecExchange::kAdditive:
      bucket = detail::random_k_exchange(communicator, codec, count);
      break;
    case CodecExchange::kLowRank:
      bucket = detail::low_rank_exchange(communicator, codec, count, std::move(matrices));
      break;
    case CodecExchange::kTwoShot:
      bucket = detail::two_shot_exchange(communicator, codec, count);
      break;
  }
  bucket->communicator_ = &communicator;
  bucket->count_ = count;
  return bucket;
}

}  // namespace stretto
