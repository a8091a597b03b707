// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/dense_kernels.hpp"

namespace stretto {

namespace baseline {
DenseKernels table(std::string_view name);
}  // namespace baseline
namespace x86_64_v3 {
DenseKernels table(std::string_view name);
}  // namespace x86_64_v3

std::vector<const DenseKernels*> available_dense_kernels() {
  std::vector<const DenseKernels*> kernels;
#ifdef STRETTO_KERNELS_X86_64_V3
  // The rest of x86-64-v3 (F16C, LZCNT, MOVBE) came with these, and clang 14 cannot ask for it.
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
      __builtin_cpu_supports("bmi") != 0 && __builtin_cpu_supports("bmi2") != 0) {
    static const DenseKernels kV3 = x86_64_v3::table("x86-64-v3");
    kernels.push_back(&kV3);
  }
#endif
  static const DenseKernels kBaseline = baseline::table("baseline");
  kernels.push_back(&kBaseline);
  return kernels;
}

}  // namespace stretto
