# SPDX-License-Identifier: Apache-2.0
"""For those who keep torch's DistributedDataParallel: the same mean, and what it cost."""

# No postponed annotations here: DistributedDataParallel reads those of a hook.
import threading
import time
from typing import Any, Optional

import torch
import torch.distributed as dist

from .. import _core
from ..errors import InvalidArgument, Unavailable
from .step_summary import StepSummary


class HookState:
    """What hook() keeps of a DistributedDataParallel model: its last steps, on this rank."""

    def __init__(self, model: torch.nn.parallel.DistributedDataParallel, record_steps: int = 50) -> None:
        self.process_group = model.process_group
        self.size = dist.get_world_size(self.process_group)
        self._recorder = _core.Recorder(dist.get_rank(self.process_group), self.size, record_steps)
        self._names = {id(p): name for name, p in model.module.named_parameters()}
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
            if index not in self._tensors or len(self._tensors[index]) != len(bucket.parameters()):
                self._tensors[index] = [self._names.get(id(p), "?") for p in bucket.parameters()]
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
    """Averages a bucket as DistributedDataParallel does without a hook, and records it.

    `model.register_comm_hook(stretto.torch.HookState(model), stretto.torch.hook)`
    """
    tensor = bucket.buffer()
    launched = state._launched(bucket)
    index, size = bucket.index(), tensor.numel() * tensor.element_size()
    tensor.div_(state.size)
    work = dist.all_reduce(tensor, group=state.process_group, async_op=True)

    def over(future: torch.futures.Future[Any]) -> torch.Tensor:
        value: Optional[Any] = future.value()
        state._ended(index, size, launched)
        return value[0] if isinstance(value, (list, tuple)) else tensor

    return work.get_future().then(over)
