// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "stretto/base/error.hpp"
#include "stretto/base/intervals.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/report/report.hpp"

namespace stretto {
namespace {

/// What one character of the picture can say.
struct Mark {
  std::string_view symbol;
  std::string_view meaning;
  std::string_view color;  // ANSI
};
constexpr Mark kForward{"F", "forward", "34"};
constexpr Mark kBackward{"B", "backward", "32"};
constexpr Mark kOptimizer{"O", "optimizer", "33"};
constexpr Mark kCompute{"C", "compute", "34"};
constexpr Mark kWaiting{"·", "waiting", "2"};
constexpr Mark kHidden{"░", "hidden", "36"};
constexpr Mark kExposed{"█", "exposed communication", "31"};
constexpr std::array<const Mark*, 7> kLegend = {
    &kForward, &kBackward, &kOptimizer, &kCompute, &kWaiting, &kHidden, &kExposed};

/// Times drawn with one mark in one row.
struct Layer {
  const Mark* mark = nullptr;
  IntervalSet times;
};

struct RankRows {
  std::vector<Layer> compute;
  std::vector<Layer> communication;
};

struct RankRecords {
  std::map<RecordKind, std::vector<Interval>> pieces;
};

RankRows rows_of(const RankRecords& records) {
  constexpr std::array<std::pair<RecordKind, const Mark*>, 5> kMarks = {
      std::pair{RecordKind::kForward, &kForward},
      std::pair{RecordKind::kBackward, &kBackward},
      std::pair{RecordKind::kOptimizer, &kOptimizer},
      std::pair{RecordKind::kCompute, &kCompute},
      std::pair{RecordKind::kWait, &kWaiting},
  };
  const auto times_of = [&](RecordKind kind) {
    const auto found = records.pieces.find(kind);
    return found == records.pieces.end() ? IntervalSet() : IntervalSet(found->second);
  };
  RankRows rows;
  IntervalSet compute;
  for (const auto& [kind, mark] : kMarks) {
    rows.compute.push_back({mark, times_of(kind)});
    if (is_compute(kind)) {
      compute = unite(compute, rows.compute.back().times);
    }
  }
  const IntervalSet communication = times_of(RecordKind::kCommunication);
  rows.communication.push_back({&kHidden, intersect(communication, compute)});
  rows.communication.push_back({&kExposed, subtract(communication, compute)});
  return rows;
}

/// Time to character: cell i shows [edge(i), edge(i + 1)).
class Scale {
 public:
  Scale(Interval window, int cells) : window_(window), cells_(cells) {}

  [[nodiscard]] int cells() const { return cells_; }
  [[nodiscard]] Interval window() const { return window_; }
  [[nodiscard]] std::int64_t edge(int cell) const {
    const double share = static_cast<double>(cell) / cells_;
    return window_.begin_ns + std::llround(share * length_ns());
  }
  [[nodiscard]] double length_ns() const {
    return static_cast<double>(window_.end_ns - window_.begin_ns);
  }

