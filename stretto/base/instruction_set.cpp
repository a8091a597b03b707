// SPDX-License-Identifier: Apache-2.0
#include "stretto/base/instruction_set.hpp"

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

}  // namespace

std::string_view to_string(InstructionSet set) noexcept {
  switch (set) {
    case InstructionSet::kV3:
      return "x86-64-v3";
    case InstructionSet::kV4:
      return "x86-64-v4";
    case InstructionSet::kBaseline:
      break;
  }
  return "baseline";
}

InstructionSet best_instruction_set() noexcept {
#if defined(__x86_64__)
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_f16c();
  if (v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return InstructionSet::kV4;
  }
  if (v3) {
    return InstructionSet::kV3;
  }
#endif
  return InstructionSet::kBaseline;
}

}  // namespace stretto
