// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/diagnose.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "stretto/base/text.hpp"

namespace stretto::detail {
namespace {

using Weight = Diagnosis::Weight;

// Each is printed with the diagnosis that it led to.
constexpr double kLittleExposed = 0.05;   // of the step
constexpr double kMuchExposed = 0.30;     // of the step
constexpr double kComputeBound = 0.80;    // compute of the step
constexpr double kHostBound = 0.20;       // of the step, nothing runs
constexpr double kLatencyBound = 0.50;    // of the communication time is latency
constexpr double kBandwidthBound = 0.80;  // of the communication time is bytes
constexpr double kStraggler = 0.20;       // of the communication time is waiting for late ranks
constexpr double kFatLast = 0.25;         // of the bytes in the last bucket
constexpr double kFatLastExposed = 0.50;  // of the exposed time is the last bucket's
constexpr double kOneStream = 0.10;       // of the communication time on a stream that computes
constexpr double kSlowed = 1.10;          // kernels beside communication against alone
constexpr double kSlowedMuch = 0.01;      // of the compute is what slowed kernels take longer
constexpr double kUneven = 2.0;           // p90 against median of same-size transfers
constexpr double kGroupsUneven = 1.5;     // bus bandwidth of same-size calls of two groups
constexpr double kAllToAllUneven = 1.5;   // most over mean of bytes of ranks
constexpr double kCopies = 0.02;          // of the step copies buckets
constexpr double kUnknownStream = 0.05;   // of the span, on a stream with nothing but one kernel
constexpr std::int64_t kSmallBytes = 65536;
constexpr Seconds kShort{50e-6};
constexpr std::int64_t kManyCalls = 20;

std::string percent(double ratio) {
  return fmt::format("{:.1f} %", 100.0 * ratio);
}

std::string bucket_name(const BucketSummary& bucket) {
  return fmt::format("collective {} of the step ({}, {})",
                     bucket.bucket,
                     to_string(bucket.collective),
                     bucket.bytes > Bytes(0) ? format(bucket.bytes) : "size not recorded");
}

/// When it was ready, or as early as is known to be before it began.
Seconds asked_at(const BucketSummary& bucket) {
  return bucket.ready.value_or(bucket.launched);
}

class Doctor {
 public:
  Doctor(const Timeline& timeline, Explanation& explanation)
      : timeline_(timeline), all_(explanation) {}

  void examine() {
    if (all_.has_communication()) {
      for (const DeviceTotals& device : all_.devices) {
        communication_ += static_cast<double>(device.communication_ns) / 1e9;
      }
      for (const Record& record : timeline_.records) {
        // Their sum, as waiting is one: threads of the host communicate at the same time.
        if (all_.host_only && record.kind == RecordKind::kCommunication) {
          communication_ += static_cast<double>(record.end_ns - record.begin_ns) / 1e9;
        }
      }
      if (all_.summary) {
        look_at_share(*all_.summary);
        look_at_schedule(*all_.summary);
        look_at_last_bucket(*all_.summary);
        look_at_pattern(*all_.summary);
        look_at_modules(*all_.summary);
      }
      look_at_cost();
      look_at_stragglers();
      look_at_all_to_all();
      look_at_streams();
      look_at_slowdown();
      look_at_spread();
      for (Diagnosis& diagnosis : diagnose_setups(timeline_)) {
        say(std::move(diagnosis));
      }
      make_notes_of_what_explains_little();
    }
    look_at_bucket_copies();
    look_at_unknown_streams();
    std::stable_sort(all_.diagnoses.begin(),
                     all_.diagnoses.end(),
                     [](const Diagnosis& a, const Diagnosis& b) { return a.weight > b.weight; });
  }

 private:
  void say(Diagnosis diagnosis) { all_.diagnoses.push_back(std::move(diagnosis)); }

  [[nodiscard]] bool said(std::string_view id) const {
    return std::any_of(all_.diagnoses.begin(),
                       all_.diagnoses.end(),
                       [&](const Diagnosis& diagnosis) { return diagnosis.id == id; });
  }

