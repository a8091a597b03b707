// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/kernel/reduce.hpp"

#include "stretto/base/instruction_set.hpp"

namespace stretto {
namespace {

const detail::ReduceKernels& kernels() {
  static const detail::ReduceKernels& chosen = []() -> const detail::ReduceKernels& {
#if defined(__x86_64__)
    switch (best_instruction_set()) {
      case InstructionSet::kV4:
        return detail::kReduceV4;
      case InstructionSet::kV3:
        return detail::kReduceV3;
      case InstructionSet::kBaseline:
        break;
    }
#endif
    return detail::kReduceBaseline;
  }();
  return chosen;
}

}  // namespace

void reduce(DType dtype,
            ReduceOp op,
            std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs,
            std::size_t begin,
            std::size_t end) {
  if (begin < end) {
    kernels().reduce_range(dtype, op, inputs, outputs, begin, end);
  }
}

void divide(DType dtype, std::byte* inout, std::size_t begin, std::size_t end, std::size_t ranks) {
  if (begin < end) {
    kernels().divide_range(dtype, inout, begin, end, ranks);
  }
}

}  // namespace stretto
