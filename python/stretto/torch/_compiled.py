# SPDX-License-Identifier: Apache-2.0
"""torch.compile under DDP: whether it took the overlap away, as seen in what was recorded."""

from __future__ import annotations

import statistics
import warnings

import torch

from .. import _core
from .step_summary import StepSummary

# From one compiled graph all gradients come at its end; from blocks, the first ones when one of the blocks is done. What
# is left of the time is that of the hooks, and with little work per gradient they take a good part.
LATE_SHARE = 0.6

is_compiling = getattr(torch.compiler, "is_compiling", None) or torch._dynamo.is_compiling


def is_compiled(module: torch.nn.Module) -> bool:
    """By torch.compile(part) or part.compile(), as a whole or in parts."""
    return any(
        type(part).__name__ == "OptimizedModule" or getattr(part, "_compiled_call_impl", None) is not None
        for part in module.modules()
    )


def first_gradient_at(timeline: _core.Timeline) -> float:
    """Share of backward that is over when the first gradient is ready: the median of the recorded steps."""
    records = timeline.records
    kind = {name: number for number, name in enumerate(_core.RECORD_KINDS)}
    shares = []
    for step in set(records["step"].tolist()):
        of_step = records[records["step"] == step]
        begins = of_step[of_step["kind"] == kind["backward"]]["begin_ns"]
        ready = of_step[of_step["kind"] == kind["ready"]]["begin_ns"]
        if len(begins) and len(ready):
            shares.append((ready.min() - begins.min()) / max(1, ready.max() - begins.min()))
    return statistics.median(shares) if shares else 0.0


def warn_of_compilation(summary: StepSummary) -> None:
    step = summary.summary
    warnings.warn(
        "a compiled graph gives all its gradients at its end, so communication begins when backward is nearly over: "
        f"{step.exposed_s * 1e3:.2f} ms of {step.step_s * 1e3:.2f} ms per step are exposed. Compile the layers or blocks "
        "one by one (block.compile() for each) before DDP(): communication then overlaps with the blocks before",
        stacklevel=2,
    )