  /// What makes communication slow is no cause of anything where next to none is exposed.
  void make_notes_of_what_explains_little() {
    if (!all_.summary || all_.summary->exposed / all_.summary->step >= kLittleExposed) {
      return;
    }
    for (Diagnosis& diagnosis : all_.diagnoses) {
      for (const std::string_view id : {"exposed_module",
                                        "latency_bound",
                                        "straggler",
                                        "uneven_collectives",
                                        "uneven_all_to_all",
                                        "slow_group",
                                        "rank_order",
                                        "versions"}) {
        if (diagnosis.id == id) {
          diagnosis.weight = Weight::kNote;
        }
      }
    }
  }

  /// Of the recording, the part in which devices do nothing but copy.
  [[nodiscard]] double copying() const {
    double copies = 0.0;
    double span = 0.0;
    for (const DeviceTotals& device : all_.devices) {
      copies += static_cast<double>(device.exposed_copies_ns);
      span += static_cast<double>(device.span_ns);
    }
    return span > 0.0 ? copies / span : 0.0;
  }

  void look_at_share(const Summary& s) {
    const double exposed = s.exposed / s.step;
    const double compute = s.compute / s.step;
    const double idle = 1.0 - compute - exposed;
    const std::string evidence = fmt::format("{} exposed of {} ({}), compute {}, neither {}",
                                             format(s.exposed),
                                             format(s.step),
                                             percent(exposed),
                                             percent(compute),
                                             percent(std::max(0.0, idle)));
    if (exposed > kMuchExposed) {
      say({"communication_share",
           Weight::kFirst,
           "Waiting for communication is the first thing to fix",
           evidence,
           fmt::format("exposed above {} of the step", percent(kMuchExposed)),
           ""});
    } else if (exposed < kLittleExposed) {
      say({"communication_share",
           Weight::kNote,
           "Little is to be gained from communication",
           evidence,
           fmt::format("exposed below {} of the step", percent(kLittleExposed)),
           ""});
    }
    if (compute > kComputeBound && exposed < kLittleExposed) {
      say({"compute_bound",
           Weight::kNote,
           "The step is bound by compute",
           evidence,
           fmt::format("compute above {} of the step", percent(kComputeBound)),
           "Faster kernels, lower precision or fewer operations help; schedules of communication "
           "do "
           "not"});
    }
    if (idle - copying() > kHostBound && !all_.host_only) {
      say({"host_bound",
           exposed > kMuchExposed ? Weight::kCause : Weight::kFirst,
           "The device does nothing for a good part of the step: it waits for its host or for data",
           evidence,
           fmt::format("neither compute nor communication nor copies above {} of the step",
                       percent(kHostBound)),
           "Look at the data loader, synchronising calls (.item(), .cpu(), print of a loss) and "
           "the "
           "number of small kernels (CUDA graphs, torch.compile)"});
    }
  }

  void look_at_schedule(const Summary& s) {
    if (s.exposed / s.step < kLittleExposed) {
      return;
    }
    double saved = 0.0;
    double sum = 0.0;
    for (const BucketSummary& bucket : s.buckets) {
      if (bucket.waited_for == WaitedFor::kLaunch) {
        // Launched that much earlier, it would end that much earlier at most.
        const Seconds late = bucket.launched - bucket.ready.value_or(bucket.launched);
        saved += std::min(bucket.exposed_share, late).count();
      }
      sum += bucket.exposed_share.count();
    }
    if (sum <= 0.0) {
      return;
    }
    if (const double late = std::max(0.0, saved) / sum; late > 0.5) {
      say({"late_launch",
           Weight::kCause,
           "Most exposed communication was handed over late: what it sends was ready before",
           fmt::format("{} of the exposed time is as long as its collectives, which began when the "
                       "host launched them, could have begun earlier",
                       percent(late)),
           "more than half of the exposed time",
           "The host runs behind, or launches only after backward: use DDP's or FSDP's own hooks "
           "instead of a loop after backward(), and see host_bound"});
    }
  }

