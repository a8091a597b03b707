// SPDX-License-Identifier: Apache-2.0
// Matrices as products of two thin ones: docs/compression.md.
#include "stretto/compress/codec/low_rank.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "stretto/comm/algorithm/algorithms.hpp"
#include "stretto/compress/exchanges.hpp"

namespace stretto::detail {
namespace {

std::size_t index_of(int n) {
  return static_cast<std::size_t>(n);
}

/// Two all-reduces, the second of what follows from the first: P of all matrices, together with
/// what is not in a matrix and travels as it is; then Q of all matrices. All that ranks must agree
/// on follows from these sums, of which all have the same bits.
///
/// A rank keeps c - P Q' with the Q of its own matrix, not with the mean. The sums that are sent
/// are the same: they are linear in it. But with the mean, what a rank's gradients differ from
/// others' would stay in its residual, and grow for ever.
class LowRank final : public CompressedBucket {
 public:
  LowRank(Communicator& communicator,
          const CodecSpec& codec,
          std::size_t count,
          std::vector<MatrixPart> matrices)
      : CompressedBucket(codec), rank_(index_of(codec.rank)), matrices_(std::move(matrices)) {
    std::size_t rows = 0;
    std::size_t cols = 0;
    std::size_t end = 0;
    for (const MatrixPart& matrix : matrices_) {
      if (matrix.begin > end) {
        exact_.push_back({end, matrix.begin});
      }
      rows += matrix.rows;
      cols += matrix.cols;
      end = matrix.begin + matrix.rows * matrix.cols;
    }
    if (count > end) {
      exact_.push_back({end, count});
    }
    for (const Part& part : exact_) {
      exact_count_ += length(part);
    }
    p_count_ = rows * rank_;
    q_count_ = cols * rank_;
    outgoing_ = communicator.allocate(Bytes(
        static_cast<std::int64_t>(sizeof(float) * std::max(p_count_ + exact_count_, q_count_))));
    own_q_.resize(q_count_);
  }

  [[nodiscard]] std::span<const float> directions() const noexcept override { return directions_; }
  void set_directions(std::span<const float> directions) override {
    if (directions.size() != q_count_ && !directions.empty()) {
      throw Error(ErrorCode::kMismatch,
                  {"the saved directions are of another bucket",
                   "codec " + to_string(codec()),
                   std::to_string(directions.size()) + " numbers",
                   std::to_string(q_count_),
                   "Restore what the same plan has saved."});
    }
    directions_.assign(directions.begin(), directions.end());
  }
  void commit() noexcept override { std::swap(directions_, next_directions_); }
  void undo() noexcept override { commit(); }

 private:
  // Of one matrix at a time, as pieces of rows that stay in the second cache.
  struct Piece {
    std::size_t begin;  // element of the bucket
    std::size_t rows;
    std::size_t cols;
    std::size_t p;  // where its part of P begins
    std::size_t q;  // where its matrix' Q begins
  };
  [[nodiscard]] std::vector<Piece> pieces() const {
    std::vector<Piece> all;
    std::size_t p = 0;
    std::size_t q = 0;
    for (const MatrixPart& matrix : matrices_) {
      // Multiples of four, as project_back() takes them.
      const std::size_t most =
          std::max<std::size_t>(kPieceBytes / sizeof(float) / matrix.cols / 4 * 4, 4);
      for (std::size_t row = 0; row < matrix.rows; row += most) {
        const std::size_t rows = std::min(most, matrix.rows - row);
        all.push_back({matrix.begin + row * matrix.cols, rows, matrix.cols, p, q});
        p += rows * rank_;
      }
      q += matrix.cols * rank_;
    }
    return all;
  }

  [[nodiscard]] float* values(std::size_t at) const noexcept {
    return reinterpret_cast<float*>(input_.data.data) + at;
  }
  [[nodiscard]] float* wire() const noexcept {
    return reinterpret_cast<float*>(outgoing_->bytes().data());
  }

  Task run(Exchange& exchange, const Call& call) override {
    const LowRankKernels& kernels = low_rank_kernels();
    const bool feedback = input_.own != nullptr;
    const std::vector<Piece> all = pieces();
    if (directions_.empty() && q_count_ != 0) {
      const CodecTime time(exchange, CodecStage::kEncode, counters_, intervals_);
      directions_.assign(q_count_, 0.0F);
      normalise_directions(directions_);
    }
    for (const Piece& piece : all) {
      {
        const CodecTime time(exchange, CodecStage::kEncode, counters_, intervals_);
        kernels.project(values(piece.begin),
                        feedback ? input_.own + piece.begin : nullptr,
                        piece.rows,
                        piece.cols,
                        directions_.data() + piece.q,
                        rank_,
                        wire() + piece.p);
      }
      co_await exchange.breathe();
    }
    {
      const CodecTime time(exchange, CodecStage::kEncode, counters_, intervals_);
      put_exact();
    }
    co_await exchange.breathe();

    Call inner = call;
    inner.procedure = nullptr;
    inner.data = {outgoing_->bytes().data(), p_count_ + exact_count_, DType::kF32, {}};
    count_sent(inner.data, exchange.size);
    co_await carry_out(exchange, inner);
    if (!take_sums(exchange, inner.data.count)) {
      co_return;
    }
    {
      const CodecTime time(exchange, CodecStage::kDecode, counters_, intervals_);
      get_exact();
    }
    if (matrices_.empty()) {
      co_return;
    }

    {
      const CodecTime time(exchange, CodecStage::kEncode, counters_, intervals_);
      p_.assign(wire(), wire() + p_count_);
      std::size_t at = 0;
      for (const MatrixPart& matrix : matrices_) {
        orthonormalise(std::span(p_).subspan(at, matrix.rows * rank_), rank_, scratch_);
        at += matrix.rows * rank_;
      }
      std::fill(own_q_.begin(), own_q_.end(), 0.0F);
    }
    for (const Piece& piece : all) {
      {
        const CodecTime time(exchange, CodecStage::kEncode, counters_, intervals_);
        kernels.project_back(values(piece.begin),
                             piece.rows,
                             piece.cols,
                             p_.data() + piece.p,
                             rank_,
                             own_q_.data() + piece.q);
      }
      co_await exchange.breathe();
    }
    std::copy(own_q_.begin(), own_q_.end(), wire());
    inner.data.count = q_count_;
    count_sent(inner.data, exchange.size);
    co_await carry_out(exchange, inner);
    if (!take_sums(exchange, q_count_)) {
      co_return;
    }
    {
      const CodecTime time(exchange, CodecStage::kDecode, counters_, intervals_);
      next_directions_.assign(wire(), wire() + q_count_);
      normalise_directions(next_directions_);
    }
    for (const Piece& piece : all) {
      {
        const CodecTime time(exchange, CodecStage::kDecode, counters_, intervals_);
        kernels.reconstruct(values(piece.begin),
                            piece.rows,
                            piece.cols,
                            p_.data() + piece.p,
                            rank_,
                            own_q_.data() + piece.q,
                            wire() + piece.q,
                            feedback ? input_.next_own + piece.begin : nullptr);
      }
      co_await exchange.breathe();
    }
  }

