// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "stretto/report/csv.hpp"
#include "stretto/report/explanation.hpp"

namespace stretto {
namespace {

std::string field(std::string_view text) {
  return detail::csv_field(text);
}
std::string field(Seconds time) {
  return fmt::format("{}", time.count());
}
std::string field(const std::optional<BytesPerSecond>& rate) {
  return rate ? fmt::format("{}", rate->value()) : std::string();
}
std::string field(const std::optional<Seconds>& time) {
  return time ? fmt::format("{}", time->count()) : std::string();
}
std::string field(double number) {
  return fmt::format("{}", number);
}
std::string field(std::int64_t number) {
  return std::to_string(number);
}
std::string field(std::uint32_t number) {
  return std::to_string(number);
}

template <typename... Values>
void line(std::string& text, const Values&... values) {
  std::size_t left = sizeof...(values);
  ((text += field(values), text += --left == 0 ? "\r\n" : ","), ...);
}

}  // namespace

std::string csv_table(const Explanation& explanation,
                      const std::vector<DeviceStep>& steps,
                      Per per) {
  std::string text;
  switch (per) {
    case Per::kRank:
      text =
          "rank,device,span_ns,compute_ns,communication_ns,communication_sum_ns,exposed_ns,hidden_"
          "ns,"
          "exposed_copies_ns,idle_ns,communication_count,compute_count\r\n";
      for (const DeviceTotals& d : explanation.devices) {
        line(text,
             d.rank,
             d.device == kNoId ? std::string() : std::to_string(d.device),
             d.span_ns,
             d.compute_ns,
             d.communication_ns,
             d.communication_sum_ns,
             d.exposed_ns,
             d.hidden_ns,
             d.exposed_copies_ns,
             d.idle_ns,
             d.communication_count,
             d.compute_count);
      }
      for (const HostTotals& h : explanation.hosts) {
        if (explanation.host_only) {
          const std::string none;
          line(text,
               h.rank,
               std::string_view("host"),
               none,
               h.compute_ns,
               h.communication_ns,
               none,
               h.exposed_ns,
               h.communication_ns - h.exposed_ns,
               none,
               none,
               h.communication_count,
               none);
        }
      }
      break;
    case Per::kStep:
      text =
          "step,name,rank,device,begin_s,length_s,compute_s,communication_s,communication_sum_s,"
          "exposed_s,hidden_s,exposed_copies_s,idle_s,collectives\r\n";
      for (const DeviceStep& s : steps) {
        const auto seconds = [](std::int64_t ns) { return Seconds(static_cast<double>(ns) / 1e9); };
        line(text,
             s.step,
             s.name,
             s.rank,
             s.device == kNoId ? std::string() : std::to_string(s.device),
             seconds(s.begin_ns),
             seconds(s.length_ns),
             seconds(s.compute_ns),
             seconds(s.communication_ns),
             seconds(s.communication_sum_ns),
             seconds(s.exposed_ns),
             seconds(s.hidden_ns),
             seconds(s.exposed_copies_ns),
             seconds(s.idle_ns),
             s.collectives);
      }
      break;
    case Per::kCollective:
      text =
          "collective,name,group,group_size,bytes,calls,total_s,least_s,median_s,p90_s,most_s,"
          "transfer_s,matched,algbw_bytes_per_s,busbw_bytes_per_s\r\n";
      for (const CollectiveSummary& k : explanation.collectives.kinds) {
        line(text,
             to_string(k.collective),
             k.name,
             k.group,
             k.group_size,
             k.bytes.count(),
             k.count,
             k.total,
             k.duration_least,
             k.duration_median,
             k.duration_p90,
             k.duration_most,
             k.transfer,
             std::string_view(k.matched ? "true" : "false"),
             k.algorithm_bandwidth,
             k.bus_bandwidth);
      }
      break;
    case Per::kBucket:
      text =
          "bucket,collective,bytes,ready_s,launched_s,started_s,ended_s,transfer_s,compute_left_s,"
          "exposed_s,"
          "exposed_share_s,waited_for\r\n";
      if (explanation.summary) {
        for (const BucketSummary& b : explanation.summary->buckets) {
          line(text,
               b.bucket,
               to_string(b.collective),
               b.bytes.count(),
               b.ready,
               b.launched,
               b.started,
               b.ended,
               b.transfer,
               b.compute_left,
               b.exposed,
               b.exposed_share,
               to_string(b.waited_for));
        }
      }
      break;
    case Per::kModule:
      text = "module,collective,calls,bytes,total_s,exposed_share_s\r\n";
      for (const ModuleSummary& m : explanation.modules) {
        line(text,
             m.module,
             to_string(m.collective),
             m.calls,
             m.bytes.count(),
             m.total,
             m.exposed_share);
      }
      break;
  }
  return text;
}

}  // namespace stretto
