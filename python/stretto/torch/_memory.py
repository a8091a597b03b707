# SPDX-License-Identifier: Apache-2.0
"""Torch tensors over memory of the C++ library, and parameters as it describes them."""

from __future__ import annotations

import ctypes
from typing import Any, Sequence

import torch

from .. import _core
from ..errors import InvalidArgument

DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
# A complex gradient travels as twice as many real numbers: sums and means are the same.
_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    return _REAL.get(dtype, dtype)


def spec_of(name: str, parameter: torch.Tensor) -> _core.TensorSpec:
    dtype = DTYPES.get(real_dtype(parameter.dtype))
    if dtype is None or not (parameter.is_floating_point() or parameter.is_complex()):
        raise InvalidArgument(
            "a parameter has a type whose gradients cannot be averaged",
            f"parameter '{name}'",
            str(parameter.dtype),
            "float32, float64, float16, bfloat16 or complex",
            "Name it in module._ddp_params_and_buffers_to_ignore to leave it out.",
        )
    shape = list(parameter.shape) + ([2] if parameter.is_complex() else [])
    return _core.TensorSpec(name, shape, dtype)


def over_memory(address: int, count: int, dtype: torch.dtype, owner: Any) -> torch.Tensor:
    """A flat tensor over `count` elements at `address`; `owner` lives as long as the tensor does."""
    size = count * torch.empty((), dtype=dtype).element_size()
    memory = (ctypes.c_ubyte * size).from_address(address)
    memory.owner = owner  # the tensor's storage keeps `memory`
    return torch.frombuffer(memory, dtype=dtype, count=count)


def is_dense(parameter: torch.Tensor) -> bool:
    """Its elements fill a stretch of memory, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(parameter.stride(), parameter.shape)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def laid_out_like(flat: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """`flat` (real) as a gradient of the parameter: same shape, same strides where these are dense."""
    if parameter.is_complex():
        flat = torch.view_as_complex(flat.view(-1, 2))
    if is_dense(parameter):
        return flat.as_strided(parameter.shape, parameter.stride())
    return flat.view(parameter.shape)


def layout_text(parameters: Sequence[torch.Tensor]) -> str:
    """What ranks must have in common beside shapes: how elements of gradients lie in memory."""
    return " ".join(
        "x".join(map(str, p.stride())) if is_dense(p) and not p.is_contiguous() else "c" for p in parameters
    )


def broadcast_tensors(communicator: _core.Communicator, tensors: Sequence[torch.Tensor], root: int) -> None:
    """Rank `root`'s values to all ranks, in place, whatever their types: as bytes."""
    if communicator.size == 1:
        return
    chunk: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        if tensor.numel() == 0:
            continue
        chunk.append(tensor)
        size += tensor.numel() * tensor.element_size()
        if size >= 32 << 20:
            _broadcast_chunk(communicator, chunk, root)
            chunk, size = [], 0
    if chunk:
        _broadcast_chunk(communicator, chunk, root)


def _broadcast_chunk(communicator: _core.Communicator, tensors: Sequence[torch.Tensor], root: int) -> None:
    with torch.no_grad():
        parts = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in tensors]
        size = sum(part.numel() for part in parts)
        padded = torch.zeros((size + 3) // 4 * 4, dtype=torch.uint8)
        if communicator.rank == root:
            torch.cat([part.cpu() for part in parts], out=padded[:size])
        communicator.broadcast(padded.data_ptr(), padded.numel() // 4, "i32", root)
        if communicator.rank == root:
            return
        begin = 0
        for tensor, part in zip(tensors, parts):
            end = begin + part.numel()
            tensor.detach().copy_(padded[begin:end].view(tensor.dtype).view(tensor.shape))
            begin = end
