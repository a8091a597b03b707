// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "stretto/analyze/activity.hpp"
#include "stretto/report/explanation.hpp"
#include "stretto/report/html_parts.hpp"

namespace stretto::detail {
namespace {

constexpr std::size_t kMostRanks = 16;
constexpr std::size_t kMostRows = 50;
constexpr std::size_t kMostTextBytes = 2000;

/// What the static part says; the rest of the page has its own dictionary.
struct Words {
  std::string_view report, picture, rank, step, compute, hidden, exposed, idle, communication,
      buckets, bucket, size, ready, begin, end, to_do, more_ranks, runs, run, plan, tensors,
      machine, level, members, latency, bandwidth, scripts;
};
constexpr Words kEnglishWords{
    "Stretto report",
    "One typical step",
    "rank",
    "step",
    "compute",
    "hidden communication",
    "exposed communication",
    "idle",
    "communication",
    "Buckets",
    "bucket",
    "size",
    "ready",
    "begin",
    "end",
    "What it says",
    "more ranks are not drawn here",
    "Runs",
    "run",
    "Plan",
    "tensors",
    "Machine",
    "level",
    "members",
    "latency",
    "bandwidth",
    "With scripts allowed, this file is interactive. It never uses the network."};
constexpr Words kChineseWords{"Stretto 报告",
                              "一个典型的步",
                              "rank",
                              "步",
                              "计算",
                              "被隐藏的通信",
                              "暴露的通信",
                              "空闲",
                              "通信",
                              "桶",
                              "桶",
                              "大小",
                              "就绪",
                              "开始",
                              "结束",
                              "结论",
                              "个 rank 未画出",
                              "运行",
                              "运行",
                              "计划",
                              "张量数",
                              "机器",
                              "层级",
                              "成员数",
                              "延迟",
                              "带宽",
                              "允许脚本时，此文件可交互。它从不使用网络。"};

const Words& words_in(Language language) {
  return language == Language::kChinese ? kChineseWords : kEnglishWords;
}

/// Names of a trace may turn the direction of what follows them: <bdi> keeps that to themselves.
std::string foreign(std::string_view text) {
  return "<bdi>" + html_escaped(shortened(text, kMostTextBytes)) + "</bdi>";
}

std::string row_of(std::string_view open,
                   std::string_view close,
                   const std::vector<std::string>& cells) {
  std::string text = "<tr>";
  for (const std::string& cell : cells) {
    text.append(open).append(cell).append(close);
  }
  return text + "</tr>\n";
}

std::string table_of(std::string_view caption,
                     const std::vector<std::string>& head,
                     const std::vector<std::vector<std::string>>& rows) {
  std::string text = fmt::format("<table><caption>{}</caption>\n<thead>", caption);
  text += row_of("<th scope=\"col\">", "</th>", head);
  text += "</thead><tbody>\n";
  for (const auto& row : rows) {
    text += row_of("<td>", "</td>", row);
  }
  return text + "</tbody></table>\n";
}

std::string ranks_table(const Summary& summary, const Words& words) {
  std::vector<std::vector<std::string>> rows;
  for (const RankSummary& rank : summary.per_rank) {
    if (rows.size() == kMostRows) {
      break;
    }
    const Seconds hidden = std::max(Seconds(0), rank.communication - rank.exposed);
    rows.push_back({std::to_string(rank.rank),
                    format(rank.step),
                    format(std::max(Seconds(0), rank.compute - hidden)),
                    format(hidden),
                    format(rank.exposed),
                    format(std::max(Seconds(0), rank.step - rank.compute - rank.exposed))});
  }
  return table_of(words.rank,
                  {std::string(words.rank),
                   std::string(words.step),
                   std::string(words.compute),
                   std::string(words.hidden),
                   std::string(words.exposed),
                   std::string(words.idle)},
                  rows);
}

std::string buckets_table(const Summary& summary, const Words& words) {
  std::vector<std::vector<std::string>> rows;
  for (const BucketSummary& bucket : summary.buckets) {
    if (rows.size() == kMostRows) {
      break;
    }
    rows.push_back({std::to_string(bucket.bucket),
                    bucket.bytes > Bytes(0) ? format(bucket.bytes) : std::string("?"),
                    bucket.ready ? format(*bucket.ready) : std::string("?"),
                    format(bucket.started),
                    format(bucket.ended),
                    format(bucket.exposed_share)});
  }
  return rows.empty() ? std::string()
                      : table_of(words.buckets,
                                 {std::string(words.bucket),
                                  std::string(words.size),
                                  std::string(words.ready),
                                  std::string(words.begin),
                                  std::string(words.end),
                                  std::string(words.exposed)},
                                 rows);
}

std::string summaries_table(const std::vector<NamedSummary>& summaries, const Words& words) {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(summaries.size());
  for (const NamedSummary& named : summaries) {
    rows.push_back({foreign(named.name),
                    format(named.summary.step),
                    format(named.summary.compute),
                    format(named.summary.communication),
                    format(named.summary.exposed)});
  }
  return table_of(words.runs,
                  {std::string(words.run),
                   std::string(words.step),
                   std::string(words.compute),
                   std::string(words.communication),
                   std::string(words.exposed)},
                  rows);
}

std::string plan_table(const NamedPlan& named, const Words& words) {
  std::vector<std::vector<std::string>> rows;
  const auto ranges = named.plan.all_ranges();
  for (std::size_t i = 0; i < std::min(kMostRows, named.plan.buckets.size()); ++i) {
    rows.push_back({std::to_string(i),
                    format(named.plan.buckets[i].bytes()),
                    std::to_string(ranges[i].size())});
  }
  return table_of(fmt::format("{} {}", words.plan, foreign(named.name)),
                  {std::string(words.bucket), std::string(words.size), std::string(words.tensors)},
                  rows);
}

std::string machine_table(const Machine& machine, const Words& words) {
  std::vector<std::vector<std::string>> rows;
  for (const Level& level : machine.levels) {
    rows.push_back({foreign(level.name),
                    std::to_string(level.group_size),
                    format(level.latency),
                    format(level.bandwidth)});
  }
  return table_of(fmt::format("{} {}", words.machine, foreign(machine.name)),
                  {std::string(words.level),
                   std::string(words.members),
                   std::string(words.latency),
                   std::string(words.bandwidth)},
                  rows);
}

std::string run_section(const ReportedRun& run, const Words& words, Language language) {
  std::string text = fmt::format("<section><h2>{}</h2>\n<p class=\"verdict\">{}</p>\n",
                                 foreign(run.name),
                                 foreign(verdict(run.explanation)));
  text += svg_timeline(run.timeline, language);
  if (run.explanation.summary) {
    text += ranks_table(*run.explanation.summary, words);
    text += buckets_table(*run.explanation.summary, words);
  }
  if (!run.explanation.diagnoses.empty()) {
    text += fmt::format("<h3>{}</h3>\n<ol>\n", words.to_do);
    for (const Diagnosis& diagnosis : run.explanation.diagnoses) {
      text += fmt::format("<li>{} {} {}</li>\n",
                          foreign(diagnosis.finding),
                          foreign(diagnosis.evidence),
                          foreign(diagnosis.advice));
    }
    text += "</ol>\n";
  }
  return text + "</section>\n";
}

/// In [0, kWidth]: x of a time in the window.
constexpr double kWidth = 1000.0;
constexpr double kBandHeight = 12.0;
constexpr double kRankHeight = 34.0;

struct Scale {
  Interval window;
  [[nodiscard]] double x(std::int64_t at_ns) const {
    const auto length = static_cast<double>(window.end_ns - window.begin_ns);
    const auto at =
        static_cast<double>(std::clamp(at_ns, window.begin_ns, window.end_ns) - window.begin_ns);
    return length > 0.0 ? kWidth * at / length : 0.0;
  }
};

/// One path for all of them: what is nearer than half a pixel is drawn as one.
std::string band(const IntervalSet& set, const Scale& scale, double top, std::string_view classes) {
  std::string path;
  double begin = 0.0;
  double end = -1.0;
  const auto flush = [&] {
    if (end >= begin) {
      path += fmt::format("M{:.1f} {:.0f}H{:.1f}v{:.0f}H{:.1f}z",
                          begin,
                          top,
                          std::max(end, begin + 0.3),
                          kBandHeight,
                          begin);
    }
  };
  for (const Interval& interval : set.within(scale.window)) {
    const double from = scale.x(interval.begin_ns);
    if (end < begin || from - end > 0.5) {
      flush();
      begin = from;
    }
    end = scale.x(interval.end_ns);
  }
  flush();
  return path.empty() ? std::string()
                      : fmt::format("<path class=\"{}\" d=\"{}\"/>\n", classes, path);
}

/// The step that is drawn, on all ranks; all of the timeline if it has no steps.
Interval drawn_window(const Timeline& timeline) {
  const std::uint32_t step = typical_step(timeline);
  Interval window;
  bool any = false;
  for (const bool steps_only : {true, false}) {
    for (const Record& record : timeline.records) {
      if (steps_only && (record.kind != RecordKind::kStep || record.step != step)) {
        continue;
      }
      window.begin_ns = any ? std::min(window.begin_ns, record.begin_ns) : record.begin_ns;
      window.end_ns = any ? std::max(window.end_ns, record.end_ns) : record.end_ns;
      any = true;
    }
    if (any) {
      break;
    }
  }
  return window;
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        // What no HTML may hold.
        escaped += static_cast<unsigned char>(c) < 0x20U && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return escaped;
}

std::string shortened(std::string_view text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) {
    return std::string(text);
  }
  std::size_t end = most_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) {
    --end;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string svg_timeline(const Timeline& timeline, Language language) {
  const Words& words = words_in(language);
  const Activities activities(timeline);
  std::map<std::uint32_t, bool> ranks;
  for (const Record& record : timeline.records) {
    ranks[record.rank] = true;
  }
  const Scale scale{drawn_window(timeline)};
  if (ranks.empty() || scale.window.end_ns <= scale.window.begin_ns) {
    return {};
  }
  const std::size_t drawn = std::min(kMostRanks, ranks.size());
  const double height = kRankHeight * static_cast<double>(drawn) + 24.0;
  std::string text = fmt::format(
      "<figure><figcaption>{}: {}</figcaption>\n<svg class=\"still\" viewBox=\"-70 0 1080 {:.0f}\" "
      "role=\"img\" aria-label=\"{}\">\n<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" "
      "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"6\" "
      "height=\"6\" class=\"exposed\"/><rect width=\"2\" height=\"6\" "
      "class=\"stripe\"/></pattern></defs>\n",
      words.picture,
      format(Seconds(static_cast<double>(scale.window.end_ns - scale.window.begin_ns) * 1e-9)),
      height,
      words.picture);
  double top = 4.0;
  std::size_t count = 0;
  for (const auto& [rank, unused] : ranks) {
    if (count++ == drawn) {
      break;
    }
    IntervalSet compute;
    IntervalSet hidden;
    IntervalSet exposed;
    for (const Activity& device : activities.of(rank)) {
      compute = unite(compute, device.compute);
      hidden = unite(hidden, subtract(device.communication, device.exposed));
      exposed = unite(exposed, device.exposed);
    }
    text += fmt::format("<text x=\"-8\" y=\"{:.0f}\" text-anchor=\"end\">{} {}</text>\n",
                        top + 17.0,
                        words.rank,
                        rank);
    text += band(compute, scale, top, "compute");
    text += band(hidden, scale, top + kBandHeight + 2.0, "hidden");
    text += band(exposed, scale, top + kBandHeight + 2.0, "unhidden");
    top += kRankHeight;
  }
  double x = 0.0;
  for (const auto& [classes, word] : {std::pair{"compute", words.compute},
                                      std::pair{"hidden", words.hidden},
                                      std::pair{"unhidden", words.exposed}}) {
    text += fmt::format(
        "<rect class=\"{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"14\" height=\"12\"/>"
        "<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n",
        classes,
        x,
        top + 4.0,
        x + 20.0,
        top + 15.0,
        word);
    x += 240.0;
  }
  text += "</svg></figure>\n";
  if (ranks.size() > drawn) {
    text += fmt::format("<p>{} {}</p>\n", ranks.size() - drawn, words.more_ranks);
  }
  return text;
}

std::string static_page(const Report& report, Language language) {
  const Words& words = words_in(language);
  std::string text =
      fmt::format("<h1>{}</h1>\n<noscript><p>{}</p></noscript>\n", words.report, words.scripts);
  for (const ReportedRun& run : report.runs) {
    text += run_section(run, words, language);
  }
  if (!report.summaries.empty()) {
    text += summaries_table(report.summaries, words);
  }
  for (const NamedPlan& plan : report.plans) {
    text += plan_table(plan, words);
  }
  for (const Machine& machine : report.machines) {
    text += machine_table(machine, words);
  }
  return text;
}

}  // namespace stretto::detail
