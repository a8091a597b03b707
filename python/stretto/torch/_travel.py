# SPDX-License-Identifier: Apache-2.0
"""The schedule priority: gradients that still travel after backward, and whoever needs them waits.

While a gradient is under way, and while an update waits for it, its parameter is of a class of its own whose
`__torch_function__` is called by whatever touches the parameter: an operation, `.grad`, `.data`, a checkpoint. That waits
first, does the update, and gives the parameter its own class back; so nobody reads old weights or half a sum. Modules
wait for their own parameters before forward(): once for all of them, and before code that is not Python's.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Iterable, Optional, Protocol

import torch
from torch.nn import Parameter

from ..errors import BackendError, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from ._reducer import Tracked

_GRAD = torch.Tensor.grad  # what `parameter.grad` is looked up by


def _autocasts() -> bool:
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:  # before torch 2.4
        return torch.is_autocast_cpu_enabled()


class Update(Protocol):
    """A step() of an optimizer that waits for gradients."""

    def run(self, parameters: list[Parameter]) -> None: ...


class _Way:
    """One parameter whose gradient was under way when backward ended."""

    __slots__ = ("tracked", "update", "fate")

    def __init__(self, tracked: "Tracked") -> None:
        self.tracked = tracked
        self.update: Optional[Update] = None  # what happens to the parameter when the gradient is here
        self.fate: Optional[str] = None  # what zero_grad() wants of .grad after that: "none" or "zero"


def _parameters_in(values: Iterable[Any], kind: type) -> Iterable[Any]:
    for value in values:
        if isinstance(value, kind):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _parameters_in(value, kind)
        elif isinstance(value, dict):
            yield from _parameters_in(value.values(), kind)


def _travelling_class(travel: "Travel") -> type:
    """A class for the parameters of one model: torch.save() and copies see nothing of it once they have touched them."""

    class Travelling(Parameter):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if getattr(func, "__self__", None) is _GRAD:
                way = travel.ways.get(id(args[0]))
                if way is not None and way.update is not None:
                    if func.__name__ == "__set__" and args[1] is None:
                        way.fate = "none"
                        return None
                    if func.__name__ == "__get__" and way.fate == "none":
                        return None
            travel.arrive_at(_parameters_in((args, kwargs), cls))
            return func(*args, **kwargs)

        def __reduce_ex__(self, protocol: Any) -> Any:
            travel.arrive_at([self])
            return self.__reduce_ex__(protocol)  # of its own class now

        def __deepcopy__(self, memo: Any) -> Any:
            travel.arrive_at([self])
            return self.__deepcopy__(memo)

    return Travelling


class _WaitBefore:
    """A module's hook. A copy of the module, or the pickled module, has one in its place that does nothing."""

    def __init__(self, travel: "Travel", own: list[int]) -> None:
        self._travel = travel
        self._own = own

    def __call__(self, module: torch.nn.Module, args: Any) -> None:
        if self._travel.ways:
            self._travel.arrive_at_ids(self._own)

    def __reduce__(self) -> Any:
        # Of the standard library, so that whoever loads the module needs nothing of ours.
        return getattr, (contextlib.nullcontext(), "__exit__")


def check_can_travel(module: torch.nn.Module, trained: Iterable[tuple[str, Parameter]]) -> None:
    """What would read a parameter without asking it."""
    for name, part in module.named_modules():
        kind = type(part).__name__
        compiled = kind == "OptimizedModule" or getattr(part, "_compiled_call_impl", None) is not None
        if compiled or isinstance(part, torch.jit.ScriptModule):
            raise Unavailable(
                "compiled code reads parameters without waiting for them",
                "DDP(schedule='priority')",
                f"module '{name}' ({kind})",
                "modules in Python",
                "Use the schedule overlap.",
            )
    for name, parameter in trained:
        if type(parameter) is not Parameter:
            raise Unavailable(
                "a parameter of a class of its own cannot travel under the next forward pass",
                "DDP(schedule='priority')",
                f"'{name}', a {type(parameter).__name__}",
                "torch.nn.Parameter",
                "Use the schedule overlap.",
            )


