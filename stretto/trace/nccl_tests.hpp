// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/machine.hpp"

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

/// Whether a file that begins like this is one of those.
[[nodiscard]] bool is_nccl_tests(std::string_view head) noexcept;

/// The rows as a curve of a Machine, of one type: fp32 where there are rows of it, else that of the
/// first row. Of a size that was measured several times the first in place counts, else the first.
/// @throws Error kInvalidArgument: no row, a program that is no collective, a file that does not
/// say
///         how many ranks ran, or wrong elements in a row that counts.
[[nodiscard]] CollectiveCurve curve_of(std::span<const NcclTestRow> rows, std::string_view where);

}  // namespace stretto
