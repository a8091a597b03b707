// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/kernel/reduce.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace stretto {
namespace {

#if defined(__x86_64__)
// clang 14 knows no name for it.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

const detail::ReduceKernels& kernels() {
  static const detail::ReduceKernels& chosen = []() -> const detail::ReduceKernels& {
#if defined(__x86_64__)
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_f16c();
    if (v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      return detail::kReduceV4;
    }
    if (v3) {
      return detail::kReduceV3;
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
