// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "analyze/timeline_builder.hpp"
#include "stretto/base/error.hpp"
#include "stretto/report/cells.hpp"
#include "stretto/report/report.hpp"
#include "stretto/simulate/validate.hpp"

namespace stretto {
namespace {

TEST(Cells, CountWhatATerminalShows) {
  EXPECT_EQ(detail::cells("abc"), 3U);
  EXPECT_EQ(detail::cells("░█·"), 3U);
  EXPECT_EQ(detail::cells("漢字"), 4U);
  EXPECT_EQ(detail::cells("e\xcc\x81"), 1U);  // e with a combining acute
  EXPECT_EQ(detail::cells("\xf0\x9f\x9a\x80"), 2U);
  EXPECT_EQ(detail::cells("\xff\xc3"), 2U);
  EXPECT_EQ(detail::cells(""), 0U);
}

TEST(Table, AlignsByCells) {
  EXPECT_EQ(table({{"run", "step"}, {"漢字", "1 ms"}, {"a", "20.5 ms"}}),
            "run      step\n"
            "漢字     1 ms\n"
            "a     20.5 ms\n");
  EXPECT_EQ(table({{"short"}, {"a", "b", "c"}}), "short\na      b  c\n");
  EXPECT_EQ(table({}), "");
}

Timeline one_step() {
  testing::TimelineBuilder builder(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    builder.step(3, rank, 500, 40)
        .compute(RecordKind::kForward, "f", 0, 10)
        .compute(RecordKind::kBackward, "b", 10, 25)
        .compute(RecordKind::kWait, "wait", 25, 35)
        .compute(RecordKind::kOptimizer, "o", 35, 40)
        .bucket(0, 1, 15, 15, 35);
  }
  return builder.timeline();
}

TEST(TextTimeline, OneStepTwoRanks) {
  // 16 cells of label and one cell per ms.
  const std::string text = text_timeline(one_step(), {.columns = 56, .color = false, .step = 3});
  EXPECT_EQ(text,
            "rank 0 compute  FFFFFFFFFFBBBBBBBBBBBBBBB··········OOOOO\n"
            "       comm                    ░░░░░░░░░░██████████\n"
            "rank 1 compute  FFFFFFFFFFBBBBBBBBBBBBBBB··········OOOOO\n"
            "       comm                    ░░░░░░░░░░██████████\n"
            "                ┬─────────┬─────────┬─────────┬─────────\n"
            "                0         10        20        30 ms\n"
            "                F forward  B backward  O optimizer  · waiting  ░ hidden  "
            "█ exposed communication\n");
}

TEST(TextTimeline, FitsItsColumns) {
  for (const int columns : {60, 80, 100}) {
    const std::string text = text_timeline(one_step(), {.columns = columns, .step = 3});
    std::istringstream lines(text);
    std::string line;
    for (int i = 0; i < 5 && std::getline(lines, line); ++i) {
      EXPECT_LE(detail::cells(line), static_cast<std::size_t>(columns));
    }
  }
}

TEST(TextTimeline, ColourOnlyWhenAsked) {
  EXPECT_EQ(text_timeline(one_step(), {.step = 3}).find('\x1b'), std::string::npos);
  EXPECT_NE(text_timeline(one_step(), {.color = true, .step = 3}).find("\x1b[31m█"),
            std::string::npos);
}

TEST(TextTimeline, AStepThatIsNotThereIsAnError) {
  EXPECT_THROW((void)text_timeline(one_step(), {.step = 4}), Error);
  EXPECT_THROW((void)text_timeline(Timeline{}, {}), Error);
}

TEST(TypicalStep, IsTheOneNearestTheMedian) {
  testing::TimelineBuilder builder(1);
  builder.step(7, 0, 0, 30).step(8, 0, 40, 11).step(9, 0, 60, 10);
  EXPECT_EQ(typical_step(builder.timeline()), 8U);
  EXPECT_EQ(typical_step(Timeline{}), 0U);
}

Summary known_summary() {
  Summary summary;
  summary.steps = 40;
  summary.ranks = 2;
  summary.step = Seconds(0.060);
  summary.compute = Seconds(0.050);
  summary.communication = Seconds(0.030);
  summary.exposed = Seconds(0.006);
  summary.bound = Seconds(0.050);
  return summary;
}

TEST(SummaryText, EveryRatioHasItsFormula) {
  const std::string text = text_summary(known_summary());
  for (const char* line : {"exposed communication  6.000 ms per step",
                           "hidden ratio           80.0 %",
                           "1 - exposed/communication",
                           "overlap degree         90.0 %",
                           "1 - exposed/step",
                           "communication ratio    37.5 %",
                           "communication/(communication + compute)",
                           "gap to the bound       20.0 %",
                           "step/bound - 1"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

TEST(SummaryText, WithoutCommunicationRatiosAreNotAvailable) {
  Summary summary = known_summary();
  summary.communication = Seconds(0);
  summary.exposed = Seconds(0);
  const std::string text = text_summary(summary);
  EXPECT_NE(text.find("hidden ratio           n/a (no communication)"), std::string::npos) << text;
  EXPECT_EQ(text.find("100.0 %"), std::string::npos) << text;
  EXPECT_NE(comparison_table({{"serial", summary}}).find("n/a"), std::string::npos);
}

TEST(SummaryText, LongBucketListsKeepThoseToBlame) {
  Summary summary = known_summary();
  for (std::uint32_t b = 0; b < 50; ++b) {
    BucketSummary bucket;
    bucket.bucket = b;
    bucket.bytes = Bytes(8);
    bucket.exposed_share = Seconds(b >= 45 ? 1.0 : 0.0);
    summary.buckets.push_back(bucket);
  }
  const std::string text = text_summary(summary);
  EXPECT_NE(text.find("\n49 "), std::string::npos);
  EXPECT_EQ(text.find("\n30 "), std::string::npos);
  EXPECT_NE(text.find("and 30 buckets"), std::string::npos);
}

TEST(ComparisonTable, OneRowPerRun) {
  EXPECT_EQ(comparison_table({{"serial", known_summary()}}),
            "run         step   exposed  hidden     bound     gap  samples/s\n"
            "serial  60.00 ms  6.000 ms  80.0 %  50.00 ms  20.0 %        n/a\n");
}

TEST(ValidationText, SaysWhatIsMetAndWhatIsMissing) {
  ValidationRow met;
  met.series = "curve";
  met.rows = 9;
  met.calibration_rows = 5;
  met.test_rows = 4;
  met.mean_error = 0.0312;
  met.worst_error = 0.5;
  met.target = 0.05;
  ValidationRow missed = met;
  missed.series = "model";
  missed.mean_error = 0.051;
  missed.note = "how";
  ValidationRow absent;
  absent.series = "absent";
  absent.target = 0.05;
  absent.note = "not in the directory";
  EXPECT_EQ(validation_text({met, missed, absent}),
            "series  rows  calibrated on  tested on  mean error    worst  target          note\n"
            "curve      9              5          4      3.12 %  50.00 %  5.00 %     met\n"
            "model      9              5          4      5.10 %  50.00 %  5.00 %  missed   [1]\n"
            "absent     0                         0         n/a      n/a                   [2]\n"
            "\n"
            "[1] how\n"
            "[2] not in the directory\n");
}

}  // namespace
}  // namespace stretto
