// SPDX-License-Identifier: Apache-2.0
// For processors with AVX2 and FMA: compiled with -march=x86-64-v3.
#define STRETTO_KERNELS x86_64_v3
#include "stretto/workload/dense_kernels.ipp"
