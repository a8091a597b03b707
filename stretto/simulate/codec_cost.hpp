// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/codec_spec.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/exchange_time.hpp"

namespace stretto {

/// What one exchange of a bucket takes with a codec; n bytes of gradients, P ranks, w(n) encoded
/// bytes of one rank.
///
/// Two-shot: one encoding of n and of the sums, n / P; decoding of P parts of n / P and of the
/// result, 2 n; on the wire an all-reduce of w(n). It goes chunk by chunk, so that wire and
/// processor work beside each other: the longer of the two, and one chunk of the other.
/// Gather: one encoding, an all-gather of P w(n), P decodings, one after the other. Additive: one
/// encoding, an all-reduce of w(n), one decoding. Low rank: the same in two all-reduces, of which
/// each has its latency, for a bucket that is one square matrix.
///
/// Over nodes of g ranks each, two-shot and gather run between P / g ranks, of n / g each: before
/// and after it fp32 sums travel inside the nodes. All ranks of a node send at once, and together
/// w(n) through its link.
class CodecCost {
 public:
  /// What the ranks of a node do before and after, of all n bytes.
  struct Inside {
    ExchangeTime reduce_scatter;
    ExchangeTime all_gather;
    int ranks = 1;  ///< Of one node.
  };
  /// `all_reduce` and `all_gather` of the whole tensor's bytes, as communicators exchange what is
  /// encoded: Algorithm::kDirect for two-shot and gather, of one rank of each node if there is
  /// `inside`; for the others the algorithm that they ride. `ranks` are all of them.
  CodecCost(const CodecRate& rate,
            ExchangeTime all_reduce,
            ExchangeTime all_gather,
            int ranks,
            std::optional<Inside> inside = {});

  [[nodiscard]] const CodecSpec& codec() const noexcept { return rate_.codec; }
  [[nodiscard]] const CodecRate& rate() const noexcept { return rate_; }
  [[nodiscard]] Seconds operator()(Bytes gradients) const noexcept;
  /// Of that time, what leaves the wire to others: latency and processor time that is not beside
  /// the bucket's own bytes.
  [[nodiscard]] Seconds off_wire(Bytes gradients) const noexcept;
  /// Processor time of one rank, whatever is beside it.
  [[nodiscard]] Seconds processor(Bytes gradients) const noexcept;
  /// w(n).
  [[nodiscard]] Bytes encoded(Bytes gradients) const noexcept;
  /// All of it as one function of the gradients' bytes, up to `most`, for plan(): at 8 sizes per
  /// factor of 2.
  [[nodiscard]] ExchangeTime curve(Bytes most) const;
  /// With links whose latencies and times per byte are multiplied; the processor stays.
  [[nodiscard]] CodecCost scaled(double latency, double seconds_per_byte) const;

 private:
  [[nodiscard]] Bytes on_wire(Bytes gradients) const noexcept;
  [[nodiscard]] Seconds inside(Bytes gradients) const noexcept;

  CodecRate rate_;
  CodecExchange exchange_;
  ExchangeTime wire_;
  int ranks_;  ///< That exchange what is encoded.
  std::optional<Inside> inside_;
};

/// One for each rate, of ranks that are all equally far.
[[nodiscard]] std::vector<CodecCost> codec_costs(std::span<const CodecRate> rates,
                                                 const ExchangeTime& all_reduce,
                                                 const ExchangeTime& all_gather,
                                                 int ranks);

}  // namespace stretto
