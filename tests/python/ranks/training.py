# SPDX-License-Identifier: Apache-2.0
"""Runs one training loop under torch's DistributedDataParallel and under Stretto's, and compares all of it."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from torch import nn

import stretto.torch

from conftest import TIMEOUT_S


@dataclasses.dataclass
class Step:
    loss: float
    gradients: dict[str, Optional[torch.Tensor]]
    weights: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]


def copies(tensors):
    return {n: None if t is None else t.detach().to_dense().clone() for n, t in tensors}


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def backward(model, optimizer, loss_of, step):
    loss = loss_of(model, step)
    loss.backward()
    return loss


def train(
    model: torch.nn.Module,
    loss_of: Callable[[torch.nn.Module, int], torch.Tensor],
    *,
    steps: int,
    optimizer: Callable[[Any], torch.optim.Optimizer] = sgd,
    set_to_none: bool = True,
    one_backward: Callable[..., torch.Tensor] = backward,
    after_backward: Callable[[torch.nn.Module], Any] = lambda model: None,
) -> list[Step]:
    stepper = optimizer([p for p in model.parameters() if p.requires_grad])
    done = []
    for step in range(steps):
        stepper.zero_grad(set_to_none=set_to_none)
        loss = one_backward(model, stepper, loss_of, step)
        after_backward(model)
        gradients = copies((n, p.grad) for n, p in model.module.named_parameters())
        stepper.step()
        done.append(
            Step(
                float(loss.detach()),
                gradients,
                copies(model.module.named_parameters()),
                copies(model.module.named_buffers()),
            )
        )
    return done


def assert_equal_steps(theirs: list[Step], ours: list[Step], exact: bool = True) -> None:
    def same(name: str, a: Optional[torch.Tensor], b: Optional[torch.Tensor], step: int, what: str) -> None:
        assert (a is None) == (b is None), f"step {step}, {what} of {name}: torch has {a}, Stretto {b}"
        if a is None:
            return
        assert a.dtype == b.dtype and a.shape == b.shape
        if exact:
            assert torch.equal(a, b), f"step {step}, {what} of {name} differs by {(a - b).abs().max()}"
        else:
            torch.testing.assert_close(a, b)

    assert len(theirs) == len(ours)
    for step, (a, b) in enumerate(zip(theirs, ours)):
        assert a.loss == b.loss if exact else abs(a.loss - b.loss) <= 1e-5 * abs(a.loss), f"loss of step {step}"
        for what in ("gradients", "weights", "buffers"):
            left, right = getattr(a, what), getattr(b, what)
            assert left.keys() == right.keys()
            for name in left:
                same(name, left[name], right[name], step, what)


def compare(
    make_model: Callable[[], torch.nn.Module],
    loss_of: Callable[[torch.nn.Module, int], torch.Tensor],
    *,
    backend: str = "shm",
    steps: int = 4,
    exact: bool = True,
    theirs: Optional[dict[str, Any]] = None,
    ours: Optional[dict[str, Any]] = None,
    same_for_both: Optional[dict[str, Any]] = None,
    **loop: Any,
) -> stretto.torch.DDP:
    """Two ranks: sums of two floats do not depend on their order, so results are equal to the last bit."""
    both = same_for_both or {}
    torch.manual_seed(7)
    reference = torch.nn.parallel.DistributedDataParallel(make_model(), **both, **(theirs or {}))
    torch.manual_seed(99 + dist.get_rank())
    expected = train(reference, loss_of, steps=steps, **loop)
    torch.manual_seed(7)
    model = stretto.torch.DDP(make_model(), backend=backend, timeout_s=TIMEOUT_S, **both, **(ours or {}))
    torch.manual_seed(99 + dist.get_rank())
    found = train(model, loss_of, steps=steps, **loop)
    assert_equal_steps(expected, found, exact)
    return model


def noise(step: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Another input on every rank and in every step."""
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    return torch.randn(*shape, generator=generator, dtype=torch.float32).to(dtype)


def deep(layers, width=64):
    return nn.Sequential(*[layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.Tanh())])


def deep_loss(model, step):
    return model(noise(step, 16, 64)).square().mean()
