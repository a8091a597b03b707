// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fuzz/fuzz.hpp"
#include "stretto/analyze/devices.hpp"
#include "stretto/trace/builder.hpp"
#include "stretto/trace/input.hpp"

/// What the fuzz targets of trace formats share.
namespace stretto::fuzz {

/// Reads the bytes as one format, whatever they look like. With salvage a reader throws nothing;
/// what it makes can be measured and refers to nothing that is not there.
inline void read_trace_as(void (*read)(detail::Input&, detail::TraceBuilder&),
                          const std::uint8_t* data,
                          std::size_t size) {
  for (const bool salvage : {false, true}) {
    Trace trace;
    TraceReadOptions options;
    options.salvage = salvage;
    const auto done = parsed([&] {
      detail::TraceBuilder builder(trace, options, "f");
      const std::unique_ptr<detail::Input> input = detail::memory_input(text_of(data, size));
      read(*input, builder);
      builder.finish();
      return true;
    });
    if (!done) {
      require(!salvage);
      continue;
    }
    const Timeline& timeline = trace.timeline;
    for (const Record& record : timeline.records) {
      require(record.begin_ns <= record.end_ns && record.bytes >= 0);
      require(record.name < timeline.names.size());
      require(record.call == kNoId || record.call < timeline.calls.size());
    }
    for (const CollectiveCall& call : timeline.calls) {
      require(call.group == kNoId || call.group < timeline.names.size());
    }
    (void)device_totals(timeline);
    (void)device_totals(timeline, DeviceRows::kLinked);
    (void)host_totals(timeline);
  }
}

}  // namespace stretto::fuzz
