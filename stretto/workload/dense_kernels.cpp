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
  if (static_cast<bool>(__builtin_cpu_supports("avx2")) &&
      static_cast<bool>(__builtin_cpu_supports("fma")) &&
      static_cast<bool>(__builtin_cpu_supports("bmi")) &&
      static_cast<bool>(__builtin_cpu_supports("bmi2"))) {
    static const DenseKernels level_3 = x86_64_v3::table("x86-64-v3");
    kernels.push_back(&level_3);
  }
#endif
  static const DenseKernels any_processor = baseline::table("baseline");
  kernels.push_back(&any_processor);
  return kernels;
}

}  // namespace stretto
