# SPDX-License-Identifier: Apache-2.0
"""Any torch optimizer under the schedule priority: step() does not wait, updates run under the next forward pass."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Optional, TypeVar

import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from ..errors import InvalidArgument, Unavailable
from ._travel import Travel
from .ddp import DDP

OptimizerType = TypeVar("OptimizerType", bound=Optimizer)
Group = dict[str, Any]


def overlap(optimizer: OptimizerType, model: DDP) -> OptimizerType:
    """Lets optimizer.step() return at once: each parameter is updated when its gradient has come and it is needed.

    For a model of DDP(schedule="priority"). Returns the optimizer, which is changed in place, so that schedulers of
    learning rates may be made before or after. Weights are those of an optimizer that waits, bit for bit: rates and
    other settings are those of step()'s moment, and whoever reads a parameter, its gradient or optimizer.state
    before waits. `optimizer.step()` runs once per part of the parameters, so what it does to one may depend only on
    that parameter, its gradient, optimizer.state[parameter] and the settings of its group.

    Raises Unavailable, naming what does not go: LBFGS, differentiable=True; and, from the first step(), an
    optimizer that keeps in param_groups or in itself what it learns.
    """
    if not isinstance(model, DDP):
        raise InvalidArgument("overlap() is for a model of this package", "overlap", type(model).__name__, "stretto.torch.DDP")
    if not isinstance(optimizer, Optimizer):
        raise InvalidArgument("overlap() is for an optimizer", "overlap", type(optimizer).__name__, "a torch.optim.Optimizer")
    travel = model._reducer.travel
    if travel is None:
        raise InvalidArgument(
            "the model's gradients are all there when backward() returns",
            "overlap",
            f"schedule '{model._reducer.schedule}'",
            "DDP(module, schedule='priority')",
        )
    if isinstance(optimizer, _Overlapped):
        raise InvalidArgument("this optimizer overlaps already", "overlap", type(optimizer).__name__, "overlap() once")
    kind = type(optimizer)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise _cannot(kind, "it evaluates the model several times per step", "an optimizer of one gradient per step")
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise _cannot(kind, "differentiable=True", "differentiable=False")
    patched = optimizer.__dict__.get("step")
    if patched is not None and not (hasattr(patched, "_wrapped_by_lr_sched") or hasattr(patched, "_with_counter")):
        raise _cannot(kind, "another wrapper has replaced its step()", "overlap() before other wrappers")
    optimizer.__dict__.pop("step", None)  # a scheduler's, that sees to the order of calls: step() below does the same
    optimizer.__dict__["_stretto"] = _Updates(optimizer, travel)
    optimizer.__class__ = type(kind.__name__, (_Overlapped, kind), {"__module__": kind.__module__})
    return optimizer


def clip_grad_norm_(model: DDP, max_norm: float, error_if_nonfinite: bool = False) -> torch.Tensor:
    """torch.nn.utils.clip_grad_norm_ over all gradients that the model's ranks share; returns their norm.

    Between backward() and step(), on every rank. Under the schedule priority it waits until gradients are added up,
    not until every rank has them: each is scaled when it comes. The norm is reckoned in fp64 by parts, every rank
    its own, so its last bits are not those of torch's function.
    """
    if not isinstance(model, DDP):
        raise InvalidArgument("this is for a model of this package", "clip_grad_norm_", type(model).__name__, "stretto.torch.DDP")
    if not max_norm > 0:
        raise InvalidArgument("a norm has some size", "max_norm", str(max_norm), "more than 0")
    reducer, travel = model._reducer, model._reducer.travel
    norm = reducer.gradient_norm() if travel is None else travel.gradient_norm()
    total = torch.tensor(norm)
    if error_if_nonfinite and not torch.isfinite(total):
        raise RuntimeError(f"the norm of the gradients is {norm}, on all ranks; clip_grad_norm_ does not scale by it")
    factor = max_norm / (norm + 1e-6)
    # Not min(): a norm that is no number makes gradients so, as torch's does.
    if not factor >= 1.0:
        if travel is not None:
            travel.scale(factor)
        else:
            with torch.no_grad():
                for t in reducer.tracked:
                    if t.parameter.grad is not None:
                        t.parameter.grad.mul_(factor)
    return total


def _cannot(kind: type, found: str, expected: str) -> Unavailable:
    return Unavailable(
        "this optimizer cannot update parameters one after the other",
        f"overlap({kind.__name__})",
        found,
        expected,
        "Keep it as it is: with DDP(schedule='priority') it waits for all gradients in step().",
    )


class _Step:
    """One step() that is not done yet: the settings of its moment."""

    def __init__(self, updates: "_Updates", groups: list[Group], group_of: dict[int, int]) -> None:
        self._updates = updates
        self._groups = groups
        self._group_of = group_of

    def run(self, parameters: list[Parameter]) -> None:
        parts: dict[int, list[Parameter]] = {}
        for parameter in parameters:
            parts.setdefault(self._group_of[id(parameter)], []).append(parameter)
        self._updates.run([{**self._groups[g], "params": part} for g, part in parts.items()])


def _settings(group: Group) -> Group:
    return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in group.items() if k != "params"}


class _Updates:
    """The optimizer as it was, run on parts of its parameters."""

    def __init__(self, optimizer: Optimizer, travel: Travel) -> None:
        self.optimizer = optimizer
        self.travel = travel
        self.running = False
        self._proven = False
        step = type(optimizer).step
        # Hooks and the profiler's label belong to the whole step, which calls them itself.
        self._step: Callable[..., Any] = step.__wrapped__ if getattr(step, "hooked", False) else step  # type: ignore[attr-defined]

    def step(self) -> None:
        optimizer, ways = self.optimizer, self.travel.ways
        # Called twice: what waits since the last time comes first.
        self.travel.arrive_at([p for p in self._parameters() if id(p) in ways and ways[id(p)].update is not None])
        # A GradScaler hands fused optimizers what is valid during the call only.
        scaled = getattr(optimizer, "grad_scale", None) is not None or getattr(optimizer, "found_inf", None) is not None
        if scaled or not self._proven:
            self.travel.arrive()
        if not self._proven:
            self._first_step()
            return
        group_of: dict[int, int] = {}
        here: list[Group] = []
        groups = [_settings(group) for group in optimizer.param_groups]
        for g, group in enumerate(optimizer.param_groups):
            now = []
            for p in group["params"]:
                if id(p) in ways:
                    group_of[id(p)] = g
                else:
                    now.append(p)
            if now:
                here.append({**groups[g], "params": now})
        later = _Step(self, groups, group_of)
        for i in group_of:
            ways[i].update = later
        if here:
            self.run(here)

    def _parameters(self) -> Iterable[Parameter]:
        return (p for group in self.optimizer.param_groups for p in group["params"])

    def run(self, groups: list[Group]) -> None:
        """The optimizer's step() over these parameters and settings."""
        optimizer = self.optimizer
        all_groups = optimizer.param_groups
        optimizer.param_groups, self.running = groups, True
        try:
            self._step(optimizer)
        finally:
            optimizer.param_groups, self.running = all_groups, False

    def _first_step(self) -> None:
        """Done at once, one parameter before the others: it shows what an optimizer does besides."""
        parameters = list(self._parameters())
        first = next((p for p in parameters if p.grad is not None), None)
        if first is None:
            return
        others = [p for p in parameters if p is not first]
        versions = [p._version for p in others]
        groups = self.optimizer.param_groups
        self._checked_run([{**g, "params": [first]} for g in groups if any(p is first for p in g["params"])])
        if [p._version for p in others] != versions:
            raise self._refusal("has changed parameters that it was not given")
        self._checked_run([{**g, "params": [p for p in g["params"] if p is not first]} for g in groups])
        self._proven = True

    def _checked_run(self, groups: list[Group]) -> None:
        before = self._learned(groups)
        self.run(groups)
        after = self._learned(groups)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if changed:
            raise self._refusal("has changed " + ", ".join(changed[:3]))

    def _refusal(self, what: str) -> Unavailable:
        kind = type(self.optimizer).__mro__[2]  # without what overlap() put before it
        return _cannot(kind, "its step() " + what, "updates of one parameter after the other, with optimizer.state[parameter]")

    def _learned(self, groups: list[Group]) -> dict[str, Any]:
        """What an update may not change, else the next part would see it: values, or which tensor and its version."""

        def seen(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return id(value), value._version
            return value if isinstance(value, (int, float, str, tuple, type(None))) else id(value)

        optimizer = self.optimizer
        found = {
            f"param_groups[{g}]['{k}']": seen(v)
            for g, group in enumerate(groups)
            for k, v in group.items()
            if k != "params"
        }
        found.update({f"state[{k!r}]": True for k in optimizer.__dict__["state"] if not isinstance(k, torch.Tensor)})
        if not type(optimizer).__module__.startswith("torch.optim."):  # torch's own keep flags there, and nothing else
            found.update({k: seen(v) for k, v in optimizer.__dict__.items() if k not in ("state", "param_groups", "_stretto")})
        return found


@Optimizer.profile_hook_step  # as Optimizer does with the step() of every class
def _step(self: Any, closure: Optional[Callable[[], Any]] = None) -> Any:
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    self._stretto.step()
    # What schedulers of learning rates look at: was step() called before theirs.
    self._opt_called = True
    self._step_count = getattr(self, "_step_count", 0) + 1
    return loss


_step._wrapped_by_lr_sched = _step._with_counter = True  # type: ignore[attr-defined]


class _Overlapped:
    """Stands before the class of an optimizer that overlap() got."""

    _stretto: _Updates
    param_groups: list[Group]

    step = _step

    def zero_grad(self, set_to_none: bool = True) -> None:
        parameters: Iterable[Parameter] = (p for group in self.param_groups for p in group["params"])
        self._stretto.travel.zero_grad(parameters, set_to_none)

    @property
    def state(self) -> Any:
        if not self._stretto.running:
            self._stretto.travel.arrive()
        return self.__dict__["state"]

    @state.setter
    def state(self, value: Any) -> None:
        self.__dict__["state"] = value

    def load_state_dict(self, state_dict: Any) -> None:
        self._stretto.travel.arrive()
        super().load_state_dict(state_dict)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("an optimizer of stretto.torch.overlap() belongs to its model; save its state_dict()")

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("an optimizer of stretto.torch.overlap() belongs to its model; copy its state_dict()")
