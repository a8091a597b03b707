// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "fuzz/fuzz.hpp"
#include "stretto/analyze/devices.hpp"
#include "stretto/trace/trace.hpp"

namespace stretto::fuzz {
namespace {

void check_totals(const Timeline& timeline, DeviceRows rows) {
  for (const DeviceTotals& totals : device_totals(timeline, rows)) {
    require(totals.hidden_ns + totals.exposed_ns == totals.communication_ns);
    require(totals.hidden_ns >= 0 && totals.exposed_ns >= 0);
    require(totals.communication_ns <= totals.communication_sum_ns);
    require(totals.compute_ns <= totals.compute_sum_ns);
    require(totals.hidden_ns <= totals.compute_ns);
    require(totals.exposed_ns <= totals.exposed_other_streams_ns);
    require(totals.exposed_other_streams_ns <= totals.communication_ns);
    require(totals.exposed_beside_copies_ns <= totals.exposed_ns);
    require(totals.idle_ns >= 0 && totals.idle_ns <= totals.span_ns);
    const std::int64_t busy = totals.span_ns - totals.idle_ns;
    require(busy == totals.compute_ns + totals.exposed_ns + totals.exposed_copies_ns);
  }
}

void check(const Trace& trace, bool salvage) {
  const Timeline& timeline = trace.timeline;
  require(trace.files.size() == 1);
  const TraceFile& file = trace.files[0];
  require(salvage || !file.fault);
  require((file.lost == 0) || file.fault);
  require(file.kept <= timeline.records.size());
  const auto known = [](std::uint32_t id, std::size_t size) { return id == kNoId || id < size; };
  std::map<std::uint32_t, std::uint64_t> kernels;
  for (const Record& record : timeline.records) {
    require(record.end_ns >= record.begin_ns && record.begin_ns >= 0 && record.bytes >= 0);
    require(record.name < timeline.names.size());
    require(known(record.call, timeline.calls.size()));
    const bool kernel = record.lane != Lane::kHost && (record.kind == RecordKind::kCompute ||
                                                       record.kind == RecordKind::kCommunication);
    kernels[record.name] += kernel ? 1 : 0;
  }
  for (const CollectiveCall& call : timeline.calls) {
    require(known(call.group, timeline.names.size()));
    require(known(call.members, timeline.names.size()));
  }
  if (file.format != "stretto") {
    for (const KernelName& kernel : file.kernels) {
      require(kernel.total_ns >= 0 && kernel.count <= kernels.at(kernel.name));
    }
  }
  check_totals(timeline, DeviceRows::kAll);
  check_totals(timeline, DeviceRows::kLinked);
  for (const HostTotals& host : host_totals(timeline)) {
    require(host.exposed_ns >= 0 && host.exposed_ns <= host.communication_ns);
  }
}

}  // namespace
}  // namespace stretto::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  using fuzz::check;
  const std::string_view text = fuzz::text_of(data, size);
  // What another reader takes has another fuzzer.
  if (text.substr(0, 16384).find("stretto.timeline/") != std::string_view::npos) {
    return 0;
  }
  bool is_whole = false;
  std::size_t whole = 0;
  TraceReadOptions options;
  if (const auto trace = fuzz::parsed([&] { return read_trace_text(text, "f", options); })) {
    check(*trace, false);
    is_whole = true;
    whole = trace->timeline.records.size();
  }
  options.salvage = true;
  const auto salvaged = fuzz::parsed([&] { return read_trace_text(text, "f", options); });
  if (!salvaged) {  // nothing of it can be used
    fuzz::require(!is_whole);
    return 0;
  }
  check(*salvaged, true);
  // Salvaging changes nothing of what is whole.
  fuzz::require(whole == 0 || salvaged->timeline.records.size() == whole);
  return 0;
}
