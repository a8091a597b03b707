// SPDX-License-Identifier: Apache-2.0
#include "stretto/report/write_records.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "stretto/report/report.hpp"

namespace stretto {
namespace {

Timeline many_records() {
  Timeline timeline;
  timeline.source = "test";
  timeline.names = {"a kernel with a name", "ncclDevKernel_AllReduce"};
  timeline.world_size = 1;
  for (std::uint32_t i = 0; i < 40'000; ++i) {
    Record record;
    record.begin_ns = 1'000'000'000LL * i;
    record.end_ns = record.begin_ns + 500;
    record.name = i % 2;
    record.kind = i % 2 == 0 ? RecordKind::kCompute : RecordKind::kCommunication;
    record.lane = i % 2 == 0 ? Lane::kCompute : Lane::kCommunication;
    record.device = 0;
    timeline.records.push_back(record);
  }
  return timeline;
}

/// What one form is in one piece and in several: the same, and no piece is large.
template <typename Write>
void expect_pieces(const std::string& whole, Write write) {
  std::string text;
  std::size_t pieces = 0;
  std::size_t largest = 0;
  write([&](std::string_view piece) {
    text += piece;
    ++pieces;
    largest = std::max(largest, piece.size());
  });
  EXPECT_TRUE(text == whole) << "of " << whole.size() << " bytes";
  EXPECT_GT(pieces, whole.size() >> 21U);
  EXPECT_LT(largest, std::size_t{2} << 20U);
}

TEST(WriteRecords, EveryFormComesInPieces) {
  const Timeline timeline = many_records();
  expect_pieces(to_json(timeline), [&](const TextSink& sink) { write_json(timeline, sink); });
  expect_pieces(csv_records(timeline),
                [&](const TextSink& sink) { write_csv_records(timeline, sink); });
  expect_pieces(chrome_trace(timeline),
                [&](const TextSink& sink) { write_chrome_trace(timeline, sink); });
}

TEST(WriteRecords, AnEmptyOneCanBeReadAgain) {
  const Timeline empty;
  EXPECT_TRUE(timeline_from_json(to_json(empty), "empty").records.empty());
}

}  // namespace
}  // namespace stretto
