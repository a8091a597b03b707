# SPDX-License-Identifier: Apache-2.0
"""The learning rate that belongs to a number of ranks."""

from __future__ import annotations

import warnings

import torch

from ..errors import InvalidArgument


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

    return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
