# SPDX-License-Identifier: Apache-2.0
"""For those who keep torch's DistributedDataParallel: the same mean, and what it cost."""

# No postponed annotations here: DistributedDataParallel reads those of a hook.
import threading
import time
from typing import Any, Optional

import torch
import torch.distributed as dist

from .. import _core
from ..errors import InvalidArgument, Mismatch, Unavailable
from ._codecs import Codec, torch_codec
from .step_summary import StepSummary

# Under its name since torch 2.13; the older one warns there.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


class HookState:
    """What hook() keeps of a DistributedDataParallel model: its last steps, on this rank.

    compress: codec of the gradients (`fp16`, `bf16`, `int8`, `onebit`, `topk:0.01`; docs/compression.md), in torch's
        operations on the gradients' device. Every rank gets what every other one encoded, so it pays for few ranks:
        fewer than twice the codec's ratio. What is not sent is kept: state_dict(), of each rank its own. Makes this
        constructor collective: every rank passes the same, or raises Mismatch.
    """

    def __init__(
        self,
        model: torch.nn.parallel.DistributedDataParallel,
        record_steps: int = 50,
        compress: Optional[str] = None,
    ) -> None:
        self.process_group = model.process_group
        self.size = dist.get_world_size(self.process_group)
        self._recorder = _core.Recorder(dist.get_rank(self.process_group), self.size, record_steps)
        self._codec = None if compress is None or compress == "none" else torch_codec(compress)
        self._residuals: dict[str, torch.Tensor] = {}  # by parameter: buckets are made anew
        if compress is not None:
            self._agree_on(compress)
        self._parameters = dict(model.module.named_parameters())
        self._names = {id(p): name for name, p in self._parameters.items()}
        self._lock = threading.Lock()
        self._tensors: dict[int, list[str]] = {}
        self._on_device = False
        self._steps = 0
        self._step_begin_ns = 0
        self._forwards: list[tuple[int, int]] = []
        self._exchanges: dict[int, tuple[int, int, int]] = {}  # bucket: bytes, launched, ended
        self._last_launched_ns = 0  # of the bucket that ends backward; 0 before it
        self._under_way = 0
        model.register_forward_pre_hook(self._before_forward)
        model.register_forward_hook(self._after_forward)

    def _agree_on(self, compress: str) -> None:
        all_ranks: list[Optional[str]] = [None] * self.size
        dist.all_gather_object(all_ranks, compress, group=self.process_group)
        for rank, theirs in enumerate(all_ranks):
            if theirs != all_ranks[0]:
                raise Mismatch(
                    "ranks have different codecs", f"rank {rank}", f"'{theirs}'", f"'{all_ranks[0]}', as rank 0",
                    "Give every rank the same compress.",
                )

    def _before_forward(self, *_: Any) -> None:
        now = time.monotonic_ns()
        if not self._step_begin_ns:
            self._step_begin_ns = now
        self._forwards.append((now, now))

    def _after_forward(self, *_: Any) -> None:
        if self._forwards:
            self._forwards[-1] = (self._forwards[-1][0], time.monotonic_ns())

    def _launched(self, bucket: dist.GradBucket) -> int:
        now = time.monotonic_ns()
        with self._lock:
            index = bucket.index()
            if index not in self._tensors or self._steps < 2:  # laid out anew after the first step
                self._tensors[index] = self._names_in(bucket)
            self._on_device = self._on_device or bucket.buffer().device.type != "cpu"
            self._under_way += 1
            if bucket.is_last():
                self._last_launched_ns = now
        return now

    def _ended(self, index: int, size: int, launched_ns: int) -> None:
        now = time.monotonic_ns()
        with self._lock:
            self._exchanges[index] = (size, launched_ns, now)
            self._under_way -= 1
            if self._under_way == 0 and self._last_launched_ns:
                self._close_step(now)

    def _close_step(self, now: int) -> None:
        """Until its last bucket was launched this rank computed; then it waited."""
        recorder, number = self._recorder, self._steps
        recorder.begin_step(number, self._step_begin_ns or min(e[1] for e in self._exchanges.values()))
        at = self._step_begin_ns
        for i, (begin, end) in enumerate(self._forwards):
            kind, name = ("optimizer", "optimizer and data") if i == 0 else ("backward", "backward")
            recorder.add(kind, name, at, begin)
            recorder.add("forward", "forward", begin, end)
            at = end
        if at:
            recorder.add("backward", "backward", at, self._last_launched_ns)
        recorder.add("wait", "wait", self._last_launched_ns, now)
        link = number * 65536
        for index, (size, launched, ended) in sorted(self._exchanges.items()):
            recorder.add_exchange(f"bucket {index}", index, size, link + index, launched, ended)
        recorder.end_step(now)
        self._steps += 1
        self._step_begin_ns = now
        self._forwards = []
        self._exchanges = {}
        self._last_launched_ns = 0

    def _names_in(self, bucket: dist.GradBucket) -> list[str]:
        return [self._names.get(id(p), "?") for p in bucket.parameters()]

    def _residual_of(self, names: list[str], gradients: list[torch.Tensor]) -> torch.Tensor:
        parts = []
        for name, gradient in zip(names, gradients):
            kept = self._residuals.get(name)
            if kept is None:
                kept = torch.zeros(gradient.numel(), dtype=torch.float32, device=gradient.device)
            parts.append(kept.to(gradient.device))
        return torch.cat(parts)

    def _keep_residual(self, names: list[str], sizes: list[int], residual: torch.Tensor) -> None:
        with self._lock:
            self._residuals.update(zip(names, residual.split(sizes)))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What codecs have not sent yet on this rank, by parameter, flat; between steps."""
        with self._lock:
            return {name: kept.clone() for name, kept in self._residuals.items()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Takes up what the same rank's state_dict() gave."""
        for name, kept in state.items():
            parameter = self._parameters.get(name)
            if parameter is None or parameter.numel() != kept.numel():
                raise InvalidArgument(
                    "the saved residuals are of another model",
                    f"parameter '{name}'",
                    f"{kept.numel()} elements",
                    "no such parameter" if parameter is None else f"{parameter.numel()} elements",
                )
        with self._lock:
            self._residuals = {name: kept.detach().clone().float().flatten() for name, kept in state.items()}

    def reset_recording(self) -> None:
        """Forgets the steps so far: call after warm-up."""
        self._recorder.clear()

    def timeline(self) -> _core.Timeline:
        if self._on_device:
            raise Unavailable(
                "the hook sees when a device was asked, not when it worked",
                "HookState.timeline",
                "buckets on a device",
                "buckets on cpu",
                "Use stretto.torch.record(), which asks the profiler.",
            )
        return self._recorder.timeline()

    def summary(self, samples_per_step: int = 0) -> StepSummary:
        """Exposed communication per step on this rank."""
        timeline = self.timeline()
        if timeline.steps_recorded == 0:
            raise InvalidArgument("no step was recorded yet", "HookState.summary", "", "a training step before it")
        names = [self._tensors.get(i, []) for i in range(max(self._tensors, default=-1) + 1)]
        return StepSummary(timeline, names, samples_per_step)

    def metrics(self, samples_per_step: int = 0) -> dict[str, float]:
        return self.summary(samples_per_step).metrics()


