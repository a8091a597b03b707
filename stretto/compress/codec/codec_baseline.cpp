// SPDX-License-Identifier: Apache-2.0
#define STRETTO_CODEC_KERNELS kCodecBaseline
#include "stretto/compress/codec/codec_kernels.inc"
#define STRETTO_LOW_RANK_KERNELS kLowRankBaseline
#include "stretto/compress/codec/low_rank_kernels.inc"
