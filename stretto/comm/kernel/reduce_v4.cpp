// SPDX-License-Identifier: Apache-2.0
#define STRETTO_REDUCE_KERNELS kReduceV4
#include "stretto/comm/kernel/reduce_kernels.inc"
