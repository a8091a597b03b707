// SPDX-License-Identifier: Apache-2.0
// Faults as profilers, full disks and killed jobs make them: nothing may crash, and nothing may be
// less than what was written without being said.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/trace/builder.hpp"
#include "stretto/trace/event_scanner.hpp"
#include "stretto/trace/input.hpp"
#include "stretto/trace/trace.hpp"
#include "trace/trace_text.hpp"

namespace stretto::detail {
namespace {

using stretto::testing::KinetoText;

struct Scanned {
  std::vector<std::map<std::string, std::string>> events;  // members that are there, raw
  std::uint64_t counted = 0;
  std::uint64_t lost = 0;
  std::optional<Fault> fault;
  std::map<std::string, std::string> members;
};

/// Gives a few bytes at a time, as a pipe does.
class Dribble final : public Input {
 public:
  Dribble(std::string_view text, std::size_t most) : text_(text), most_(most) {}
  [[nodiscard]] std::size_t read(std::span<char> room) override {
    const std::size_t size = std::min({room.size(), most_, text_.size() - taken_});
    std::copy_n(text_.data() + taken_, size, room.data());
    taken_ += size;
    return size;
  }
  [[nodiscard]] std::uint64_t taken() const override { return taken_; }
  [[nodiscard]] std::uint64_t size() const override { return 0; }

 private:
  std::string_view text_;
  std::size_t most_;
  std::size_t taken_ = 0;
};

Scanned scan(Input& input, bool salvage) {
  EventScanner scanner(input);
  Scanned result;
  EventText event;
  while (scanner.next(event, salvage)) {
    std::map<std::string, std::string>& members = result.events.emplace_back();
    const std::array<std::pair<const char*, std::string_view>, 9> all = {{{"ph", event.ph},
                                                                          {"cat", event.cat},
                                                                          {"name", event.name},
                                                                          {"ts", event.ts},
                                                                          {"dur", event.dur},
                                                                          {"pid", event.pid},
                                                                          {"tid", event.tid},
                                                                          {"id", event.id},
                                                                          {"args", event.args}}};
    for (const auto& [key, value] : all) {
      if (!value.empty()) {
        members[key] = std::string(value);
      }
    }
  }
  result.counted = scanner.events();
  result.lost = scanner.lost();
  result.fault = scanner.fault();
  for (const EventScanner::Member& member : scanner.members()) {
    result.members[member.key] = std::string(member.text());
  }
  return result;
}

Scanned scan(std::string_view text, bool salvage = false) {
  const std::unique_ptr<Input> input = memory_input(text);
  return scan(*input, salvage);
}

std::vector<std::string> names(const Scanned& scanned) {
  std::vector<std::string> result;
  for (const auto& event : scanned.events) {
    result.push_back(event.contains("name") ? event.at("name") : "");
  }
  return result;
}

std::string slice(std::string_view name, std::string_view more = "") {
  return R"({"ph":"X","cat":"kernel","name":")" + std::string(name) +
         R"(","pid":0,"tid":7,"ts":1,"dur":2)" + std::string(more) + "}";
}

using Names = std::vector<std::string>;

TEST(Scanner, ReadsWhatIsThere) {
  const Scanned scanned = scan(
      R"({"schemaVersion": 1, "distributedInfo": {"rank": 3}, "traceEvents": [
          {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1.250, "dur": 3,
           "args": {"stream": 7, "nested": {"grid": [1, [2]]}}},
          {"ph": "f", "id": 5, "name": "flow"},
          {"ph": "M", "name": "process_name", "args": {"name": "python"}, "id": 12}
        ], "traceName": "x.json"})");
  EXPECT_FALSE(scanned.fault);
  EXPECT_EQ(scanned.counted, 3U);
  ASSERT_EQ(names(scanned), (Names{"gemm", "process_name"}));
  EXPECT_EQ(scanned.events[0],
            (std::map<std::string, std::string>{
                {"ph", "X"},
                {"cat", "kernel"},
                {"name", "gemm"},
                {"pid", "0"},
                {"tid", "7"},
                {"ts", "1.250"},
                {"dur", "3"},
                {"args", R"({"stream": 7, "nested": {"grid": [1, [2]]}})"}}));
  EXPECT_EQ(scanned.events[1].at("id"), "12");
  EXPECT_EQ(
      scanned.members,
      (std::map<std::string, std::string>{
          {"schemaVersion", "1"}, {"distributedInfo", R"({"rank": 3})"}, {"traceName", "x.json"}}));
}

TEST(Scanner, ShapesOfTheDocument) {
  const std::string one = slice("a");
  for (const std::string& text : {
           "[" + one + "]",
           "[\n" + one + ",\n]\n",
           "\xef\xbb\xbf[" + one + "]",
           " \r\n\t{ \"traceEvents\" :[ " + one + " ] } \n\n",
           "{\"traceEvents\":[" + one + "]}",
           "{\"traceEvents\":[" + one + "],}",
           R"({"a":1,,"traceEvents":[)" + one + R"(],"b":{}})",
       }) {
    const Scanned scanned = scan(text);
    EXPECT_FALSE(scanned.fault) << text << ": " << scanned.fault->what;
    EXPECT_EQ(names(scanned), Names{"a"}) << text;
  }
}

