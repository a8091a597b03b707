// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stretto {

/// What CodecSpec::warmup begins with.
inline constexpr double kWarmupFraction = 0.25;

/// What is done to a gradient before it travels. What the codecs are: docs/compression.md.
enum class CodecKind : std::uint8_t {
  kNone,
  kFp16,
  kBf16,
  kInt8,
  kInt4,
  kOneBit,
  kTopK,       ///< The largest magnitudes.
  kThreshold,  ///< All magnitudes from a threshold on.
  kRandomK,    ///< Elements drawn from a seed that all ranks have.
  kPowerSgd,   ///< Matrices as the product of two thin ones.
};

/// One codec with its settings. Plain data; its text form is what people write and plans hold.
struct CodecSpec {
  CodecKind kind = CodecKind::kNone;
  /// kTopK, kRandomK: the part of a bucket's elements that travels, in (0, 1]; 0 if `count` says.
  double fraction = 0.0;
  /// kTopK, kRandomK: so many elements of a bucket; 0 if `fraction` says.
  std::int64_t count = 0;
  /// kPowerSgd: columns of the thin matrices.
  int rank = 0;
  /// kThreshold: in the gradient's own units,
  double threshold = 0.0;
  /// or, if true, in root mean squares of what is about to be sent: it follows the gradients.
  bool relative = false;
  /// kInt8, kInt4: rounded at random, without bias. Then there is no error feedback: that is for
  /// codecs which err in one direction, and cannot be had together with it.
  bool stochastic = false;
  /// What is not sent is added to the next step's gradient.
  bool error_feedback = true;
  /// kTopK, kThreshold, kRandomK: momentum correction. What is chosen from is not the gradient but
  /// each rank's velocity, u = momentum u + gradient, and an element that was sent begins anew from
  /// 0 (Lin et al. 2018, arXiv:1712.01887, sections 3.1 and 3.2). The optimizer is then SGD without
  /// momentum. 0: none. Needs error feedback.
  double momentum = 0.0;
  /// kTopK, kRandomK, by `fraction`: in so many steps the part that is sent falls from
  /// kWarmupFraction to `fraction`, by the same factor in each (the same, section 3.3). 0: at once.
  std::int64_t warmup = 0;

  [[nodiscard]] bool lossy() const noexcept { return kind != CodecKind::kNone; }
  /// Elements of a bucket of `elements` that kTopK and kRandomK send: at least one.
  [[nodiscard]] std::size_t chosen_of(std::size_t elements) const noexcept;
  /// The same in step `step` of a warm-up, from 0.
  [[nodiscard]] std::size_t chosen_of(std::size_t elements, std::int64_t step) const noexcept;
  /// `fraction` as it is in that step.
  [[nodiscard]] double fraction_at(std::int64_t step) const noexcept;

  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

/// How what ranks encoded becomes one sum: docs/compression.md.
enum class CodecExchange : std::uint8_t {
  kTwoShot,   ///< Parts, then sums of parts, encoded each time.
  kGather,    ///< Everything to everybody.
  kAdditive,  ///< What is encoded takes part in an all-reduce.
  kLowRank,   ///< Factors take part in two, the second of which depends on the first.
};
[[nodiscard]] CodecExchange exchange_of(const CodecSpec& codec) noexcept;

/// `none`, `fp16`, `bf16`, `int8`, `int8:stochastic`, `int4`, `onebit`, `topk:0.01` (a part),
/// `topk:1000` (elements), `topk:1%`, `threshold:0.001`, `threshold:3rms`, `randomk:0.1`,
/// `powersgd:4`; and `:nofeedback` at the end of those that have error feedback; of `topk`,
/// `threshold` and `randomk` `:momentum=0.9`, of the first and the last `:warmup=1000` (steps).
[[nodiscard]] std::string to_string(const CodecSpec& codec);
/// Reads what to_string() writes. `topk:1` is one element and `topk:1.0` all of them.
/// @throws Error kInvalidArgument naming the part that is wrong.
[[nodiscard]] CodecSpec parse_codec(std::string_view text);

}  // namespace stretto
