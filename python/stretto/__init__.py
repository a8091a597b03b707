# SPDX-License-Identifier: Apache-2.0
"""Stretto hides gradient communication behind compute, and says how much is left.

    stretto.analyze("trace.json.gz")            what a recorded job waits for
    stretto.plan("gpt2_124m", "dgx-h100x4")     the best buckets for a model and a machine
    stretto.simulate("resnet50", "8@5Gbit/s,50us")
    stretto.torch.DDP(model)                    train that way (import stretto.torch)

Times are seconds (`_s`) as floats or nanoseconds (`_ns`) as integers, sizes are bytes. Results have
`to_dict()`, with the keys of the program's JSON.
"""

from __future__ import annotations

import os as _os
from typing import Iterable, Optional, Sequence, Union

from . import _core
from ._core import (
    ALGORITHMS,
    COLLECTIVES,
    LANES,
    RECORD_KINDS,
    Analysis,
    Bucket,
    Machine,
    Plan,
    PlanResult,
    Simulation,
    StepProfile,
    Summary,
    TensorSpec,
    Timeline,
    __version__,
)
from ._measure import Measurement, measure
from .errors import (
    BackendError,
    Error,
    InvalidArgument,
    Mismatch,
    NeverReady,
    ParseError,
    PeerLost,
    ReadyTwice,
    Timeout,
    Unavailable,
)

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "LANES",
    "RECORD_KINDS",
    "Analysis",
    "BackendError",
    "Bucket",
    "Error",
    "InvalidArgument",
    "Machine",
    "Measurement",
    "Mismatch",
    "NeverReady",
    "ParseError",
    "PeerLost",
    "Plan",
    "PlanResult",
    "ReadyTwice",
    "Simulation",
    "StepProfile",
    "Summary",
    "TensorSpec",
    "Timeline",
    "Timeout",
    "Unavailable",
    "__version__",
    "analyze",
    "load_machine",
    "load_profile",
    "measure",
    "plan",
    "simulate",
    "tune",
]

_Path = Union[str, "_os.PathLike[str]"]
MachineLike = Union[Machine, _Path]
ProfileLike = Union[StepProfile, _Path]


def _looks_like_file(text: _Path) -> bool:
    return not isinstance(text, str) or _os.path.exists(text) or text.endswith(".json")


def load_machine(machine: MachineLike) -> Machine:
    """A Machine from a file, a preset (`dgx-h100x4`) or RANKS@BANDWIDTH,LATENCY (`4@5Gbit/s,50us`)."""
    if isinstance(machine, Machine):
        return machine
    if _looks_like_file(machine):
        return Machine.load(machine)
    return Machine.from_text(str(machine))


def load_profile(profile: ProfileLike, *, batch: int = 0, device_flops: float = 50e12) -> StepProfile:
    """A StepProfile from a model's name, a model table or a profile.

    `batch` and `device_flops` are assumed for a model and mean nothing for a profile.
    """
    if isinstance(profile, StepProfile):
        return profile
    if not _looks_like_file(profile):
        return StepProfile.named(str(profile), device_flops, batch)
    path = _os.fspath(profile)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument("the profile cannot be read", path, str(error), "a profile or a model table") from error
    if '"stretto.step_profile/' in text:
        return StepProfile.from_json(text, path)
    return StepProfile.of_model(text, path, device_flops, batch)


def _paths(traces: Union[_Path, Iterable[_Path]]) -> list[str]:
    if isinstance(traces, (str, _os.PathLike)):
        traces = [traces]
    return [_os.fspath(path) for path in traces]


def analyze(
    traces: Union[Timeline, _Path, Iterable[_Path]],
    *,
    machine: Optional[MachineLike] = None,
    samples_per_step: int = 0,
    comm_regex: Sequence[str] = (),
    step_regex: str = "",
    salvage: bool = False,
    align: bool = True,
) -> Analysis:
    """Says how long devices wait for communication, where and why.

    `traces` is a profiler's trace (PyTorch, Nsight Systems and others; one file per rank, or a directory)
    or a Timeline. The bound is for `machine`, else for costs fitted to the recording. `samples_per_step`
    counts all ranks together. `salvage` uses what can be read of a broken file; `align` brings clocks together.
    """
    target = None if machine is None else load_machine(machine)
    if isinstance(traces, Timeline):
        return _core.analyze_timeline(traces, target, samples_per_step)
    if isinstance(comm_regex, str):
        comm_regex = [comm_regex]
    return _core.analyze_files(
        _paths(traces), target, samples_per_step, list(comm_regex), step_regex, salvage, align
    )


def plan(
    profile: Union[ProfileLike, Analysis],
    machine: Optional[MachineLike] = None,
    *,
    schedule: str = "overlap",
    algorithm: str = "auto",
    streams: int = 1,
    accumulate: int = 1,
    zero: int = 0,
    batch: int = 0,
    device_flops: float = 50e12,
    optimizer_per_bucket: bool = True,
) -> PlanResult:
    """Finds the best buckets for a model (or a measured profile, or an analyzed trace) on a machine.

    Only an Analysis may omit the machine: its costs are then fitted to the recording.
    """
    if isinstance(profile, Analysis):
        target = None if machine is None else load_machine(machine)
        return _core.plan_analysis(profile, target, algorithm, schedule, streams, accumulate, zero)
    if machine is None:
        raise InvalidArgument(
            "what communication costs is not known",
            "machine",
            "None",
            "a preset, a file, or RANKS@BANDWIDTH,LATENCY",
            "Example: stretto.plan('resnet50', '8@100Gbit/s,20us')",
        )
    return _core.plan_profile(
        load_profile(profile, batch=batch, device_flops=device_flops),
        load_machine(machine),
        algorithm,
        schedule,
        streams,
        accumulate,
        zero,
        optimizer_per_bucket,
    )


def simulate(
    profile: Union[ProfileLike, PlanResult],
    machine: MachineLike,
    plan: Optional[Union[Plan, PlanResult, _Path]] = None,
    *,
    schedule: str = "overlap",
    algorithm: str = "auto",
    streams: int = 1,
    accumulate: int = 1,
    zero: int = 0,
    batch: int = 0,
    device_flops: float = 50e12,
    optimizer_per_bucket: bool = True,
) -> Simulation:
    """Predicts a step: who computes, communicates and waits when. Without `plan`, with the best one."""
    if isinstance(profile, PlanResult):
        profile = profile.profile
    if isinstance(plan, PlanResult):
        plan = plan.plan
    elif plan is not None and not isinstance(plan, Plan):
        plan = Plan.load(plan)
    return _core.simulate_profile(
        load_profile(profile, batch=batch, device_flops=device_flops),
        load_machine(machine),
        plan,
        algorithm,
        schedule,
        streams,
        accumulate,
        zero,
        optimizer_per_bucket,
    )


def tune(*_args: object, **_kwargs: object) -> None:
    """Not in this version: raises Unavailable."""
    raise Unavailable(
        "this version has no tuner", "stretto.tune", help="stretto.plan() finds the buckets for a machine."
    )


