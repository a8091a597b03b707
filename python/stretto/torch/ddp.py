# SPDX-License-Identifier: Apache-2.0
"""The wrapper that stands where DistributedDataParallel stood."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import warnings
import weakref
from typing import Any, Iterator, Optional, Sequence, Union

import torch
import torch.distributed as dist

from .. import _core, load_machine
from ..errors import InvalidArgument, Unavailable
from ._backend import connect
from ._compiled import LATE_SHARE, first_gradient_at, is_compiled, is_compiling, warn_of_compilation
from ._join import Join
from ._reducer import Reducer
from ._travel import Travel, check_can_travel
from ._trial import Trial, from_environment
from .scaling import watch_world_size
from .step_summary import StepSummary

_MIB = 1 << 20
_DEFAULT_BUCKET_MB = 4.0


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from _tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors_in(getattr(value, field.name))


def _close_if_there(model: "weakref.ref[DDP]") -> None:
    found = model()
    if found is not None:
        found.close()


def _check_codec(text: str) -> None:
    if str(text).split(":")[0] == "auto":
        raise Unavailable(
            "DDP does not choose codecs itself",
            "compress",
            f"'{text}'",
            "a codec, such as int8",
            "`stretto plan profile.json --machine machine.json --compress auto --save-plan plan.json` chooses for the "
            "step_profile() of this model, and DDP(plan='plan.json') does what it says.",
        )
    _core.CodecSpec(text)


class DDP(torch.nn.Module):
    """Trains a module on all ranks with the mean of their gradients, which travel while backward computes.

    Keywords with the names of DistributedDataParallel's mean the same; gradients are always views into the
    buckets (gradient_as_bucket_view), so step t's `.grad` tensors are step t+1's. New ones:

    backend: "shm" (ranks of one host), "mpi" (ranks of mpirun, on one host or many; both for CPU parameters),
        "process_group", or "auto": the process group that is given, else shared memory where it will do, else the
        default process group, else MPI.
    bucket_cap_mb: a cap that is kept: larger tensors are split. Default 4.
    plan: how gradients travel, instead (a stretto.Plan or its file).
    schedule: "overlap"; "priority" to go on under the next forward pass, see stretto.torch.overlap; "serial" to
        communicate after backward, for comparison.
    streams: buckets on the wire at once; 0 means all.
    verify_every: every so many steps one bucket is reduced a second time by a blocking call and compared.
    timeout_s: how long nothing may move before ranks give up. A rank that dies is noticed at once.
    record_steps: steps that summary() and timeline() tell of; 0 records nothing.
    compress: codec of the gradients (`"int8"`, `"topk:0.01"`, `"bf16"`...; docs/compression.md): fewer bytes, not exact.
        What is not sent is kept and sent later; compression_state() saves it. Default: what the plan says, or none.
        With "shm" and "mpi" only.
    compress_start: so many steps of training travel as they are first, before the codecs begin.
    compress_except: names of parameters (`*` stands for anything) whose buckets travel as they are.
    emulate: a machine (`2@1Gbit/s,50us`) whose network the ranks of this host are to have.
    STRETTO_PLAN, STRETTO_SCHEDULE and STRETTO_STREAMS in the environment come before plan, schedule and streams: what
    `stretto tune` found is used without editing the script.

    Ranks that differ in model or options, die, raise in backward or leave a gradient out make every rank raise
    a stretto.Error that names rank and parameter.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Optional[Sequence[Union[int, torch.device]]] = None,
        output_device: Optional[Union[int, torch.device]] = None,
        dim: int = 0,
        broadcast_buffers: Optional[bool] = None,
        init_sync: bool = True,
        process_group: Optional[dist.ProcessGroup] = None,
        bucket_cap_mb: Optional[float] = None,
        find_unused_parameters: bool = False,
        gradient_as_bucket_view: bool = True,
        static_graph: bool = False,
        *,
        forward_sync_buffers: Optional[bool] = None,
        backend: str = "auto",
        plan: Optional[Union[_core.Plan, str, "os.PathLike[str]"]] = None,
        schedule: str = "overlap",
        streams: int = 1,
        verify_every: int = 0,
        timeout_s: float = 600.0,
        record_steps: int = 50,
        emulate: Optional[Union[_core.Machine, str]] = None,
        compress: Optional[str] = None,
        compress_except: Sequence[str] = (),
        compress_start: int = 0,
    ) -> None:
        super().__init__()
        del output_device, dim, gradient_as_bucket_view, static_graph  # nothing depends on them here
        given_plan = plan
        plan, schedule, streams = from_environment(plan, schedule, streams)
        if bucket_cap_mb is not None and given_plan is not None:
            raise InvalidArgument("buckets come from a cap or from a plan", "DDP", "both", "bucket_cap_mb or plan")
        if bucket_cap_mb is not None and bucket_cap_mb <= 0:
            raise InvalidArgument("a bucket has some size", "bucket_cap_mb", str(bucket_cap_mb), "more than 0 (MiB)")
        if device_ids is not None and len(device_ids) != 1:
            raise InvalidArgument(
                "one process drives one device", "device_ids", str(list(device_ids)), "one device, or None"
            )
        self.module = module
        # As in torch 2.13: broadcast_buffers=False leaves buffers alone, forward_sync_buffers=False syncs them once.
        init_buffers = forward_sync_buffers is not None or broadcast_buffers is not False
        if forward_sync_buffers is None:
            forward_sync_buffers = broadcast_buffers is not False
        elif broadcast_buffers is not None:
            warnings.warn(
                f"broadcast_buffers={broadcast_buffers} is ignored where forward_sync_buffers is given", stacklevel=2
            )
        self.forward_sync_buffers = forward_sync_buffers
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._ignored = ignored
        named = [(n, p) for n, p in module.named_parameters() if n not in ignored]
        lazy = [n for n, p in named if isinstance(p, torch.nn.parameter.UninitializedParameter)]
        if lazy:
            raise InvalidArgument(
                "a parameter has no shape yet", "module", f"'{lazy[0]}' of a lazy module", "initialized parameters",
                "Run one forward() of the module before DDP().",
            )
        trained = [(n, p) for n, p in named if p.requires_grad]
        devices = {p.device for _, p in trained}
        if len(devices) > 1:
            raise InvalidArgument(
                "the parameters lie on several devices", "module", ", ".join(sorted(map(str, devices))), "one device"
            )
        device = next(iter(devices), torch.device("cpu"))
        if device.type not in ("cpu",):
            raise Unavailable(
                "this version reaches gradients in host memory only",
                "module",
                f"parameters on {device}",
                "parameters on cpu",
                "On GPUs keep DistributedDataParallel, with stretto.torch.hook or stretto.torch.record to see what it "
                "waits for.",
            )
        if compress is not None:
            _check_codec(compress)
        if schedule == "priority":
            check_can_travel(module, trained)
        self._cap_bytes = int((_DEFAULT_BUCKET_MB if bucket_cap_mb is None else bucket_cap_mb) * _MIB)
        trial = Trial.wanted()
        if trial is not None:
            record_steps = max(record_steps, trial.steps)
        machine = None if emulate is None else load_machine(emulate)
        communicator, link = connect(process_group, backend, device, timeout_s, machine)
        self._backend = communicator.backend if link is None else f"process group ({dist.get_backend(link.group)})"
        if machine is not None:
            self._backend += f", emulating {machine.name}"
        if compress not in (None, "none") and link is not None:
            raise Unavailable(
                "gradients in a process group travel as they are",
                "compress",
                f"'{compress}' over {self._backend}",
                "backend 'shm' or 'mpi'",
                "With torch's DistributedDataParallel: stretto.torch.HookState(model, compress=...).",
            )
        self._join: Optional[Join] = None
        self._reducer = Reducer(
            communicator,
            link,
            trained,
            make_plan=lambda specs: _core.Plan.uniform(specs, self._cap_bytes),
            given_plan=plan if plan is None or isinstance(plan, _core.Plan) else _core.Plan.load(plan),
            find_unused=find_unused_parameters,
            schedule=schedule,
            streams=streams,
            verify_every=verify_every,
            record_steps=record_steps,
            codec=compress,
            exact=compress_except,
            codec_start=compress_start,
        )
        if init_sync:
            self._reducer.broadcast([p for _, p in named])
            if init_buffers:
                self._reducer.broadcast(self._buffers_to_sync())
        if schedule == "priority":
            self._reducer.travel = Travel(self._reducer, module)
        if communicator.backend == "mpi" or schedule == "priority":
            atexit.register(_close_if_there, weakref.ref(self))  # before MPI is finalised, and the last update done
        self._compiled = is_compiled(module)
        self._reducer.after_steps(4, self._warn_of_late_gradients)
        if trial is not None:
            trial.watch(self)
        watch_world_size(self, [p for _, p in trained], communicator.size)

    @property
    def _communicator(self) -> _core.Communicator:
        return self._reducer.communicator

    # ---- training ----

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        reducer = self._reducer
        if is_compiling():
            self._compiled = True  # torch.compile(DDP(module))
        reducer.check_usable()
        training = torch.is_grad_enabled() and self.module.training
        if training:
            if self._join is not None:
                self._join.before_forward(args, kwargs)
            if self._buffers_travel() and not reducer.no_sync:
                reducer.broadcast(self._buffers_to_sync(), self._join.authority if self._join is not None else 0)
        if training:
            reducer.begin_forward()
        output = self.module(*args, **kwargs)
        if training:
            reducer.end_forward()
        if torch.is_grad_enabled():
            held = reducer.no_sync
            for tensor in _tensors_in(output):
                if tensor.grad_fn is not None:
                    tensor.register_hook(lambda _: reducer.begin_backward(held))
        return output

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes add up on this rank only. Wrap forward and backward of all micro-batches but the last."""
        before, self._reducer.no_sync = self._reducer.no_sync, True
        try:
            yield
        finally:
            self._reducer.no_sync = before

    @contextlib.contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
        *,
        sample_weighted: bool = False,
    ) -> Iterator[None]:
        """Wrap the training loop where ranks may have different numbers of batches.

        Ranks without data take part with zeros; at the end all have the weights of the rank that trained longest.
        The mean is over the initial number of ranks, or over those with data
        (divide_by_initial_world_size=False), or over all samples (sample_weighted=True: batches of different
        sizes count by the first dimension of forward()'s first tensor).
        """
        if not enable:
            yield
            return
        if self._reducer.travel is not None:
            raise Unavailable("ranks without data do not wait for gradients", "DDP.join", "schedule 'priority'", "'overlap'")
        with Join(self, divide_by_initial_world_size, sample_weighted, throw_on_early_termination):
            yield

    def drain(self) -> None:
        """Waits until the last step's updates are done: under the schedule priority, before memory of parameters is
        read behind their back, as through a NumPy array made earlier. Nothing under other schedules."""
        if self._reducer.travel is not None:
            self._reducer.travel.arrive()

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self._reducer.travel is None:
            super().zero_grad(set_to_none)
        else:
            self._reducer.travel.zero_grad(self.parameters(), set_to_none)

    def _buffers_travel(self) -> bool:
        return self.forward_sync_buffers and self._communicator.size > 1 and next(iter(self._buffers_to_sync()), None) is not None

    @property
    def broadcast_buffers(self) -> bool:
        """forward_sync_buffers under its older name."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    def _buffers_to_sync(self) -> list[torch.Tensor]:
        return [b for n, b in self.module.named_buffers() if n not in self._ignored]

    # ---- what happened, and what is to happen ----

    @property
    def plan(self) -> Optional[_core.Plan]:
        """How gradients travel; None until the first step has shown their order."""
        session = self._reducer.session
        return None if session is None else session.plan

    def replan(self, plan: Optional[Union[_core.Plan, _core.PlanResult, str, "os.PathLike[str]"]] = None) -> None:
        """Installs another plan; without one, the next step learns the order of gradients anew.

        Collective, between steps. If the order of its tensors is another, `.grad` tensors are replaced.
        """
        if isinstance(plan, _core.PlanResult):
            plan = plan.plan
        elif plan is not None and not isinstance(plan, _core.Plan):
            plan = _core.Plan.load(plan)
        self._reducer.replan(plan)

    def compression(self) -> dict[str, float]:
        """What codecs did on this rank since reset_recording(): bytes, seconds of the processor, norm of what is not
        sent yet. Zeros without codecs; empty before the first step."""
        session = self._reducer.session
        return {} if session is None else session.compression()

    def compression_state(self) -> bytes:
        """What codecs have not sent yet on this rank: every rank saves its own, beside the state_dict() that all
        share. Between steps; empty without codecs."""
        self.drain()
        return self._reducer.compression_state()

    def load_compression_state(self, states: Union[bytes, Sequence[bytes]]) -> None:
        """Takes up what compression_state() gave: this rank's, or, if the number of ranks changed, those of all
        older ranks, on every rank. With it, training goes on bit by bit as it would have; without, what was not sent
        is lost. Between steps; after DDP() the plan may be another."""
        self.drain()
        self._reducer.restore_compression([states] if isinstance(states, bytes) else list(states))

    def undo_compression(self) -> None:
        """Call it when the optimizer leaves a step out (a GradScaler that found an overflow): what was sent in that
        step counts as not sent. On all ranks, before the next backward."""
        self.drain()
        self._reducer.undo_compression()

    def rescale_compression(self, factor: float) -> None:
        """Call it when the loss is scaled by another number from now on, with new / old: what is not sent yet is in
        the units of the gradients, which become so many times as large. On all ranks, between steps."""
        self.drain()
        self._reducer.rescale_compression(factor)

    def update_scaler(self, scaler: torch.amp.GradScaler) -> None:
        """In place of `scaler.update()`, after `scaler.step(optimizer)`, on all ranks: if the step was left out for an
        overflow, what codecs sent in it counts as not sent; and what is not sent follows the new scale."""
        before = scaler.get_scale()
        scaler.update()
        now = scaler.get_scale()
        if now < before:  # which only an overflow does
            self.undo_compression()
        if now != before:
            self.rescale_compression(now / before)

    def timeline(self, all_ranks: bool = False) -> _core.Timeline:
        """What this rank's last steps did; with all_ranks (collective), those of all ranks on rank 0."""
        session = self._reducer.session
        mine = _core.Timeline() if session is None else session.timeline()
        return self._communicator.gather_timelines(mine) if all_ranks else mine

    def step_profile(self, name: str = "model") -> _core.StepProfile:
        """What a step does without communication, as recorded on this rank: the input of stretto.plan()."""
        plan = self.plan
        if plan is None:
            raise InvalidArgument("no step was recorded yet", "DDP.step_profile", "", "a few training steps before it")
        return _core.measured_step_profile_of_plan(self.timeline(), plan, name)

    def summary(self, samples_per_step: int = 0) -> StepSummary:
        """Exposed communication per step on this rank; no other rank is asked."""
        timeline = self.timeline()
        if timeline.steps_recorded == 0:
            raise InvalidArgument(
                "no step was recorded yet",
                "DDP.summary",
                f"{self._reducer.steps} steps, of which the first only learns the order of gradients",
                "two training steps or more, and record_steps above 0",
            )
        plan = self.plan
        assert plan is not None
        names = [plan.tensor_names(b) for b in range(len(plan.buckets))]
        return StepSummary(timeline, names, samples_per_step)

    def metrics(self, samples_per_step: int = 0) -> dict[str, float]:
        """summary() as numbers for a tracker, see log_tensorboard()."""
        return self.summary(samples_per_step).metrics()

    def _warn_of_late_gradients(self) -> None:
        """What torch.compile cost, once. With one bucket there is no overlap to lose."""
        plan, timeline = self.plan, self.timeline()
        if not self._compiled or plan is None or len(plan.buckets) < 2 or timeline.steps_recorded == 0:
            return
        try:
            late = first_gradient_at(timeline) > LATE_SHARE
        except (ImportError, Unavailable):  # no NumPy
            return
        if late:
            warn_of_compilation(self.summary())

    def reset_recording(self) -> None:
        """Forgets the steps so far: call after warm-up."""
        if self._reducer.session is not None:
            self._reducer.session.reset_recording()

    def close(self) -> None:
        """Leaves the job; the module and its gradients stay. Not collective, but waits for updates that are due. MPI
        and the schedule priority want it before the end of the process, where it is done for every model left."""
        self._reducer.close()

    # ---- what it is ----

    def _get_name(self) -> str:
        return "stretto.torch.DDP"

    def extra_repr(self) -> str:
        tracked = self._reducer.tracked
        size = sum(t.spec.bytes for t in tracked)
        return (
            f"rank {self._communicator.rank} of {self._communicator.size}, {self._backend}, "
            f"{_core.format_bytes(size)} of gradients in {len(tracked)} tensors"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a stretto.torch.DDP holds connections to other ranks; save its state_dict(), or .module")

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a stretto.torch.DDP holds connections to other ranks; copy .module")
