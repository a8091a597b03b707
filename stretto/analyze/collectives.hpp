// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/plan/bound.hpp"

namespace stretto {

/// All calls of one kind, size and process group.
struct CollectiveSummary {
  Collective collective = Collective::kNone;
  std::string name;   ///< Of the kernel or row, as far as it says more than the collective.
  std::string group;  ///< Process group; empty if the trace does not say.
  std::uint32_t group_size = 0;  ///< 0 if the trace does not say.
  Bytes bytes{};                 ///< Larger of what goes in and out of a rank; 0 if not said.
  std::int64_t count = 0;        ///< Calls per rank that has any.
  Seconds duration_least{};      ///< Over all calls on all ranks.
  Seconds duration_median{};
  Seconds duration_p90{};
  Seconds duration_most{};
  Seconds total{};  ///< Mean over ranks of the sum of durations.
  /// Median of the time on the wire: of matched calls the shortest over ranks, because the others'
  /// durations hold waiting for those that come late. Without a match: the shortest of all calls,
  /// an upper limit of the time on the wire.
  Seconds transfer{};
  bool matched = false;
  /// bytes / transfer, and that times the factor of NCCL tests (all_reduce 2(n-1)/n; all_gather,
  /// reduce_scatter, all_to_all (n-1)/n; others 1). Absent without bytes, or for bus without n.
  std::optional<BytesPerSecond> algorithm_bandwidth;
  std::optional<BytesPerSecond> bus_bandwidth;
};

/// How much one rank waited for others inside of its collectives, and made others wait.
struct RankWaiting {
  std::uint32_t rank = 0;
  Seconds waited{};            ///< Sum of duration minus the shortest over ranks.
  std::int64_t last = 0;       ///< Of the matched calls, those it began last.
  Seconds made_others_wait{};  ///< Of those calls, what the rank that waited most waited.
};

/// What one rank sent and received in all its all_to_alls, as the operation counts it: its own part
/// is in both.
struct AllToAllRank {
  std::uint32_t rank = 0;
  std::int64_t calls = 0;
  Bytes sent{};
  std::optional<Bytes> received;  ///< Absent if the trace has only what goes in.
  /// Sum over calls of the larger of the two: what bounds its time.
  Bytes bytes{};
  Seconds total{};  ///< Sum of durations, waiting for the others included.
};

/// How evenly all_to_alls load the ranks: experts or embeddings of a few ranks may be asked for
/// most.
struct AllToAllBalance {
  std::vector<AllToAllRank> ranks;  ///< Busiest first; at least two.
  double max_over_mean = 1.0;       ///< Of `bytes` of the ranks.
  /// The same of single calls, weighted by their bytes: sum over matched calls of the most over the
  /// sum of the means. Above max_over_mean where another rank is the busiest in each. Absent
  /// without matched calls.
  std::optional<double> max_over_mean_per_call;
};

struct CollectiveReport {
  std::vector<CollectiveSummary> kinds;  ///< Longest total first.
  std::vector<RankWaiting> ranks;        ///< Who made others wait most, first; empty if unmatched.
  /// Absent unless two ranks or more have all_to_alls of known size.
  std::optional<AllToAllBalance> all_to_all;
  std::int64_t matched = 0;  ///< Calls found on every rank of their group.
  std::int64_t unmatched = 0;
  std::vector<std::string> notes;
};

/// Calls are matched across ranks by process group and number within it: the trace's own sequence
/// number where it has one, else their order on each rank, which is the same on all ranks if the
/// program is right. Where counts or kinds differ the group is left unmatched and a note says so.
[[nodiscard]] CollectiveReport report_collectives(const Timeline& timeline);

/// Brings the ranks' clocks together: matched collectives end at the same moment everywhere, but
/// for microseconds. Shifts a rank's records by the median difference to the first rank, if that
/// is more than three times its spread and 100 us; fills Timeline::clocks.
/// @return notes, one for each rank that was shifted.
std::vector<std::string> align_clocks(Timeline& timeline);

/// What an all_reduce of these ranks costs at least: latency + bytes * seconds_per_byte, a line
/// below the transfer times of all sizes (slope by Theil and Sen, then lowered until no size is
/// below it). A reduce_scatter or an all_gather is half of one: as many bytes of one rank pass half
/// as many steps, so that the factors of NCCL tests are (n-1)/n against 2(n-1)/n.
struct FittedExchange {
  ExchangeCost cost;
  /// It stands on reduce_scatters and all_gathers as well, each as half an all_reduce.
  bool of_halves = false;
  /// What one of these costs, in all_reduces of as many bytes; 0 for what it does not stand on.
  [[nodiscard]] double share_of(Collective collective) const noexcept;
  std::size_t sizes = 0;  ///< Distinct sizes it stands on.
  /// Of time, relative. Absent with two sizes, through which a line always goes.
  std::optional<double> median_error;
};
/// All_reduces alone count, unless reduce_scatters carry more bytes than they do (FSDP, ZeRO): then
/// all three do. Sizes count whose calls are matched, or that one rank alone called ten times or
/// more: the shortest of them then is near the time on the wire. Absent with fewer than two such
/// sizes that differ by a factor of two or more.
[[nodiscard]] std::optional<FittedExchange> fit_exchange(const CollectiveReport& report);

}  // namespace stretto
