// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "stretto/report/explanation.hpp"
#include "stretto/report/report.hpp"

namespace stretto {
namespace {

constexpr std::size_t kMostRows = 10;

std::string percent(double ratio) {
  return fmt::format("{:.1f} %", 100.0 * ratio);
}

std::string_view per_step(const Explanation& explanation) {
  return explanation.steps_marked ? "per step" : "in the whole recording";
}

std::string size_of(Bytes bytes) {
  return bytes > Bytes(0) ? format(bytes) : "?";
}

std::string rate_of(const std::optional<BytesPerSecond>& rate) {
  return rate ? format(*rate) : "?";
}

std::string seconds_of_ns(std::int64_t ns) {
  return format(Seconds(static_cast<double>(ns) / 1e9));
}

using Rows = std::vector<std::vector<std::string>>;

Rows device_rows(const Explanation& explanation) {
  Rows rows = {{"rank, device",
                "span",
                "compute",
                "communication",
                "exposed",
                "hidden",
                "exposed copies",
                "idle"}};
  for (const DeviceTotals& totals : explanation.devices) {
    rows.push_back({totals.device == kNoId ? fmt::format("{}", totals.rank)
                                           : fmt::format("{}, {}", totals.rank, totals.device),
                    seconds_of_ns(totals.span_ns),
                    seconds_of_ns(totals.compute_ns),
                    seconds_of_ns(totals.communication_ns),
                    totals.communication_count > 0 ? seconds_of_ns(totals.exposed_ns) : "n/a",
                    totals.communication_count > 0 ? seconds_of_ns(totals.hidden_ns) : "n/a",
                    seconds_of_ns(totals.exposed_copies_ns),
                    seconds_of_ns(totals.idle_ns)});
  }
  return rows;
}

Rows host_rows(const Explanation& explanation) {
  Rows rows = {{"rank", "host operators", "communication", "exposed"}};
  for (const HostTotals& totals : explanation.hosts) {
    rows.push_back({std::to_string(totals.rank),
                    seconds_of_ns(totals.compute_ns),
                    seconds_of_ns(totals.communication_ns),
                    seconds_of_ns(totals.exposed_ns)});
  }
  return rows;
}

Rows collective_rows(const CollectiveReport& report, std::size_t most) {
  Rows rows = {{"collective",
                "group",
                "size",
                "calls",
                "total",
                "median",
                "p90",
                "on the wire",
                "bus bandwidth"}};
  for (std::size_t i = 0; i < std::min(most, report.kinds.size()); ++i) {
    const CollectiveSummary& kind = report.kinds[i];
    rows.push_back(
        {kind.collective == Collective::kNone ? kind.name.substr(0, 40)
                                              : std::string(to_string(kind.collective)),
         kind.group.empty() ? "?" : kind.group,
         size_of(kind.bytes),
         std::to_string(kind.count),
         format(kind.total),
         format(kind.duration_median),
         format(kind.duration_p90),
         (kind.matched ? "" : "<= ") + format(kind.transfer),
         (kind.matched || !kind.bus_bandwidth ? "" : ">= ") + rate_of(kind.bus_bandwidth)});
  }
  return rows;
}

Rows waiting_rows(const CollectiveReport& report, std::size_t most) {
  Rows rows = {{"rank", "waited for others", "began last", "made others wait"}};
  for (std::size_t i = 0; i < std::min(most, report.ranks.size()); ++i) {
    const RankWaiting& rank = report.ranks[i];
    rows.push_back({std::to_string(rank.rank),
                    format(rank.waited),
                    fmt::format("{} of {}", rank.last, report.matched),
                    format(rank.made_others_wait)});
  }
  return rows;
}

/// The busiest ranks and, if there are more than `most`, the least busy one.
std::string all_to_all_table(const AllToAllBalance& balance, std::size_t most) {
  Rows rows = {{"rank", "all_to_alls", "sent", "received", "larger", "over mean", "total"}};
  const auto mean =
      static_cast<double>(balance.ranks.front().bytes.count()) / balance.max_over_mean;
  const std::size_t all = balance.ranks.size();
  for (std::size_t i = 0; i < all; ++i) {
    if (i + 1 >= most && i + 1 < all) {
      continue;
    }
    const AllToAllRank& rank = balance.ranks[i];
    rows.push_back({std::to_string(rank.rank),
                    std::to_string(rank.calls),
                    format(rank.sent),
                    rank.received ? format(*rank.received) : "?",
                    format(rank.bytes),
                    fmt::format("{:.2f}", static_cast<double>(rank.bytes.count()) / mean),
                    format(rank.total)});
  }
  return table(rows);
}

Rows module_rows(const std::vector<ModuleSummary>& modules, std::size_t most) {
  Rows rows = {{"module", "collective", "calls", "size", "total", "exposed"}};
  for (std::size_t i = 0; i < std::min(most, modules.size()); ++i) {
    const ModuleSummary& module = modules[i];
    rows.push_back({module.module,
                    std::string(to_string(module.collective)),
                    fmt::format("{:.4g}", module.calls),
                    size_of(module.bytes),
                    format(module.total),
                    format(module.exposed_share)});
  }
  return rows;
}

std::string and_more(std::size_t all, std::string_view what) {
  return all > kMostRows ? fmt::format("and {} more {}\n", all - kMostRows, what) : std::string();
}

std::string diagnoses_of(const Explanation& explanation) {
  std::string text;
  int number = 0;
  for (const Diagnosis& diagnosis : explanation.diagnoses) {
    text += fmt::format("{}. {}{}\n   {} (rule: {})\n",
                        ++number,
                        diagnosis.finding,
                        diagnosis.weight == Diagnosis::Weight::kFirst ? "  <- first" : "",
                        diagnosis.evidence,
                        diagnosis.threshold);
    if (!diagnosis.advice.empty()) {
      text += fmt::format("   do: {}\n", diagnosis.advice);
    }
  }
  return text;
}

std::string_view what_is_fitted(const FittedExchange& fitted) {
  return fitted.of_halves
             ? "reduce_scatters and all_gathers (each half an all_reduce, whose cost this is)"
             : "all_reduces";
}

std::string certificate_of(const Certificate& certificate) {
  const auto above = [](Seconds a, Seconds b) { return format(std::max(Seconds(0), a - b)); };
  std::string text = fmt::format(
      "certificate: exposed now {}\n"
      "  {} no {} could avoid\n"
      "  about {} more with the best {}\n"
      "  about {} per step to be had with {}\n",
      format(certificate.exposed_now),
      format(certificate.exposed_bound),
      certificate.sharded ? "order" : "buckets",
      above(certificate.exposed_best, certificate.exposed_bound),
      certificate.sharded ? "order" : "buckets",
      format(certificate.recoverable),
      certificate.sharded ? "another order" : "other buckets");
  if (certificate.exposed_now > certificate.exposed_model * 1.02) {
    text += fmt::format("  {} is in no model: late ranks, late launches, interference\n",
                        format(certificate.exposed_now - certificate.exposed_model));
  } else if (certificate.exposed_model > certificate.exposed_now * 1.02) {
    text += fmt::format("  (the model has {} for what was recorded)\n",
                        format(certificate.exposed_model));
  }
  return text + "  " + certificate.assumptions + "\nlines to change:\n" + certificate.settings.text;
}

const BucketSummary* most_exposed(const Summary& summary) {
  const auto most = std::max_element(
      summary.buckets.begin(), summary.buckets.end(), [](const auto& a, const auto& b) {
        return a.exposed_share < b.exposed_share;
      });
  return most == summary.buckets.end() || most->exposed_share.count() <= 0.0 ? nullptr : &*most;
}

Rows step_rows(const std::vector<DeviceStep>& steps) {
  Rows rows = {{"step",
                "rank",
                "device",
                "begin",
                "length",
                "compute",
                "communication",
                "sum",
                "exposed",
                "hidden",
                "idle",
                "collectives"}};
  for (const DeviceStep& step : steps) {
    rows.push_back({step.name.empty() ? std::to_string(step.step) : step.name,
                    std::to_string(step.rank),
                    step.device == kNoId ? "-" : std::to_string(step.device),
                    seconds_of_ns(step.begin_ns),
                    seconds_of_ns(step.length_ns),
                    seconds_of_ns(step.compute_ns),
                    seconds_of_ns(step.communication_ns),
                    seconds_of_ns(step.communication_sum_ns),
                    seconds_of_ns(step.exposed_ns),
                    seconds_of_ns(step.hidden_ns),
                    seconds_of_ns(step.idle_ns),
                    std::to_string(step.collectives)});
  }
  return rows;
}

}  // namespace

std::string verdict(const Explanation& explanation) {
  if (!explanation.has_communication()) {
    std::int64_t rows = 0;
    for (const HostTotals& host : explanation.hosts) {
      rows += host.communication_count;
    }
    return fmt::format(
        "no communication found{}: exposed communication is not defined (n/a), not "
        "zero",
        rows == 0 ? std::string()
                  : fmt::format(" on devices, though the host called for it {} {}",
                                rows,
                                rows == 1 ? "time" : "times"));
  }
  if (!explanation.summary) {
    std::int64_t exposed_ns = 0;
    for (const DeviceTotals& device : explanation.devices) {
      exposed_ns += device.exposed_ns;
    }
    return fmt::format("exposed communication {} in the whole recording",
                       seconds_of_ns(exposed_ns));
  }
  const Summary& s = *explanation.summary;
  std::string text = fmt::format("exposed communication {} {} of {} ({})",
                                 format(s.exposed),
                                 per_step(explanation),
                                 format(s.step),
                                 percent(s.exposed / s.step));
  if (const auto& certificate = explanation.certificate) {
    text += fmt::format("; {} would save about {}",
                        certificate->sharded ? "parameters asked for earlier" : "other buckets",
                        format(certificate->recoverable));
    if (const Seconds least = std::min(s.exposed, certificate->exposed_bound); least > Seconds(0)) {
      text += fmt::format(", and none could wait less than {}", format(least));
    }
  } else if (const auto least = explanation.least_exposed()) {
    text += fmt::format("; no schedule of these exchanges could wait less than {}", format(*least));
  }
  if (const BucketSummary* most = most_exposed(s); most != nullptr && s.buckets.size() > 1) {
    const double share = s.exposed_ratio(*most).value_or(0.0);
    text += fmt::format("; {} of it ({}) in bucket {} of {}",
                        share > 0.5 ? "most" : "the largest part",
                        percent(share),
                        most->bucket,
                        s.buckets.size());
  }
  if (explanation.host_only) {
    text += "; of host rows, for there are no device rows";
  }
  return text;
}

std::string text_explanation(const Explanation& explanation) {
  std::string text = verdict(explanation) + "\n";
  const auto section = [&](const std::string& body) {
    if (!body.empty()) {
      text += "\n" + body;
    }
  };
  if (explanation.summary && explanation.has_communication()) {
    Summary numbers = *explanation.summary;
    numbers.buckets.clear();
    numbers.per_rank.clear();
    section(text_summary(numbers, explanation.steps_marked));
    if (explanation.fitted) {
      text += fmt::format(
          "bound: exchanges cost {} + bytes / {}, fitted to the recording's own {} of {} "
          "sizes ({}); idle time that is not waiting stays\n",
          format(explanation.fitted->cost.latency),
          explanation.fitted->cost.seconds_per_byte > 0.0
              ? format(BytesPerSecond(1.0 / explanation.fitted->cost.seconds_per_byte))
              : std::string("unlimited"),
          what_is_fitted(*explanation.fitted),
          explanation.fitted->sizes,
          explanation.fitted->median_error
              ? "median error " + percent(*explanation.fitted->median_error)
              : std::string("two sizes cannot tell its error"));
    }
    if (!explanation.summary->bound) {
      const auto& buckets = explanation.summary->buckets;
      const bool sized = std::any_of(buckets.begin(), buckets.end(), [](const BucketSummary& b) {
        return b.bytes > Bytes(0);
      });
      text += sized
                  ? "bound: needs the cost of an exchange: the traces of all ranks, or --machine "
                    "RANKS@BANDWIDTH,LATENCY\n"
                  : "bound: needs the sizes of the exchanges, which are not in the trace (PyTorch "
                    "2.1 and later record them)\n";
    }
    if (!explanation.summary->buckets.empty()) {
      section(std::string(per_step(explanation)) + ", the most exposed:\n" +
              bucket_table(*explanation.summary));
    }
  }
  if (!explanation.modules.empty()) {
    section("FSDP modules, " + std::string(per_step(explanation)) + ", the most exposed first:\n" +
            table(module_rows(explanation.modules, kMostRows)) +
            and_more(explanation.modules.size(), "rows (--per module)"));
  }
  if (!explanation.devices.empty()) {
    section("whole recording, by device:\n" + table(device_rows(explanation)));
  } else if (!explanation.hosts.empty()) {
    section("whole recording, host rows:\n" + table(host_rows(explanation)));
  }
  const CollectiveReport& collectives = explanation.collectives;
  if (!collectives.kinds.empty()) {
    section("collectives, longest first:\n" + table(collective_rows(collectives, kMostRows)) +
            and_more(collectives.kinds.size(), "kinds (--per collective)"));
  }
  if (collectives.all_to_all) {
    section("all_to_all, busiest ranks first, the least busy last:\n" +
            all_to_all_table(*collectives.all_to_all, kMostRows));
  }
  if (!collectives.ranks.empty()) {
    section("waiting for late ranks, inside of collectives:\n" +
            table(waiting_rows(collectives, kMostRows)) +
            and_more(collectives.ranks.size(), "ranks (--per rank)"));
  }
  if (!explanation.diagnoses.empty()) {
    section("what it says:\n" + diagnoses_of(explanation));
  }
  if (explanation.certificate) {
    section(certificate_of(*explanation.certificate));
  }
  return text;
}

std::string text_table(const Explanation& explanation,
                       const std::vector<DeviceStep>& steps,
                       Per per) {
  switch (per) {
    case Per::kRank: {
      std::string text;
      if (!explanation.devices.empty()) {
        text += table(device_rows(explanation));
      }
      if (!explanation.hosts.empty()) {
        text +=
            (text.empty() ? "" : "\n") + std::string("host rows\n") + table(host_rows(explanation));
      }
      if (!explanation.collectives.ranks.empty()) {
        text += "\n" +
                table(waiting_rows(explanation.collectives, explanation.collectives.ranks.size()));
      }
      return text;
    }
    case Per::kStep:
      return table(step_rows(steps));
    case Per::kCollective:
      return table(collective_rows(explanation.collectives, explanation.collectives.kinds.size())) +
             (explanation.collectives.all_to_all
                  ? "\n" + all_to_all_table(*explanation.collectives.all_to_all,
                                            explanation.collectives.all_to_all->ranks.size())
                  : std::string());
    case Per::kBucket:
      return explanation.summary ? bucket_table(*explanation.summary, BucketRows::kAll)
                                 : std::string();
    case Per::kModule:
      return explanation.modules.empty()
                 ? std::string("no range of FSDP in the trace names a module\n")
                 : table(module_rows(explanation.modules, explanation.modules.size()));
  }
  return {};
}

}  // namespace stretto
