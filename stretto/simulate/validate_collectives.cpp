// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/measurements.hpp"
#include "stretto/simulate/validate.hpp"

namespace stretto {
namespace {

constexpr double kCurveTarget = 0.05;

using Points = std::vector<CurvePoint>;

/// The series of one file: their names from these columns, their points.
std::map<std::string, Points> series_of(const Measurements& table,
                                        std::span<const std::string_view> name_columns,
                                        std::string_view time_column) {
  std::map<std::string, Points> result;
  for (std::size_t row = 0; row < table.size(); ++row) {
    if (table.text(row, time_column).empty()) {
      continue;
    }
    std::string name;
    for (const std::string_view column : name_columns) {
      name += (name.empty() ? "" : " ") + table.text(row, column);
    }
    result[name].push_back({Bytes(static_cast<std::int64_t>(table.number(row, "size_bytes"))),
                            Seconds(table.number(row, time_column) * 1e-6)});
  }
  for (auto& series : result) {
    std::sort(series.second.begin(),
              series.second.end(),
              [](const CurvePoint& a, const CurvePoint& b) { return a.size < b.size; });
  }
  return result;
}

/// Points 0, 2, 4... are the curve, the others are predicted from it.
ValidationRow every_second(std::string name, const Points& points) {
  Points curve;
  for (std::size_t i = 0; i < points.size(); i += 2) {
    curve.push_back(points[i]);
  }
  ValidationRow row;
  row.series = std::move(name);
  row.rows = static_cast<int>(points.size());
  row.calibration_rows = static_cast<int>(curve.size());
  for (std::size_t i = 1; i < points.size(); i += 2) {
    const double error = std::abs(interpolate_affine(curve, points[i].size) / points[i].time - 1.0);
    row.mean_error += error;
    row.worst_error = std::max(row.worst_error, error);
    ++row.test_rows;
  }
  if (row.test_rows > 0) {
    row.mean_error /= row.test_rows;
  }
  return row;
}

struct CurveFile {
  std::string_view name;
  std::vector<std::string_view> name_columns;
  std::string_view time_column;
};

/// A row for all series of a file together, which the target is for, then one for each.
void validate_file(const std::string& directory,
                   const CurveFile& file,
                   std::vector<ValidationRow>& rows) {
  const std::string path = directory + "/" + std::string(file.name);
  ValidationRow all;
  all.series = "curve: " + std::string(file.name);
  all.target = kCurveTarget;
  if (!std::filesystem::exists(path)) {
    all.note = "not in the directory";
    rows.push_back(all);
    return;
  }
  std::vector<ValidationRow> parts;
  const auto series = series_of(read_measurements(path), file.name_columns, file.time_column);
  for (const auto& [name, points] : series) {
    const ValidationRow part = every_second("  " + name, points);
    all.rows += part.rows;
    all.calibration_rows += part.calibration_rows;
    all.test_rows += part.test_rows;
    all.mean_error += part.mean_error * part.test_rows;
    all.worst_error = std::max(all.worst_error, part.worst_error);
    parts.push_back(part);
  }
  if (all.test_rows > 0) {
    all.mean_error /= all.test_rows;
  }
  all.note = "every second size is the curve, the others are the test";
  rows.push_back(all);
  rows.insert(rows.end(), parts.begin(), parts.end());
}

}  // namespace

Seconds interpolate_affine(std::span<const CurvePoint> points, Bytes size) {
  const auto above = std::lower_bound(
      points.begin(), points.end(), size, [](const CurvePoint& point, Bytes wanted) {
        return point.size < wanted;
      });
  if (above == points.begin()) {
    return points.front().time;
  }
  if (above != points.end() && above->size == size) {
    return above->time;
  }
  const bool beyond = above == points.end();
  if (beyond && points.size() == 1) {
    return points.front().time;
  }
  const CurvePoint& high = beyond ? points.back() : *above;
  const CurvePoint& low = beyond ? points[points.size() - 2] : *(above - 1);
  const double share = static_cast<double>((size - low.size).count()) /
                       static_cast<double>((high.size - low.size).count());
  const Seconds time = low.time + share * (high.time - low.time);
  return beyond ? std::max(time, high.time) : time;
}

std::vector<ValidationRow> validate_collectives(const std::string& directory) {
  const std::vector<CurveFile> files = {
      {"nccl_allreduce.csv", {"series"}, "time_us_oop"},
      {"allreduce_lut_a100.csv", {"gpu", "ranks"}, "time_us_oop"},
      {"allreduce_lut_v100.csv", {"gpu", "ranks"}, "time_us_oop"},
      {"galvatron_allreduce_alltoall_1node.csv", {"op", "ranks"}, "time_us"},
  };
  std::vector<ValidationRow> rows;
  for (const CurveFile& file : files) {
    validate_file(directory, file, rows);
  }
  return rows;
}

}  // namespace stretto
