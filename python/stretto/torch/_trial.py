# SPDX-License-Identifier: Apache-2.0
"""What the environment says of how gradients travel, and what `stretto tune` wants to know of a run.

STRETTO_PLAN (a file), STRETTO_SCHEDULE and STRETTO_STREAMS come before the arguments of DDP: a script is tuned, and
runs tuned, without being edited. STRETTO_TRIAL is a folder: after STRETTO_TRIAL_WARMUP (5) and STRETTO_TRIAL_STEPS (20)
steps of the first DDP of the process, rank 0 writes plan.json, timeline.json, summary.json and, last, `done` there.
"""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Optional, Union

from .. import _core
from ..errors import InvalidArgument

if TYPE_CHECKING:
    from .ddp import DDP

PlanLike = Union[_core.Plan, str, "os.PathLike[str]"]

_taken = False  # one DDP of the process is watched


def _number(name: str, default: int, least: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise InvalidArgument("a variable is no number", name, f"'{text}'", f"a whole number of {least} or more")
    return int(text)


def from_environment(
    plan: Optional[PlanLike], schedule: str, streams: int
) -> tuple[Optional[PlanLike], str, int]:
    """The arguments, or what stands in the environment instead."""
    return (
        os.environ.get("STRETTO_PLAN") or plan,
        os.environ.get("STRETTO_SCHEDULE") or schedule,
        _number("STRETTO_STREAMS", streams, 0),
    )


class Trial:
    """Watches one DDP for `stretto tune`."""

    def __init__(self, folder: str) -> None:
        self.folder = pathlib.Path(folder)
        self.warmup = 1 + _number("STRETTO_TRIAL_WARMUP", 5, 0)  # the first step only learns
        self.steps = _number("STRETTO_TRIAL_STEPS", 20, 1)

    @classmethod
    def wanted(cls) -> Optional["Trial"]:
        """Once in a process; None if nobody asks."""
        global _taken
        folder = os.environ.get("STRETTO_TRIAL")
        if not folder or _taken:
            return None
        _taken = True
        return cls(folder)

    def watch(self, model: "DDP") -> None:
        reducer = model._reducer
        reducer.after_steps(self.warmup, model.reset_recording)
        reducer.after_steps(self.warmup + self.steps, lambda: self._write(model))

    def _write(self, model: "DDP") -> None:
        timeline = model.timeline(all_ranks=True)  # collective; all ranks are at this step
        if model._communicator.rank != 0:
            return
        plan, summary = model.plan, _core.analyze_timeline(timeline, None, 0).summary
        assert plan is not None and summary is not None
        plan.save(self.folder / "plan.json")
        timeline.save(self.folder / "timeline.json")
        (self.folder / "summary.json").write_text(summary.to_json())
        (self.folder / "done").touch()
