// SPDX-License-Identifier: Apache-2.0
#if !defined(__AVX2__)
#error "this file is for x86-64-v3: its compile options are missing"
#endif
#define STRETTO_CODEC_KERNELS kCodecV3
#include "stretto/compress/codec/codec_kernels.inc"
#define STRETTO_LOW_RANK_KERNELS kLowRankV3
#include "stretto/compress/codec/low_rank_kernels.inc"
