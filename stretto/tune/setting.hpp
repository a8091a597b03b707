// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"

namespace stretto {

/// One thing that can be set, and what to: `buckets`, `4M`.
struct Knob {
  std::string name;
  std::string value;
  friend bool operator==(const Knob&, const Knob&) = default;
};

/// Knobs that are not left as they are. Empty: the default.
using Setting = std::vector<Knob>;

/// `buckets=4M schedule=overlap`; `default` for none.
[[nodiscard]] std::string to_string(const Setting& setting);
/// The value of a knob; nothing if it is left as it is.
[[nodiscard]] std::optional<std::string_view> value_of(const Setting& setting,
                                                       std::string_view knob);

/// The values one knob may take.
struct KnobValues {
  std::string name;
  std::vector<std::string> values;
};

/// `buckets=1M,5M,25M`: one knob, values parted by commas.
/// @throws Error kInvalidArgument: no name, no value, an empty or repeated value.
[[nodiscard]] KnobValues parse_knob_values(std::string_view text);
/// `buckets=1M,5M,ratio=0.01,0.1`: several of them, each beginning at a word with `=`.
/// @throws Error kInvalidArgument as above, and for a knob named twice.
[[nodiscard]] std::vector<KnobValues> parse_grid(std::string_view text);

/// Every combination, the last knob changing quickest.
/// @throws Error kInvalidArgument: more than a million.
[[nodiscard]] std::vector<Setting> combinations(std::span<const KnobValues> knobs);

/// A setting and what a step is predicted to take with it, if anybody can say.
struct Candidate {
  Setting setting;
  std::optional<Seconds> predicted;
};

/// Up to `count` candidates, those with the shortest predicted steps first, then those without a
/// prediction in the order given. Of candidates that differ in one knob only and are predicted
/// alike within `tie` (a fraction), the first stands for all while others are left to take.
[[nodiscard]] std::vector<Candidate> shortlist(std::span<const Candidate> candidates,
                                               std::size_t count,
                                               double tie = 0.002);

}  // namespace stretto
