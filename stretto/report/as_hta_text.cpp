// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <fmt/format.h>

#include "stretto/report/explanation.hpp"
#include "stretto/report/report.hpp"

namespace stretto {
namespace {

std::string overlap(const HtaNumbers& numbers) {
  const auto percent = numbers.overlap_percent();
  return percent ? fmt::format("{:.2f} %", *percent) : std::string("nan");
}

std::vector<std::string> row_of(std::string what, const HtaNumbers& numbers) {
  const auto us = [](std::int64_t ns) {
    return ns % 1000 == 0 ? std::to_string(ns / 1000)
                          : fmt::format("{:.3f}", static_cast<double>(ns) / 1000.0);
  };
  return {std::move(what),
          std::to_string(numbers.rows),
          overlap(numbers),
          us(numbers.idle_ns),
          us(numbers.compute_ns),
          us(numbers.non_compute_ns()),
          us(numbers.kernel_time_ns)};
}

}  // namespace

std::string text_as_hta(const std::vector<AsHta>& ranks) {
  std::string text;
  for (const AsHta& rank : ranks) {
    std::vector<std::vector<std::string>> rows = {{fmt::format("rank {}", rank.rank),
                                                   "rows",
                                                   "overlap",
                                                   "idle us",
                                                   "compute us",
                                                   "non-compute us",
                                                   "kernel time us"}};
    for (const HtaStage& stage : rank.stages) {
      rows.push_back(row_of(stage.what, stage.numbers));
    }
    rows.push_back(row_of("HTA, include_last_profiler_step=True", rank.with_last_step));
    text += (text.empty() ? "" : "\n") + table(rows) +
            fmt::format("HTA prints an overlap of {} (with the last step: {})\n",
                        overlap(rank.stages.back().numbers),
                        overlap(rank.with_last_step));
  }
  return text.empty() ? std::string(
                            "no row of a device that this program reads: nothing to compare (HTA "
                            "may take other rows for "
                            "those of a device)\n")
                      : text;
}

}  // namespace stretto
