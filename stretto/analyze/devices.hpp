// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "stretto/data/timeline.hpp"

namespace stretto {

/// Whole-recording numbers of one device, in exact nanoseconds. communication and compute are
/// unions over all streams; exposed = communication minus compute; hidden the rest of
/// communication; copies and fills are neither. span = from the first begin to the last end of
/// anything, idle = span minus the union of everything.
struct DeviceTotals {
  std::uint32_t rank = 0;
  std::uint32_t device = 0;  ///< kNoId: a live run, whose records name none.
  std::uint32_t streams = 0;
  std::uint32_t communication_streams = 0;
  std::int64_t communication_count = 0;
  std::int64_t compute_count = 0;
  std::int64_t copy_count = 0;
  std::int64_t communication_ns = 0;
  std::int64_t communication_sum_ns = 0;  ///< Plain sum: above the union when collectives overlap.
  std::int64_t compute_ns = 0;
  std::int64_t compute_sum_ns = 0;
  std::int64_t exposed_ns = 0;
  std::int64_t hidden_ns = 0;
  /// As exposed, but a collective is hidden only by compute on other streams than its own.
  std::int64_t exposed_other_streams_ns = 0;
  std::int64_t exposed_beside_copies_ns = 0;  ///< communication minus compute and copies.
  std::int64_t exposed_copies_ns = 0;         ///< copies minus compute and communication.
  std::int64_t span_ns = 0;
  std::int64_t idle_ns = 0;
};

/// The same of a rank's host rows: compute is the union of host operators. The only numbers there
/// are when communication runs on the host (gloo, MPI).
struct HostTotals {
  std::uint32_t rank = 0;
  std::int64_t communication_count = 0;
  std::int64_t communication_ns = 0;
  std::int64_t compute_ns = 0;
  std::int64_t exposed_ns = 0;
};

enum class DeviceRows : std::uint8_t {
  kAll,
  kLinked,  ///< Only those whose launch is recorded too: what HTA and TraceLens count.
};

/// One per rank and device, in that order.
[[nodiscard]] std::vector<DeviceTotals> device_totals(const Timeline& timeline,
                                                      DeviceRows rows = DeviceRows::kAll);
/// One per rank that has host communication.
[[nodiscard]] std::vector<HostTotals> host_totals(const Timeline& timeline);

}  // namespace stretto
