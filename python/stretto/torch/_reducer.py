# SPDX-License-Identifier: Apache-2.0
"""From autograd's hooks to a Session: whose gradient is ready when, and where it lies."""

from __future__ import annotations

import json
import time
import warnings
from typing import Any, Callable, Iterable, NamedTuple, Optional, Sequence

import torch

from .. import _core
from ..errors import BackendError, Error, InvalidArgument, NeverReady, ReadyTwice
from ._memory import broadcast_tensors, laid_out_like, layout_text, over_memory, real_dtype, spec_of
from ._momentum import codecs_of, refuse_twice
from ._process_group import GroupLink
from ._travel import Travel
from ._watch import Watch, wanted

# Steps whose order of gradients is compared with the plan's; afterwards every 1000th.
_CHECKED_STEPS = (1, 10, 100)
# Of all tensors, by how many a bucket's last gradient may be later than planned (mean over buckets).
_LATE_SHARE = 0.05


class Tracked:
    """One parameter: where its gradient belongs, and how far it is in the open step."""

    __slots__ = ("name", "parameter", "spec", "index", "view", "real_view", "expected", "fired", "used", "warned_sparse")

    def __init__(self, name: str, parameter: torch.nn.Parameter) -> None:
        self.name = name
        self.parameter = parameter
        self.spec = spec_of(name, parameter)
        self.index = -1  # in the plan
        self.view: Optional[torch.Tensor] = None  # what .grad is
        self.real_view: Optional[torch.Tensor] = None  # the same memory, flat and real
        self.expected = 1  # contributions per backward, as learned
        self.fired = 0  # of them, so far
        self.used = False  # in any micro-batch since the last finished step
        self.warned_sparse = False


class Doing(NamedTuple):
    """What a rank does, for other threads and ranks to see; replaced as a whole."""

    what: str
    since_ns: int
    waits: bool = False
    root: Optional[int] = None  # the rank waited for, if it is not all of them


class _Closed:
    """Where a communicator was."""

    backend = "closed"

    def __init__(self, communicator: _core.Communicator) -> None:
        self.rank, self.size = communicator.rank, communicator.size


class _EndOfBackward:
    """Called by autograd when backward is over; dropped by it, not called, when backward failed."""

    def __init__(self, reducer: "Reducer") -> None:
        self._reducer: Optional[Reducer] = reducer

    def __call__(self) -> None:
        reducer, self._reducer = self._reducer, None
        if reducer is not None:
            reducer._end_backward()

    def __del__(self) -> None:
        if self._reducer is not None:
            self._reducer._backward_failed()


