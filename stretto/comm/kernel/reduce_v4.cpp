// SPDX-License-Identifier: Apache-2.0
#if !defined(__AVX512VL__)
#error "this file is for x86-64-v4: its compile options are missing"
#endif
#define STRETTO_REDUCE_KERNELS kReduceV4
#include "stretto/comm/kernel/reduce_kernels.inc"
