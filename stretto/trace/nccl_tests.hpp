// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"

namespace stretto {

/// One measured point of NCCL tests: a collective at a size.
struct NcclTestRow {
  Collective collective = Collective::kNone;
  std::string name;             ///< The program that measured: `all_reduce_perf`.
  std::uint32_t ranks = 0;      ///< 0 if the file does not say.
  std::int64_t size_bytes = 0;  ///< As NCCL tests count it: the larger of what goes in and out.
  std::string dtype;            ///< As it stands there: `float`, `bfloat16`.
  std::string reduction;        ///< `sum`...; `none` where nothing is reduced.
  bool in_place = false;
  Seconds time{0};
  double algorithm_bandwidth_bytes_per_s = 0;
  double bus_bandwidth_bytes_per_s = 0;
  std::int64_t wrong = -1;  ///< Wrong elements; -1 if they were not checked.
};

/// Reads what NCCL tests write with `-J FILE` (schema versions 1 to 3, and later ones that keep the
/// fields). Rows that were not measured (null, nan) are left out. It is no trace: read_traces()
/// refuses it.
/// @throws Error kParse with the place.
[[nodiscard]] std::vector<NcclTestRow> read_nccl_tests(std::string_view text,
                                                       std::string_view where);

}  // namespace stretto