TEST(Scanner, NotATrace) {
  struct Case {
    std::string text;
    std::uint64_t offset;
    std::string what;
  };
  for (const Case& c : std::vector<Case>{
           {"", 0, "nothing in it"},
           {" \n\t ", 4, "nothing in it"},
           {"\xef\xbb\xbf  ", 5, "nothing in it"},
           {"# a comment", 0, "neither { nor ["},
           {"\xff\xfe{", 0, "neither { nor ["},
           {std::string(100, '\0'), 0, "neither { nor ["},
           {"  null", 2, "neither { nor ["},
           {"{", 1, "ends inside what comes before"},
           {"{\"traceEvents\": 5", 1, "ends inside what comes before"},
           {"{\"a\" 5}", 5, "not JSON"},
           {"{]}", 1, "not JSON"},
           {"[", 1, "ends inside the array"},
           {"[5]", 1, "not JSON in event 1"},
           {"[\"a\"]", 1, "not JSON in event 1"},
       }) {
    for (const bool salvage : {false, true}) {
      const Scanned scanned = scan(c.text, salvage);
      ASSERT_TRUE(scanned.fault) << c.text;
      EXPECT_EQ(scanned.fault->offset, c.offset) << c.text;
      EXPECT_NE(scanned.fault->what.find(c.what), std::string::npos) << scanned.fault->what;
      EXPECT_TRUE(scanned.events.empty());
    }
  }
}

TEST(Scanner, WithoutEventsItIsNoTrace) {
  for (const char* text : {R"({"name": "package", "version": 1})",
                           R"({"traceEvents": null})",
                           R"({"traceEvents": {}})",
                           "{}"}) {
    try {
      (void)read_trace_text(text, "package.json");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kParse);
      EXPECT_NE(std::string(error.what()).find("no traceEvents"), std::string::npos)
          << error.what();
      EXPECT_NE(std::string(error.what()).find("package.json"), std::string::npos);
    }
  }
  // None recorded is something else.
  EXPECT_NO_THROW((void)read_trace_text(R"({"traceEvents": []})", "empty.json"));
  EXPECT_NO_THROW((void)read_trace_text("[]", "empty.json"));
}

/// One broken event between two whole ones: what it costs.
struct Broken {
  std::string what;
  std::string event;
  Names kept;  // between "first" and "last", raw
  bool fault = true;
  std::uint64_t lost = 1;
};

std::vector<Broken> broken_events() {
  const std::string tail = R"(","pid":0,"tid":7,"ts":1,"dur":2})";
  const std::string head = R"({"ph":"X","cat":"kernel","name":")";
  const std::string python = R"({"ph":"X","cat":"python_function","name":")";
  return {
      // Faults that cost the event.
      {"a quote in a name", head + "a\"b" + tail, {}},
      {"two quotes in a name", head + "a \"b\" c" + tail, {}},
      {"a quote in a name that is passed over", python + "a\"b" + tail, {}},
      {"two quotes in a name that is passed over", python + "a \"b\" c" + tail, {}},
      {"a quote in a flow", R"({"ph":"s","name":"a"b","id":1,"ts":1})", {}},
      {"a quote in an argument", slice("x", R"(,"args":{"a":"b"c","d":"{"})"), {}},
      {"a string that is not closed", slice("x", R"(,"args":{"a":"b,"c":1})"), {}},
      {"a name that is not closed", R"({"ph":"X","name":"x,"ts":1,"dur":2})", {}},
      {"a name not closed at the end", R"({"ph":"X","ts":1,"dur":2,"name":"x})", {}},
      {"a Windows path that ends", head + R"(C:\dir\)" + tail, {}},
      {"no comma between members", R"({"ph":"X" "name":"x","ts":1})", {}},
      {"no colon", R"({"ph":"X","name" "x","ts":1})", {}},
      {"no value", R"({"ph":"X","name":,"ts":1})", {}},
      {"no brace at the end", R"({"ph":"X","name":"x","ts":1)", {}},
      {"no brace at the end of what is passed over", python + R"(x","ts":1)", {}},
      {"no brace at the end of the arguments", slice("x", R"(,"args":{"a":{"b":1})"), {}},
      {"a bracket of the other kind", slice("x", R"(,"args":{"a":1])"), {}},
      {"bare words as a key", R"({ph:"X","name":"x"})", {}},
      {"a number as an event", "17", {}},
      {"objects in arrays behind the fault",
       head + R"(a"b","args":{"list":[{"a":1},{"b":2}]},"ts":1})",
       {}},
      // Faults that cost nothing.
      {"a raw newline", head + "a\nb" + tail, {"a\nb"}, false, 0},
      {"control bytes", head + "a\x01\x1f\x7f" + tail, {"a\x01\x1f\x7f"}, false, 0},
      {"bytes that are not UTF-8", head + "\xff\xfe\xc0" + tail, {"\xff\xfe\xc0"}, false, 0},
      {"a Windows path", head + R"(C:\dir\x)" + tail, {R"(C:\dir\x)"}, false, 0},
      {"a comma too many", R"({"ph":"X","name":"x","ts":1,})", {"x"}, false, 0},
      {"bare words as values",
       slice("x", R"(,"args":{"a":N/A,"b":nan,"c":-inf})"),
       {"x"},
       false,
       0},
      {"numbers beyond 64 bits",
       slice("x", R"(,"args":{"Comms Id":18446744073709551615999})"),
       {"x"},
       false,
       0},
      {"braces in strings", slice("x{}[", R"(,"args":{"a":"}]\"}"})"), {"x{}["}, false, 0},
      {"nothing", "{}", {""}, false, 0},
  };
}

