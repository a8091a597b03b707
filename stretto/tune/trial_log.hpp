// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"

namespace stretto {

/// One trial, a line of the log. Absent times: it failed, or the program does not say.
struct TrialRecord {
  std::int64_t time_unix_s = 0;  ///< When it ended.
  std::string program;           ///< Tells programs apart: a hash, in hexadecimal.
  std::string setting;           ///< As to_string(Setting).
  std::size_t repeat = 0;        ///< Which trial of this setting, from 0.
  std::optional<Seconds> step;   ///< Median of its steps.
  std::optional<Seconds> step_p10;
  std::optional<Seconds> step_p90;
  std::optional<Seconds> exposed;
  std::optional<double> samples_per_s;
  Seconds wall{};     ///< All that it took, with start and warm-up.
  std::string error;  ///< One line; empty if it went well.
  friend bool operator==(const TrialRecord&, const TrialRecord&) = default;
};

/// The first line of a log, with its line end. RFC 4180, but for line ends, which are Unix's.
[[nodiscard]] std::string trial_log_header();
/// Line end included; control characters of texts become spaces.
[[nodiscard]] std::string to_csv(const TrialRecord& record);
/// A last line without an end was being written when its writer was killed, and is left out.
/// @throws Error kParse: another header, a line with other columns, something that is no number.
[[nodiscard]] std::vector<TrialRecord> trials_from_csv(std::string_view text,
                                                       std::string_view where);

}  // namespace stretto
