// SPDX-License-Identifier: Apache-2.0
#if !defined(__AVX512VL__)
#error "this file is for x86-64-v4: its compile options are missing"
#endif
#define STRETTO_CODEC_KERNELS kCodecV4
#include "stretto/compress/codec/codec_kernels.inc"
#define STRETTO_LOW_RANK_KERNELS kLowRankV4
#include "stretto/compress/codec/low_rank_kernels.inc"
