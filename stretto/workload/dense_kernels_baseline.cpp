// SPDX-License-Identifier: Apache-2.0
// For any processor the compiler targets by default.
#define STRETTO_KERNELS baseline
#include "stretto/workload/dense_kernels.ipp"