  void put_exact() const {
    float* to = wire() + p_count_;
    for (const Part& part : exact_) {
      for (std::size_t i = part.begin; i < part.end; ++i) {
        *to++ = *values(i) + (input_.own == nullptr ? 0.0F : input_.own[i]);
      }
    }
  }
  void get_exact() const {
    const float* from = wire() + p_count_;
    for (const Part& part : exact_) {
      for (std::size_t i = part.begin; i < part.end; ++i) {
        *values(i) = *from++;
      }
      if (input_.own != nullptr) {
        std::fill(input_.next_own + part.begin, input_.next_own + part.end, 0.0F);
      }
    }
  }

  void count_sent(const BufferView& data, int ranks) {
    counters_.sent_bytes +=
        static_cast<std::int64_t>(2 * data.size_bytes() * (index_of(ranks) - 1) / index_of(ranks));
  }
  // Whether `count` sums are finite; if not, this exchange is over, on all ranks. A gradient that
  // is not makes its row of P so: even infinity times zero is no number.
  [[nodiscard]] bool take_sums(Exchange& exchange, std::size_t count) {
    const CodecTime time(exchange, CodecStage::kDecode, counters_, intervals_);
    finite_ = std::all_of(wire(), wire() + count, [](float value) { return std::isfinite(value); });
    if (!finite_) {
      ++counters_.not_finite;
      std::fill_n(values(0), input_.data.count, std::numeric_limits<float>::quiet_NaN());
      next_directions_ = directions_;
    }
    return finite_;
  }
  void normalise_directions(std::vector<float>& directions) const {
    std::size_t at = 0;
    for (const MatrixPart& matrix : matrices_) {
      normalise_columns(std::span(directions).subspan(at, matrix.cols * rank_),
                        rank_,
                        mix_key(input_.key + matrix.begin));
      at += matrix.cols * rank_;
    }
  }

  std::size_t rank_;
  std::vector<MatrixPart> matrices_;
  std::vector<Part> exact_;  ///< The bucket's elements in no matrix.
  std::size_t exact_count_ = 0;
  std::size_t p_count_ = 0;
  std::size_t q_count_ = 0;
  std::unique_ptr<Arena> outgoing_;
  std::vector<float> p_;
  std::vector<float> own_q_;            ///< Of this rank's matrices.
  std::vector<float> directions_;       ///< The last step's Q, its columns 1 long. Empty: none yet.
  std::vector<float> next_directions_;  ///< After commit().
  std::vector<double> scratch_;
};

}  // namespace

std::unique_ptr<CompressedBucket> low_rank_exchange(Communicator& communicator,
                                                    const CodecSpec& codec,
                                                    std::size_t count,
                                                    std::vector<MatrixPart> matrices) {
  return std::make_unique<LowRank>(communicator, codec, count, std::move(matrices));
}

}  // namespace stretto::detail

namespace stretto {

std::vector<MatrixPart> matrices_in(const std::vector<TensorSpec>& tensors,
                                    const std::vector<TensorRange>& ranges,
                                    const CodecSpec& codec) {
  std::vector<MatrixPart> matrices;
  const auto rank = static_cast<std::size_t>(codec.rank);
  std::size_t at = 0;  // in the bucket
  for (const TensorRange& range : ranges) {
    const auto begin = static_cast<std::size_t>(range.begin);
    const auto end = static_cast<std::size_t>(range.end);
    const std::vector<std::int64_t>& shape = tensors[range.tensor].shape;
    const auto elements = static_cast<std::size_t>(tensors[range.tensor].elements());
    if (codec.kind == CodecKind::kPowerSgd && shape.size() > 1 && elements > 0) {
      const std::size_t cols = elements / static_cast<std::size_t>(shape[0]);
      const std::size_t first = (begin + cols - 1) / cols;
      const std::size_t last = end / cols;
      const std::size_t rows = last > first ? last - first : 0;
      if (kLeastLowRankRatio * rank * (rows + cols) <= rows * cols) {
        matrices.push_back({at + first * cols - begin, rows, cols});
      }
    }
    at += end - begin;
  }
  return matrices;
}

}  // namespace stretto
