# SPDX-License-Identifier: Apache-2.0
"""Codecs in torch's own operations, for hook(): on whatever device the gradients are, without a copy to the host."""

from __future__ import annotations

import math
from typing import Callable, NamedTuple

import torch

from .. import _core
from ..errors import Unavailable

_INT8_BLOCK = 512
_ONEBIT_BLOCK = 2048
_LEAST = 2.0**-100  # a block whose magnitudes are all smaller is sent as zeros: 1 / scale would overflow


class Codec(NamedTuple):
    """encode: f32 values, flat, to bytes, as many on every rank. decode: the other way, for so many elements."""

    encode: Callable[[torch.Tensor], torch.Tensor]
    decode: Callable[[torch.Tensor, int], torch.Tensor]
    error_feedback: bool


def _blocks(values: torch.Tensor, size: int) -> torch.Tensor:
    count = values.numel()
    return torch.nn.functional.pad(values, (0, -count % size)).view(-1, size)


def _encode_int8(values: torch.Tensor) -> torch.Tensor:
    blocks = _blocks(values, _INT8_BLOCK)
    largest = blocks.abs().amax(dim=1, keepdim=True)
    scale = torch.where(largest < _LEAST, 0.0, largest / 127)
    # A block that is not finite gets the scale NaN, and is NaN throughout when decoded.
    scale = torch.where(largest.isfinite(), scale, math.nan)
    steps = torch.where(scale > 0, blocks / scale, 0.0).round_().clamp_(-127, 127).to(torch.int8)
    return torch.cat([scale.flatten().view(torch.uint8), steps.flatten().view(torch.uint8)])


def _decode_int8(wire: torch.Tensor, count: int) -> torch.Tensor:
    blocks = -(-count // _INT8_BLOCK)
    scale = wire[: 4 * blocks].view(torch.float32)
    steps = wire[4 * blocks :].view(torch.int8).view(blocks, _INT8_BLOCK)
    return (steps.to(torch.float32) * scale.unsqueeze(1)).flatten()[:count]


def _bits(device: torch.device) -> torch.Tensor:
    return torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=device)


def _encode_onebit(values: torch.Tensor) -> torch.Tensor:
    blocks = _blocks(values, _ONEBIT_BLOCK)
    of = torch.full((blocks.shape[0],), float(_ONEBIT_BLOCK), device=values.device)
    of[-1] = values.numel() - (blocks.shape[0] - 1) * _ONEBIT_BLOCK  # zeros that were put behind do not count
    mean = blocks.abs().sum(dim=1) / of
    mean = torch.where(mean.isfinite(), torch.where(mean < _LEAST, 0.0, mean), math.nan)
    packed = ((blocks >= 0).view(-1, 8).to(torch.uint8) * _bits(values.device)).sum(dim=1, dtype=torch.uint8)
    return torch.cat([mean.view(torch.uint8), packed])


def _decode_onebit(wire: torch.Tensor, count: int) -> torch.Tensor:
    blocks = -(-count // _ONEBIT_BLOCK)
    mean = wire[: 4 * blocks].view(torch.float32)
    positive = (wire[4 * blocks :].unsqueeze(1) & _bits(wire.device)) != 0
    signs = torch.where(positive, 1.0, -1.0).view(blocks, _ONEBIT_BLOCK)
    return (signs * mean.unsqueeze(1)).flatten()[:count]


def _cast(dtype: torch.dtype) -> tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]:
    most = torch.finfo(dtype).max

    def encode(values: torch.Tensor) -> torch.Tensor:
        clamped = torch.where(values.isfinite(), values.clamp(-most, most), math.nan)
        return clamped.to(dtype).view(torch.uint8)

    def decode(wire: torch.Tensor, count: int) -> torch.Tensor:
        return wire.view(dtype).to(torch.float32)[:count]

    return encode, decode


def _top_k(chosen_of: Callable[[int], int]) -> tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]:
    def encode(values: torch.Tensor) -> torch.Tensor:
        count = values.numel()
        # What is not a number goes first: it must arrive.
        order = torch.where(values.isfinite(), values.abs(), math.inf)
        indices = torch.topk(order, chosen_of(count), sorted=False).indices
        chosen = torch.where(values[indices].isfinite(), values[indices], math.nan)
        return torch.cat([indices.to(torch.int32).view(torch.uint8), chosen.view(torch.uint8)])

    def decode(wire: torch.Tensor, count: int) -> torch.Tensor:
        half = wire.numel() // 2
        values = torch.zeros(count, dtype=torch.float32, device=wire.device)
        values[wire[:half].view(torch.int32).long()] = wire[half:].view(torch.float32)
        return values

    return encode, decode


def torch_codec(text: str) -> Codec:
    """`fp16`, `bf16`, `int8`, `onebit` and `topk:...`, with `:nofeedback` or without.

    Raises InvalidArgument for what is no codec, Unavailable for what only stretto.torch.DDP has.
    """
    spec = _core.CodecSpec(text)
    if spec.kind == "fp16":
        encode, decode = _cast(torch.float16)
    elif spec.kind == "bf16":
        encode, decode = _cast(torch.bfloat16)
    elif spec.kind == "int8" and not spec.stochastic:
        encode, decode = _encode_int8, _decode_int8
    elif spec.kind == "onebit":
        encode, decode = _encode_onebit, _decode_onebit
    elif spec.kind == "topk" and not spec.momentum and not spec.warmup:
        encode, decode = _top_k(spec.chosen_of)
    else:
        raise Unavailable(
            "the hook has no such codec", "compress", f"'{text}'", "fp16, bf16, int8, onebit or topk:0.01",
            "stretto.torch.DDP has all of them.",
        )
    return Codec(encode, decode, spec.error_feedback)
