// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"

namespace stretto {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

[[noreturn]] void reject(std::string_view spec,
                         std::string message,
                         std::string found,
                         std::string expected) {
  throw Error(ErrorCode::kInvalidArgument,
              {std::move(message),
               "machine " + quote(spec),
               std::move(found),
               std::move(expected),
               "A machine is RANKS@BANDWIDTH,LATENCY, such as 4@5Gbit/s,50us; with several levels, "
               "counts outermost first and levels innermost first: "
               "2x4@intra=20GB/s,2us@inter=1Gbit/s,50us"});
}

int parse_count(std::string_view spec, std::string_view text, int ranks_so_far) {
  int count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  const int most = std::numeric_limits<int>::max() / ranks_so_far;
  if (error != std::errc() || stop != end || count < 1 || count > most) {
    reject(spec,
           "a count of the machine is wrong",
           quote(text),
           "a whole number from 1 to " + std::to_string(most));
  }
  return count;
}

/// `name=BANDWIDTH,LATENCY`, the name optional.
Level parse_level(std::string_view spec, std::string_view text, std::string default_name) {
  Level level;
  level.name = std::move(default_name);
  if (const std::size_t equals = text.find('='); equals != std::string_view::npos) {
    level.name = text.substr(0, equals);
    text.remove_prefix(equals + 1);
  }
  const std::vector<std::string_view> parts = split(text, ',');
  if (parts.size() != 2) {
    reject(spec, "a level of the machine is wrong", quote(text), "BANDWIDTH,LATENCY");
  }
  try {
    level.bandwidth = parse_bandwidth(parts[0]);
    level.latency = parse_duration(parts[1]);
  } catch (const Error& error) {
    reject(spec,
           "a level of the machine is wrong: " + error.detail().message,
           error.detail().found,
           error.detail().expected);
  }
  return level;
}

}  // namespace

Machine machine_from_spec(std::string_view spec) {
  std::vector<std::string_view> levels = split(spec, '@');
  const std::vector<std::string_view> counts = split(levels.front(), 'x');
  levels.erase(levels.begin());
  if (levels.empty()) {
    reject(spec, "no bandwidth and latency given", quote(spec), "an '@' and a level after it");
  }
  if (counts.size() != levels.size()) {
    reject(spec,
           "the machine has not as many counts as levels",
           std::to_string(counts.size()) + " and " + std::to_string(levels.size()),
           "the same number of both");
  }
  Machine machine;
  machine.name = spec;
  int ranks = 1;
  for (std::size_t l = 0; l < levels.size(); ++l) {
    const std::string name = levels.size() == 1 ? "link" : "level" + std::to_string(l);
    Level level = parse_level(spec, levels[l], name);
    level.group_size = parse_count(spec, counts[counts.size() - 1 - l], ranks);
    ranks *= level.group_size;
    machine.levels.push_back(std::move(level));
  }
  return machine;
}

}  // namespace stretto
