// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"

namespace stretto {

/// What a bucket's communication began after: of the three that can hold it back, the one that was
/// over last (in most steps).
enum class WaitedFor : std::uint8_t {
  kUnknown,
  kGradients,             ///< The compute before it: nothing could have begun earlier.
  kLaunch,                ///< Handed over late: the host, or the schedule, held it back.
  kEarlierCommunication,  ///< The one before it on its stream.
};
[[nodiscard]] std::string_view to_string(WaitedFor reason) noexcept;

/// One bucket, median over steps, times from the start of the step, latest over ranks.
struct BucketSummary {
  std::uint32_t bucket = 0;
  Collective collective = Collective::kNone;
  Bytes bytes{};
  /// Its last gradient was written on every rank. Absent where a trace does not say: of host rows
  /// and of device rows without their launch only the begin is known.
  std::optional<Seconds> ready;
  Seconds launched{};  ///< Handed over on every rank.
  Seconds started{};   ///< Under way on every rank.
  Seconds ended{};     ///< Result usable on every rank.
  Seconds exposed{};   ///< Of its communication, the time no compute ran beside it (mean of ranks).
  /// The same, but an instant in which k buckets communicate counts 1/k to each. In each step these
  /// sum to the exposed time of its buckets; mean over ranks, median over steps.
  Seconds exposed_share{};
  /// The shortest over ranks: the time on the wire without waiting for ranks that come late. With
  /// one rank recorded it holds that waiting too.
  Seconds transfer{};
  /// Of a gradient exchange (all_reduce, reduce_scatter): the compute of the step between its
  /// `ready` (where absent, `launched`) and that of the last such bucket, least over ranks. What
  /// takes longer on the wire than this cannot be hidden in this iteration; the last bucket has
  /// none. Absent for other collectives: what needs their result is in no recording.
  std::optional<Seconds> compute_left;
  WaitedFor waited_for = WaitedFor::kUnknown;
};

/// One rank, median over steps.
struct RankSummary {
  std::uint32_t rank = 0;
  Seconds step{};
  Seconds compute{};
  Seconds communication{};
  Seconds exposed{};
};

/// All exchanges with one codec: per step, mean over ranks, median over steps.
struct CodecSummary {
  std::string codec;  ///< As to_string(CodecSpec) writes it.
  double exchanges = 0.0;
  Bytes bytes{};       ///< Of the gradients, before they are encoded.
  Seconds exchange{};  ///< Union of its exchanges' intervals;
  Seconds encode{};    ///< of that, the union of what encodes,
  Seconds decode{};    ///< and of what decodes, sums that are made on the way included;
  Seconds wire{};      ///< and the rest, in which an exchange only travels, or waits for its turn.
};

/// The numbers that answer the question. Of each step every time is taken per rank and averaged
/// over ranks; what stands here is the median over steps. Ratios are of these medians; a ratio that
/// has no meaning (no communication) is absent, never 100 %.
struct Summary {
  std::uint32_t steps = 0;
  std::uint32_t ranks = 0;
  Seconds step{};
  Seconds step_p10{};
  Seconds step_p90{};
  Seconds compute{};                         ///< Union of compute intervals.
  Seconds communication{};                   ///< Union of communication intervals.
  Seconds exposed{};                         ///< communication minus compute: the headline.
  std::optional<Seconds> first_launch;       ///< From step start, first of all ranks.
  std::optional<Seconds> communication_end;  ///< From step start, last of all ranks.
  double launches = 0;                       ///< Exchanges per step and rank.
  std::optional<Seconds> bound;  ///< No schedule of this kind can be quicker; needs a Machine.
  std::optional<double> samples_per_s;       ///< All ranks together; needs the batch.
  std::optional<double> scaling_efficiency;  ///< compute / step, or against a 1-rank run if given.
  std::vector<BucketSummary> buckets;
  std::vector<RankSummary> per_rank;
  std::vector<CodecSummary> codecs;  ///< Of a run with codecs, in the order they first encode.

  /// Part of the exposed time that is the bucket's: its exposed_share against exposed or against
  /// what all shares sum to, whichever is larger; of all buckets together never above 1. Absent
  /// where nothing is exposed.
  [[nodiscard]] std::optional<double> exposed_ratio(const BucketSummary& bucket) const;
  [[nodiscard]] std::optional<double> hidden_ratio() const;         ///< 1 - exposed/communication
  [[nodiscard]] std::optional<double> overlap_degree() const;       ///< 1 - exposed/step
  [[nodiscard]] std::optional<double> communication_ratio() const;  ///< comm/(comm + compute)
  [[nodiscard]] std::optional<double> bound_gap_ratio() const;      ///< step/bound - 1
};

/// Schema `stretto.summary/1`, keys as in the CLI contract (times in seconds).
[[nodiscard]] std::string to_json(const Summary& summary);
/// Unknown keys are ignored: this file is a result.
/// @throws Error kParse.
[[nodiscard]] Summary summary_from_json(std::string_view text, std::string_view where);

}  // namespace stretto
