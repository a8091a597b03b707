// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/data/summary.hpp"
#include "stretto/data/timeline.hpp"

namespace stretto {

struct ValidationRow;

/// Chrome trace JSON that Perfetto opens without errors: one process per rank; on a thread no two
/// slices overlap (communication that does is spread over several); arrows from a bucket's last
/// ready gradient to its communication. Times in microseconds with three decimals; Timeline's
/// origin stands beside them as `baseTimeNanoseconds`.
[[nodiscard]] std::string chrome_trace(const Timeline& timeline);

/// One line per record, RFC 4180, times in nanoseconds from the origin.
[[nodiscard]] std::string csv_records(const Timeline& timeline);

struct TextTimelineOptions {
  int columns = 100;   ///< Width of the whole picture.
  bool color = false;  ///< ANSI colours.
  std::uint32_t step = 0;
};

/// One step as text, two rows per rank (compute, communication), exposed stretches marked, with
/// axis and legend. Each character shows what filled most of its time.
/// @throws Error kInvalidArgument when the timeline has no such step.
[[nodiscard]] std::string text_timeline(const Timeline& timeline,
                                        const TextTimelineOptions& options);

/// The step whose duration (mean over ranks) is nearest the median: the one to draw. 0 for none.
[[nodiscard]] std::uint32_t typical_step(const Timeline& timeline);

/// Columns separated by two spaces, first column left, others right aligned; width in terminal
/// cells.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows);

struct NamedSummary {
  std::string name;
  Summary summary;
};
/// One row per run: step, exposed, hidden, bound, gap, samples/s.
[[nodiscard]] std::string comparison_table(const std::vector<NamedSummary>& runs);
enum class BucketRows : std::uint8_t {
  kMostExposed,  ///< At most 20.
  kAll,          ///< And what each took on the wire.
};
/// The buckets of a Summary, and what each began after.
[[nodiscard]] std::string bucket_table(const Summary& summary,
                                       BucketRows which = BucketRows::kMostExposed);
/// All numbers of one Summary, each ratio with its formula.
/// @param steps_marked False if its one step is a whole recording.
[[nodiscard]] std::string text_summary(const Summary& summary, bool steps_marked = true);

/// One row per series: rows used to calibrate and to test, mean and worst error, target and whether
/// it is met. Notes stand below, numbered.
[[nodiscard]] std::string validation_text(const std::vector<ValidationRow>& rows);

}  // namespace stretto
