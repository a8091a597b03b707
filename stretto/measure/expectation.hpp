// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "stretto/base/buffer.hpp"
#include "stretto/data/collective.hpp"

/// What a collective should give, computed without one: each rank's input is a function of rank and
/// element, so every rank knows everybody's. Private to measure/: not installed.
namespace stretto::detail {

/// Element `index` of rank `rank`'s input as `dtype` holds it: in [-1, 1) for floating types, in
/// [-100, 100] for integers; neighbours and ranks are unlike each other, so that a part in the
/// wrong place is seen.
[[nodiscard]] double input_value(DType dtype, int rank, std::size_t index) noexcept;

/// Fills the whole buffer with rank `rank`'s input; `first` is the index of its first element.
void fill_input(const BufferView& data, int rank, std::size_t first = 0) noexcept;

/// Elements that are not what all `ranks` inputs combine to. Sums of floating types may be off by
/// (ranks + 1) units of rounding of the sum of magnitudes, in whatever order they were added and if
/// they were rounded after each; all else must be exact. `first`: the index of data's first
/// element.
[[nodiscard]] std::int64_t count_wrong_sums(const BufferView& data,
                                            ReduceOp op,
                                            int ranks,
                                            std::size_t first = 0) noexcept;
/// Elements that are not rank `rank`'s input.
[[nodiscard]] std::int64_t count_wrong_copies(const BufferView& data,
                                              int rank,
                                              std::size_t first = 0) noexcept;

}  // namespace stretto::detail