TEST(Scanner, AFaultCostsItsEventAndIsSaid) {
  for (const Broken& c : broken_events()) {
    SCOPED_TRACE(c.what);
    const std::string before = "[" + slice("first") + ",\n";
    const std::string text = before + c.event + ",\n" + slice("last") + "," + slice("end") + "]";
    Names expected = {"first"};
    expected.insert(expected.end(), c.kept.begin(), c.kept.end());
    expected.insert(expected.end(), {"last", "end"});

    const Scanned salvaged = scan(text, true);
    EXPECT_EQ(names(salvaged), expected);
    EXPECT_EQ(salvaged.lost, c.lost);
    EXPECT_EQ(salvaged.fault.has_value(), c.fault);

    const Scanned strict = scan(text);
    EXPECT_EQ(strict.fault.has_value(), c.fault);
    if (c.fault) {
      // Where it says: in the event or, when that is only seen in the next one, there.
      EXPECT_GE(strict.fault->offset, before.size());
      EXPECT_LE(strict.fault->offset, before.size() + c.event.size() + slice("last").size());
      EXPECT_NE(strict.fault->what.find("event 2"), std::string::npos) << strict.fault->what;
      EXPECT_EQ(names(strict), Names{"first"}) << "without salvage it ends there";
    } else {
      EXPECT_EQ(names(strict), expected);
    }
  }
}

/// The same as the last event of a file, and behind it what comes late.
TEST(Scanner, AFaultInTheLastEventIsSaid) {
  for (const Broken& c : broken_events()) {
    SCOPED_TRACE(c.what);
    const Scanned salvaged =
        scan("{\"traceEvents\":[" + slice("first") + "," + c.event + "],\"a\":1}", true);
    Names expected = {"first"};
    expected.insert(expected.end(), c.kept.begin(), c.kept.end());
    EXPECT_EQ(names(salvaged), expected);
    EXPECT_EQ(salvaged.lost, c.lost);
    EXPECT_EQ(salvaged.fault.has_value(), c.fault);
    EXPECT_EQ(salvaged.members.contains("a"), !c.fault);
  }
}

TEST(Scanner, ABracketTooManyEndsTheEventsForNobody) {
  const std::string text = slice("a") + "]," + slice("b") + "," + slice("c") + "]";
  for (const std::string& whole : {"[" + text, "{\"traceEvents\":[" + text + "}"}) {
    EXPECT_TRUE(scan(whole).fault);
    const Scanned salvaged = scan(whole, true);
    EXPECT_TRUE(salvaged.fault);
    EXPECT_EQ(names(salvaged), (Names{"a", "b", "c"}));
  }
}

TEST(Scanner, NothingIsSwallowedBetweenTwoFaults) {
  // Each quote too many turns strings inside out until the next.
  const std::string quote = R"({"ph":"X","cat":"python_function","name":"a"b","ts":1})";
  std::string text = "[" + quote;
  for (int i = 0; i < 100; ++i) {
    text += "," + slice("kernel", R"(,"args":{"a":"b"})");
    if (i % 10 == 9) {
      text += "," + quote;
    }
  }
  const Scanned scanned = scan(text + "]", true);
  EXPECT_EQ(scanned.events.size(), 100U);
  EXPECT_EQ(scanned.lost, 11U);
}

TEST(Scanner, CommasBetweenEvents) {
  // Too few or too many: nothing is lost.
  const Scanned scanned = scan("[" + slice("a") + slice("b") + ",," + slice("c") + ",]");
  EXPECT_FALSE(scanned.fault);
  EXPECT_EQ(names(scanned), (Names{"a", "b", "c"}));
}

TEST(Scanner, TheLastOfEqualKeysCounts) {
  const Scanned scanned = scan(R"([{"ph":"M","ts":1,"ts":2,"name":"a","name":"b","ph":"X",
                                   "args":{"stream":7,"stream":20},"args":{"stream":8}}])");
  ASSERT_EQ(scanned.events.size(), 1U);
  EXPECT_EQ(scanned.events[0].at("ph"), "X");
  EXPECT_EQ(scanned.events[0].at("ts"), "2");
  EXPECT_EQ(scanned.events[0].at("name"), "b");
  EXPECT_EQ(scanned.events[0].at("args"), R"({"stream":8})");
  const Trace trace = read_trace_text(
      KinetoText().kernel("gemm", 1, 2, 7, 1, R"(, "stream": 20, "device": 3)").text(), "t.json");
  ASSERT_FALSE(trace.timeline.records.empty());
  EXPECT_EQ(trace.timeline.records[0].stream, 20U);
  EXPECT_EQ(trace.timeline.records[0].device, 3U);
}

