// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/devices.hpp"

#include <algorithm>
#include <cstddef>
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

/// Where two or more of the pieces are.
IntervalSet covered_twice(const Pieces& pieces) {
  std::vector<std::pair<std::int64_t, int>> edges;
  edges.reserve(2 * pieces.size());
  for (const Interval& piece : pieces) {
    edges.emplace_back(piece.begin_ns, 1);
    edges.emplace_back(piece.end_ns, -1);
  }
  std::sort(edges.begin(), edges.end());
  Pieces twice;
  int covered = 0;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (covered >= 2) {
      twice.push_back({edges[i - 1].first, edges[i].first});
    }
    covered += edges[i].second;
  }
  return IntervalSet(std::move(twice));
}

/// What of each stream's communication no compute of another stream hides.
std::int64_t exposed_to_others(const DevicePieces& pieces) {
  // Streams may be many, so that none is compared with all others: what nothing hides, and of what
  // only one stream computes that stream's own communication.
  Pieces communication;
  for (const auto& [stream, list] : pieces.communication) {
    communication.insert(communication.end(), list.begin(), list.end());
  }
  Pieces compute;
  std::map<std::uint32_t, IntervalSet> by_stream;
  for (const auto& [stream, list] : pieces.compute) {
    by_stream[stream] = IntervalSet(list);
    const auto merged = by_stream[stream].intervals();
    compute.insert(compute.end(), merged.begin(), merged.end());
  }
  const IntervalSet several = covered_twice(compute);
  const IntervalSet hidden_by_none =
      subtract(IntervalSet(std::move(communication)), IntervalSet(std::move(compute)));
  Pieces exposed(hidden_by_none.intervals().begin(), hidden_by_none.intervals().end());
  for (const auto& [stream, list] : pieces.communication) {
    const auto own = by_stream.find(stream);
    if (own == by_stream.end()) {
      continue;
    }
    const IntervalSet beside_own = intersect(IntervalSet(list), own->second);
    for (const Interval& both : beside_own.intervals()) {
      std::int64_t begin_ns = both.begin_ns;
      for (const Interval& shared : several.within(both)) {
        exposed.push_back({begin_ns, shared.begin_ns});
        begin_ns = std::max(begin_ns, shared.end_ns);
      }
      exposed.push_back({begin_ns, both.end_ns});
    }
  }
  return IntervalSet(std::move(exposed)).measure_ns();
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
