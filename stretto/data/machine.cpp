// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "stretto/data/json_reader.hpp"

namespace stretto {

using detail::JsonValue;
using nlohmann::ordered_json;

int Machine::ranks() const noexcept {
  int product = 1;
  for (const Level& level : levels) {
    product *= level.group_size;
  }
  return product;
}

int Machine::level_between(int rank_a, int rank_b) const noexcept {
  int outermost = -1;
  for (std::size_t l = 0; l < levels.size(); ++l) {
    const int size = levels[l].group_size;
    if (rank_a % size != rank_b % size) {
      outermost = static_cast<int>(l);
    }
    rank_a /= size;
    rank_b /= size;
  }
  return outermost;
}

std::string to_json(const Machine& machine) {
  ordered_json levels = ordered_json::array();
  for (const Level& level : machine.levels) {
    levels.push_back(ordered_json{{"name", level.name},
                                  {"group_size", level.group_size},
                                  {"latency_s", level.latency.count()},
                                  {"bandwidth_bytes_per_s", level.bandwidth.value()}});
  }
  return detail::write_json(ordered_json{
      {"schema", "stretto.machine/1"}, {"name", machine.name}, {"levels", std::move(levels)}});
}

Machine machine_from_json(std::string_view text, std::string_view where) {
  constexpr int kMostRanks = std::numeric_limits<int>::max();
  const nlohmann::json document = detail::parse_json(text, where);
  const JsonValue root(document, where, "");
  root.check_schema("machine");
  root.allow_only({"schema", "name", "levels"});
  Machine machine;
  machine.name = root.at("name").text();
  const JsonValue levels = root.at("levels");
  int ranks = 1;
  for (const JsonValue& json : levels.elements()) {
    json.allow_only({"name", "group_size", "latency_s", "bandwidth_bytes_per_s"});
    Level level;
    level.name = json.at("name").text();
    level.group_size = static_cast<int>(json.at("group_size").integer(1, kMostRanks / ranks));
    ranks *= level.group_size;
    level.latency = json.at("latency_s").seconds();
    const JsonValue bandwidth = json.at("bandwidth_bytes_per_s");
    level.bandwidth = BytesPerSecond(bandwidth.number());
    if (level.bandwidth.value() == 0.0) {
      bandwidth.fail_type("a number above zero");
    }
    machine.levels.push_back(std::move(level));
  }
  if (machine.levels.empty()) {
    levels.fail_type("at least one level, innermost first");
  }
  return machine;
}

}  // namespace stretto
