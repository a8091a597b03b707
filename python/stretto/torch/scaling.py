# SPDX-License-Identifier: Apache-2.0
"""The learning rate that belongs to a number of ranks."""

from __future__ import annotations

import warnings
import weakref
from typing import Any, Sequence

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..errors import InvalidArgument


# What an optimizer keeps in each param_group, and so in its state_dict(): for how many ranks its rate is meant,
# that rate, and for how many ranks it was tuned if scale_lr() made it.
_RANKS, _RATE, _TUNED = "stretto_world_size", "stretto_lr", "stretto_tuned_for"
# And what stays on it when an older state is loaded.
_SCALED = "_stretto_scaled_for"


def _base_rate(group: dict[str, Any]) -> float:
    """Without what a scheduler makes of it."""
    return float(group.get("initial_lr", group["lr"]))


def _sign(optimizer: torch.optim.Optimizer, world_size: int) -> None:
    for group in optimizer.param_groups:
        group[_RANKS], group[_RATE] = world_size, _base_rate(group)


def watch_world_size(model: torch.nn.Module, parameters: Sequence[torch.Tensor], world_size: int) -> None:
    """Warns when an optimizer of these parameters comes from a job of fewer ranks with the same learning rate.

    Looked at once, before its first step: then it carries the number of ranks, also into checkpoints.
    """
    mine = {id(p) for p in parameters}
    looked = False

    def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        nonlocal looked
        if looked or not any(id(p) in mine for group in optimizer.param_groups for p in group["params"]):
            return
        looked = True
        if any("lr" not in group for group in optimizer.param_groups):
            return  # an optimizer without a rate
        group = optimizer.param_groups[0]
        before, rate = group.get(_RANKS, world_size), group.get(_RATE)
        scaled = getattr(optimizer, _SCALED, None) == world_size
        if not scaled and before < world_size and rate is not None and _base_rate(group) <= rate:
            warnings.warn(
                f"this optimizer's state is of a job of {before} ranks and there are {world_size} now, but the learning "
                f"rate is still {_base_rate(group):g}: a step averages more samples and wants a larger one. "
                f"stretto.torch.scale_lr(optimizer, {world_size}, tuned_for={group.get(_TUNED, before)}, warmup_steps=...) scales it "
                "linearly; set group['lr'] yourself for another rule",
                stacklevel=2,
            )
        _sign(optimizer, world_size)

    handle = register_optimizer_step_pre_hook(look)
    weakref.finalize(model, handle.remove)


def scale_lr(
    optimizer: torch.optim.Optimizer,
    world_size: int,
    *,
    tuned_for: int = 1,
    warmup_steps: int = 0,
) -> torch.optim.lr_scheduler.LambdaLR:
    """Linear scaling with warm-up (Goyal et al. 2017, arXiv:1706.02677, section 2).

    The optimizer's rates were tuned for `tuned_for` ranks with the same batch per rank; now there are
    `world_size`. Returns a scheduler whose step() is to be called after every optimizer step: from the tuned
    rate to the scaled one in `warmup_steps`, constant afterwards.
    """
    if world_size < 1 or tuned_for < 1 or warmup_steps < 0:
        raise InvalidArgument(
            "the numbers of ranks and steps are not possible",
            "scale_lr",
            f"world_size={world_size}, tuned_for={tuned_for}, warmup_steps={warmup_steps}",
            "world_size and tuned_for of 1 or more, warmup_steps of 0 or more",
        )
    factor = world_size / tuned_for
    if factor > 8 and warmup_steps == 0:
        warnings.warn(
            f"the learning rate grows {factor:g}-fold at once; pass warmup_steps (some 5 epochs were used where "
            "linear scaling was found to hold)",
            stacklevel=2,
        )

    def rate(step: int) -> float:
        if step >= warmup_steps:
            return factor
        return 1.0 + (factor - 1.0) * step / warmup_steps

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    _sign(optimizer, world_size)
    for group in optimizer.param_groups:
        group[_TUNED] = tuned_for
    setattr(optimizer, _SCALED, world_size)
    return schedule
