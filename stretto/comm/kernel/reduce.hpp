// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "stretto/base/dtype.hpp"
#include "stretto/data/collective.hpp"

namespace stretto {

/// outputs[d][i] = op over s of inputs[s][i], taken in order s = 0, 1, ... for i in [begin, end).
///
/// Adds left to right, so the result depends on the order of the inputs and on nothing else: not on
/// the range, the instruction set or the number of outputs. 16-bit floats are combined in fp32 and
/// rounded once; kMean divides the combined value by the number of inputs before that. Integers
/// wrap around. An output may be one of the inputs, but must not overlap one otherwise.
void reduce(DType dtype,
            ReduceOp op,
            std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs,
            std::size_t begin,
            std::size_t end);

/// inout[i] /= ranks, for the algorithms that add pairwise and divide at the end. Floating types
/// only.
void divide(DType dtype, std::byte* inout, std::size_t begin, std::size_t end, std::size_t ranks);

namespace detail {

struct ReduceKernels {
  decltype(&reduce) reduce_range;
  decltype(&divide) divide_range;
};

// One source, three instruction sets: the widest that this processor has is chosen at the first
// call.
extern const ReduceKernels kReduceBaseline;
extern const ReduceKernels kReduceV3;
extern const ReduceKernels kReduceV4;

}  // namespace detail
}  // namespace stretto