class Reducer:
    """Runs the steps of one model. Every rank has one, over the same parameters."""

    def __init__(
        self,
        communicator: _core.Communicator,
        link: Optional[GroupLink],
        parameters: Sequence[tuple[str, torch.nn.Parameter]],
        *,
        make_plan: Callable[[list[_core.TensorSpec]], _core.Plan],
        given_plan: Optional[_core.Plan],
        find_unused: bool,
        schedule: str,
        streams: int,
        verify_every: int,
        record_steps: int,
        codec: Optional[str] = None,
        exact: Sequence[str] = (),
        codec_start: int = 0,
    ) -> None:
        self.communicator: Any = communicator
        self.link = link
        self.tracked = [Tracked(name, p) for name, p in parameters if p.numel() > 0]
        self.by_name = {t.name: t for t in self.tracked}
        self.session: Optional[_core.Session] = None
        self.find_unused = find_unused
        self.factor = 1.0  # of this rank's gradients in the mean, see join()
        self.steps = 0  # finished
        self._codec = None if codec in (None, "none") else codec
        self._exact = list(exact)
        self._make_plan = lambda specs: self._encoded(make_plan(specs))
        self._given_plan = None if given_plan is None else self._encoded(given_plan)
        self._pending_states: Optional[list[bytes]] = None  # of codecs, for the next Session to take up
        self._pending_factor = 1.0  # of the loss scale, since they were
        self._session_options = {
            "op": "mean",
            "schedule": schedule,
            "streams": streams,
            "verify_every": verify_every,
            "record_steps": record_steps,
            "reduce_first": False,
            "codec_start": codec_start,
        }
        self._record = record_steps > 0
        self.no_sync = False  # backward passes that begin now only accumulate
        self.in_join = False
        self._hooks: list[Any] = []
        self._each_once = True  # no parameter gets its gradient in several parts
        self._fast = False  # hooks hand over gradients with no more ado
        self._open = False  # inside a backward that reduces
        self._held = False  # inside a backward that does not
        self._observing = False
        self._order: list[int] = []  # of tracked, as they became ready first
        self._fired_any = False
        self._forward_begin_ns = 0  # or 0, outside forward
        self._forward_end_ns = 0
        self._step_end_ns = 0
        self._relearn_due = False
        self.travel: Optional[Travel] = None  # under the schedule priority
        self._failure: Optional[Error] = None
        self.schedule = schedule
        self.doing = Doing("setting up", time.monotonic_ns())
        self.arrived: list[int] = []  # of tracked, in the open or last backward; kept if there is a watch
        self.watch: Optional[Watch] = None
        self.momentum_codecs: dict[int, tuple[str, str]] = {}  # by id of the parameter
        self._refuses_twice = False
        self._later: list[tuple[int, Callable[[], None]]] = []
        self._agree_on_model()
        if communicator.broadcast_text("watch" if wanted() else "", 0):
            self.watch = Watch(self)
        self._install_hooks(self._hook_that_learns)

    # ---- set-up ----

    def _encoded(self, plan: _core.Plan) -> _core.Plan:
        if self._codec is None:
            return plan  # with the codecs it names itself
        plan = plan.with_codec(self._codec, self._exact)
        if all(bucket.codec == "none" for bucket in plan.buckets):
            raise InvalidArgument(
                "there is nothing to compress",
                "compress",
                f"'{self._codec}', and no bucket of f32" + (" without a tensor of compress_except" if self._exact else ""),
                "gradients of f32",
                "Leave compress out" + (", or make buckets smaller: bucket_cap_mb." if self._exact else "."),
            )
        return plan

    def _agree_on_model(self) -> None:
        if not self.tracked:
            raise InvalidArgument(
                "the module has no parameter that needs a gradient", "module", "none", "at least one", "Nothing to wrap."
            )
        specs = [t.spec for t in self.tracked]
        self.communicator.agree_on_plan(_core.Plan.single(specs))
        self.communicator.agree_on_text(
            "the layouts and options of the models",
            layout_text([t.parameter for t in self.tracked])
            + f", find_unused_parameters={self.find_unused}, {self._session_options}, "
            + f"compress={self._codec}, {self._exact}",
        )
        if self._given_plan is not None:
            self._check_plan(self._given_plan)

    def _check_plan(self, plan: _core.Plan) -> None:
        expected = {t.name: t.spec for t in self.tracked}
        found = {spec.name: spec for spec in plan.tensors}
        for name in expected.keys() | found.keys():
            mine, theirs = expected.get(name), found.get(name)
            if mine is None or theirs is None or not mine == theirs:
                raise InvalidArgument(
                    "the plan is for another model",
                    f"tensor '{name}'",
                    "none" if theirs is None else f"{theirs.dtype} {theirs.shape}",
                    "none" if mine is None else f"{mine.dtype} {mine.shape}",
                    "Use a plan saved from this model.",
                )

    def _install_hooks(self, make: Callable[[Tracked], Callable[[torch.Tensor], None]]) -> None:
        for handle in self._hooks:
            handle.remove()
        hooks = [make(t) for t in self.tracked]
        if self.watch is not None:
            hooks = [self._noted(i, hook) for i, hook in enumerate(hooks)]
        self._hooks = [t.parameter.register_post_accumulate_grad_hook(h) for t, h in zip(self.tracked, hooks)]

    def _noted(self, position: int, hook: Callable[[torch.Tensor], None]) -> Callable[[torch.Tensor], None]:
        def noted(parameter: torch.Tensor) -> None:
            hook(parameter)
            self.arrived.append(position)

        return noted

    def _hook_that_learns(self, t: Tracked) -> Callable[[torch.Tensor], None]:
        position = self.tracked.index(t) if len(self.tracked) < 64 else self._positions()[id(t)]

        def hook(_: torch.Tensor) -> None:
            if not (self._open or self._held):
                self.begin_backward(False)
            self._fired_any = True
            t.used = t.used or t.parameter.grad is not None  # None: autograd had an undefined gradient
            t.fired += 1
            if t.fired == 1:
                self._order.append(position)

        return hook

    def _positions(self) -> dict[int, int]:
        if not hasattr(self, "_position_of"):
            self._position_of = {id(t): i for i, t in enumerate(self.tracked)}
        return self._position_of

    def _hook_that_reduces(self, t: Tracked) -> Callable[[torch.Tensor], None]:
        """The common case is three look-ups and one call: it runs for every parameter in every step."""
        assert self.session is not None
        ready, i, view = self.session.ready, t.index, t.view

        def hook(parameter: torch.Tensor) -> None:
            defined = True
            if parameter.grad is not view:
                defined = self._adopt(t)
            if self._fast:
                ready(i)
            else:
                self._contribution(t, defined)

        return hook

    # ---- one step ----

    def now(self, what: str, waits: bool = False, root: Optional[int] = None) -> None:
        self.doing = Doing(what, time.monotonic_ns(), waits, root)

    @property
    def usable(self) -> bool:
        return self._failure is None

    def check_usable(self) -> None:
        if self._failure is not None:
            raise BackendError(
                "this model was closed, or its ranks have failed before",
                f"rank {self.communicator.rank}",
                self._failure.message,
                "",
                "Start the job again.",
            )

    def begin_forward(self) -> None:
        now = time.monotonic_ns()
        if self.session is not None and self._record and self._step_end_ns:
            self.session.record("optimizer", "optimizer and data", self._step_end_ns, now)
            self._step_end_ns = 0
        self.now("forward")
        self._forward_begin_ns = now

    def end_forward(self) -> None:
        if self.travel is not None:
            self.travel.arrive()
            self._between_steps()
        self._forward_end_ns = time.monotonic_ns()
        self.now("between forward and backward")
        if self.session is not None and self._record:
            self.session.record("forward", "forward", self._forward_begin_ns, self._forward_end_ns)
        self._forward_begin_ns = 0

    def cut(self) -> None:
        """Compute up to here is recorded: what follows is a wait. Then go_on()."""
        now = time.monotonic_ns()
        if self.session is None or not self._record:
            return
        if self._forward_begin_ns:
            self.session.record("forward", "forward", self._forward_begin_ns, now)
        elif self._step_end_ns:
            self.session.record("optimizer", "optimizer and data", self._step_end_ns, now)

    def go_on(self, update_began_ns: Optional[int]) -> None:
        now = time.monotonic_ns()
        if update_began_ns is not None and self.session is not None and self._record:
            self.session.record("optimizer", "update", update_began_ns, now)
        if self._forward_begin_ns:
            self._forward_begin_ns = now
        elif self._step_end_ns:
            self._step_end_ns = now

    def begin_backward(self, held_in_forward: bool) -> None:
        """The first gradient of the outermost backward is there, or about to be."""
        if self._open or self._held:
            return  # a further output, or a backward inside this one (reentrant checkpointing)
        self.check_usable()
        if self.travel is not None:
            self.travel.arrive()
        self._held = held_in_forward or self.no_sync
        self._open = not self._held
        self._fired_any = False
        self.arrived = []
        self.now("backward")
        self._observing = self._is_observed_step()
        self._fast = (
            self._open
            and self.session is not None
            and not self.find_unused
            and not self._observing
            and self.factor == 1.0
            and self._each_once
        )
        self._order = []
        if self.link is not None:
            self.link.in_step = self._open and self.session is not None
        if not self._fast:
            for t in self.tracked:
                t.fired = 0
        torch.autograd.Variable._execution_engine.queue_callback(_EndOfBackward(self))

    def _is_observed_step(self) -> bool:
        return self._given_plan is None and not self.in_join and (self.steps in _CHECKED_STEPS or (self.steps > 0 and self.steps % 1000 == 0))

    def _contribution(self, t: Tracked, defined: bool) -> None:
        if not (self._open or self._held):
            self.begin_backward(False)
            if self._fast:
                assert self.session is not None
                self.session.ready(t.index)
                return
        self._fired_any = True
        t.used = t.used or defined
        t.fired += 1
        if self._held:
            return
        if t.fired == 1 and self._observing:
            self._order.append(self._positions()[id(t)])
        # More than learned: the Session says that it was ready twice, with its name, on all ranks.
        if t.fired >= t.expected:
            self._hand_over(t)

    def _hand_over(self, t: Tracked) -> None:
        assert self.session is not None
        if self.factor != 1.0 and t.view is not None:
            t.view.mul_(self.factor)
        self.session.ready(t.index)

    def _adopt(self, t: Tracked) -> bool:
        """Autograd (or the user) put the gradient somewhere else, as after zero_grad(set_to_none=True).

        Whether there is one: a function's backward may have given None, which is zeros to the other ranks.
        """
        gradient = t.parameter.grad
        assert t.view is not None
        if gradient is None:
            t.view.zero_()
            if not self.find_unused:
                t.parameter.grad = t.view
            return False
        if gradient.layout != torch.strided:
            if not t.warned_sparse:
                t.warned_sparse = True
                warnings.warn(
                    f"the gradient of '{t.name}' is sparse; it travels, and stays in .grad, as a dense tensor of "
                    f"{_core.format_bytes(t.view.numel() * t.view.element_size())}. Optimizers for sparse "
                    "gradients will not take it: make the embedding with sparse=False",
                    stacklevel=2,
                )
            gradient = gradient.to_dense()
        with torch.no_grad():
            t.view.copy_(gradient)
            t.parameter.grad = t.view
        return True

    def _backward_failed(self) -> None:
        """An exception is on its way through backward: the other ranks shall not wait for the rest of it."""
        was_open = self._open
        self._open = self._held = self._fast = False
        if not was_open or self._failure is not None:
            return
        rank = self.communicator.rank
        last = self._last_ready()
        after = f"after the gradient of '{last}'" if last else "before any gradient"
        error = BackendError(
            f"backward raised an exception {after}",
            f"rank {rank}, step {self.steps}",
            help=f"See the traceback of rank {rank}.",
        )
        self.fail(error)

    def _last_ready(self) -> Optional[str]:
        if self.session is not None:
            index = self.session.last_ready
            return self.session.plan.tensors[index].name if index >= 0 else None
        return self.tracked[self._order[-1]].name if self._order else None

    def fail(self, error: Error) -> None:
        """Remembers it, and tells the peers."""
        self._failure = error
        self.now("failed")
        if self.link is not None:
            self.link.publish(error)
        self.communicator.abort(error.code, error.message, error.where, error.help, self.steps)

    def _end_backward(self) -> None:
        held, self._held, was_open, self._open, self._fast = self._held, False, self._open, False, False
        if held or not was_open:
            if held and self.session is not None and self._record:
                self.session.record("backward", "backward", self._forward_end_ns, time.monotonic_ns())
            self.now("between steps (optimizer and data)")
            return
        if not self._fired_any and (self.session is None or self.session.last_ready < 0):
            return  # no parameter's gradient was asked for: torch.autograd.grad()
        self.finish()

    def finish(self) -> None:
        """Everything of this rank is accumulated: reduce what is not yet on its way, and wait."""
        self.now("the mean of the gradients", waits=True)
        if self.session is None:
            self._guarded(self._learn)
        else:
            self._guarded(self._finish_step)

    def _guarded(self, body: Callable[[], None]) -> None:
        if self.link is not None:
            self.link.begin_wait()
        try:
            body()
        except Error as thrown:
            error = in_pytorch_words(thrown)
            reason = self.link.reason() if self.link is not None else None
            self._failure = reason or error
            self.now("failed")
            if self.link is not None and reason is None:
                self.link.publish(error)
            raise (reason or error) from None
        finally:
            if self.link is not None:
                self.link.end_wait()

    def wait_for_gradients(self, body: Callable[[], Any]) -> None:
        """Under the schedule priority, wherever the gradients of the step before are needed."""
        self.check_usable()
        before = self.doing
        self.now("the mean of the gradients", waits=True)
        self._guarded(body)
        self.doing = before

    def gradient_norm(self) -> float:
        """Of the step that just ended. Collective."""
        session = self.session
        if session is None or self.steps == 0:
            raise InvalidArgument("there are no gradients yet", "gradient norm", "no step", "after backward()")
        norms: list[float] = []
        self.wait_for_gradients(lambda: norms.append(session.gradient_norm()))
        return norms[0]

    def _finish_step(self) -> None:
        session = self.session
        assert session is not None
        if not self._each_once:
            for t in self.tracked:
                if 0 < t.fired < t.expected:  # fewer contributions than in the step that was learned
                    self._hand_over(t)
        if self.find_unused:
            self._complete_unused()
        now = time.monotonic_ns()
        if self._record and self._forward_end_ns:
            session.record("backward", "backward", self._forward_end_ns, now)
        session.finish()
        self._after_step()

    def _complete_unused(self) -> None:
        """Parameters without a gradient on this rank take part with what is in .grad, or zeros."""
        for t in self.tracked:
            if t.fired:
                continue
            if t.parameter.grad is not t.view:
                if t.parameter.grad is None:
                    assert t.view is not None
                    t.view.zero_()
                else:
                    self._adopt(t)
            self._hand_over(t)

    def _after_step(self) -> None:
        if self.link is not None:
            self.link.in_step = False
        if self.find_unused:
            used = torch.tensor([t.used for t in self.tracked], dtype=torch.int32)
            self.communicator.all_reduce(used.data_ptr(), used.numel(), "i32", "max")
            anywhere = used.tolist()
            for i, t in enumerate(self.tracked):
                # Used by no rank: the gradient stays what it was, None or zeros.
                if t.parameter.grad is None and anywhere[i]:
                    t.parameter.grad = t.view
            for t in self.tracked:
                t.used = False
        self.steps += 1
        self._step_end_ns = time.monotonic_ns()
        self.now("between steps (optimizer and data)")
        self._relearn_due, self._observing = self._observing, False
        if self.travel is not None:
            self.travel.depart()  # the rest when nothing travels any more
        else:
            self._between_steps()

    def _between_steps(self) -> None:
        """What needs a Session in which nothing travels; it has none between replan() and the next step."""
        if self.session is not None and self._relearn_due:
            self._relearn_if_late()
        self._relearn_due = False
        if self.session is not None and self.travel is not None and self.travel.clips and not self._session_options["reduce_first"]:
            self._session_options["reduce_first"] = True
            self._install(self.session.plan)
        for step, do in [later for later in self._later if later[0] <= self.steps]:
            self._later.remove((step, do))
            do()

    def after_steps(self, steps: int, do: Callable[[], None]) -> None:
        """Calls `do` once, when so many are finished."""
        self._later.append((steps, do))

    # ---- the order of gradients, and plans ----

    def _agreed_order(self) -> list[int]:
        """Rank 0's order of gradients; what it did not see comes last, in backward order by guess."""
        seen = set(self._order)
        order = self._order + [i for i in reversed(range(len(self.tracked))) if i not in seen]
        return json.loads(self.communicator.broadcast_text(json.dumps(order), 0))

    def _learn(self, shadow: bool = False) -> None:
        """The first step: nothing overlaps, and afterwards the order of gradients is known."""
        for t in self.tracked:
            t.expected = max(1, t.fired)
        order = self._agreed_order()
        if self._given_plan is not None:
            plan = self._given_plan
        else:
            plan = self._make_plan([self.tracked[i].spec for i in order])
        self._each_once = all(t.expected == 1 for t in self.tracked)
        self._install(plan)
        assert self.session is not None
        if self.link is not None:
            self.link.in_step = True
        for t in self.tracked:
            if t.fired or self.find_unused or shadow:
                self._hand_over(t)
        self.session.finish()  # names the parameters that are missing, on all ranks
        self._after_step()
        self.session.reset_recording()

    def _install(self, plan: _core.Plan) -> None:
        """A Session for the plan; gradients move into it."""
        if self.session is not None:
            self._pending_states = [self.session.compression_state()]
        session = _core.Session(self.communicator, plan, **self._session_options)
        if self._pending_states is not None:
            try:
                session.restore_compression(self._pending_states)
                session.rescale_compression(self._pending_factor)
            except Error as error:  # of this rank's state: the others have theirs, and would wait
                self.fail(error)
                raise
            self._pending_states, self._pending_factor = None, 1.0
        self.session = session
        self._note_momentum()
        for index, spec in enumerate(session.plan.tensors):
            t = self.by_name[spec.name]
            address, _ = session.gradient(index)
            flat = over_memory(address, spec.elements, real_dtype(t.parameter.dtype), session)
            t.index, t.real_view, t.view = index, flat, laid_out_like(flat, t.parameter)
            if t.parameter.grad is not None or t.fired:
                self._adopt(t)
        self._install_hooks(self._hook_that_reduces)

    def _note_momentum(self) -> None:
        assert self.session is not None
        alone = self.communicator.size == 1  # nothing is encoded
        self.momentum_codecs = {} if alone else codecs_of(self, self.session.plan)
        if self.momentum_codecs and not self._refuses_twice:
            self._refuses_twice = True
            refuse_twice(self)

    def replan(self, plan: Optional[_core.Plan]) -> None:
        """Another plan, between steps; without one, the order is learned again. Collective."""
        self.check_usable()
        if self._open or self._held:
            raise InvalidArgument("replan() between steps only", "DDP.replan", "inside backward()", "after it")
        if self.travel is not None:
            self.travel.arrive()
        if plan is None:
            self._relearn()
            return
        self._check_plan(plan)
        plan = self._encoded(plan)
        self._given_plan = plan
        if self.session is not None:
            current = self.session.plan
            if [s.name for s in current.tensors] == [s.name for s in plan.tensors]:
                self._guarded(lambda: self.session.replan(plan))
                self._note_momentum()
            else:
                self._guarded(lambda: self._install(plan))

    def _relearn(self) -> None:
        self._given_plan = None
        if self.session is not None:
            self._pending_states = [self.session.compression_state()]
        self.session = None  # its memory lives as long as the gradients in it
        self._step_end_ns = 0
        self._install_hooks(self._hook_that_learns)

    def _relearn_if_late(self) -> None:
        """Lays the gradients out anew if they come in another order than the plan has them."""
        session = self.session
        assert session is not None
        order = self._agreed_order()
        names = [self.tracked[i].name for i in order]
        plan = session.plan
        place = {name: i for i, name in enumerate(names)}
        planned = {spec.name: i for i, spec in enumerate(plan.tensors)}
        late = 0.0
        for b in range(len(plan.buckets)):
            in_bucket = plan.tensor_names(b)
            last = max(planned[name] for name in in_bucket)
            late += max(0, max(place[name] for name in in_bucket) - last)
        if late / len(plan.buckets) <= _LATE_SHARE * len(names):
            return
        self._install(self._make_plan([self.by_name[name].spec for name in names]))

    # ---- what codecs have not sent ----

    def compression_state(self) -> bytes:
        if self.session is not None:
            return self.session.compression_state()
        if self._pending_states is not None and len(self._pending_states) > 1:
            raise InvalidArgument(
                "the states of another number of ranks are not taken up before the next step",
                "DDP.compression_state",
                f"{len(self._pending_states)} states",
                "a step after load_compression_state()",
            )
        return self._pending_states[0] if self._pending_states else b""

    def restore_compression(self, states: list[bytes]) -> None:
        if self.session is None:
            self._pending_states, self._pending_factor = states, 1.0
        else:
            self.session.restore_compression(states)

    def undo_compression(self) -> None:
        if self.session is not None:
            self.session.undo_compression()
        elif self._codec is not None:
            raise InvalidArgument(
                "there is no finished step to undo", "DDP.undo_compression", "none since the start, or since replan()",
                "right after backward(), once",
            )

    def rescale_compression(self, factor: float) -> None:
        if self.session is not None:
            self.session.rescale_compression(factor)
        elif self._pending_states is not None:
            self._pending_factor *= factor

    # ---- the rest ----

    def broadcast(self, tensors: Iterable[torch.Tensor], root: int = 0) -> None:
        before = self.doing
        self.now(f"rank {root}'s buffers and weights", waits=True, root=root)
        broadcast_tensors(self.communicator, list(tensors), root)
        self.doing = before

    def shadow_step(self) -> None:
        """Takes part in a step of ranks that still have data, with zeros."""
        self.check_usable()
        for t in self.tracked:
            t.fired = 0
            t.used = False
        self._order = []
        self._observing = self._is_observed_step() and self.session is not None
        if self.session is None:
            for t in self.tracked:
                t.parameter.grad = None
            self._guarded(lambda: self._learn(shadow=True))
            return
        session = self.session
        if self.link is not None:
            self.link.in_step = True
        for t in self.tracked:
            assert t.view is not None
            t.view.zero_()
            session.ready(t.index)
        self._guarded(lambda: (session.finish(), self._after_step()))

    def close(self) -> None:
        """Leaves the job; gradients stay, as copies of what they were views of."""
        if self.travel is not None:
            self.travel.leave()
        for handle in self._hooks:
            handle.remove()
        self._hooks = []
        for t in self.tracked:
            if t.view is not None and t.parameter.grad is t.view:
                t.parameter.grad = t.view.clone()
            t.view = t.real_view = None
        self._failure = self._failure or Error("this model was closed")
        self.session = None
        self.communicator = _Closed(self.communicator)
        self.now("closed")
        if self.link is not None:
            self.link.close()


def in_pytorch_words(error: Error) -> Error:
    """Says what to do in the words of this interface."""
    if isinstance(error, NeverReady):
        return NeverReady(
            "backward() gave no gradient for some parameters",
            error.where,
            error.found,
            "a gradient for every parameter in every backward",
            "Parameters that take no part in every step: DDP(..., find_unused_parameters=True), or "
            "requires_grad_(False) before DDP().",
        )
    if isinstance(error, ReadyTwice):
        return ReadyTwice(
            "a parameter got more gradients in this backward than in the first one",
            error.where,
            error.found,
            "as many as in the first step, for its gradient was on its way",
            "Reentrant checkpointing that varies: use_reentrant=False. Other changes: DDP.replan() before such a step.",
        )
    return error
