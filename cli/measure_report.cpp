// SPDX-License-Identifier: Apache-2.0
#include "measure_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "codecs.hpp"
#include "output.hpp"
#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "version.hpp"

namespace stretto::cli {
namespace {

using nlohmann::ordered_json;

struct TypeName {
  DType dtype;
  std::string_view nccl;
};
constexpr std::array kTypes = {TypeName{DType::kF32, "float"},
                               TypeName{DType::kF64, "double"},
                               TypeName{DType::kF16, "half"},
                               TypeName{DType::kBF16, "bfloat16"},
                               TypeName{DType::kI32, "int32"},
                               TypeName{DType::kI64, "int64"}};

std::string_view nccl_reduction(ReduceOp op) {
  return op == ReduceOp::kMean ? "avg" : to_string(op);
}

bool has_reduction(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

/// Microseconds in seven columns, as many digits as fit.
std::string microseconds(Seconds time) {
  const double us = time.count() * 1e6;
  return fmt::format("{:.{}f}", us, us < 1000 ? 2 : us < 100000 ? 1 : 0);
}

/// GB/s of 10^9; slow networks have three digits too.
std::string gigabytes(BytesPerSecond rate) {
  const double value = rate.value() / 1e9;
  return fmt::format("{:.{}f}", value, value < 1 ? 4 : 2);
}

std::string in_percent(double ratio) {
  return fmt::format("{:.1f}", 100 * ratio);
}

std::string_view over_ranks(OverRanks how) {
  constexpr std::array<std::string_view, 4> kNames = {
      "of rank 0", "mean over ranks", "least over ranks", "most over ranks"};
  return kNames[static_cast<std::size_t>(how)];
}

std::string head(const MeasureResult& result) {
  const Measurement& measurement = result.measurement;
  std::string size_note;
  if (measurement.collective == Collective::kReduceScatter ||
      measurement.collective == Collective::kAllGather) {
    size_note =
        fmt::format("# size and count: the whole tensor; each rank's part is a {}-th of it\n",
                    measurement.ranks);
  } else if (measurement.collective == Collective::kAllToAll) {
    size_note = "# size and count: what a rank sends in all, a block to each rank and itself\n";
  } else if (measurement.collective == Collective::kSendRecv) {
    size_note = "# every rank sends to the next and receives from the one before, at once\n";
  }
  return fmt::format(
             "# {}, {} {} on {}{}; {}\n"
             "# times: median of the samples, {}; +-%: 95 % confidence interval of that median\n",
             to_string(measurement.collective),
             measurement.ranks,
             measurement.ranks == 1 ? "rank" : "ranks",
             measurement.backend,
             result.emulated.empty() ? "" : ", network emulated: " + result.emulated,
             measurement.collective == Collective::kAllToAll ||
                     measurement.collective == Collective::kSendRecv
                 ? "out of place"
                 : "in place",
             result.one_clock ? "from the last rank's start to the last rank's end"
                              : over_ranks(result.over_ranks)) +
         size_note;
}

std::string row_start(const Measurement& measurement, const MeasuredRow& row) {
  return fmt::format(
      "{:>13} {:>13} {:>9} {:>7} {:>6}",
      row.size.count(),
      row.count,
      nccl_type_name(row.dtype),
      has_reduction(measurement.collective) ? nccl_reduction(measurement.op) : "none",
      measurement.root);
}

std::string wrong_text(const MeasuredRow& row) {
  return row.wrong < 0 ? "N/A" : std::to_string(row.wrong);
}

std::string columns() {
  return fmt::format(
      "#{:>12} {:>13} {:>9} {:>7} {:>6} {:>9} {:>7} {:>7} {:>6} {:>9} {:>9} {:>5} {:>6}  {}\n"
      "#{:>12} {:>13} {:>9} {:>7} {:>6} {:>9} {:>7} {:>7} {:>6} {:>9} {:>9}\n",
      "size",
      "count",
      "type",
      "redop",
      "root",
      "time",
      "algbw",
      "busbw",
      "#wrong",
      "p10",
      "p90",
      "+-%",
      "iters",
      "algorithm, buffers",
      "(B)",
      "(elements)",
      "",
      "",
      "",
      "(us)",
      "(GB/s)",
      "(GB/s)",
      "",
      "(us)",
      "(us)");
}

std::string overlap_columns() {
  return fmt::format(
      "#{:>12} {:>13} {:>9} {:>7} {:>6} {:>11} {:>11} {:>13} {:>10} {:>8} {:>6} {:>6}  {}\n"
      "#{:>12} {:>13} {:>9} {:>7} {:>6} {:>11} {:>11} {:>13} {:>10} {:>8}\n",
      "size",
      "count",
      "type",
      "redop",
      "root",
      "Overall(us)",
      "Compute(us)",
      "Pure-Comm(us)",
      "Overlap(%)",
      "slowdown",
      "#wrong",
      "iters",
      "algorithm, buffers",
      "(B)",
      "(elements)",
      "",
      "",
      "",
      "",
      "",
      "",
      "",
      "(x)");
}

std::string segments_text(const std::vector<FitSegment>& segments) {
  if (segments.size() < 2) {
    return "";
  }
  std::string text;
  for (const FitSegment& segment : segments) {
    text += fmt::format(
        "#     {} to {}: {}, {}, within {} %\n",
        format(segment.first),
        format(segment.last),
        format(segment.line.latency),
        segment.line.seconds_per_byte > 0 ? format(segment.line.bandwidth()) : "whatever the size",
        in_percent(segment.line.worst_residual));
  }
  return text;
}

std::string line_text(const LineFit& line) {
  return fmt::format("{} + size / {}",
                     format(line.latency),
                     line.seconds_per_byte > 0 ? format(line.bandwidth()) : "(does not grow)");
}

std::string fit_text(const MeasureResult& result) {
  std::string text;
  for (std::size_t i = 0; i < result.probes.size(); ++i) {
    const LevelProbe& probe = result.probes[i];
    text += fmt::format(
        "# link {}: latency {}, bandwidth {}{}; the line is off by {} % at most\n",
        result.machine->levels[i].name,
        format(result.machine->levels[i].latency),
        format(result.machine->levels[i].bandwidth),
        probe.sharing == 1 ? std::string() : fmt::format(", shared by {} ranks", probe.sharing),
        in_percent(probe.line.worst_residual));
    text += segments_text(probe.segments);
  }
  for (const CollectiveFit& fit : result.fits) {
    text += fmt::format("# {} by {}: {}; off by {} % at most\n",
                        to_string(result.measurement.collective),
                        to_string(fit.algorithm),
                        line_text(fit.line),
                        in_percent(fit.line.worst_residual));
    text += segments_text(fit.segments);
  }
  return text;
}

std::string footer(const MeasureResult& result) {
  const Measurement& measurement = result.measurement;
  const bool checked = std::any_of(measurement.rows.begin(),
                                   measurement.rows.end(),
                                   [](const MeasuredRow& row) { return row.wrong >= 0; });
  std::string text = "#\n";
  if (checked) {
    text += fmt::format("# Out of bounds values : {} {}\n",
                        measurement.wrong(),
                        measurement.wrong() == 0 ? "OK" : "FAILED");
  }
  text += fmt::format("# Avg bus bandwidth    : {}\n", gigabytes(measurement.mean_bus_bandwidth()));
  const auto open = std::count_if(measurement.rows.begin(),
                                  measurement.rows.end(),
                                  [](const MeasuredRow& row) { return !row.settled; });
  if (open > 0) {
    text += fmt::format(
        "# {} of {} rows ended before their median was known to +-{} %; see --precision, "
        "--max-iters, --budget\n",
        open,
        measurement.rows.size(),
        in_percent(result.precision));
  }
  return text + "#\n";
}

ordered_json number_or_null(double value) {
  return std::isfinite(value) && value > 0 ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json segments_json(const std::vector<FitSegment>& segments) {
  ordered_json json = ordered_json::array();
  for (const FitSegment& segment : segments) {
    json.push_back({{"first_bytes", segment.first.count()},
                    {"last_bytes", segment.last.count()},
                    {"latency_s", segment.line.latency.count()},
                    {"bandwidth_bytes_per_s", number_or_null(segment.line.bandwidth().value())},
                    {"worst_residual_ratio", segment.line.worst_residual}});
  }
  return json;
}

ordered_json spread_json(const Spread& spread) {
  return {{"time_s", spread.median.count()},
          {"time_p10_s", spread.p10.count()},
          {"time_p90_s", spread.p90.count()},
          {"time_min_s", spread.least.count()},
          {"time_max_s", spread.most.count()},
          {"confidence_ratio", spread.confidence_ratio},
          {"samples", spread.samples}};
}

ordered_json row_json(const MeasuredRow& row) {
  ordered_json json{{"size_bytes", row.size.count()},
                    {"count", row.count},
                    {"algorithm", to_string(row.algorithm)},
                    {"dtype", to_string(row.dtype)},
                    {"buffers", to_string(row.buffers)}};
  json.update(spread_json(row.time));
  json["calls_per_sample"] = row.block;
  json["settled"] = row.settled;
  json["algbw_bytes_per_s"] = row.algorithm_bandwidth.value();
  json["busbw_bytes_per_s"] = row.bus_bandwidth.value();
  json["wrong"] = row.wrong < 0 ? ordered_json(nullptr) : ordered_json(row.wrong);
  return json;
}

ordered_json fit_json(const MeasureResult& result) {
  if (result.probes.empty()) {
    return nullptr;
  }
  ordered_json levels = ordered_json::array();
  for (std::size_t i = 0; i < result.probes.size(); ++i) {
    const LevelProbe& probe = result.probes[i];
    const Level& level = result.machine->levels[i];
    ordered_json points = ordered_json::array();
    for (std::size_t p = 0; p < probe.points.size(); ++p) {
      ordered_json point{{"size_bytes", probe.points[p].size.count()},
                         {"fitted_time_s", probe.points[p].time.count()},
                         {"residual_ratio", probe.line.residuals[p]}};
      point.update(spread_json(probe.spreads[p]));
      points.push_back(std::move(point));
    }
    levels.push_back({{"name", level.name},
                      {"group_size", level.group_size},
                      {"ranks_sharing", probe.sharing},
                      {"latency_s", level.latency.count()},
                      {"bandwidth_bytes_per_s", level.bandwidth.value()},
                      {"worst_residual_ratio", probe.line.worst_residual},
                      {"segments", segments_json(probe.segments)},
                      {"points", std::move(points)}});
  }
  ordered_json collectives = ordered_json::array();
  for (const CollectiveFit& fit : result.fits) {
    collectives.push_back({{"collective", to_string(result.measurement.collective)},
                           {"algorithm", to_string(fit.algorithm)},
                           {"latency_s", fit.line.latency.count()},
                           {"bandwidth_bytes_per_s", number_or_null(fit.line.bandwidth().value())},
                           {"worst_residual_ratio", fit.line.worst_residual},
                           {"segments", segments_json(fit.segments)}});
  }
  const Level& outermost = result.machine->levels.back();
  return {{"latency_s", outermost.latency.count()},
          {"bandwidth_bytes_per_s", outermost.bandwidth.value()},
          {"levels", std::move(levels)},
          {"collectives", std::move(collectives)}};
}

}  // namespace

std::vector<CollectiveFit> fit_collectives(const Measurement& measurement) {
  std::vector<CollectiveFit> fits;
  for (const CollectiveCurve& curve : curves_of(measurement)) {
    if (curve.points.size() < 2) {
      continue;  // one size says nothing about others
    }
    fits.push_back({curve.algorithm, fit_line(curve.points), fit_segments(curve.points)});
  }
  return fits;
}

std::string measure_head(const MeasureResult& result) {
  return head(result) + "#\n" + (result.under_compute ? overlap_columns() : columns());
}

std::string measure_row(const Measurement& measurement, const MeasuredRow& row) {
  return fmt::format("{} {:>9} {:>7} {:>7} {:>6} {:>9} {:>9} {:>5} {:>6}  {}, {}\n",
                     row_start(measurement, row),
                     microseconds(row.time.median),
                     gigabytes(row.algorithm_bandwidth),
                     gigabytes(row.bus_bandwidth),
                     wrong_text(row),
                     microseconds(row.time.p10),
                     microseconds(row.time.p90),
                     in_percent(row.time.confidence_ratio),
                     row.time.samples * row.block,
                     to_string(row.algorithm),
                     to_string(row.buffers));
}

std::string measure_row(const Measurement& measurement, const OverlapRow& row) {
  return fmt::format("{} {:>11} {:>11} {:>13} {:>10.2f} {:>8} {:>6} {:>6}  {}, {}\n",
                     row_start(measurement, row.row),
                     microseconds(row.overall.median),
                     microseconds(row.compute.median),
                     microseconds(row.pure_communication.median),
                     100 * row.overlap_ratio,
                     row.compute_slowdown ? fmt::format("{:.3f}", *row.compute_slowdown) : "n/a",
                     wrong_text(row.row),
                     row.overall.samples,
                     to_string(row.row.algorithm),
                     to_string(row.row.buffers));
}

std::string measure_end(const MeasureResult& result) {
  std::string text;
  if (result.under_compute) {
    text +=
        "# Overlap = 100 (1 - (Overall - Compute) / Pure-Comm), from 0 to 100; Compute is real "
        "arithmetic, alone on all ranks\n"
        "# slowdown: compute while the operation is in flight, over the same compute alone\n";
  }
  text += footer(result) + fit_text(result);
  std::string machine_file;
  if (!result.codecs.empty()) {
    text += "\n" + codec_table(result.codecs);
  }
  for (const std::string& file : result.files) {
    text += fmt::format("wrote {}\n", file);
    machine_file = file;
  }
  if (!machine_file.empty()) {
    text += fmt::format("next: stretto plan resnet50 --machine {}\n", machine_file);
  } else if (result.machine) {
    text += fmt::format("next: {}   (a file for plan, simulate and --emulate)\n",
                        command_line(result.arguments) + " --machine-out machine.json");
  }
  return text;
}

namespace {

ordered_json rates_json(const std::vector<CodecRate>& rates) {
  ordered_json list = ordered_json::array();
  for (const CodecRate& rate : rates) {
    list.push_back({{"codec", to_string(rate.codec)},
                    {"encode_bytes_per_s", rate.encode.value()},
                    {"decode_bytes_per_s", rate.decode.value()},
                    {"ratio", rate.ratio},
                    {"error_ratio", rate.error}});
  }
  return list;
}

}  // namespace

std::string codecs_json(const MeasureResult& result) {
  const ordered_json document{
      {"schema", "stretto.measure/1"},
      {"version", kVersion},
      {"arguments", result.arguments},
      {"codecs", rates_json(result.codecs)},
      {"machine",
       result.machine ? ordered_json::parse(to_json(*result.machine)) : ordered_json(nullptr)},
      {"files", result.files}};
  return document.dump(2) + "\n";
}

std::string measure_json(const MeasureResult& result) {
  const Measurement& measurement = result.measurement;
  ordered_json rows = ordered_json::array();
  for (std::size_t i = 0; i < measurement.rows.size(); ++i) {
    ordered_json row = row_json(measurement.rows[i]);
    if (!result.overlap.empty()) {
      const OverlapRow& overlap = result.overlap[i];
      row["overall_s"] = overlap.overall.median.count();
      row["compute_s"] = overlap.compute.median.count();
      row["pure_communication_s"] = overlap.pure_communication.median.count();
      row["overlap_ratio"] = overlap.overlap_ratio;
      row["compute_slowdown"] = overlap.compute_slowdown ? ordered_json(*overlap.compute_slowdown)
                                                         : ordered_json(nullptr);
    }
    rows.push_back(std::move(row));
  }
  const ordered_json document{
      {"schema", "stretto.measure/1"},
      {"version", kVersion},
      {"arguments", result.arguments},
      {"op", to_string(measurement.collective)},
      {"backend", measurement.backend},
      {"ranks", measurement.ranks},
      {"emulated", result.emulated.empty() ? ordered_json(nullptr) : ordered_json(result.emulated)},
      {"reduction",
       has_reduction(measurement.collective) ? ordered_json(to_string(measurement.op))
                                             : ordered_json(nullptr)},
      {"root", measurement.root < 0 ? ordered_json(nullptr) : ordered_json(measurement.root)},
      {"rows", std::move(rows)},
      {"out_of_bounds", measurement.wrong()},
      {"average_busbw_bytes_per_s", measurement.mean_bus_bandwidth().value()},
      {"fit", fit_json(result)},
      {"codecs", rates_json(result.codecs)},
      {"machine",
       result.machine ? ordered_json::parse(to_json(*result.machine)) : ordered_json(nullptr)},
      {"files", result.files}};
  return document.dump(2) + "\n";
}

std::string nccl_type_name(DType dtype) {
  for (const TypeName& type : kTypes) {
    if (type.dtype == dtype) {
      return std::string(type.nccl);
    }
  }
  return std::string(to_string(dtype));
}

DType dtype_from_either(const std::string& name) {
  std::vector<std::string_view> names;
  for (const TypeName& type : kTypes) {
    if (name == type.nccl || name == to_string(type.dtype)) {
      return type.dtype;
    }
    names.push_back(type.nccl);
    if (to_string(type.dtype) != type.nccl) {
      names.push_back(to_string(type.dtype));
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              {"no such data type", "", quote(name), "one of all, " + join(names), ""});
}

ReduceOp reduction_from_either(const std::string& name) {
  constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax};
  for (const ReduceOp op : kOps) {
    if (name == to_string(op) || name == nccl_reduction(op)) {
      return op;
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              {"no such reduction", "", quote(name), "one of sum, avg (mean), min, max", ""});
}

}  // namespace stretto::cli
