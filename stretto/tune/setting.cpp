// SPDX-License-Identifier: Apache-2.0
#include "stretto/tune/setting.hpp"

#include <algorithm>
#include <utility>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"

namespace stretto {
namespace {

[[noreturn]] void fail(std::string message, std::string_view found, std::string expected) {
  throw Error(ErrorCode::kInvalidArgument,
              {std::move(message), "", quote(found), std::move(expected), ""});
}

std::vector<std::string_view> parts(std::string_view text) {
  std::vector<std::string_view> found;
  while (true) {
    const std::size_t comma = text.find(',');
    found.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) {
      return found;
    }
    text.remove_prefix(comma + 1);
  }
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

void add_value(KnobValues& knob, std::string_view value) {
  if (value.empty()) {
    fail("a value is empty", knob.name, "a value between any two commas");
  }
  if (std::find(knob.values.begin(), knob.values.end(), value) != knob.values.end()) {
    fail("a value is given twice", value, "each value once");
  }
  knob.values.emplace_back(value);
}

std::size_t differing(const Setting& a, const Setting& b) {
  if (a.size() != b.size()) {
    return std::max(a.size(), b.size());
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    count += a[i] == b[i] ? 0U : 1U;
  }
  return count;
}

}  // namespace

std::string to_string(const Setting& setting) {
  std::string text;
  for (const Knob& knob : setting) {
    text += (text.empty() ? "" : " ") + knob.name + "=" + knob.value;
  }
  return text.empty() ? "default" : text;
}

std::optional<std::string_view> value_of(const Setting& setting, std::string_view knob) {
  for (const Knob& set : setting) {
    if (set.name == knob) {
      return set.value;
    }
  }
  return std::nullopt;
}

std::vector<KnobValues> parse_grid(std::string_view text) {
  std::vector<KnobValues> knobs;
  for (std::string_view part : parts(text)) {
    const std::size_t equals = part.find('=');
    if (equals != std::string_view::npos && is_name(part.substr(0, equals))) {
      const std::string_view name = part.substr(0, equals);
      for (const KnobValues& knob : knobs) {
        if (knob.name == name) {
          fail("a knob is given twice", name, "each knob once");
        }
      }
      knobs.push_back({std::string(name), {}});
      part.remove_prefix(equals + 1);
    } else if (knobs.empty()) {
      fail("a grid begins with the name of a knob", text, "KNOB=VALUE,VALUE...");
    }
    add_value(knobs.back(), part);
  }
  return knobs;
}

KnobValues parse_knob_values(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || !is_name(text.substr(0, equals))) {
    fail("this is no knob with values", text, "NAME=VALUE,VALUE...");
  }
  KnobValues knob{std::string(text.substr(0, equals)), {}};
  for (const std::string_view value : parts(text.substr(equals + 1))) {
    add_value(knob, value);
  }
  return knob;
}

std::vector<Setting> combinations(std::span<const KnobValues> knobs) {
  constexpr std::size_t kMost = 1000000;
  std::size_t count = 1;
  for (const KnobValues& knob : knobs) {
    count *= knob.values.size();
    if (count > kMost) {
      fail("these are too many combinations", knob.name, "at most 1000000");
    }
  }
  std::vector<Setting> settings(1);
  for (const KnobValues& knob : knobs) {
    std::vector<Setting> longer;
    longer.reserve(settings.size() * knob.values.size());
    for (const Setting& setting : settings) {
      for (const std::string& value : knob.values) {
        longer.push_back(setting);
        longer.back().push_back({knob.name, value});
      }
    }
    settings = std::move(longer);
  }
  return settings;
}

std::vector<Candidate> shortlist(std::span<const Candidate> candidates,
                                 std::size_t count,
                                 double tie) {
  std::vector<Candidate> sorted(candidates.begin(), candidates.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const Candidate& a, const Candidate& b) {
    return a.predicted && (!b.predicted || *a.predicted < *b.predicted);
  });
  std::vector<Candidate> taken;
  std::vector<Candidate> alike;
  for (Candidate& candidate : sorted) {
    const bool seen = std::any_of(taken.begin(), taken.end(), [&](const Candidate& other) {
      return candidate.predicted && other.predicted &&
             *candidate.predicted <= *other.predicted * (1.0 + tie) &&
             differing(candidate.setting, other.setting) <= 1;
    });
    (seen ? alike : taken).push_back(std::move(candidate));
  }
  taken.insert(taken.end(), alike.begin(), alike.end());
  taken.resize(std::min(taken.size(), count));
  return taken;
}

}  // namespace stretto
