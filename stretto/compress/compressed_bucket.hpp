// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/compress/codec/low_rank.hpp"
#include "stretto/compress/residuals.hpp"
#include "stretto/data/codec_spec.hpp"
#include "stretto/data/plan.hpp"

namespace stretto {

/// What a codec has done on this rank.
struct CodecCounters {
  std::int64_t exchanges = 0;
  std::int64_t not_finite = 0;   ///< Exchanges with a gradient that was not; equal on all ranks.
  std::int64_t dense_bytes = 0;  ///< Of the gradients, as fp32.
  std::int64_t sent_bytes = 0;   ///< To all other ranks.
  Nanoseconds encode{};          ///< Processor time.
  Nanoseconds decode{};          ///< Sums that are made on the way included.

  CodecCounters& operator+=(const CodecCounters& other) noexcept;
};

enum class CodecStage : std::uint8_t { kEncode, kDecode };

/// In which an exchange encoded or decoded, by the clock of its Work: on an emulated machine, that
/// machine's.
struct CodecInterval {
  CodecStage stage = CodecStage::kEncode;
  Nanoseconds begin{};
  Nanoseconds end{};
};

/// All-reduce of one bucket with fewer bytes. One exchange at a time.
///
/// How it travels follows from the codec. *Two-shot* (fp16, bf16, int8, int4, onebit): every rank
/// gives each other its part, encoded; the owner of a part adds in fp32 in rank order, encodes the
/// sum once and gives it to all: nothing is rounded on every hop. *Gather* (topk, threshold): all
/// get the elements of all, and add them in rank order. *Additive* (randomk; fp16 and bf16 under an
/// algorithm other than direct): the encoded bucket takes part in an all-reduce. *Low rank*
/// (powersgd): factors of matrices do, in two that depend on each other. All ranks get the same
/// bits.
///
/// Under Algorithm::kHierarchical two-shot and gather run between nodes only: inside a node fp32
/// sums travel, and each rank encodes its share of its node's sum, whose residual it alone keeps.
/// Where ranks are equally far, or nodes have not equally many, it is as under kDirect.
class CompressedBucket : private detail::Procedure {
 public:
  /// `data`, of fp32, is replaced by the sum or mean over ranks of D(Q(data + residual)). With
  /// error feedback it uses `residuals` from element `begin` on, which it never commits. `step`
  /// seeds what is random, and counts the steps of a warm-up. Lives, as `data` and `residuals`,
  /// until the Work is over.
  /// @throws Error kInvalidArgument: another type or length, an op that is neither sum nor mean, an
  ///         algorithm that the codec cannot ride; kUnavailable as Communicator::all_reduce_by.
  [[nodiscard]] Work all_reduce(BufferView data,
                                ReduceOp op,
                                Residuals* residuals,
                                std::size_t begin,
                                std::uint32_t step,
                                CallOptions options);

  [[nodiscard]] const CodecSpec& codec() const noexcept { return codec_; }
  /// Of the last exchange, once it is over; equal on all ranks. If false, `data` holds numbers that
  /// are not finite, and Residuals::keep() is due.
  [[nodiscard]] bool finite() const noexcept { return finite_; }
  /// Not while an exchange runs.
  [[nodiscard]] const CodecCounters& counters() const noexcept { return counters_; }
  void reset_counters() noexcept { counters_ = {}; }
  /// Of the last exchange, once it is over. What follows within 10 us is one.
  [[nodiscard]] std::span<const CodecInterval> intervals() const noexcept { return intervals_; }

  /// What the codec has learned of earlier gradients, the same on all ranks: powersgd's directions.
  /// Empty for the others, and before the first exchange. Between steps.
  [[nodiscard]] virtual std::span<const float> directions() const noexcept { return {}; }
  /// @throws Error kMismatch: another number of them than this bucket has.
  virtual void set_directions(std::span<const float> directions);
  /// The step is over: what its exchange has learned counts from now on. As Residuals::commit().
  virtual void commit() noexcept { strays_ -= strays_ > 0 && finite_ ? 1 : 0; }
  /// As it was before the last commit().
  virtual void undo() noexcept { strays_ = kStraySteps; }
  /// What the residuals held was replaced.
  void residuals_changed() noexcept { strays_ = kStraySteps; }

 protected:
  /// What one exchange works on.
  struct Input {
    BufferView data;
    float factor = 1.0F;         ///< 1 / P of a mean.
    const float* own = nullptr;  ///< Residuals; all null without error feedback.
    float* next_own = nullptr;
    const float* of_sums = nullptr;
    float* next_of_sums = nullptr;
    const float* velocity = nullptr;  ///< With momentum correction.
    float* next_velocity = nullptr;
    const float* strays = nullptr;  ///< To be sent as they are, beside the velocity; or null.
    std::uint32_t step = 0;
    std::uint64_t key = 0;
  };
  explicit CompressedBucket(const CodecSpec& codec) : codec_(codec) {}

  /// Under Algorithm::kHierarchical: dense within each node, exchange_among() between nodes, for
  /// which `input_` is narrowed to this rank's share of the bucket.
  [[nodiscard]] detail::Task over_nodes(detail::Exchange& exchange);
  /// The codec's exchange among some ranks, of what `input_` is.
  [[nodiscard]] virtual detail::Task exchange_among(detail::Exchange& exchange);

  Input input_;
  bool finite_ = true;
  CodecCounters counters_;
  std::vector<CodecInterval> intervals_;

 private:
  friend std::unique_ptr<CompressedBucket> compressed_bucket(Communicator& communicator,
                                                             const CodecSpec& codec,
                                                             std::size_t count,
                                                             std::vector<MatrixPart> matrices);
  void take_strays(float* to, std::size_t begin, std::size_t end) noexcept;

  // Steps in which residuals of elements that this rank does not encode may be there: each of the
  // two copies is emptied in one.
  static constexpr int kStraySteps = 2;
  int strays_ = kStraySteps;
  CodecSpec codec_;
  Communicator* communicator_ = nullptr;
  std::size_t count_ = 0;
};

/// Whether a bucket of that codec can travel by that algorithm: all by kDirect and kAuto, which
/// means kDirect here, and by kHierarchical; by others the additive ones.
[[nodiscard]] bool can_ride(const CodecSpec& codec, Algorithm algorithm) noexcept;

/// What powersgd sends a matrix for saves it this many times, or the matrix travels as it is.
inline constexpr std::size_t kLeastLowRankRatio = 2;

/// The matrices of a bucket with these ranges that are worth it for `codec`: of tensors with two
/// dimensions or more, seen as [shape[0], all others], the rows that lie in the bucket as a whole.
/// None for codecs that see elements only.
[[nodiscard]] std::vector<MatrixPart> matrices_in(const std::vector<TensorSpec>& tensors,
                                                  const std::vector<TensorRange>& ranges,
                                                  const CodecSpec& codec);

/// For buckets of `count` elements, with memory for their wire. `matrices`, of matrices_in(), are
/// what powersgd encodes; all other elements of its bucket travel as they are.
/// @throws Error kInvalidArgument: no codec, or a bucket too long for 32-bit indices; kUnavailable
/// as
///         Communicator::allocate().
[[nodiscard]] std::unique_ptr<CompressedBucket> compressed_bucket(
    Communicator& communicator,
    const CodecSpec& codec,
    std::size_t count,
    std::vector<MatrixPart> matrices = {});

}  // namespace stretto
