# SPDX-License-Identifier: Apache-2.0
"""Records a few steps of any training job with PyTorch's profiler, rank by rank."""

from __future__ import annotations

import contextlib
import os
import warnings
from typing import Any, Iterator, Optional, Union

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from .. import _core, analyze
from ..errors import InvalidArgument


class Recording:
    """What record() wrote."""

    def __init__(self, path: str, rank: int, world_size: int) -> None:
        self._path = path
        self._rank = rank
        self._world_size = world_size
        self.steps = 0  # optimizer steps seen
        self.files: list[str] = []  # of this rank
        self.bytes = 0

    def _next_file(self) -> str:
        folder, name = os.path.split(self._path)
        stem, dot, suffix = name.partition(".")
        rank = f".rank{self._rank}" if self._world_size > 1 else ""
        window = f".{len(self.files)}" if self.files else ""
        return os.path.join(folder, stem + rank + window + dot + suffix)

    def analyze(self, **options: Any) -> _core.Analysis:
        """stretto.analyze() of this rank's first file. All ranks together: stretto.analyze() of all files."""
        if not self.files:
            raise InvalidArgument("nothing was recorded", "Recording.analyze", f"{self.steps} optimizer steps", "more")
        return analyze(self.files[0], **options)


@contextlib.contextmanager
def record(
    path: Union[str, "os.PathLike[str]"],
    *,
    steps: int = 3,
    skip: int = 2,
    every: int = 0,
    max_bytes: int = 256 << 20,
) -> Iterator[Recording]:
    """Profiles `steps` steps after `skip` others, and again every `every` steps (0: once).

    A step ends with the step() of the optimizer that steps first. Between recordings the profiler is off.
    Files are Kineto traces, `run.rank0.json` for `run.json` (`.json.gz` is packed); `stretto analyze` and
    stretto.analyze() read them, Perfetto too. No more are written after `max_bytes`.
    """
    name = os.fspath(path)
    if steps < 1 or skip < 0 or (every and every < steps + 1):
        raise InvalidArgument(
            "the steps to record are not possible",
            "record",
            f"steps={steps}, skip={skip}, every={every}",
            "steps of 1 or more, skip of 0 or more, every of 0 or more than steps",
        )
    up = dist.is_available() and dist.is_initialized()
    recording = Recording(name, dist.get_rank() if up else 0, dist.get_world_size() if up else 1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)

    def action(step: int) -> torch.profiler.ProfilerAction:
        at = step - skip
        if every and at >= 0:
            at %= every
        if 0 <= at < steps:
            last = at == steps - 1
            return torch.profiler.ProfilerAction.RECORD_AND_SAVE if last else torch.profiler.ProfilerAction.RECORD
        if at == -1 or (every and at == every - 1):
            return torch.profiler.ProfilerAction.WARMUP
        return torch.profiler.ProfilerAction.NONE

    closing = False

    def written(profiler: torch.profiler.profile) -> None:
        if recording.bytes >= max_bytes or (closing and recording.files):
            return  # full; or cut off by the end, and there are whole ones
        file = recording._next_file()
        profiler.export_chrome_trace(file)
        recording.files.append(file)
        recording.bytes += os.path.getsize(file)
        if recording.bytes >= max_bytes:
            warnings.warn(f"record() has written {recording.bytes} bytes and writes no more (max_bytes)", stacklevel=2)

    profiler = torch.profiler.profile(
        activities=activities,
        record_shapes=True,  # sizes of gloo's operations
        schedule=action,
        on_trace_ready=written,
    )
    first: Optional[torch.optim.Optimizer] = None

    def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        nonlocal first
        first = first or optimizer
        if optimizer is first:
            recording.steps += 1
            profiler.step()

    handle = register_optimizer_step_post_hook(stepped)
    profiler.start()
    try:
        yield recording
    finally:
        handle.remove()
        closing = True
        profiler.stop()
    if not recording.files:
        warnings.warn(
            f"record() wrote nothing: {recording.steps} optimizer steps, wanted {skip} and then {steps}", stacklevel=3
        )
