// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "stretto/report/plan_report.hpp"
#include "stretto/report/report.hpp"

namespace stretto {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string percent(double ratio) {
  return fmt::format("{:.1f} %", 100.0 * (std::abs(ratio) < 5e-4 ? 0.0 : ratio));
}

std::string more(Seconds step, Seconds than) {
  return "+" + percent(step / than - 1.0);
}

Rows alternative_rows(const PlanResult& result) {
  Rows rows = {{"schedule", "buckets", "step", "exposed", "over this plan"}};
  rows.push_back({"this plan: " + result.plan.origin,
                  std::to_string(result.plan.buckets.size()),
                  format(result.step),
                  format(result.exposed()),
                  ""});
  for (const Alternative& other : result.alternatives) {
    rows.push_back({other.name,
                    std::to_string(other.plan.buckets.size()),
                    format(other.step),
                    format(other.step - result.compute),
                    other.step < result.step * (1.0 - 5e-4)
                        ? percent(other.step / result.step - 1.0)
                        : more(other.step, result.step)});
  }
  return rows;
}

Rows bucket_rows(const PlanResult& result, std::size_t most) {
  Rows rows = {{"bucket", "size", "tensors", "ready", "begin", "end", "algorithm", "ready with"}};
  for (std::size_t b = 0; b < std::min(most, result.buckets.size()); ++b) {
    const PlannedBucket& bucket = result.buckets[b];
    rows.push_back({std::to_string(b),
                    format(bucket.bytes),
                    std::to_string(bucket.tensors),
                    format(bucket.ready),
                    format(bucket.begin),
                    format(bucket.end),
                    std::string(to_string(bucket.algorithm)),
                    result.plan.tensors[bucket.last_tensor].name});
  }
  return rows;
}

std::string bound_lines(const PlanResult& result) {
  std::string text;
  for (const Bound& bound : result.bounds) {
    text +=
        fmt::format("no step below {}, {}: {}\n", format(bound.step), bound.name, bound.assumption);
  }
  return text;
}

Rows sensitivity_rows(const PlanResult& result) {
  Rows rows = {{"if", "this plan", "best then", "lost"}};
  for (const Sensitivity& off : result.sensitivity) {
    rows.push_back({fmt::format("{} {:+.0f} %", off.what, 100.0 * (off.factor - 1.0)),
                    format(off.step),
                    format(off.best_step),
                    percent(off.step / off.best_step - 1.0)});
  }
  return rows;
}

/// The points as rows of characters, step upwards, cap to the right on a logarithmic scale.
std::string plot(const std::vector<SweepPoint>& points, int columns) {
  constexpr int kHeight = 10;
  const auto [least, most] = std::minmax_element(
      points.begin(), points.end(), [](const SweepPoint& a, const SweepPoint& b) {
        return a.step < b.step;
      });
  const double low = least->step.count();
  const double range = std::max(1e-12, most->step.count() - low);
  const double begin = std::log2(static_cast<double>(points.front().cap.count()));
  const double width =
      std::max(1e-9, std::log2(static_cast<double>(points.back().cap.count())) - begin);
  const int inside = std::max(20, columns - 14);
  std::vector<std::string> canvas(kHeight, std::string(static_cast<std::size_t>(inside), ' '));
  for (const SweepPoint& point : points) {
    const double x = (std::log2(static_cast<double>(point.cap.count())) - begin) / width;
    const double y = (point.step.count() - low) / range;
    const auto column = static_cast<std::size_t>(std::lround(x * (inside - 1)));
    const auto row = static_cast<std::size_t>(std::lround((1.0 - y) * (kHeight - 1)));
    canvas[row][column] = '*';
  }
  std::string text;
  for (int row = 0; row < kHeight; ++row) {
    const double step = low + range * (kHeight - 1 - row) / (kHeight - 1);
    const bool labelled = row == 0 || row == kHeight - 1;
    std::string line = fmt::format("{:>11} |{}",
                                   labelled ? format(Seconds(step)) : std::string(),
                                   canvas[static_cast<std::size_t>(row)]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  const std::string first = format(points.front().cap);
  const std::string last = format(points.back().cap);
  text += fmt::format("{:>11} +{:-<{}}\n", "", "", inside);
  text += fmt::format("{:>11}  {}{:>{}}\n",
                      "",
                      first,
                      last,
                      std::max<int>(1, inside - static_cast<int>(first.size())));
  return text;
}

}  // namespace

std::string verdict(const PlanResult& result) {
  return fmt::format(
      "step {}, of it {} exposed communication, in {} {}, {}; no schedule is below {} ({} gap)",
      format(result.step),
      format(std::max(Seconds(0), result.exposed())),
      result.plan.buckets.size(),
      result.plan.buckets.size() == 1 ? "bucket" : "buckets",
      result.optimum_is_exact ? "the optimum for this cost" : "the best found",
      format(result.bound),
      percent(result.bound_gap_ratio()));
}

std::string text_plan(const PlanResult& result) {
  constexpr std::size_t kMostRows = 16;
  std::string text = verdict(result) + "\n\n" + table(alternative_rows(result)) + "\n" +
                     table(bucket_rows(result, kMostRows));
  if (result.buckets.size() > kMostRows) {
    text +=
        fmt::format("and {} more buckets (--json lists them)\n", result.buckets.size() - kMostRows);
  }
  return text + "\n" + bound_lines(result) + "\n" + table(sensitivity_rows(result));
}

std::string text_sweep(const PlanResult& result,
                       const std::vector<SweepPoint>& points,
                       const std::vector<SweepMark>& marks,
                       int columns) {
  if (points.empty()) {
    return {};
  }
  const auto best =
      std::min_element(points.begin(), points.end(), [](const SweepPoint& a, const SweepPoint& b) {
        return a.step < b.step;
      });
  Rows rows = {{"bucket size", "", "buckets", "step", "over the optimum"}};
  std::vector<std::pair<SweepPoint, std::string>> shown;
  shown.reserve(points.size());
  for (const SweepPoint& point : points) {
    shown.emplace_back(point, &point == &*best ? "<- best uniform size" : "");
  }
  for (const SweepMark& mark : marks) {
    const auto near =
        std::min_element(shown.begin(), shown.end(), [&](const auto& a, const auto& b) {
          const auto distance = [&](const auto& entry) {
            return std::abs(std::log(static_cast<double>(entry.first.cap.count()) /
                                     static_cast<double>(mark.cap.count())));
          };
          return distance(a) < distance(b);
        });
    near->second += (near->second.empty() ? "<- " : ", ") + mark.name;
  }
  for (const auto& [point, note] : shown) {
    rows.push_back({format(point.cap),
                    note,
                    std::to_string(point.buckets),
                    format(point.step),
                    more(point.step, result.optimum)});
  }
  return table(rows) + "\n" + plot(points, columns);
}

}  // namespace stretto
