// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "stretto/analyze/diagnose_case.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/base/text.hpp"

namespace stretto::detail {
namespace {

// Each is printed with the diagnosis that it led to.
constexpr double kLatencyBound = 0.50;    // of the communication time is latency
constexpr double kBandwidthBound = 0.80;  // of the communication time is bytes
constexpr double kStraggler = 0.20;       // of the communication time is waiting for late ranks
constexpr double kUneven = 2.0;           // p90 against median of same-size transfers
constexpr double kGroupsUneven = 1.5;     // bus bandwidth of same-size calls of two groups
constexpr double kAllToAllUneven = 1.5;   // most over mean of bytes of ranks
constexpr double kDrift = 1.3;            // second half of the recording against the first
constexpr std::size_t kManyForDrift = 8;  // calls of one size
constexpr Seconds kShort{50e-6};
constexpr std::int64_t kManyCalls = 20;

/// Without a fit sizes alone can tell, and without sizes durations.
void look_at_small(Case& of) {
  std::int64_t small = 0;
  std::int64_t all = 0;
  for (const CollectiveSummary& kind : of.all.collectives.kinds) {
    // A host's row may end when the collective is only handed over, and a barrier has no size.
    if (kind.collective == Collective::kBarrier || (of.all.host_only && kind.bytes == Bytes(0))) {
      continue;
    }
    all += kind.count;
    const bool is_small =
        kind.bytes > Bytes(0) ? kind.bytes.count() < kSmallBytes : kind.duration_median < kShort;
    small += is_small ? kind.count : 0;
  }
  if (all >= kManyCalls && 2 * small > all) {
    of.say({"latency_bound",
            Weight::kCause,
            "Most collectives are small: each costs a latency, whatever its size",
            fmt::format(
                "{} of {} calls per rank have less than {}, or take less than {} where the size "
                "is not recorded",
                small,
                all,
                format(Bytes(kSmallBytes)),
                format(kShort)),
            fmt::format("more than half of at least {}", kManyCalls),
            "Larger buckets: raise bucket_cap_mb, or fuse small collectives (of SyncBatchNorm, of "
            "metrics)"});
  }
}

}  // namespace

void look_at_cost(Case& of) {
  if (!of.all.fitted || of.all.fitted->cost.latency.count() <= 0.0) {
    look_at_small(of);
    return;
  }
  double latency = 0.0;
  double wire = 0.0;
  double calls = 0.0;
  for (const CollectiveSummary& kind : of.all.collectives.kinds) {
    const double share = of.all.fitted->share_of(kind.collective);
    if (share > 0.0 && kind.bytes > Bytes(0)) {
      calls += static_cast<double>(kind.count);
      const double count = share * static_cast<double>(kind.count);  // in all_reduces
      latency += count * of.all.fitted->cost.latency.count();
      wire +=
          count * of.all.fitted->cost.seconds_per_byte * static_cast<double>(kind.bytes.count());
    }
  }
  const std::string evidence = fmt::format(
      "{:.0f} {}: latency {} each, {} of bytes in all, fitted to {} sizes{}",
      calls,
      of.all.fitted->of_halves ? "reduce_scatters, all_gathers and all_reduces" : "all_reduces",
      format(Seconds(latency / calls)),
      format(Seconds(wire)),
      of.all.fitted->sizes,
      of.all.fitted->median_error
          ? " with a median error of " + percent(*of.all.fitted->median_error)
          : std::string());
  const double share = latency / (latency + wire);
  if (share > kLatencyBound) {
    of.say({"latency_bound",
            Weight::kCause,
            "Communication is bound by latency: its messages are too many and too small",
            evidence,
            fmt::format("latency above {} of the time on the wire", percent(kLatencyBound)),
            "Larger buckets: raise bucket_cap_mb, or fuse small collectives"});
  } else if (1.0 - share > kBandwidthBound) {
    of.say({"bandwidth_bound",
            Weight::kNote,
            "Communication is bound by bandwidth",
            evidence,
            fmt::format("bytes above {} of the time on the wire", percent(kBandwidthBound)),
            "Only fewer bytes (16-bit gradients, compression, sharding), a faster network or a "
            "better "
            "algorithm make it shorter; a better schedule hides more of it"});
  }
}

void look_at_stragglers(Case& of) {
  if (of.all.collectives.ranks.empty() || of.communication <= 0.0) {
    return;
  }
  double waited = 0.0;
  double made = 0.0;
  for (const RankWaiting& rank : of.all.collectives.ranks) {
    waited += rank.waited.count();
    made += rank.made_others_wait.count();
  }
  const double share = waited / of.communication;
  if (share <= kStraggler || made <= 0.0) {
    return;
  }
  const RankWaiting& worst = of.all.collectives.ranks.front();
  of.say(
      {"straggler",
       Weight::kCause,
       fmt::format("Ranks wait for late ones inside of their collectives, most of all for rank {}",
                   worst.rank),
       fmt::format("{} of the communication time is waiting ({} over all ranks); rank {} began {} "
                   "of {} collectives last, which is {} of the waiting",
                   percent(share),
                   format(Seconds(waited)),
                   worst.rank,
                   worst.last,
                   of.all.collectives.matched,
                   percent(worst.made_others_wait.count() / made)),
       fmt::format("waiting above {} of the communication time", percent(kStraggler)),
       fmt::format("No schedule of communication helps: look at what rank {} does before it "
                   "(stretto analyze --per rank): uneven input, a slow device, its host",
                   worst.rank)});
}

void look_at_all_to_all(Case& of) {
  if (!of.all.collectives.all_to_all) {
    return;
  }
  const AllToAllBalance& balance = *of.all.collectives.all_to_all;
  const double per_call = balance.max_over_mean_per_call.value_or(1.0);
  if (std::max(balance.max_over_mean, per_call) <= kAllToAllUneven) {
    return;
  }
  const AllToAllRank& busiest = balance.ranks.front();
  const AllToAllRank& idlest = balance.ranks.back();
  const bool always = balance.max_over_mean > kAllToAllUneven;
  of.say(
      {"uneven_all_to_all",
       Weight::kCause,
       always ? fmt::format("all_to_all loads the ranks unevenly: rank {} carries most, rank {} "
                            "least",
                            busiest.rank,
                            idlest.rank)
              : "Each all_to_all loads the ranks unevenly, though other ranks in each",
       fmt::format("rank {} {}, rank {} {}, most over mean {:.2f}{}",
                   busiest.rank,
                   format(busiest.bytes),
                   idlest.rank,
                   format(idlest.bytes),
                   balance.max_over_mean,
                   balance.max_over_mean_per_call ? fmt::format(", call by call {:.2f}", per_call)
                                                  : std::string()),
       fmt::format("most over mean of the ranks' bytes above {:.1f}", kAllToAllUneven),
       "All wait for the busiest rank: balance what is sent (experts: an auxiliary loss or a "
       "capacity factor; embeddings: the sharding plan)"});
}

void look_at_spread(Case& of) {
  for (const CollectiveSummary& kind : of.all.collectives.kinds) {
    // Without a size they need not be the same, and late ranks explain it already.
    if (kind.bytes == Bytes(0) || of.said("straggler")) {
      continue;
    }
    if (kind.count >= 10 && kind.duration_median.count() > 0.0 &&
        kind.duration_p90 > kUneven * kind.duration_median) {
      of.say({"uneven_collectives",
              Weight::kCause,
              fmt::format("The same {} takes very different times", to_string(kind.collective)),
              fmt::format("{} calls of {}: median {}, p90 {}, longest {}",
                          kind.count,
                          format(kind.bytes),
                          format(kind.duration_median),
                          format(kind.duration_p90),
                          format(kind.duration_most)),
              fmt::format("p90 above {:.0f} times the median", kUneven),
              of.all.collectives.matched > 0
                  ? "Ranks are hardly late, so that others may share the network: compare with "
                    "another recording"
                  : "Give the traces of all ranks: they tell waiting for late ranks from a slow "
                    "network"});
      break;  // the longest kind stands for the others
    }
  }
  std::map<std::pair<Collective, std::int64_t>,
           std::pair<const CollectiveSummary*, const CollectiveSummary*>>
      extremes;
  for (const CollectiveSummary& kind : of.all.collectives.kinds) {
    if (!kind.matched || kind.bytes.count() < kSmallBytes || !kind.bus_bandwidth) {
      continue;
    }
    auto& [slow, fast] = extremes[{kind.collective, kind.bytes.count()}];
    if (slow == nullptr || *kind.bus_bandwidth < *slow->bus_bandwidth) {
      slow = &kind;
    }
    if (fast == nullptr || *kind.bus_bandwidth > *fast->bus_bandwidth) {
      fast = &kind;
    }
  }
  for (const auto& [key, pair] : extremes) {
    const auto& [slow, fast] = pair;
    if (slow != fast &&
        fast->bus_bandwidth->value() > kGroupsUneven * slow->bus_bandwidth->value()) {
      of.say(
          {"slow_group",
           Weight::kCause,
           fmt::format("Process group {} is slower than {} at the same size",
                       quote(slow->group),
                       quote(fast->group)),
           fmt::format("{} of {}: {} against {} of bus bandwidth",
                       to_string(slow->collective),
                       format(slow->bytes),
                       format(*slow->bus_bandwidth),
                       format(*fast->bus_bandwidth)),
           fmt::format("a factor above {:.1f}", kGroupsUneven),
           "Its ranks may be spread over nodes where the other's are not: check the rank order"});
      break;
    }
  }
}

void look_at_drift(Case& of) {
  struct Call {
    std::int64_t begin_ns;
    double duration_ns;
  };
  std::map<std::tuple<Collective, std::int64_t, std::uint32_t>, std::vector<Call>> same;
  for (const Record& record : of.timeline.records) {
    const bool counts = record.kind == RecordKind::kCommunication &&
                        (record.lane != Lane::kHost || of.all.host_only);
    if (counts && record.bytes >= kSmallBytes && record.end_ns > record.begin_ns) {
      same[{record.collective, record.bytes, record.rank}].push_back(
          {record.begin_ns, static_cast<double>(record.end_ns - record.begin_ns)});
    }
  }
  for (auto& [key, calls] : same) {
    if (calls.size() < kManyForDrift) {
      continue;
    }
    std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) {
      return a.begin_ns < b.begin_ns;
    });
    std::vector<double> first;
    std::vector<double> second;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      (i < calls.size() / 2 ? first : second).push_back(calls[i].duration_ns);
    }
    const Seconds before(median(std::move(first)) / 1e9);
    const Seconds after(median(std::move(second)) / 1e9);
    if (after > kDrift * before) {
      of.say(
          {"slower_later",
           Weight::kCause,
           fmt::format("The same {} takes longer as the recording goes on",
                       to_string(std::get<0>(key))),
           fmt::format("{} calls of {} on rank {}: median {} in the first half, {} in the second",
                       calls.size(),
                       format(Bytes(std::get<1>(key))),
                       std::get<2>(key),
                       format(before),
                       format(after)),
           fmt::format("a factor above {:.1f}", kDrift),
           "Other traffic on the network, devices that slow down when hot, or a rank that falls "
           "behind: see what else began then"});
      return;  // one stands for the others
    }
  }
}

}  // namespace stretto::detail
