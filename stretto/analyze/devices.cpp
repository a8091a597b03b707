// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/devices.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "stretto/base/intervals.hpp"
#include "stretto/base/saturate.hpp"

namespace stretto {
namespace {

using Pieces = std::vector<Interval>;

/// Records of one device, by what they are.
struct DevicePieces {
  std::map<std::uint32_t, Pieces> communication;  // by stream
  std::map<std::uint32_t, Pieces> compute;
  Pieces copies;
  std::set<std::uint32_t> streams;
};

std::int64_t sum_of(const Pieces& pieces) {
  std::int64_t sum = 0;
  for (const Interval& piece : pieces) {
    sum = add_saturating(sum, piece.end_ns - piece.begin_ns);
  }
  return sum;
}

/// All pieces, moved out of the map.
Pieces flatten(std::map<std::uint32_t, Pieces>& by_stream) {
  Pieces all;
  for (auto& [stream, pieces] : by_stream) {
    if (all.empty()) {
      all = std::move(pieces);
    } else {
      all.insert(all.end(), pieces.begin(), pieces.end());
    }
    pieces = {};
  }
  return all;
}

/// What of each stream's communication no compute of another stream hides.
std::int64_t exposed_to_others(const DevicePieces& pieces) {
  IntervalSet exposed;
  for (const auto& [stream, communication] : pieces.communication) {
    Pieces others;
    for (const auto& [other, compute] : pieces.compute) {
      if (other != stream) {
        others.insert(others.end(), compute.begin(), compute.end());
      }
    }
    exposed = unite(exposed, subtract(IntervalSet(communication), IntervalSet(std::move(others))));
  }
  return exposed.measure_ns();
}

DeviceTotals measure(std::uint32_t rank, std::uint32_t device, DevicePieces& pieces) {
  DeviceTotals totals;
  totals.rank = rank;
  totals.device = device;
  totals.streams = static_cast<std::uint32_t>(pieces.streams.size());
  totals.communication_streams = static_cast<std::uint32_t>(pieces.communication.size());
  totals.exposed_other_streams_ns = exposed_to_others(pieces);
  Pieces communication_pieces = flatten(pieces.communication);
  Pieces compute_pieces = flatten(pieces.compute);
  totals.communication_count = static_cast<std::int64_t>(communication_pieces.size());
  totals.compute_count = static_cast<std::int64_t>(compute_pieces.size());
  totals.copy_count = static_cast<std::int64_t>(pieces.copies.size());
  totals.communication_sum_ns = sum_of(communication_pieces);
  totals.compute_sum_ns = sum_of(compute_pieces);
  const IntervalSet communication(std::move(communication_pieces));
  const IntervalSet compute(std::move(compute_pieces));
  const IntervalSet copies(std::move(pieces.copies));
  totals.communication_ns = communication.measure_ns();
  totals.compute_ns = compute.measure_ns();
  totals.exposed_ns = subtract(communication, compute).measure_ns();
  totals.hidden_ns = totals.communication_ns - totals.exposed_ns;
  const IntervalSet busy = unite(communication, compute);
  totals.exposed_beside_copies_ns = subtract(communication, unite(compute, copies)).measure_ns();
  totals.exposed_copies_ns = subtract(copies, busy).measure_ns();
  const IntervalSet all = unite(busy, copies);
  if (!all.empty()) {
    totals.span_ns = all.intervals().back().end_ns - all.intervals().front().begin_ns;
  }
  totals.idle_ns = totals.span_ns - all.measure_ns();
  return totals;
}

}  // namespace

std::vector<DeviceTotals> device_totals(const Timeline& timeline, DeviceRows rows) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, DevicePieces> devices;
  for (const Record& record : timeline.records) {
    const bool counted = record.lane != Lane::kHost &&
                         (is_compute(record.kind) || record.kind == RecordKind::kCommunication ||
                          record.kind == RecordKind::kCopy) &&
                         (rows == DeviceRows::kAll || record.link != kNoId);
    if (!counted) {
      continue;
    }
    DevicePieces& pieces = devices[{record.rank, record.device}];
    const Interval piece{record.begin_ns, record.end_ns};
    if (record.stream != kNoId) {
      pieces.streams.insert(record.stream);
    }
    if (record.kind == RecordKind::kCommunication) {
      pieces.communication[record.stream].push_back(piece);
    } else if (record.kind == RecordKind::kCopy) {
      pieces.copies.push_back(piece);
    } else {
      pieces.compute[record.stream].push_back(piece);
    }
  }
  std::vector<DeviceTotals> totals;
  totals.reserve(devices.size());
  for (auto& [key, pieces] : devices) {
    totals.push_back(measure(key.first, key.second, pieces));
  }
  return totals;
}

std::vector<HostTotals> host_totals(const Timeline& timeline) {
  struct HostPieces {
    Pieces communication;
    Pieces compute;
  };
  std::map<std::uint32_t, HostPieces> ranks;
  for (const Record& record : timeline.records) {
    if (record.lane != Lane::kHost) {
      continue;
    }
    const Interval piece{record.begin_ns, record.end_ns};
    if (record.kind == RecordKind::kCommunication) {
      ranks[record.rank].communication.push_back(piece);
    } else if (is_compute(record.kind)) {
      ranks[record.rank].compute.push_back(piece);
    }
  }
  std::vector<HostTotals> totals;
  for (auto& [rank, pieces] : ranks) {
    if (pieces.communication.empty()) {
      continue;
    }
    HostTotals host;
    host.rank = rank;
    host.communication_count = static_cast<std::int64_t>(pieces.communication.size());
    const IntervalSet communication(std::move(pieces.communication));
    const IntervalSet compute(std::move(pieces.compute));
    host.communication_ns = communication.measure_ns();
    host.compute_ns = compute.measure_ns();
    host.exposed_ns = subtract(communication, compute).measure_ns();
    totals.push_back(host);
  }
  return totals;
}

}  // namespace stretto
