// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/devices.hpp"

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "stretto/base/intervals.hpp"

namespace stretto {
namespace {

Record on_stream(std::uint32_t stream, bool communicates, std::int64_t begin, std::int64_t end) {
  Record record;
  record.kind = communicates ? RecordKind::kCommunication : RecordKind::kCompute;
  record.lane = communicates ? Lane::kCommunication : Lane::kCompute;
  record.device = 0;
  record.stream = stream;
  record.begin_ns = begin;
  record.end_ns = end;
  return record;
}

/// Begin, length, stream, whether it communicates.
using Drawn = std::vector<std::tuple<std::uint8_t, std::uint8_t, std::uint8_t, bool>>;

RC_GTEST_PROP(Devices, OnlyComputeOfOtherStreamsHides, (const Drawn& drawn)) {
  constexpr std::uint32_t kStreams = 3;
  Timeline timeline;
  timeline.names = {"k"};
  std::vector<std::vector<Interval>> communication(kStreams);
  std::vector<std::vector<Interval>> compute(kStreams);
  for (const auto& [begin, length, stream, communicates] : drawn) {
    const Interval piece{begin, begin + length % 40};
    (communicates ? communication : compute)[stream % kStreams].push_back(piece);
    timeline.records.push_back(
        on_stream(stream % kStreams, communicates, piece.begin_ns, piece.end_ns));
  }
  IntervalSet exposed;
  for (std::uint32_t s = 0; s < kStreams; ++s) {
    IntervalSet others;
    for (std::uint32_t other = 0; other < kStreams; ++other) {
      others = other == s ? others : unite(others, IntervalSet(compute[other]));
    }
    exposed = unite(exposed, subtract(IntervalSet(communication[s]), others));
  }
  const std::vector<DeviceTotals> totals = device_totals(timeline);
  RC_ASSERT(totals.size() == (drawn.empty() ? 0U : 1U));
  if (!totals.empty()) {
    RC_ASSERT(totals[0].exposed_other_streams_ns == exposed.measure_ns());
  }
}

}  // namespace
}  // namespace stretto