TEST(Scanner, WhatFollowsTheDocumentIsSaid) {
  for (const char* rest : {"x", "{}", "{\"traceEvents\":[]}", "]", "\n\n[", "\0"}) {
    for (const std::string& whole :
         {"[" + slice("a") + "]", "{\"traceEvents\":[" + slice("a") + "]}"}) {
      const std::string_view behind = *rest == '\0' ? std::string_view("\0", 1) : rest;
      const Scanned scanned = scan(whole + std::string(behind), true);
      EXPECT_EQ(names(scanned), Names{"a"});
      ASSERT_TRUE(scanned.fault) << whole << behind;
      EXPECT_EQ(scanned.fault->offset, whole.size() + behind.find_first_not_of('\n'));
      EXPECT_NE(scanned.fault->what.find("after the end"), std::string::npos);
    }
  }
}

TEST(Scanner, BrokenMetadataBeforeTheEventsCostsOnlyItself) {
  for (const char* broken : {R"("note": "say "hi"")",
                             R"("note": blank "process" group)",
                             R"("note" 7)",
                             R"("note": {"a": "b"c"})",
                             R"("note": "never closed)",
                             R"(note: 1)"}) {
    const std::string text = std::string("{\"first\": 1, ") + broken + ", \"traceEvents\": [" +
                             slice("a") + "], \"last\": 2}";
    SCOPED_TRACE(text);
    const Scanned strict = scan(text);
    ASSERT_TRUE(strict.fault);
    EXPECT_TRUE(strict.events.empty());
    const Scanned salvaged = scan(text, true);
    EXPECT_TRUE(salvaged.fault);
    EXPECT_EQ(names(salvaged), Names{"a"});
    EXPECT_TRUE(salvaged.members.contains("first"));
    EXPECT_TRUE(salvaged.members.contains("last"));
  }
}

TEST(Scanner, BrokenMetadataAfterTheEventsCostsNoEvent) {
  const Scanned salvaged =
      scan(R"({"traceEvents": [)" + slice("a") + R"(], "note": "say "hi""})", true);
  ASSERT_TRUE(salvaged.fault);
  EXPECT_EQ(names(salvaged), Names{"a"});
}

/// A trace whose every byte matters, and where its events stand.
struct Cuttable {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> events;  // begin, end
  std::size_t array_end = 0;                                // of its bracket
};

Cuttable cuttable() {
  Cuttable result;
  result.text =
      "{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [{\"id\": 0}],\n"
      "  \"traceEvents\": [\n  ";
  const std::array<std::string, 4> events = {
      R"json({"ph": "X", "cat": "kernel", "name": "gemm \"a\\", "pid": 0, "tid": 7,
    "ts": 10.250, "dur": 5.001, "args": {"device": 0, "stream": 7, "grid": [1, {"x": "]}"}]}})json",
      R"json({"ph":"f","id":3,"cat":"ac2g","name":"ac2g","bp":"e"})json",
      R"json({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
    "pid": 0, "tid": 20, "ts": 12, "dur": 9, "args": {"device": 0, "stream": 20}})json",
      R"json({"ph": "X", "cat": "python_function", "name": "f(\"x\")", "ts": 1, "dur": 1})json",
  };
  for (const std::string& event : events) {
    const std::size_t begin = result.text.size();
    result.text += event;
    result.events.emplace_back(begin, result.text.size());
    result.text += &event == &events.back() ? "\n  ]" : ",\n  ";
  }
  result.array_end = result.text.size();
  result.text += ",\n  \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 1}\n}";
  return result;
}

