// SPDX-License-Identifier: Apache-2.0
#include "stretto/report/html.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyze/timeline_builder.hpp"
#include "stretto/base/error.hpp"
#include "stretto/report/html_parts.hpp"
#include "stretto/report/redact.hpp"

namespace stretto {
namespace {

using nlohmann::json;

// NOLINTNEXTLINE(misc-misleading-bidirectional): a name that turns the direction is the test
constexpr std::string_view kHostile = "</script><img src=x onerror=alert(1)>&\"'\xe2\x80\xae\x01";

Timeline one_step(std::string_view layer) {
  testing::TimelineBuilder builder(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    builder.step(3, rank, 500, 40)
        .compute(RecordKind::kForward, std::string(layer), 0, 10)
        .compute(RecordKind::kBackward, "b", 10, 25)
        .compute(RecordKind::kOptimizer, "o", 35, 40)
        .bucket(0, 1, 15, 15, 35);
  }
  return builder.timeline();
}

Report report_of(Timeline timeline, std::string name) {
  Report report;
  Explanation explanation = explain(timeline);
  report.runs.push_back({std::move(name), std::move(timeline), std::move(explanation), {}, {}});
  return report;
}

json data_of(const std::string& html) {
  constexpr std::string_view kOpen = R"(<script type="application/json" id="data">)";
  const std::size_t begin = html.find(kOpen) + kOpen.size();
  return json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

TEST(TimelineColumns, OneRowForEachBandAndWhatIsExposed) {
  const json columns = json::parse(detail::timeline_columns(one_step("f"), 1000));
  ASSERT_EQ(columns["ranks"].size(), 2U);
  const json& rank = columns["ranks"][0];
  ASSERT_EQ(rank["rows"].size(), 2U);
  EXPECT_EQ(rank["rows"][0]["band"], "compute");
  EXPECT_EQ(rank["rows"][0]["count"], 3);
  EXPECT_EQ(rank["rows"][1]["band"], "communication");
  EXPECT_EQ(rank["rows"][1]["count"], 1);
  EXPECT_EQ(rank["exposed"]["count"], 1);
  EXPECT_EQ(columns["length_ns"], 40'000'000);
  EXPECT_EQ(columns["steps"][0]["step"], 3);
  EXPECT_EQ(columns["left_out"]["merged"], 0);
  // Of the exposed span: 25 ms from the begin, 10 ms long, seven bits a byte.
  EXPECT_EQ(rank["exposed"]["data"], "wPD1C4Ct4gQ=");
}

TEST(TimelineColumns, MergesUntilItFitsAndSaysSo) {
  Timeline timeline;
  timeline.name_id("k");
  constexpr std::int64_t kMany = 5000;
  for (std::int64_t i = 0; i < kMany; ++i) {
    Record record;
    record.begin_ns = i * 1000;
    record.end_ns = record.begin_ns + 900;
    record.rank = 0;
    record.device = 0;
    timeline.records.push_back(record);
  }
  const json all = json::parse(detail::timeline_columns(timeline, 10'000));
  EXPECT_EQ(all["ranks"][0]["rows"][0]["count"], kMany);
  const json few = json::parse(detail::timeline_columns(timeline, 100));
  EXPECT_EQ(few["ranks"][0]["rows"][0]["count"], 1);
  EXPECT_EQ(few["left_out"]["merged"], kMany);
  EXPECT_EQ(few["left_out"]["gap_ns"], 100);
}

TEST(Redactor, KeepsNoNameAndIsConsistent) {
  Timeline timeline = one_step("secret.layer");
  timeline.setups.push_back({0, "secret-host", {{"nccl_version", "2.19"}}});
  const std::uint32_t kernel = timeline.name_id("secret_kernel");
  const std::uint32_t module = timeline.name_id("FSDP::all_gather (secret.module)");
  const std::uint32_t common = timeline.name_id("aten::add");
  const std::uint32_t step = timeline.name_id("ProfilerStep#7");
  const std::uint32_t near = timeline.name_id("aten::add secret");
  const std::uint32_t group = timeline.name_id("secret_group");
  timeline.calls.push_back({.group = group, .members = timeline.name_id("[0, 1]")});
  for (const auto& [name, kind] : {std::pair{kernel, RecordKind::kCompute},
                                   std::pair{module, RecordKind::kAnnotation},
                                   std::pair{common, RecordKind::kCompute},
                                   std::pair{near, RecordKind::kCompute},
                                   std::pair{step, RecordKind::kStep}}) {
    Record record;
    record.name = name;
    record.kind = kind;
    timeline.records.push_back(record);
  }
  Redactor redact;
  const Timeline first = redact(timeline);
  const Timeline second = redact(timeline);
  EXPECT_EQ(first.names, second.names);
  EXPECT_EQ(first.names[common], "aten::add");
  EXPECT_EQ(first.names[step], "ProfilerStep#7");
  EXPECT_EQ(first.names[module], "FSDP::all_gather (module 1)");
  EXPECT_EQ(first.names[group], "group 1");
  EXPECT_EQ(first.names[timeline.calls[0].members], "[0, 1]");
  EXPECT_EQ(first.setups[0].host, "host 1");
  EXPECT_EQ(first.setups[0].versions[0].second, "2.19");
  EXPECT_EQ(to_json(first).find("secret"), std::string::npos);
  Machine machine = machine_from_spec("4@1Gbit/s,50us");
  machine.name = machine.levels[0].name = machine.source = "secret";
  EXPECT_EQ(to_json(redact(std::move(machine))).find("secret"), std::string::npos);
}

/// What the analysis says, without words that hold names.
json numbers_of(const Timeline& timeline) {
  const Explanation explanation = explain(timeline);
  json diagnoses = json::array();
  for (const Diagnosis& diagnosis : explanation.diagnoses) {
    diagnoses.push_back(diagnosis.id);
  }
  json codecs = json::array();
  for (const CodecSummary& codec : explanation.summary->codecs) {
    codecs.push_back({codec.codec, codec.encode.count(), codec.decode.count()});
  }
  return {{"diagnoses", diagnoses},
          {"codecs", codecs},
          {"exposed", explanation.summary->exposed.count()},
          {"compute", explanation.summary->compute.count()},
          {"buckets", explanation.summary->buckets.size()}};
}

TEST(Redactor, ChangesNothingThatIsSaidButNames) {
  // Kernels that move data and one that sounds like an exchange, beside what a codec did.
  Timeline timeline = one_step("secret.layer");
  const auto add =
      [&](std::string_view name, RecordKind kind, Lane lane, std::int64_t begin, std::int64_t end) {
        Record record;
        record.name = timeline.name_id(name);
        record.kind = kind;
        record.lane = lane;
        record.rank = 0;
        record.step = timeline.records.front().step;
        record.bucket = 0;
        if (kind == RecordKind::kCompute) {
          record.device = 0;
          record.stream = 7;
        }
        record.begin_ns = timeline.records.front().begin_ns + begin;
        record.end_ns = timeline.records.front().begin_ns + end;
        timeline.records.push_back(record);
      };
  for (std::int64_t i = 0; i < 40; ++i) {
    add("secret_vectorized_elementwise_kernel",
        RecordKind::kCompute,
        Lane::kCompute,
        1'000'000 * i,
        1'000'000 * i + 700'000);
    add("secret_my_allreduce",
        RecordKind::kCompute,
        Lane::kCompute,
        1'000'000 * i + 700'000,
        1'000'000 * i + 1'000'000);
  }
  add("encode int8", RecordKind::kAnnotation, Lane::kCommunication, 100, 300);
  add("decode int8", RecordKind::kAnnotation, Lane::kCommunication, 400, 500);
  Redactor redact;
  const Timeline without = redact(timeline);
  EXPECT_EQ(to_json(without).find("secret"), std::string::npos);
  const json numbers = numbers_of(timeline);
  EXPECT_EQ(numbers, numbers_of(without));
  EXPECT_FALSE(numbers["codecs"].empty());
  EXPECT_NE(numbers["diagnoses"].dump().find("unknown_kernel"), std::string::npos) << numbers;
  EXPECT_NE(numbers["diagnoses"].dump().find("memory_bandwidth_bound"), std::string::npos)
      << numbers;
  // No codec: somebody's own name.
  add("encode secret", RecordKind::kAnnotation, Lane::kCommunication, 600, 700);
  EXPECT_EQ(to_json(redact(timeline)).find("secret"), std::string::npos);
}

TEST(HtmlReport, WithoutAViewerSaysWhatToDo) {
  if (has_viewer()) {
    GTEST_SKIP() << "this build has the viewer";
  }
  try {
    (void)html_report(report_of(one_step("f"), "run"));
    FAIL() << "wrote a report without a page";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_NE(std::string(error.what()).find("Install esbuild"), std::string::npos);
  }
}

class WithViewer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_viewer()) {
      GTEST_SKIP() << "this build has no viewer (no esbuild)";
    }
  }
};

TEST_F(WithViewer, HostileNamesStayText) {
  const std::string html = html_report(report_of(one_step(kHostile), std::string(kHostile)));
  EXPECT_EQ(html.find("</script><img"), std::string::npos);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  const json data = data_of(html);
  EXPECT_EQ(data["runs"][0]["name"], std::string(kHostile));
  bool found = false;
  for (const json& name : data["runs"][0]["timeline"]["names"]) {
    found = found || name == std::string(kHostile);
  }
  EXPECT_TRUE(found);
  // In the part for readers without scripts, as text.
  EXPECT_NE(html.find("&lt;/script&gt;&lt;img src=x"), std::string::npos);
}

TEST_F(WithViewer, LongNamesAreCut) {
  const std::string name(10'000, 'x');
  const std::string html = html_report(report_of(one_step(name), name));
  EXPECT_EQ(html.find(std::string(2001, 'x')), std::string::npos);
}

TEST_F(WithViewer, HoldsItsPolicyAndNoAddressOfTheNetwork) {
  const std::string html = html_report(report_of(one_step("f"), "run"));
  EXPECT_NE(html.find("default-src 'none'; script-src 'sha256-"), std::string::npos);
  EXPECT_EQ(html.find("@@STRETTO"), std::string::npos);
  EXPECT_EQ(html.find(" src="), std::string::npos);
  EXPECT_EQ(html.find(" href=\"http"), std::string::npos);
  EXPECT_EQ(html.find("<link"), std::string::npos);
}

TEST_F(WithViewer, AMachineIsEnoughAndIsReadWithoutScripts) {
  Report report;
  report.machines.push_back(machine_from_spec("2x4@intra=20GB/s,2us@inter=1Gbit/s,50us"));
  report.machines[0].levels[0].name = std::string(kHostile);
  const std::string html = html_report(report);
  const json data = data_of(html);
  ASSERT_EQ(data["machines"].size(), 1U);
  EXPECT_EQ(data["machines"][0]["levels"][0]["name"], std::string(kHostile));
  EXPECT_NE(html.find("<td>50.00 us</td>"), std::string::npos);
  EXPECT_EQ(html.find("<img"), std::string::npos);
}

TEST_F(WithViewer, TooLargeIsAnErrorAndNothingToo) {
  const Report report = report_of(one_step("f"), "run");
  EXPECT_THROW((void)html_report(report, {.most_bytes = 1000}), Error);
  EXPECT_THROW((void)html_report(Report{}), Error);
}

TEST_F(WithViewer, LanguageIsThatOfThePage) {
  const Report report = report_of(one_step("f"), "run");
  EXPECT_NE(html_report(report, {.language = Language::kChinese}).find("<html lang=\"zh-Hans\">"),
            std::string::npos);
  EXPECT_NE(html_report(report).find("<html lang=\"en\">"), std::string::npos);
}

}  // namespace
}  // namespace stretto
