// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stretto/data/machine.hpp"
#include "stretto/measure/fit.hpp"
#include "stretto/measure/measure.hpp"
#include "stretto/measure/overlap.hpp"
#include "stretto/measure/probe.hpp"

namespace stretto::cli {

/// One line through the times of a collective by one algorithm, and the fewest that hold.
struct CollectiveFit {
  Algorithm algorithm = Algorithm::kAuto;
  LineFit line;
  std::vector<FitSegment> segments;
};
[[nodiscard]] std::vector<CollectiveFit> fit_collectives(const Measurement& measurement);

/// All that `stretto measure` found.
struct MeasureResult {
  std::vector<std::string> arguments;
  std::string emulated;  ///< The machine's name; empty for none.
  Measurement measurement;
  bool under_compute = false;       ///< --overlap
  std::vector<OverlapRow> overlap;  ///< Empty without --overlap; its rows are measurement.rows too.
  std::vector<LevelProbe> probes;   ///< Empty on one rank, or when nothing was to be fitted.
  std::vector<CollectiveFit> fits;
  std::optional<Machine> machine;  ///< What probes and rows make; absent without probes.
  std::vector<CodecRate> codecs;   ///< --codec
  std::vector<std::string> files;
  OverRanks over_ranks = OverRanks::kMean;
  bool one_clock = false;
  double precision = 0.0;
};

/// The columns and footer of NCCL tests, with spread behind; then what was fitted. In three parts,
/// for the rows of a long sweep are read while it goes on.
[[nodiscard]] std::string measure_head(const MeasureResult& result);
[[nodiscard]] std::string measure_row(const Measurement& measurement, const MeasuredRow& row);
[[nodiscard]] std::string measure_row(const Measurement& measurement, const OverlapRow& row);
[[nodiscard]] std::string measure_end(const MeasureResult& result);
/// Schema `stretto.measure/1`.
[[nodiscard]] std::string measure_json(const MeasureResult& result);
/// The same where nothing but codecs was measured.
[[nodiscard]] std::string codecs_json(const MeasureResult& result);

/// `f32` in the words of NCCL tests: `float`.
[[nodiscard]] std::string nccl_type_name(DType dtype);
/// Of either vocabulary. @throws Error kInvalidArgument listing the names.
[[nodiscard]] DType dtype_from_either(const std::string& name);
/// `avg` or `mean`, and so on. @throws Error kInvalidArgument listing the names.
[[nodiscard]] ReduceOp reduction_from_either(const std::string& name);

}  // namespace stretto::cli