TEST(Scanner, CutAtEveryByte) {
  const Cuttable whole = cuttable();
  ASSERT_NO_THROW((void)read_trace_text(whole.text, "whole.json"));
  for (std::size_t cut = 0; cut < whole.text.size(); ++cut) {
    SCOPED_TRACE("cut at " + std::to_string(cut));
    const std::string_view text = std::string_view(whole.text).substr(0, cut);
    std::size_t complete = 0;
    std::size_t begun = 0;
    for (const auto& [begin, end] : whole.events) {
      complete += end <= cut ? 1 : 0;
      begun += begin < cut ? 1 : 0;
    }
    const Scanned scanned = scan(text, true);
    EXPECT_EQ(scanned.counted, complete);
    EXPECT_EQ(scanned.lost, begun - complete);
    ASSERT_TRUE(scanned.fault);
    // The begin of the event that is cut, else where the text ends or what it ends in begins.
    if (begun > complete) {
      EXPECT_EQ(scanned.fault->offset, whole.events[complete].first);
    } else if (begun > 0 && cut < whole.array_end) {
      EXPECT_EQ(scanned.fault->offset, cut);
    } else {
      EXPECT_LE(scanned.fault->offset, cut);
    }
    EXPECT_NE(scanned.fault->what.find(cut == 0 ? "nothing in it" : "ends inside"),
              std::string::npos)
        << scanned.fault->what;
    // And through the front door.
    EXPECT_THROW((void)read_trace_text(text, "cut.json"), Error);
    TraceReadOptions options;
    options.salvage = true;
    if (complete == 0) {
      EXPECT_THROW((void)read_trace_text(text, "cut.json", options), Error);
      continue;
    }
    const Trace trace = read_trace_text(text, "cut.json", options);
    ASSERT_EQ(trace.files.size(), 1U);
    EXPECT_EQ(trace.files[0].fault.has_value(), true);
    EXPECT_EQ(trace.files[0].events, complete);
    std::size_t kernels = 0;
    for (const Record& record : trace.timeline.records) {
      kernels += record.lane != Lane::kHost && record.kind != RecordKind::kStep ? 1 : 0;
    }
    EXPECT_EQ(kernels, complete < 3 ? 1U : 2U);
  }
}

TEST(Scanner, TheErrorSaysWhereAndWhatToDo) {
  const Cuttable whole = cuttable();
  try {
    (void)read_trace_text(whole.text.substr(0, whole.events[2].first + 9), "cut.json");
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kParse);
    for (const std::string& part : {"cut.json, byte " + std::to_string(whole.events[2].first),
                                    std::string("ends inside event 3"),
                                    std::string("2 whole events"),
                                    std::string("--salvage")}) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
    }
  }
}

TEST(Scanner, TheFirstFaultIsTheOneSaid) {
  // A time that cannot be read comes before a quote too many: different parts of the reader see
  // them.
  TraceReadOptions options;
  options.salvage = true;
  const std::string first = R"([{"ph":"X","cat":"kernel","name":"early","ts":NaN,"dur":1},)";
  const Trace trace =
      read_trace_text(first + slice("a\"b") + "," + slice("c") + "]", "t.json", options);
  ASSERT_TRUE(trace.files[0].fault);
  EXPECT_LE(trace.files[0].fault->offset, first.size());
  EXPECT_NE(trace.files[0].fault->what.find("early"), std::string::npos);
  EXPECT_EQ(trace.files[0].lost, 2U);
}

TEST(Scanner, TimesThatAreNoneAreLostAndSaid) {
  for (const char* times : {R"("ts": NaN, "dur": 1)",
                            R"("ts": "N/A", "dur": 1)",
                            R"("dur": 1)",
                            R"("ts": 1, "dur": inf)",
                            R"("ts": 99999999999999999999, "dur": 1)",
                            R"("ts": 1, "dur": null)"}) {
    const std::string text = std::string(R"([{"ph":"X","cat":"kernel","name":"odd",)") + times +
                             "}," + slice("good") + "]";
    SCOPED_TRACE(text);
    EXPECT_THROW((void)read_trace_text(text, "t.json"), Error);
    TraceReadOptions options;
    options.salvage = true;
    const Trace trace = read_trace_text(text, "t.json", options);
    EXPECT_EQ(trace.files[0].lost, 1U);
    ASSERT_TRUE(trace.files[0].fault);
    EXPECT_NE(trace.files[0].fault->what.find("'odd'"), std::string::npos)
        << trace.files[0].fault->what;
    EXPECT_EQ(trace.files[0].kernels.size(), 1U);
  }
}

TEST(Scanner, NegativeDurationsAreCountedAsNone) {
  const Trace trace = read_trace_text(
      R"([{"ph":"X","cat":"kernel","name":"k","ts":5,"dur":-3},)" + slice("k") + "]", "t.json");
  EXPECT_EQ(trace.files[0].negative, 1U);
  EXPECT_EQ(trace.files[0].kernels.at(0).total_ns, 2000);
}

TEST(Scanner, MembersAfterTheEventsCount) {
  const Trace trace = read_trace_text(R"({"traceEvents":[)" + slice("a") +
                                          R"(], "baseTimeNanoseconds": 1727743122000000000,
        "distributedInfo": {"backend": "nccl", "rank": 5, "world_size": 8}})",
                                      "t.json");
  EXPECT_EQ(trace.files[0].rank, 5U);
  EXPECT_EQ(trace.files[0].rank_from, "metadata");
  EXPECT_EQ(trace.files[0].world_size, 8U);
  EXPECT_EQ(trace.files[0].backend, "nccl");
  EXPECT_EQ(trace.timeline.records.at(0).rank, 5U);
  EXPECT_EQ(trace.timeline.origin_unix_ns, 1727743122000001000);
}

/// Where the windows end in which the text is read: the first is small, for small files.
constexpr std::array<std::size_t, 2> kWindowEnds = {std::size_t{64} << 10U,
                                                    (std::size_t{64} << 10U) + (1U << 20U)};

