// SPDX-License-Identifier: Apache-2.0
#define STRETTO_CODEC_KERNELS kCodecBaseline
#include "stretto/compress/codec/codec_kernels.inc"
