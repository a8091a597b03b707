# SPDX-License-Identifier: Apache-2.0
"""Codecs with momentum stand for the optimizer's: both together would apply it twice."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from .. import _core
from ..errors import InvalidArgument

if TYPE_CHECKING:
    from ._reducer import Reducer


def refuse_twice(reducer: "Reducer") -> None:
    """From now on no step() of an optimizer with momentum of its own updates what a codec with momentum has sent."""
    known = weakref.ref(reducer)

    def check(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        reducer = known()
        if reducer is not None:
            _check(reducer, optimizer)

    handle = register_optimizer_step_pre_hook(check)
    weakref.finalize(reducer, handle.remove)


def _check(reducer: "Reducer", optimizer: Optimizer) -> None:
    codecs = reducer.momentum_codecs
    if not codecs:
        return
    for group in optimizer.param_groups:
        momentum = group.get("momentum") or (group.get("betas") or (0.0,))[0]
        if not momentum:
            continue
        for parameter in group["params"]:
            if id(parameter) in codecs:
                name, codec = codecs[id(parameter)]
                raise InvalidArgument(
                    "momentum would be applied twice, by the codec and by the optimizer",
                    f"{type(optimizer).__name__}.step, parameter '{name}' with codec {codec}",
                    f"momentum {float(momentum):g}",
                    "an optimizer without, as SGD(momentum=0)",
                    "Or leave momentum out of the codec.",
                )


def codecs_of(reducer: "Reducer", plan: _core.Plan) -> dict[int, tuple[str, str]]:
    """By id of the parameter: its name, and the codec with momentum of a bucket that it lies in."""
    found = {}
    for b, bucket in enumerate(plan.buckets):
        if _core.CodecSpec(bucket.codec).momentum > 0:
            for name in plan.tensor_names(b):
                found[id(reducer.by_name[name].parameter)] = (name, bucket.codec)
    return found