def hook(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket as DistributedDataParallel does without a hook, or with the state's codec, and records it.

    `model.register_comm_hook(stretto.torch.HookState(model), stretto.torch.hook)`
    """
    tensor = bucket.buffer()
    launched = state._launched(bucket)
    if state._codec is not None and tensor.dtype == torch.float32:
        return _encoded(state, state._codec, bucket, launched)
    index, size = bucket.index(), tensor.numel() * tensor.element_size()
    tensor.div_(state.size)
    work = dist.all_reduce(tensor, group=state.process_group, async_op=True)

    def over(future: torch.futures.Future[Any]) -> torch.Tensor:
        value: Optional[Any] = future.value()
        state._ended(index, size, launched)
        return value[0] if isinstance(value, (list, tuple)) else tensor

    return work.get_future().then(over)


def _encoded(state: HookState, codec: Codec, bucket: dist.GradBucket, launched: int) -> torch.futures.Future[torch.Tensor]:
    """Everything to everybody, encoded; all add in rank order, and get the same bits."""
    tensor = bucket.buffer()
    index, count = bucket.index(), tensor.numel()
    names, gradients = state._names_in(bucket), bucket.gradients()
    sizes = [gradient.numel() for gradient in gradients]
    before = state._residual_of(names, gradients) if codec.error_feedback else None
    wanted = tensor if before is None else tensor + before
    wire = codec.encode(wanted)
    everybody = torch.empty(state.size * wire.numel(), dtype=torch.uint8, device=wire.device)
    left = None if before is None else wanted - codec.decode(wire, count)
    work = _all_gather(everybody, wire, group=state.process_group, async_op=True)

    def over(future: torch.futures.Future[Any]) -> torch.Tensor:
        future.value()
        mean = torch.zeros_like(tensor)
        for theirs in everybody.view(state.size, -1):
            mean += codec.decode(theirs, count)
        mean /= state.size
        if before is not None:
            # With numbers that are not finite on any rank, nothing counts as sent.
            state._keep_residual(names, sizes, torch.where(mean.isfinite().all(), left, before))
        tensor.copy_(mean)
        state._ended(index, 4 * count, launched)
        return tensor

    return work.get_future().then(over)