  void look_at_last_bucket(const Summary& s) {
    const BucketSummary* last = nullptr;
    double bytes = 0.0;
    std::size_t exchanges = 0;
    for (const BucketSummary& bucket : s.buckets) {
      if (bucket.collective == Collective::kAllReduce ||
          bucket.collective == Collective::kReduceScatter) {
        bytes += static_cast<double>(bucket.bytes.count());
        ++exchanges;
        // Metrics and flags are reduced after the gradients; they are small.
        if (bucket.bytes.count() > kSmallBytes &&
            (last == nullptr || asked_at(bucket) >= asked_at(*last))) {
          last = &bucket;
        }
      }
    }
    if (last == nullptr || exchanges < 2 || s.exposed.count() <= 0.0) {
      return;
    }
    const double share = static_cast<double>(last->bytes.count()) / bytes;
    const double blame = s.exposed_ratio(*last).value_or(0.0);
    if (share > kFatLast && blame > kFatLastExposed) {
      say({"fat_last_bucket",
           Weight::kFirst,
           "The last bucket is fat: nothing is left to hide it behind",
           fmt::format("{} has {} of the bytes and {} of the exposed time, and is ready {} before "
                       "the step ends",
                       bucket_name(*last),
                       percent(share),
                       percent(blame),
                       format(std::max(Seconds(0), s.step - asked_at(*last)))),
           fmt::format("more than {} of the bytes and {} of the exposed time",
                       percent(kFatLast),
                       percent(kFatLastExposed)),
           fmt::format(
               "Smaller buckets end earlier: DistributedDataParallel(model, bucket_cap_mb={})",
               std::max<std::int64_t>(1, last->bytes.count() / (4 << 20)))});
    }
  }

  void look_at_cost() {
    if (!all_.fitted || all_.fitted->cost.latency.count() <= 0.0) {
      look_at_small();
      return;
    }
    double latency = 0.0;
    double wire = 0.0;
    double calls = 0.0;
    for (const CollectiveSummary& kind : all_.collectives.kinds) {
      if (kind.collective == Collective::kAllReduce && kind.bytes > Bytes(0)) {
        const auto count = static_cast<double>(kind.count);
        calls += count;
        latency += count * all_.fitted->cost.latency.count();
        wire +=
            count * all_.fitted->cost.seconds_per_byte * static_cast<double>(kind.bytes.count());
      }
    }
    const std::string evidence = fmt::format(
        "{:.0f} all_reduces: latency {} each, {} of bytes in all, fitted to {} sizes{}",
        calls,
        format(all_.fitted->cost.latency),
        format(Seconds(wire)),
        all_.fitted->sizes,
        all_.fitted->median_error ? " with a median error of " + percent(*all_.fitted->median_error)
                                  : std::string());
    const double share = latency / (latency + wire);
    if (share > kLatencyBound) {
      say({"latency_bound",
           Weight::kCause,
           "Communication is bound by latency: its messages are too many and too small",
           evidence,
           fmt::format("latency above {} of the time on the wire", percent(kLatencyBound)),
           "Larger buckets: raise bucket_cap_mb, or fuse small collectives"});
    } else if (1.0 - share > kBandwidthBound) {
      say({"bandwidth_bound",
           Weight::kNote,
           "Communication is bound by bandwidth",
           evidence,
           fmt::format("bytes above {} of the time on the wire", percent(kBandwidthBound)),
           "Only fewer bytes (16-bit gradients, compression, sharding), a faster network or a "
           "better "
           "algorithm make it shorter; a better schedule hides more of it"});
    }
  }

