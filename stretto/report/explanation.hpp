// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stretto/analyze/as_hta.hpp"
#include "stretto/analyze/device_steps.hpp"
#include "stretto/analyze/explain.hpp"

namespace stretto {

/// The answer in one line: exposed communication per step, its share, how little is unavoidable,
/// and the bucket to blame.
[[nodiscard]] std::string verdict(const Explanation& explanation);

/// Verdict, numbers, the buckets and collectives that matter, ranks that wait, diagnoses.
[[nodiscard]] std::string text_explanation(const Explanation& explanation);

/// One table of an explanation, whole. kStep needs device_steps() beside it.
enum class Per : std::uint8_t { kRank, kStep, kCollective, kBucket, kModule };

/// For people.
[[nodiscard]] std::string text_table(const Explanation& explanation,
                                     const std::vector<DeviceStep>& steps,
                                     Per per);
/// RFC 4180; a unit in every column's name, times in seconds.
[[nodiscard]] std::string csv_table(const Explanation& explanation,
                                    const std::vector<DeviceStep>& steps,
                                    Per per);

/// HTA's numbers of each rank, and where they part from exact ones.
[[nodiscard]] std::string text_as_hta(const std::vector<AsHta>& ranks);

/// A JSON object with the members summary, buckets, modules, collectives, stragglers, diagnoses...
[[nodiscard]] std::string to_json(const Explanation& explanation);

}  // namespace stretto
