// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "stretto/report/cells.hpp"
#include "stretto/report/names.hpp"
#include "stretto/report/report.hpp"

namespace stretto {
namespace {

constexpr std::string_view kNoCommunication = "n/a (no communication)";
constexpr std::size_t kMostBucketRows = 20;

std::string percent(std::optional<double> ratio, std::string_view otherwise) {
  return ratio ? fmt::format("{:.1f} %", 100.0 * *ratio) : std::string(otherwise);
}

std::string time(std::optional<Seconds> value, std::string_view otherwise) {
  return value ? format(*value) : std::string(otherwise);
}

/// Name, value and where the value comes from.
using Line = std::array<std::string, 3>;

std::string aligned(const std::vector<Line>& lines) {
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  for (const Line& line : lines) {
    name_width = std::max(name_width, detail::cells(line[0]));
    value_width = std::max(value_width, line[2].empty() ? 0 : detail::cells(line[1]));
  }
  std::string text;
  for (const auto& [name, value, source] : lines) {
    text += name;
    text.append(name_width - detail::cells(name) + 2, ' ');
    text += value;
    if (!source.empty()) {
      text.append(value_width - detail::cells(value) + 2, ' ');
      text += source;
    }
    text += "\n";
  }
  return text;
}

std::vector<Line> lines_of(const Summary& s, bool steps_marked) {
  std::vector<Line> lines = {
      {"exposed communication",
       format(s.exposed) + (steps_marked ? " per step" : " in the whole recording"),
       "no compute ran beside it"},
      {"step",
       format(s.step),
       steps_marked ? fmt::format("median of {} {}, {} {}; p10 {}, p90 {}",
                                  s.steps,
                                  s.steps == 1 ? "step" : "steps",
                                  s.ranks,
                                  s.ranks == 1 ? "rank" : "ranks",
                                  format(s.step_p10),
                                  format(s.step_p90))
                    : fmt::format("all of it, {} {}: nothing marks its steps",
                                  s.ranks,
                                  s.ranks == 1 ? "rank" : "ranks")},
      {"compute", format(s.compute), ""},
      {"communication", format(s.communication), fmt::format("{:.4g} launches", s.launches)},
      {"first launch", time(s.first_launch, kNoCommunication), "from the start of the step"},
      {"communication end", time(s.communication_end, kNoCommunication), ""},
      {"hidden ratio", percent(s.hidden_ratio(), kNoCommunication), "1 - exposed/communication"},
      {"overlap degree", percent(s.overlap_degree(), kNoCommunication), "1 - exposed/step"},
      {"communication ratio",
       percent(s.communication_ratio(), kNoCommunication),
       "communication/(communication + compute)"},
      {"bound", time(s.bound, "n/a (needs a machine)"), "no schedule of this kind is quicker"},
      {"gap to the bound", percent(s.bound_gap_ratio(), "n/a (no bound)"), "step/bound - 1"},
  };
  if (s.samples_per_s) {
    lines.push_back({"samples per second", fmt::format("{:.0f}", *s.samples_per_s), "all ranks"});
  }
  lines.push_back({"scaling efficiency",
                   percent(s.scaling_efficiency, "n/a"),
                   "compute/step, or 1-rank step/step if one was given"});
  return lines;
}

}  // namespace

std::string_view detail::words_of(WaitedFor reason) noexcept {
  switch (reason) {
    case WaitedFor::kUnknown:
      return "?";
    case WaitedFor::kGradients:
      return "its input";
    case WaitedFor::kLaunch:
      return "its launch";
    case WaitedFor::kEarlierCommunication:
      return "the one before";
  }
  return "?";
}

std::string bucket_table(const Summary& summary, BucketRows which) {
  std::vector<BucketSummary> buckets = summary.buckets;
  const std::size_t most = which == BucketRows::kAll ? buckets.size() : kMostBucketRows;
  const std::size_t left_out = buckets.size() - std::min(buckets.size(), most);
  if (left_out > 0) {  // keep those to blame, in their own order
    std::stable_sort(
        buckets.begin(), buckets.end(), [](const BucketSummary& a, const BucketSummary& b) {
          return a.exposed_share > b.exposed_share;
        });
    buckets.resize(most);
    std::sort(buckets.begin(), buckets.end(), [](const BucketSummary& a, const BucketSummary& b) {
      return a.bucket < b.bucket;
    });
  }
  std::vector<std::vector<std::string>> rows = {
      {"bucket", "what", "size", "ready", "launched", "started", "ended"}};
  const auto add_rest = [&](std::string wire, std::string left, std::vector<std::string> rest) {
    if (which == BucketRows::kAll) {
      rows.back().push_back(std::move(wire));
      rows.back().push_back(std::move(left));
    }
    rows.back().insert(rows.back().end(), rest.begin(), rest.end());
  };
  add_rest("on the wire", "compute left", {"exposed", "share", "began after"});
  for (const BucketSummary& bucket : buckets) {
    rows.push_back({std::to_string(bucket.bucket),
                    std::string(to_string(bucket.collective)),
                    bucket.bytes > Bytes(0) ? format(bucket.bytes) : "?",
                    time(bucket.ready, "?"),
                    format(bucket.launched),
                    format(bucket.started),
                    format(bucket.ended)});
    add_rest(format(bucket.transfer),
             time(bucket.compute_left, "n/a"),
             {format(bucket.exposed),
              percent(summary.exposed_ratio(bucket), "n/a"),
              std::string(detail::words_of(bucket.waited_for))});
  }
  return table(rows) +
         (left_out == 0 ? "" : fmt::format("and {} buckets that are exposed less\n", left_out));
}

namespace {

std::string codec_table(const Summary& summary) {
  std::vector<std::vector<std::string>> rows = {
      {"codec", "exchanges", "gradients", "exchange", "encode", "wire", "decode"}};
  for (const CodecSummary& codec : summary.codecs) {
    rows.push_back({codec.codec,
                    fmt::format("{:.4g}", codec.exchanges),
                    format(codec.bytes),
                    format(codec.exchange),
                    format(codec.encode),
                    format(codec.wire),
                    format(codec.decode)});
  }
  return table(rows);
}

std::string rank_table(const Summary& summary) {
  std::vector<std::vector<std::string>> rows = {
      {"rank", "step", "compute", "communication", "exposed"}};
  for (const RankSummary& rank : summary.per_rank) {
    rows.push_back({std::to_string(rank.rank),
                    format(rank.step),
                    format(rank.compute),
                    format(rank.communication),
                    format(rank.exposed)});
  }
  return table(rows);
}

}  // namespace

std::string comparison_table(const std::vector<NamedSummary>& runs) {
  std::vector<std::vector<std::string>> rows = {
      {"run", "step", "exposed", "hidden", "bound", "gap", "samples/s"}};
  for (const auto& [name, summary] : runs) {
    rows.push_back({name,
                    format(summary.step),
                    format(summary.exposed),
                    percent(summary.hidden_ratio(), "n/a"),
                    time(summary.bound, "n/a"),
                    percent(summary.bound_gap_ratio(), "n/a"),
                    summary.samples_per_s ? fmt::format("{:.0f}", *summary.samples_per_s) : "n/a"});
  }
  return table(rows);
}

std::string text_summary(const Summary& summary, bool steps_marked) {
  std::string text = aligned(lines_of(summary, steps_marked));
  if (!summary.buckets.empty()) {
    text += "\n" + bucket_table(summary);
  }
  if (!summary.codecs.empty()) {
    text += "\n" + codec_table(summary);
  }
  if (summary.per_rank.size() > 1) {
    text += "\n" + rank_table(summary);
  }
  return text;
}

}  // namespace stretto
