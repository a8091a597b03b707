// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck/gtest.h>

#include "analyze/timeline_builder.hpp"
#include "data/generators.hpp"
#include "stretto/report/report.hpp"

namespace stretto {
namespace {

using nlohmann::json;
using Thread = std::pair<std::int64_t, std::int64_t>;  // pid, tid

struct Slice {
  std::int64_t begin_ns;
  std::int64_t end_ns;
};

std::int64_t to_ns(const json& microseconds) {
  return std::llround(microseconds.get<double>() * 1e3);
}

/// What a viewer needs of a trace.
class Trace {
 public:
  explicit Trace(const std::string& text) : root_(json::parse(text)) {
    for (const json& event : root_.at("traceEvents")) {
      const Thread thread{event.at("pid"), event.at("tid")};
      const std::string phase = event.at("ph");
      if (phase == "X") {
        slices_[thread].push_back(
            {to_ns(event.at("ts")), to_ns(event.at("ts")) + to_ns(event.at("dur"))});
      } else if (phase == "s" || phase == "f") {
        (phase == "s" ? starts_ : ends_)[event.at("id")].push_back({thread, to_ns(event.at("ts"))});
      } else if (phase == "M" && event.at("name") == "process_name") {
        processes_.insert(thread.first);
      } else if (phase == "M" && event.at("name") == "thread_name") {
        threads_.insert(thread);
      } else if (phase == "i") {
        ++instants_;
        used_.insert(thread);
      }
    }
  }

  [[nodiscard]] std::string complaint() const {
    for (const auto& [thread, slices] : slices_) {
      if (!threads_.contains(thread) || !processes_.contains(thread.first)) {
        return "slices on a thread without a name";
      }
      if (overlap(slices)) {
        return "slices overlap on thread " + std::to_string(thread.second);
      }
    }
    for (const Thread& thread : used_) {
      if (!threads_.contains(thread)) {
        return "instants on a thread without a name";
      }
    }
    if (starts_.size() != ends_.size()) {
      return "arrows with one end";
    }
    for (const auto& [id, starts] : starts_) {
      const auto end = ends_.find(id);
      if (end == ends_.end() || starts.size() != 1 || end->second.size() != 1) {
        return "arrow without exactly two ends";
      }
      if (!inside_a_slice(starts[0]) || !inside_a_slice(end->second[0])) {
        return "arrow that ends in no slice";
      }
      if (starts[0].second > end->second[0].second) {
        return "arrow into the past";
      }
    }
    return "";
  }

  [[nodiscard]] const json& root() const { return root_; }
  [[nodiscard]] std::size_t slices() const {
    std::size_t count = 0;
    for (const auto& [thread, slices] : slices_) {
      count += slices.size();
    }
    return count;
  }
  [[nodiscard]] std::size_t instants() const { return instants_; }
  [[nodiscard]] std::size_t arrows() const { return starts_.size(); }
  [[nodiscard]] std::size_t processes() const { return processes_.size(); }

 private:
  using Point = std::pair<Thread, std::int64_t>;

  static bool overlap(std::vector<Slice> slices) {
    std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return std::pair(a.begin_ns, a.end_ns) < std::pair(b.begin_ns, b.end_ns);
    });
    for (std::size_t i = 1; i < slices.size(); ++i) {
      if (slices[i].begin_ns < slices[i - 1].end_ns) {
        return true;
      }
    }
    return false;
  }
  [[nodiscard]] bool inside_a_slice(const Point& point) const {
    const auto slices = slices_.find(point.first);
    return slices != slices_.end() &&
           std::any_of(slices->second.begin(), slices->second.end(), [&](const Slice& s) {
             return s.begin_ns <= point.second && point.second < s.end_ns;
           });
  }

  json root_;
  std::map<Thread, std::vector<Slice>> slices_;
  std::map<std::int64_t, std::vector<Point>> starts_;
  std::map<std::int64_t, std::vector<Point>> ends_;
  std::set<std::int64_t> processes_;
  std::set<Thread> threads_;
  std::set<Thread> used_;
  std::size_t instants_ = 0;
};

TEST(ChromeTrace, ARunIsDrawnWhole) {
  testing::TimelineBuilder builder(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    builder.step(0, rank, 100, 50)
        .compute(RecordKind::kBackward, "b\"1\"", 0, 20)
        .ready("w1", 10, 0, 20)  // on the edge of its compute
        .compute(RecordKind::kBackward, "b0", 20, 30)
        .ready("w0", 10, 1, 29)
        .bucket(0, 10, 20, 21, 35)
        .bucket(1, 10, 29, 29.5, 40);
  }
  Timeline timeline = builder.timeline();
  timeline.origin_unix_ns = 1'700'000'000'123'456'789;
  const Trace trace(chrome_trace(timeline));
  EXPECT_EQ(trace.complaint(), "");
  EXPECT_EQ(trace.processes(), 2U);
  EXPECT_EQ(trace.slices(), 10U);
  EXPECT_EQ(trace.instants(), 8U);
  EXPECT_EQ(trace.arrows(), 4U);
  EXPECT_EQ(trace.root().at("baseTimeNanoseconds"), 1'700'000'000'123'456'789);
}

TEST(ChromeTrace, NanosecondsAreNotRounded) {
  Timeline timeline;
  Record record;
  record.name = timeline.name_id("x");
  record.begin_ns = 86'400'000'000'001;
  record.end_ns = 86'400'000'001'234;
  timeline.records = {record};
  const std::string text = chrome_trace(timeline);
  EXPECT_NE(text.find("\"ts\":86400000000.001,\"dur\":1.233"), std::string::npos) << text;
  timeline.records[0].begin_ns = -1;
  EXPECT_NE(chrome_trace(timeline).find("\"ts\":-0.001,"), std::string::npos);
}

TEST(ChromeTrace, NothingIsATraceToo) {
  const Trace trace(chrome_trace(Timeline{}));
  EXPECT_EQ(trace.complaint(), "");
  EXPECT_EQ(trace.slices(), 0U);
}

RC_GTEST_PROP(ChromeTrace, AnyTimelineIsAccepted, ()) {
  Timeline timeline = testing::any_timeline();
  std::size_t instants = 0;
  for (Record& record : timeline.records) {
    // Small, so that they overlap and share links.
    record.begin_ns = *rc::gen::inRange<std::int64_t>(0, 30);
    record.end_ns = record.begin_ns + *rc::gen::inRange<std::int64_t>(0, 10);
    record.rank %= 2;
    record.link = record.link == kNoId ? kNoId : record.link % 2;
    instants += record.kind == RecordKind::kReady || record.kind == RecordKind::kLaunched ? 1U : 0U;
  }
  const Trace trace(chrome_trace(timeline));
  RC_ASSERT(trace.complaint() == "");
  RC_ASSERT(trace.instants() == instants);
  RC_ASSERT(trace.slices() + instants == timeline.records.size());
}

}  // namespace
}  // namespace stretto
