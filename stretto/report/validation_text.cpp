// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "stretto/report/report.hpp"
#include "stretto/simulate/validate.hpp"

namespace stretto {
namespace {

std::string percent(double ratio) {
  return fmt::format("{:.2f} %", 100.0 * ratio);
}

std::string verdict(const ValidationRow& row) {
  if (row.target <= 0.0) {
    return "";
  }
  return row.mean_error <= row.target ? "met" : "missed";
}

}  // namespace

std::string validation_text(const std::vector<ValidationRow>& rows) {
  std::vector<std::vector<std::string>> cells = {{"series",
                                                  "rows",
                                                  "calibrated on",
                                                  "tested on",
                                                  "mean error",
                                                  "worst",
                                                  "target",
                                                  "",
                                                  "note"}};
  std::string notes;
  std::size_t number = 0;
  for (const ValidationRow& row : rows) {
    std::string mark;
    if (!row.note.empty()) {
      mark = fmt::format("[{}]", ++number);
      notes += mark + " " + row.note + "\n";
    }
    if (row.test_rows == 0) {
      cells.push_back({row.series, std::to_string(row.rows), "", "0", "n/a", "n/a", "", "", mark});
      continue;
    }
    cells.push_back({row.series,
                     std::to_string(row.rows),
                     std::to_string(row.calibration_rows),
                     std::to_string(row.test_rows),
                     percent(row.mean_error),
                     percent(row.worst_error),
                     row.target > 0.0 ? percent(row.target) : "",
                     verdict(row),
                     mark});
  }
  return table(cells) + (notes.empty() ? "" : "\n" + notes);
}

}  // namespace stretto