class Travel:
    """What of the last step is under way on this rank. Of one model, for the thread that trains it."""

    def __init__(self, reducer: Any, module: torch.nn.Module) -> None:
        self._reducer = reducer  # a Reducer; Any because its Session is there once a step was
        self.ways: dict[int, _Way] = {}  # by id of the parameter; in the order of the reducer's
        self._class = _travelling_class(self)
        self._under_way = False  # the Session may have something to drain
        self._scale = 1.0  # of all gradients of this step: clipping
        self.clips = False  # has the norm ever been asked for
        self._hooks = self._wait_before_forward(module)

    def _wait_before_forward(self, module: torch.nn.Module) -> list[Any]:
        hooks = []
        ids = {id(t.parameter) for t in self._reducer.tracked}
        for part in module.modules():
            own = [id(p) for p in part.parameters(recurse=False) if id(p) in ids]
            if own:
                hooks.append(part.register_forward_pre_hook(_WaitBefore(self, own), prepend=True))
        return hooks

    # ---- a step ends ----

    def depart(self) -> None:
        """Right after Session.finish(): from here on gradients belong to the wire."""
        self._under_way = True
        self._scale = 1.0
        for t in self._reducer.tracked:
            if t.parameter.grad is t.view:  # find_unused_parameters: used by no rank, it is None
                self.ways[id(t.parameter)] = _Way(t)
                t.parameter.__class__ = self._class

    def gradient_norm(self) -> float:
        """Of the step that just ended; waits for reductions only. Collective."""
        stepped = any(way.update is not None for way in self.ways.values())
        if stepped or self._scale != 1.0:
            raise InvalidArgument(
                "the gradients of this step are " + ("taken by the optimizer" if stepped else "clipped") + " already",
                "clip_grad_norm_",
                "after optimizer.step()" if stepped else f"scaled by {self._scale:g}",
                "once, between backward() and optimizer.step()",
            )
        self.clips = True
        return self._reducer.gradient_norm()

    def scale(self, factor: float) -> None:
        """Multiplies all gradients of this step: those that are here now, the others when they come."""
        self._scale = factor
        with torch.no_grad():
            for t in self._reducer.tracked:
                if id(t.parameter) not in self.ways and t.parameter.grad is not None:
                    t.parameter.grad.mul_(factor)

    # ---- and its gradients arrive ----

    def arrive_at(self, parameters: Iterable[Any]) -> None:
        self.arrive_at_ids(id(p) for p in parameters)

    def arrive_at_ids(self, ids: Iterable[int]) -> None:
        self._arrive([self.ways[i] for i in ids if i in self.ways])

    def arrive(self) -> None:
        """Waits for all gradients of the last step and does what updates are due."""
        self._arrive(list(self.ways.values()))
        if self._under_way:
            self._reducer.wait_for_gradients(self._reducer.session.drain)  # those that no rank used
            self._under_way = False

    def _arrive(self, ways: list[_Way]) -> None:
        if not ways:
            return
        reducer, wait = self._reducer, self._reducer.session.wait
        reducer.cut()
        reducer.wait_for_gradients(lambda: [wait(way.tracked.index) for way in ways])
        begin_ns = time.monotonic_ns()
        # The same one may have been named twice.
        ways = [way for way in ways if self.ways.pop(id(way.tracked.parameter), None) is not None]
        due: dict[int, tuple[Update, list[Parameter]]] = {}
        for way in ways:
            parameter = way.tracked.parameter
            parameter.__class__ = Parameter
            if way.update is not None:
                due.setdefault(id(way.update), (way.update, []))[1].append(parameter)
        # Whoever asked may be in any mode; an update is always as in optimizer.step().
        if torch.is_inference_mode_enabled() or _autocasts():
            with torch.inference_mode(False), torch.autocast("cpu", enabled=False):
                self._apply(ways, due)
        else:
            self._apply(ways, due)
        reducer.go_on(begin_ns if due else None)

    def _apply(self, ways: list[_Way], due: dict[int, tuple[Update, list[Parameter]]]) -> None:
        if self._scale != 1.0:
            for way in ways:
                way.tracked.view.mul_(self._scale)
        for update, parameters in due.values():
            self._update(update, parameters)
        for way in ways:
            if way.fate == "none":
                way.tracked.parameter.grad = None
            elif way.fate == "zero":
                way.tracked.view.zero_()

    def _update(self, update: Update, parameters: list[Parameter]) -> None:
        reducer = self._reducer
        try:
            update.run(parameters)
        except Exception as error:
            rank = reducer.communicator.rank
            reducer.fail(
                BackendError(
                    f"the optimizer raised {type(error).__name__} in an update that had waited for its gradients",
                    f"rank {rank}, step {reducer.steps - 1}",
                    help=f"See the traceback of rank {rank}.",
                )
            )
            raise

    def zero_grad(self, parameters: Iterable[Parameter], set_to_none: bool) -> None:
        """optimizer.zero_grad(); of gradients that an update waits for, after it."""
        for parameter in parameters:
            way = self.ways.get(id(parameter))
            if way is not None and way.update is not None:
                if way.fate != "none":
                    way.fate = "none" if set_to_none else "zero"
                continue
            gradient = parameter.grad
            if gradient is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                gradient.detach_() if gradient.grad_fn is not None else gradient.requires_grad_(False)
                gradient.zero_()

    def leave(self) -> None:
        """Before the ranks part. After a failure parameters stay what they are: some of the last step, some older."""
        try:
            if self._reducer.usable:
                self.arrive()
        finally:
            for way in self.ways.values():
                way.tracked.parameter.__class__ = Parameter
            self.ways.clear()
            self._under_way = False
            for hook in self._hooks:
                hook.remove()