std::string padded(std::string_view head, std::size_t spaces, std::string_view tail) {
  std::string text(head);
  text.append(spaces, ' ');
  return text.append(tail);
}

TEST(Scanner, AnEventAcrossTheWindowsEnd) {
  const std::string event = slice(R"(a\"b)", R"(,"args":{"a":"}"})");
  const std::string two = event + "," + event + "]";
  for (const std::size_t window : kWindowEnds) {
    for (const std::string& head : {std::string("["), std::string(R"({"m":[1],"traceEvents":[)")}) {
      std::string text = padded(head, window, two);
      text += head.size() > 1 ? "}" : "";
      // From all of it behind the end of the window to all of it before.
      for (std::size_t i = 0; i < head.size() + event.size() + 3; ++i) {
        const Scanned scanned = scan(std::string_view(text));
        ASSERT_FALSE(scanned.fault) << i << scanned.fault->what;
        ASSERT_EQ(names(scanned), (Names{R"(a\"b)", R"(a\"b)"})) << i;
        text.erase(head.size(), 1);
      }
    }
  }
}

TEST(Scanner, AMemberAcrossTheWindowsEnd) {
  const std::string events = R"("traceEvents":[)" + slice("a") + "]}";
  const std::string member = R"("mem\"ber" : {"a":"}"} , )";
  for (const std::size_t window : kWindowEnds) {
    std::string text = padded("{", window, member + events);
    for (std::size_t i = 0; i < member.size() + 16; ++i) {
      const Scanned scanned = scan(std::string_view(text));
      ASSERT_FALSE(scanned.fault) << i << scanned.fault->what;
      ASSERT_EQ(scanned.members,
                (std::map<std::string, std::string>{{R"(mem\"ber)", R"({"a":"}"})"}}))
          << i;
      ASSERT_EQ(scanned.events.size(), 1U);
      text.erase(1, 1);
    }
  }
}

/// And where it ends in what is looked for behind a fault.
TEST(Scanner, AFaultBeforeTheWindowsEnd) {
  const std::string broken = slice("a\"b");
  for (const std::size_t window : kWindowEnds) {
    std::string text =
        padded("[", window, broken + " , \n " + slice("next") + "," + slice("last") + "]");
    for (std::size_t i = 0; i < broken.size() + slice("next").size() + 8; ++i) {
      const Scanned scanned = scan(std::string_view(text), true);
      ASSERT_EQ(names(scanned), (Names{"next", "last"})) << i;
      ASSERT_EQ(scanned.lost, 1U);
      text.erase(1, 1);
    }
  }
}

TEST(Scanner, HugeStringsAndMembers) {
  const std::string name(std::size_t{10} << 20U, 'n');
  const Scanned scanned = scan("[" + slice(name) + "," + slice("a") + "]");
  EXPECT_FALSE(scanned.fault);
  EXPECT_EQ(names(scanned), (Names{name, "a"}));
  // Beside the events there may be anything: call stacks, memory snapshots. It is not kept.
  const std::string text = R"({"a":"x","stacks":")" + std::string(std::size_t{80} << 20U, 's') +
                           R"(\"]}","tree":{"a":[")" + std::string(std::size_t{3} << 20U, '[') +
                           R"("],"b":{}} , )" + R"("traceEvents":[)" + slice("a") + "]}";
  const Scanned beside = scan(text);
  EXPECT_FALSE(beside.fault) << beside.fault->what;
  EXPECT_EQ(names(beside), Names{"a"});
  EXPECT_EQ(beside.members.at("a"), "x");
}

TEST(Scanner, AnEventTooLargeToBeOneIsAFault) {
  const std::string huge = slice(std::string(std::size_t{17} << 20U, 'n'));
  const std::string text = "[" + slice("a") + "," + huge + "," + slice("b") + "]";
  const Scanned scanned = scan(text, true);
  ASSERT_TRUE(scanned.fault);
  EXPECT_EQ(scanned.fault->offset, 2 + slice("a").size());
  EXPECT_EQ(names(scanned), (Names{"a", "b"}));
  EXPECT_EQ(scanned.lost, 1U);
}

TEST(Scanner, DeepNesting) {
  constexpr std::size_t kDeep = 100'000;
  const std::string open = std::string(kDeep, '[') + std::string(kDeep, ']');
  const Scanned scanned =
      scan(R"({"m":)" + open + R"(,"traceEvents":[)" + slice("a", R"(,"args":{"x":)" + open + "}") +
           "," + slice("b") + "]}");
  EXPECT_FALSE(scanned.fault);
  EXPECT_EQ(names(scanned), (Names{"a", "b"}));
  const Scanned open_only = scan(std::string(kDeep, '['), true);
  EXPECT_TRUE(open_only.fault);
  EXPECT_TRUE(open_only.events.empty());
}

