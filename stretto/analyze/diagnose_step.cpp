// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "stretto/analyze/diagnose_case.hpp"
#include "stretto/base/text.hpp"

namespace stretto::detail {
namespace {

// Each is printed with the diagnosis that it led to.
constexpr double kMuchExposed = 0.30;     // of the step
constexpr double kComputeBound = 0.80;    // compute of the step
constexpr double kHostBound = 0.20;       // of the step, nothing runs
constexpr double kFatLast = 0.25;         // of the bytes in the last bucket
constexpr double kFatLastExposed = 0.50;  // of the exposed time is the last bucket's

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

/// Of the recording, the part in which devices do nothing but copy.
double copying(Case& of) {
  double copies = 0.0;
  double span = 0.0;
  for (const DeviceTotals& device : of.all.devices) {
    copies += static_cast<double>(device.exposed_copies_ns);
    span += static_cast<double>(device.span_ns);
  }
  return span > 0.0 ? copies / span : 0.0;
}

}  // namespace

void look_at_share(Case& of, const Summary& s) {
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
    of.say({"communication_share",
            Weight::kFirst,
            "Waiting for communication is the first thing to fix",
            evidence,
            fmt::format("exposed above {} of the step", percent(kMuchExposed)),
            ""});
  } else if (exposed < kLittleExposed) {
    of.say({"communication_share",
            Weight::kNote,
            "Little is to be gained from communication",
            evidence,
            fmt::format("exposed below {} of the step", percent(kLittleExposed)),
            ""});
  }
  if (compute > kComputeBound && exposed < kLittleExposed) {
    of.say({"compute_bound",
            Weight::kNote,
            "The step is bound by compute",
            evidence,
            fmt::format("compute above {} of the step", percent(kComputeBound)),
            "Faster kernels, lower precision or fewer operations help; schedules of communication "
            "do "
            "not"});
  }
  if (idle - copying(of) > kHostBound && !of.all.host_only) {
    of.say(
        {"host_bound",
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

void look_at_schedule(Case& of, const Summary& s) {
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
    of.say(
        {"late_launch",
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

void look_at_last_bucket(Case& of, const Summary& s) {
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
    of.say({"fat_last_bucket",
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

namespace {

/// Who shards, by the ranges that it draws: functions of DeepSpeed's ZeRO are named in NVTX.
std::string_view sharded_by(const Timeline& timeline) {
  bool stage_1_or_2 = false;
  for (const Record& record : timeline.records) {
    if (record.kind != RecordKind::kAnnotation || record.name >= timeline.names.size()) {
      continue;
    }
    const std::string_view name = timeline.names[record.name];
    if (name.starts_with("PartitionedParameterCoordinator.") ||
        name.starts_with("DeepSpeedZeroOptimizer_Stage3.")) {
      return "DeepSpeed's ZeRO-3";
    }
    stage_1_or_2 = stage_1_or_2 || name.starts_with("DeepSpeedZeroOptimizer.");
  }
  return stage_1_or_2 ? "DeepSpeed's ZeRO-1 or 2" : "";
}

}  // namespace

/// What kind of parallelism the collectives of a step belong to.
void look_at_pattern(Case& of, const Summary& s) {
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
                              of.all.steps_marked ? "per step" : "in the whole recording",
                              format(Seconds(numbers.second)));
    }
  }
  const std::string_view by = sharded_by(of.timeline);
  of.say(
      {"pattern",
       Weight::kNote,
       !by.empty() ? fmt::format("It shards with {}, by the names of its ranges", by)
       : gathers && scatters
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
           ? by == "DeepSpeed's ZeRO-3"
                 ? "Prefetch parameters earlier: a larger stage3_prefetch_bucket_size (elements), "
                   "with overlap_comm"
                 : "Prefetch the next module's all_gather earlier (FSDP2: "
                   "set_modules_to_forward_prefetch, "
                   "set_modules_to_backward_prefetch)"
           : ""});
}

void look_at_modules(Case& of, const Summary& s) {
  if (of.all.modules.empty() || of.all.modules.front().exposed_share.count() <= 0.0) {
    return;
  }
  std::map<std::string, double> modules;
  for (const ModuleSummary& module : of.all.modules) {
    modules[module.module] += module.exposed_share.count();
  }
  const auto most =
      std::max_element(modules.begin(), modules.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      });
  std::string evidence;
  Collective first = Collective::kNone;
  for (const ModuleSummary& module : of.all.modules) {
    if (module.module == most->first && module.exposed_share.count() > 0.0) {
      first = evidence.empty() ? module.collective : first;
      evidence += fmt::format("{}{} of {} of {}",
                              evidence.empty() ? "" : ", ",
                              format(module.exposed_share),
                              format(module.total),
                              to_string(module.collective));
    }
  }
  of.say({"exposed_module",
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

}  // namespace stretto::detail
