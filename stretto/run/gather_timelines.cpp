// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "stretto/run/session.hpp"
#include "stretto/run/text_exchange.hpp"

namespace stretto {
namespace {

void append(Timeline& all, const Timeline& other) {
  std::vector<std::uint32_t> names;
  names.reserve(other.names.size());
  for (const std::string& name : other.names) {
    names.push_back(all.name_id(name));
  }
  for (Record record : other.records) {
    record.name = names.at(record.name);
    all.records.push_back(record);
  }
  all.clocks.insert(all.clocks.end(), other.clocks.begin(), other.clocks.end());
  all.steps_total = std::max(all.steps_total, other.steps_total);
  all.steps_recorded = std::min(all.steps_recorded, other.steps_recorded);
}

}  // namespace

Timeline gather_timelines(Communicator& communicator, const Timeline& mine) {
  if (communicator.rank() != 0) {
    send_text(communicator, to_json(mine), 0);
    return {};
  }
  Timeline all = mine;
  for (int rank = 1; rank < communicator.size(); ++rank) {
    append(all,
           timeline_from_json(receive_text(communicator, rank),
                              "the timeline of rank " + std::to_string(rank)));
  }
  return all;
}

}  // namespace stretto