TEST(Scanner, Unescape) {
  EXPECT_EQ(unescape(R"(plain)"), "plain");
  EXPECT_EQ(unescape(R"(\"\\\/\b\f\n\r\t)"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(unescape(R"(\u0041\u00e9\u20ac\u0000)"), std::string("A\xc3\xa9\xe2\x82\xac\0", 7));
  EXPECT_EQ(unescape(R"(\ud83d\ude00)"), "\xf0\x9f\x98\x80");  // one character of two halves
  EXPECT_EQ(unescape(R"(\ud83d!)"), "\xed\xa0\xbd!");          // half of one
  EXPECT_EQ(unescape(R"(C:\dir\users\x)"), R"(C:\dir\users\x)");
  EXPECT_EQ(unescape(R"(\u12)"), R"(\u12)");
  EXPECT_EQ(unescape(R"(\u12g4)"), R"(\u12g4)");
  EXPECT_EQ(unescape("end\\"), "end\\");
}

TEST(Scanner, ElementsOfAnArray) {
  const std::string text = R"([1, "two", {"three": 3}, [4],])" + std::string(16, '\0');
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size() - 16;
  std::vector<std::string> elements;
  for (;;) {
    ValueText value;
    bool none = false;
    ASSERT_EQ(read_element(at, end, value, none), Scan::kOk);
    if (none) {
      break;
    }
    elements.emplace_back(value.text);
  }
  EXPECT_EQ(elements, (Names{"1", "two", R"({"three": 3})", "[4]"}));
  EXPECT_EQ(at, end);
}

// --- Properties -------------------------------------------------------------------------------

using Event = std::map<std::string, std::string>;  // values as they are, not as JSON

std::string escaped(const std::string& text, bool all) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += std::string("\\") + c;
    } else if (byte < 0x20 && all) {
      constexpr std::string_view kHex = "0123456789abcdef";
      out += std::string("\\u00") + kHex[byte >> 4U] + kHex[byte & 15U];
    } else {
      out += c;  // raw control bytes, too
    }
  }
  return out + "\"";
}

rc::Gen<std::string> space() {
  return rc::gen::resize(3,
                         rc::gen::container<std::string>(rc::gen::element(' ', '\n', '\t', '\r')));
}

RC_GTEST_PROP(ScannerProperty, WhatIsWrittenComesBack, ()) {
  std::string text = *rc::gen::element<std::string>("", "\xef\xbb\xbf", " \n");
  const bool object = *rc::gen::arbitrary<bool>();
  text += object ? "{" + *space() + "\"traceEvents\"" + *space() + ":" + *space() + "[" : "[";
  std::vector<Event> written;
  const int count = *rc::gen::inRange(0, 20);
  for (int i = 0; i < count; ++i) {
    Event event;
    std::vector<std::string> members;
    const auto add = [&](const std::string& key, const std::string& value, bool string) {
      event[key] = value;
      members.push_back("\"" + key + "\"" + *space() + ":" + *space() +
                        (string ? escaped(value, *rc::gen::arbitrary<bool>()) : value));
    };
    add("ph", *rc::gen::element<std::string>("X", "M", "B", "E", "b", "e"), true);
    add("name", "n" + *rc::gen::arbitrary<std::string>(), true);
    if (*rc::gen::arbitrary<bool>()) {
      add("ts", std::to_string(*rc::gen::arbitrary<std::int64_t>()), *rc::gen::arbitrary<bool>());
    }
    if (*rc::gen::arbitrary<bool>()) {
      add("args", "{\"x\":[" + escaped(*rc::gen::arbitrary<std::string>(), true) + "]}", false);
    }
    members.push_back("\"other\":" + *rc::gen::element<std::string>("1", "\"}\"", "[[]]", "null"));
    for (std::size_t left = members.size(); left > 1; --left) {  // in any order
      std::swap(members[left - 1], members[*rc::gen::inRange<std::size_t>(0, left)]);
    }
    std::string body;
    for (const std::string& member : members) {
      body += (body.empty() ? "" : ",") + *space() + member + *space();
    }
    text += *space() + "{" + body + "}" + *space() + (i + 1 < count ? "," : "");
    written.push_back(std::move(event));
  }
  text += "]";
  text += object ? *space() + "}" : "";
  text += *space();

  Dribble input(text, *rc::gen::inRange<std::size_t>(1, 100));
  const Scanned scanned = scan(input, *rc::gen::arbitrary<bool>());
  RC_ASSERT(!scanned.fault);
  RC_ASSERT(scanned.counted == written.size());
  RC_ASSERT(scanned.events.size() == written.size());
  for (std::size_t i = 0; i < written.size(); ++i) {
    Event read = scanned.events[i];
    read["name"] = unescape(read["name"]);
    RC_ASSERT(read == written[i]);
  }
}