  /// Without a fit sizes alone can tell, and without sizes durations.
  void look_at_small() {
    std::int64_t small = 0;
    std::int64_t all = 0;
    for (const CollectiveSummary& kind : all_.collectives.kinds) {
      // A host's row may end when the collective is only handed over, and a barrier has no size.
      if (kind.collective == Collective::kBarrier || (all_.host_only && kind.bytes == Bytes(0))) {
        continue;
      }
      all += kind.count;
      const bool is_small =
          kind.bytes > Bytes(0) ? kind.bytes.count() < kSmallBytes : kind.duration_median < kShort;
      small += is_small ? kind.count : 0;
    }
    if (all >= kManyCalls && 2 * small > all) {
      say({"latency_bound",
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

  /// What kind of parallelism the collectives of a step belong to.
  void look_at_pattern(const Summary& s) {
    std::map<Collective, std::pair<std::size_t, double>> kinds;
    for (const BucketSummary& bucket : s.buckets) {
      auto& [count, exposed] = kinds[bucket.collective];
      ++count;
      exposed += bucket.exposed_share.count();
    }
    const bool gathers = kinds[Collective::kAllGather].first > 0;
    const bool scatters = kinds[Collective::kReduceScatter].first > 0;
    const bool all_to_all = kinds[Collective::kAllToAll].first > 0;
    const bool sends = kinds[Collective::kSendRecv].first > 0;
    if (!gathers && !scatters && kinds[Collective::kAllReduce].first == 0) {
      return;
    }
    std::string evidence;
    for (const auto& [collective, numbers] : kinds) {
      if (numbers.first > 0) {
        evidence += fmt::format("{}{} {} {}, exposed {}",
                                evidence.empty() ? "" : "; ",
                                numbers.first,
                                to_string(collective),
                                all_.steps_marked ? "per step" : "in the whole recording",
                                format(Seconds(numbers.second)));
      }
    }
    say({"pattern",
         Weight::kNote,
         gathers && scatters
             ? "It gathers and scatters, as where parameters are sharded (FSDP, ZeRO-3, or ZeRO-1 "
               "with its two halves)"
         : scatters   ? "It scatters what it reduces, as where gradients are sharded, and gathers "
                        "nothing in the step"
         : gathers    ? "It gathers but does not scatter: parameters, or results that all want"
         : all_to_all ? "It all-reduces, as data parallel training (DDP) does, beside all_to_all "
                        "(experts or embeddings)"
         : sends      ? "It all-reduces, as data parallel training (DDP) does, beside send_recv "
                        "(pipeline stages, or all_to_all: NCCL has one kernel for both)"
                      : "It all-reduces, as data parallel (DDP) and tensor parallel programs do",
         evidence,
         "which collectives a step has",
         gathers && scatters && kinds[Collective::kAllGather].second > 0.5 * s.exposed.count()
             ? "Prefetch the next module's all_gather earlier (FSDP2: "
               "set_modules_to_forward_prefetch, "
               "set_modules_to_backward_prefetch)"
             : ""});
  }

  void look_at_modules(const Summary& s) {
    if (all_.modules.empty() || all_.modules.front().exposed_share.count() <= 0.0) {
      return;
    }
    std::map<std::string, double> modules;
    for (const ModuleSummary& module : all_.modules) {
      modules[module.module] += module.exposed_share.count();
    }
    const auto most =
        std::max_element(modules.begin(), modules.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        });
    std::string evidence;
    Collective first = Collective::kNone;
    for (const ModuleSummary& module : all_.modules) {
      if (module.module == most->first && module.exposed_share.count() > 0.0) {
        first = evidence.empty() ? module.collective : first;
        evidence += fmt::format("{}{} of {} of {}",
                                evidence.empty() ? "" : ", ",
                                format(module.exposed_share),
                                format(module.total),
                                to_string(module.collective));
      }
    }
    say({"exposed_module",
         Weight::kCause,
         fmt::format("Of the modules that FSDP shards, {} is waited for most", quote(most->first)),
         fmt::format(
             "{} of {} exposed: {}", format(Seconds(most->second)), format(s.exposed), evidence),
         fmt::format("the most of {} {} (--per module)",
                     modules.size(),
                     modules.size() == 1 ? "module" : "modules"),
         first == Collective::kAllGather
             ? "Gather it earlier (FSDP2: set_modules_to_forward_prefetch and "
               "set_modules_to_backward_prefetch of the modules that run before it), or keep "
               "it gathered (reshard_after_forward=False)"
             : "Shard it in smaller modules, so that its gradients are on their way before its "
               "backward ends"});
  }

  void look_at_stragglers() {
    if (all_.collectives.ranks.empty() || communication_ <= 0.0) {
      return;
    }
    double waited = 0.0;
    double made = 0.0;
    for (const RankWaiting& rank : all_.collectives.ranks) {
      waited += rank.waited.count();
      made += rank.made_others_wait.count();
    }
    const double share = waited / communication_;
    if (share <= kStraggler || made <= 0.0) {
      return;
    }
    const RankWaiting& worst = all_.collectives.ranks.front();
    say({"straggler",
         Weight::kCause,
         fmt::format(
             "Ranks wait for late ones inside of their collectives, most of all for rank {}",
             worst.rank),
         fmt::format(
             "{} of the communication time is waiting ({} over all ranks); rank {} began {} "
             "of {} collectives last, which is {} of the waiting",
             percent(share),
             format(Seconds(waited)),
             worst.rank,
             worst.last,
             all_.collectives.matched,
             percent(worst.made_others_wait.count() / made)),
         fmt::format("waiting above {} of the communication time", percent(kStraggler)),
         fmt::format("No schedule of communication helps: look at what rank {} does before it "
                     "(stretto analyze --per rank): uneven input, a slow device, its host",
                     worst.rank)});
  }

  void look_at_all_to_all() {
    if (!all_.collectives.all_to_all) {
      return;
    }
    const AllToAllBalance& balance = *all_.collectives.all_to_all;
    const double per_call = balance.max_over_mean_per_call.value_or(1.0);
    if (std::max(balance.max_over_mean, per_call) <= kAllToAllUneven) {
      return;
    }
    const AllToAllRank& busiest = balance.ranks.front();
    const AllToAllRank& idlest = balance.ranks.back();
    const bool always = balance.max_over_mean > kAllToAllUneven;
    say({"uneven_all_to_all",
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

  void look_at_streams() {
    struct Stream {
      std::int64_t communication_ns = 0;
      std::int64_t compute_ns = 0;
    };
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Stream> streams;
    for (const Record& record : timeline_.records) {
      if (record.device == kNoId) {
        continue;
      }
      Stream& stream = streams[{record.rank, record.device, record.stream}];
      if (record.kind == RecordKind::kCommunication) {
        stream.communication_ns += record.end_ns - record.begin_ns;
      } else if (record.kind == RecordKind::kCompute) {
        stream.compute_ns += record.end_ns - record.begin_ns;
      }
    }
    double shared = 0.0;
    double all = 0.0;
    for (const auto& [key, stream] : streams) {
      all += static_cast<double>(stream.communication_ns);
      // A few fills and casts on the communication stream are no compute stream.
      if (stream.compute_ns > stream.communication_ns / 10) {
        shared += static_cast<double>(stream.communication_ns);
      }
    }
    if (all > 0.0 && shared / all > kOneStream) {
      const bool matters =
          !all_.summary || all_.summary->exposed / all_.summary->step >= kLittleExposed;
      say({"one_stream",
           matters ? Weight::kFirst : Weight::kNote,
           "Communication runs on the stream that computes: it cannot overlap what it stands in "
           "line "
           "with",
           fmt::format("{} of the communication time", percent(shared / all)),
           fmt::format("more than {} on a stream with as much compute as a tenth of it",
                       percent(kOneStream)),
           "Launch it asynchronously (async_op=True, wait() where the result is used) so that the "
           "library uses a stream of its own"});
    }
  }

  void look_at_slowdown() {
    if (!all_.slowdown || all_.slowdown->factor < kSlowed) {
      return;
    }
    double compute = 0.0;
    for (const DeviceTotals& device : all_.devices) {
      compute += static_cast<double>(device.compute_ns) / 1e9;
    }
    compute /= static_cast<double>(std::max<std::size_t>(1, all_.devices.size()));
    if (all_.slowdown->extra.count() < kSlowedMuch * compute) {
      return;
    }
    say({"slowed_compute",
         Weight::kCause,
         "Compute runs slower beside communication: hiding it is not free",
         fmt::format("{} {} {:.2f} times as long beside it ({} at the same position of the step); "
                     "{} in all per device",
                     all_.slowdown->kernels,
                     all_.slowdown->kernels == 1 ? "kernel takes" : "kernels take",
                     all_.slowdown->factor,
                     all_.slowdown->same_position,
                     format(all_.slowdown->extra)),
         fmt::format("factor above {:.2f}, and {} of the compute", kSlowed, percent(kSlowedMuch)),
         "Fewer SMs for communication (NCCL_MAX_NCHANNELS / NCCL_MAX_CTAS), or fewer bytes"});
  }

  void look_at_spread() {
    for (const CollectiveSummary& kind : all_.collectives.kinds) {
      // Without a size they need not be the same, and late ranks explain it already.
      if (kind.bytes == Bytes(0) || said("straggler")) {
        continue;
      }
      if (kind.count >= 10 && kind.duration_median.count() > 0.0 &&
          kind.duration_p90 > kUneven * kind.duration_median) {
        say({"uneven_collectives",
             Weight::kCause,
             fmt::format("The same {} takes very different times", to_string(kind.collective)),
             fmt::format("{} calls of {}: median {}, p90 {}, longest {}",
                         kind.count,
                         format(kind.bytes),
                         format(kind.duration_median),
                         format(kind.duration_p90),
                         format(kind.duration_most)),
             fmt::format("p90 above {:.0f} times the median", kUneven),
             all_.collectives.matched > 0
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
    for (const CollectiveSummary& kind : all_.collectives.kinds) {
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
        say({"slow_group",
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

  void look_at_bucket_copies() {
    std::int64_t copies = 0;
    double seconds = 0.0;
    std::set<std::uint32_t> names;
    for (std::size_t i = 0; i < timeline_.names.size(); ++i) {
      if (timeline_.names[i].find("reducer::copy_bucket_to_grad") != std::string::npos ||
          timeline_.names[i].find("reducer::mul_out") != std::string::npos) {
        names.insert(static_cast<std::uint32_t>(i));
      }
    }
    if (names.empty()) {
      return;
    }
    for (const Record& record : timeline_.records) {
      if (record.kind == RecordKind::kAnnotation && names.contains(record.name)) {
        ++copies;
        seconds += static_cast<double>(record.end_ns - record.begin_ns) / 1e9;
      }
    }
    const double step =
        all_.summary ? all_.summary->step.count() * all_.summary->steps * all_.summary->ranks : 0.0;
    if (copies > 0 && step > 0.0 && seconds / step > kCopies) {
      say({"bucket_copies",
           all_.has_communication() ? Weight::kCause : Weight::kNote,
           "DDP copies every gradient into its bucket and back",
           fmt::format(
               "{} copies, {} of the steps' time on the host", copies, percent(seconds / step)),
           fmt::format("more than {} of the step", percent(kCopies)),
           "DistributedDataParallel(model, gradient_as_bucket_view=True)"});
    }
  }

  /// A stream that runs one or two kernels and nothing else, beside one that computes, is most
  /// often somebody's own communication.
  void look_at_unknown_streams() {
    struct Stream {
      std::set<std::uint32_t> names;
      std::int64_t total_ns = 0;
    };
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::map<std::uint32_t, Stream>> devices;
    for (const Record& record : timeline_.records) {
      if (record.device != kNoId && record.kind == RecordKind::kCompute) {
        Stream& stream = devices[{record.rank, record.device}][record.stream];
        stream.total_ns += record.end_ns - record.begin_ns;
        if (stream.names.size() < 4) {
          stream.names.insert(record.name);
        }
      }
    }
    for (const DeviceTotals& totals : all_.devices) {
      const auto device = devices.find({totals.rank, totals.device});
      if (device == devices.end() || device->second.size() < 2) {
        continue;
      }
      std::int64_t most_ns = 0;
      for (const auto& [number, stream] : device->second) {
        most_ns = std::max(most_ns, stream.total_ns);
      }
      for (const auto& [number, stream] : device->second) {
        const bool busiest = stream.total_ns == most_ns;
        const double share = totals.span_ns == 0 ? 0.0
                                                 : static_cast<double>(stream.total_ns) /
                                                       static_cast<double>(totals.span_ns);
        if (busiest || stream.names.size() > 2 || share < kUnknownStream) {
          continue;
        }
        say({"unknown_stream",
             Weight::kNote,
             fmt::format("Stream {} of device {} runs nothing but {}; it counts as compute",
                         number,
                         totals.device,
                         quote(timeline_.names[*stream.names.begin()])),
             fmt::format("{} of the recording", percent(share)),
             fmt::format("a stream with at most 2 kernel names and more than {} of the time",
                         percent(kUnknownStream)),
             "If it is communication, say so: --comm-regex 'part of its name'"});
        return;
      }
    }
  }

  const Timeline& timeline_;
  Explanation& all_;
  double communication_ = 0.0;  // seconds, all devices
};

}  // namespace

void diagnose(const Timeline& timeline, Explanation& explanation) {
  Doctor(timeline, explanation).examine();
}

}  // namespace stretto::detail