 private:
  Interval window_;
  int cells_;
};

/// In each cell the layer that fills most of it, if it fills more than is left blank.
std::vector<const Mark*> draw(std::span<const Layer> layers, const Scale& scale) {
  std::vector<const Mark*> row;
  for (int cell = 0; cell < scale.cells(); ++cell) {
    const Interval inside{scale.edge(cell), scale.edge(cell + 1)};
    std::int64_t blank = inside.end_ns - inside.begin_ns;
    std::int64_t most = 0;
    const Mark* mark = nullptr;
    for (const Layer& layer : layers) {
      const std::int64_t filled = layer.times.measure_within_ns(inside);
      blank -= filled;
      if (filled > most) {
        most = filled;
        mark = layer.mark;
      }
    }
    row.push_back(most > blank ? mark : nullptr);
  }
  return row;
}

std::string text_of(const std::vector<const Mark*>& row, bool color) {
  std::string text;
  const Mark* before = nullptr;
  for (const Mark* mark : row) {
    if (color && mark != before) {
      text += before != nullptr ? "\x1b[0m" : "";
      text += mark != nullptr ? fmt::format("\x1b[{}m", mark->color) : "";
    }
    text += mark != nullptr ? mark->symbol : " ";
    before = mark;
  }
  text += color && before != nullptr ? "\x1b[0m" : "";
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

/// The largest of 1, 2, 5 times a power of ten that leaves room for labels.
double tick_ms(const Scale& scale) {
  constexpr double kCellsPerTick = 8.0;
  const double least = scale.length_ns() * 1e-6 * kCellsPerTick / scale.cells();
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) {
      return factor * power;
    }
  }
  return 10.0 * power;
}

std::string axis(const Scale& scale, std::size_t indent) {
  const double tick = tick_ms(scale);
  const double length_ms = scale.length_ns() * 1e-6;
  std::vector<std::string_view> line(static_cast<std::size_t>(scale.cells()), "─");
  std::string labels(indent, ' ');
  for (int i = 0; i * tick < length_ms; ++i) {
    const auto cell = static_cast<std::size_t>(i * tick / length_ms * scale.cells());
    if (cell >= line.size()) {
      break;
    }
    line[cell] = "┬";
    labels.resize(std::max(labels.size(), indent + cell), ' ');
    labels += fmt::format("{:.6g}", i * tick);
  }
  std::string text(indent, ' ');
  for (const std::string_view symbol : line) {
    text += symbol;
  }
  return text + "\n" + labels + " ms\n";
}

std::string legend(const std::vector<const Mark*>& used, bool color) {
  std::string text;
  for (const Mark* mark : kLegend) {
    if (std::find(used.begin(), used.end(), mark) != used.end()) {
      text +=
          (text.empty() ? "" : "  ") + text_of({mark}, color) + " " + std::string(mark->meaning);
    }
  }
  return text + "\n";
}

[[noreturn]] void no_such_step(const Timeline& timeline, std::uint32_t step) {
  throw Error(ErrorCode::kInvalidArgument,
              {"the timeline has no such step",
               {},
               std::to_string(step),
               "one of the " + std::to_string(timeline.steps_recorded) + " recorded",
               {}});
}

}  // namespace

std::string text_timeline(const Timeline& timeline, const TextTimelineOptions& options) {
  std::map<std::uint32_t, RankRecords> ranks;
  Interval window{std::numeric_limits<std::int64_t>::max(),
                  std::numeric_limits<std::int64_t>::min()};
  for (const Record& record : timeline.records) {
    if (record.step != options.step) {
      continue;
    }
    ranks[record.rank].pieces[record.kind].push_back({record.begin_ns, record.end_ns});
    if (record.kind == RecordKind::kStep) {
      window = {std::min(window.begin_ns, record.begin_ns), std::max(window.end_ns, record.end_ns)};
    }
  }
  if (window.end_ns <= window.begin_ns) {
    no_such_step(timeline, options.step);
  }
  constexpr int kFewestCells = 20;
  const std::size_t digits = std::to_string(ranks.rbegin()->first).size();
  const std::size_t indent =
      std::string_view("rank ").size() + digits + 1 + std::string_view("compute  ").size();
  const Scale scale(window, std::max(kFewestCells, options.columns - static_cast<int>(indent)));
  std::string text;
  std::vector<const Mark*> used;
  for (const auto& [rank, records] : ranks) {
    const RankRows rows = rows_of(records);
    const std::vector<const Mark*> compute = draw(rows.compute, scale);
    const std::vector<const Mark*> communication = draw(rows.communication, scale);
    used.insert(used.end(), compute.begin(), compute.end());
    used.insert(used.end(), communication.begin(), communication.end());
    text += fmt::format("rank {:>{}} compute  {}\n", rank, digits, text_of(compute, options.color));
    text += fmt::format("{:{}}comm     {}\n",
                        "",
                        indent - std::string_view("comm     ").size(),
                        text_of(communication, options.color));
  }
  return text + axis(scale, indent) + std::string(indent, ' ') + legend(used, options.color);
}

std::uint32_t typical_step(const Timeline& timeline) {
  struct Sum {
    double ns = 0.0;
    double ranks = 0.0;
  };
  std::map<std::uint32_t, Sum> steps;
  for (const Record& record : timeline.records) {
    if (record.kind == RecordKind::kStep) {
      steps[record.step].ns += static_cast<double>(record.end_ns - record.begin_ns);
      steps[record.step].ranks += 1.0;
    }
  }
  std::vector<double> means;
  means.reserve(steps.size());
  for (const auto& [number, sum] : steps) {
    means.push_back(sum.ns / sum.ranks);
  }
  const double middle = median(means);
  std::uint32_t typical = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [number, sum] : steps) {
    const double distance = std::abs(sum.ns / sum.ranks - middle);
    if (distance < least) {
      least = distance;
      typical = number;
    }
  }
  return typical;
}

}  // namespace stretto