/// A byte more, less or other: whatever follows, whole events far from it are kept, and a
/// difference in number is said.
RC_GTEST_PROP(ScannerProperty, OneWrongByteIsNotSilent, ()) {
  constexpr std::size_t kEvents = 9;
  std::string text = "[";
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < kEvents; ++i) {
    begins.push_back(text.size());
    text += slice("k" + std::to_string(i), R"(,"args":{"a":"b","c":[1,"d"]})") +
            (i + 1 < kEvents ? "," : "]");
  }
  const std::size_t hit = *rc::gen::inRange(begins[3], begins[5]);
  const char byte = *rc::gen::element('"', '\\', '{', '}', '[', ']', ',', ':', 'x', '\0', '\n');
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      text.insert(hit, 1, byte);
      break;
    case 1:
      text.erase(hit, 1);
      break;
    default:
      text[hit] = byte;
  }
  const Scanned scanned = scan(text, true);
  const Names kept = names(scanned);
  RC_ASSERT(kept.size() >= 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    RC_ASSERT(kept[i] == "k" + std::to_string(i));
  }
  if (!scanned.fault) {
    RC_ASSERT(kept.size() == kEvents || scanned.counted == kEvents);
  } else {
    RC_ASSERT(scanned.counted + scanned.lost + 2 >= kEvents);
  }
}

/// Exact, on strings of digits: value = digits x 10^exponent microseconds.
std::optional<std::int64_t> exact_ns(std::string digits, int exponent, bool negative) {
  exponent += 3;
  std::string below;
  if (exponent >= 0) {
    digits += std::string(static_cast<std::size_t>(exponent), '0');
  } else {
    const auto places = static_cast<std::size_t>(-exponent);
    digits = std::string(places, '0') + digits;
    below = digits.substr(digits.size() - places);
    digits.erase(digits.size() - places);
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.size() > 19) {
    return std::nullopt;
  }
  std::uint64_t value = digits.empty() ? 0 : std::stoull(digits);
  const std::string half = "5" + std::string(below.empty() ? 0 : below.size() - 1, '0');
  if (!below.empty() && (below > half || (below == half && value % 2 == 1))) {
    ++value;
  }
  if (value > static_cast<std::uint64_t>(kLatestTraceNs)) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(value) * (negative ? -1 : 1);
}

RC_GTEST_PROP(MicrosecondsProperty, ExactHalfToEven, ()) {
  const auto digit = rc::gen::weightedElement<char>(
      {{4, '0'}, {4, '5'}, {1, '1'}, {1, '2'}, {1, '4'}, {1, '6'}, {1, '8'}, {1, '9'}});
  const auto length =
      rc::gen::weightedOneOf<std::size_t>({{3, rc::gen::inRange<std::size_t>(0, 6)},
                                           {3, rc::gen::inRange<std::size_t>(13, 21)},
                                           {1, rc::gen::inRange<std::size_t>(0, 60)}});
  const std::string whole = *rc::gen::container<std::string>(*length, digit);
  const std::string part = *rc::gen::container<std::string>(*length, digit);
  RC_PRE(!whole.empty() || !part.empty());
  const bool negative = *rc::gen::arbitrary<bool>();
  std::string text = (negative ? "-" : "") + whole;
  if (!part.empty() || *rc::gen::arbitrary<bool>()) {
    text += "." + part;
  }
  int exponent = 0;
  if (*rc::gen::arbitrary<bool>()) {
    exponent = *rc::gen::inRange(-30, 31);
    text += *rc::gen::element<std::string>("e", "E") +
            (exponent >= 0 && *rc::gen::arbitrary<bool>() ? "+" : "") + std::to_string(exponent);
  }
  const auto expected = exact_ns(whole + part, exponent - static_cast<int>(part.size()), negative);
  std::int64_t ns = 0;
  const bool read = parse_microseconds(text, ns);
  RC_LOG() << text;
  RC_ASSERT(read == expected.has_value());
  if (read) {
    RC_ASSERT(ns == *expected);
  }
}

TEST(Microseconds, KnownValues) {
  const auto ns = [](std::string_view text) {
    std::int64_t value = 0;
    return parse_microseconds(text, value) ? std::optional(value) : std::nullopt;
  };
  EXPECT_EQ(ns("0"), 0);
  EXPECT_EQ(ns("4458677009853.422"), 4458677009853422);
  EXPECT_EQ(ns("1704161511420589.043"), 1704161511420589043);
  EXPECT_EQ(ns("1704161511420589.0435"), 1704161511420589044);
  EXPECT_EQ(ns("1704161511420589.0445"), 1704161511420589044);
  EXPECT_EQ(ns("1704161511420589.0446"), 1704161511420589045);
  EXPECT_EQ(ns("1.7e15"), 1700000000000000000);
  EXPECT_EQ(ns("-0.0005"), 0);
  EXPECT_EQ(ns("0.0015"), 2);
  EXPECT_EQ(ns("2305843009213693.952"), std::int64_t{1} << 61);
  EXPECT_EQ(ns("2305843009213693.953"), std::nullopt);
  for (const char* text : {"",
                           "-",
                           ".",
                           "+1",
                           "1 ",
                           " 1",
                           "1.2.3",
                           "0x10",
                           "1e",
                           "1e+-5",
                           "1e9999",
                           "N/A",
                           "nan",
                           "-inf"}) {
    EXPECT_EQ(ns(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace stretto::detail
