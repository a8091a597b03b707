// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/trace/builder.hpp"
#include "stretto/trace/input.hpp"

namespace stretto::detail {

void read_stretto(Input& input, TraceBuilder& builder) {
  std::string text = read_all(input);
  TraceFile& file = builder.file();
  file.bytes = text.size();
  if (!input.fault().empty()) {
    builder.fail({text.size(), input.fault()});
  }
  const Timeline read = timeline_from_json(text, file.path);
  text = {};
  Timeline& timeline = builder.timeline();
  std::vector<std::uint32_t> names;
  names.reserve(read.names.size());
  for (const std::string& name : read.names) {
    names.push_back(builder.name(name));
  }
  const auto renamed = [&](std::uint32_t id) { return id == kNoId ? kNoId : names[id]; };
  const auto first_call = static_cast<std::uint32_t>(timeline.calls.size());
  for (CollectiveCall call : read.calls) {
    call.group = renamed(call.group);
    call.members = renamed(call.members);
    timeline.calls.push_back(call);
  }
  std::set<std::uint32_t> ranks;
  builder.expect(timeline.records.size() + read.records.size());
  for (Record record : read.records) {
    record.name = renamed(record.name);
    if (record.call != kNoId) {
      record.call += first_call;
    }
    builder.add(record);
    ranks.insert(record.rank);
  }
  for (const RankClock& clock : read.clocks) {
    timeline.clocks.push_back(clock);
  }
  for (const RankSetup& setup : read.setups) {
    timeline.setups.push_back(setup);
  }
  file.world_size = read.world_size;
  file.events = read.records.size();
  file.base_ns = read.origin_unix_ns;
  file.rank_from = "metadata";  // records carry their own
  file.backend = read.source;
  file.steps_from = "Stretto's recorder";
  if (read.steps_recorded < read.steps_total) {
    builder.note("holds the last " + std::to_string(read.steps_recorded) + " of " +
                 std::to_string(read.steps_total) + " steps");
  }
}

}  // namespace stretto::detail
