# SPDX-License-Identifier: Apache-2.0
"""What a recording of an FSDP2 job says about its modules, and the settings that would change it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Iterable

from .. import _core
from .._core import format_seconds
from ..errors import InvalidArgument

# A module that waits for less than this share of the step is left alone.
_WORTH = 0.01
# A module whose gradients are this much larger than the median of all is one to cut.
_LARGE = 2.0
_ROOT = "(root)"
_MODULE_IN_RANGE = re.compile(r"FSDP::\w+ (?:\(([^)]*)\)|for (\S+))")


@dataclasses.dataclass
class ModuleWaits:
    """Of one fully_shard() call, per step and rank."""

    module: str
    gather_s: float = 0.0
    exposed_gather_s: float = 0.0
    gathers: float = 0.0
    scatter_s: float = 0.0  # with all_reduce, which stands for reduce_scatter on gloo
    exposed_scatter_s: float = 0.0
    gradient_bytes: int = 0


@dataclasses.dataclass
class FsdpAdvice:
    """str() is the text; `lines` are to be pasted after the fully_shard() calls, for a model called `model`."""

    modules: list[ModuleWaits]  # in the order of forward
    step_s: float
    findings: list[str]
    lines: list[str]

    @property
    def exposed_s(self) -> float:
        return sum(m.exposed_gather_s + m.exposed_scatter_s for m in self.modules)

    def __str__(self) -> str:
        rows = [("module", "all_gather", "exposed", "reduce_scatter", "exposed")]
        for m in self.modules:
            times = (m.gather_s, m.exposed_gather_s, m.scatter_s, m.exposed_scatter_s)
            rows.append((m.module, *(format_seconds(t) for t in times)))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        table = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))) for row in rows]
        text = f"exposed by FSDP: {format_seconds(self.exposed_s)} of {format_seconds(self.step_s)} per step\n\n" + "\n".join(table)
        if self.findings:
            text += "\n\n" + "\n".join(f"- {finding}" for finding in self.findings)
        if self.lines:
            text += "\n\n" + "\n".join(self.lines)
        return text

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"


def _in_order(names: Iterable[str]) -> list[str]:
    """Modules as the ranges of the program name them first: in forward. The root is gathered first."""
    seen: dict[str, None] = {}
    for name in names:
        found = _MODULE_IN_RANGE.match(name)
        if found:
            seen.setdefault(found.group(1) or found.group(2))
        elif name.startswith("FSDP::"):
            seen.setdefault(_ROOT)
    return list(seen)


def _forward_order(timeline: _core.Timeline) -> list[str]:
    """By the begin of their first range."""
    records = timeline.records
    annotations = records[records["kind"] == _core.RECORD_KINDS.index("annotation")]
    order = annotations["begin_ns"].argsort(kind="stable")
    names = timeline.names
    return _in_order(names[i] for i in annotations["name"][order] if i < len(names))


def _expression(module: str) -> str:
    """`layers.3.mlp` of the model as Python has it."""
    if module == _ROOT:
        return "model"
    parts = [f"[{part}]" if part.isdigit() else f".{part}" for part in module.split(".")]
    return "model" + "".join(parts)


def fsdp_advice(analysis: _core.Analysis) -> FsdpAdvice:
    """Exposed all_gather and reduce_scatter of each module that fully_shard() wraps, and what to set.

    `analysis` is stretto.analyze() of what record() (or torch's profiler) wrote of an FSDP2 job. The advice is
    by rule, not by a model of memory: prefetching holds one more module's parameters, not resharding holds
    them from forward to backward.
    """
    rows: list[dict[str, Any]] = analysis.to_dict().get("modules", [])
    summary = analysis.summary
    if not rows or summary is None:
        raise InvalidArgument(
            "the recording shows no module of FSDP",
            "fsdp_advice",
            f"{len(rows)} modules in {0 if summary is None else summary.steps} whole steps",
            "whole steps of a job with fully_shard()",
            "Record it with stretto.torch.record(), whose traces hold FSDP's ranges.",
        )
    by_name: dict[str, ModuleWaits] = {}
    for row in rows:
        waits = by_name.setdefault(row["module"], ModuleWaits(row["module"]))
        if row["collective"] == "all_gather":
            waits.gather_s += row["total_s"]
            waits.exposed_gather_s += row["exposed_share_s"]
            waits.gathers += row["calls"]
        elif row["collective"] in ("reduce_scatter", "all_reduce"):
            waits.scatter_s += row["total_s"]
            waits.exposed_scatter_s += row["exposed_share_s"]
            waits.gradient_bytes += row["bytes"]
    order = [name for name in _forward_order(analysis.timeline) if name in by_name]
    modules = [by_name[name] for name in order] + [m for n, m in by_name.items() if n not in order]
    advice = FsdpAdvice(modules, summary.step_s, [], [])
    _advise(advice)
    return advice


def _advise(advice: FsdpAdvice) -> None:
    worth = _WORTH * advice.step_s
    wrapped = [m for m in advice.modules if m.module != _ROOT]
    late = [m for m in wrapped if m.exposed_gather_s > worth]
    if late:
        names = ", ".join(f"'{m.module}' {format_seconds(m.exposed_gather_s)}" for m in _largest(late, lambda m: m.exposed_gather_s))
        advice.findings.append(f"all_gathers are waited for: {names}: prefetch each one module earlier than FSDP does by itself")
        wanted = {m.module for m in late}
        for i, before in enumerate(wrapped):
            following = [m.module for m in wrapped[i + 1 : i + 3]]
            if wanted.intersection(following):
                advice.lines.append(_prefetch(before.module, "forward", following))
        for i in range(len(wrapped) - 1, 0, -1):
            following = [m.module for m in reversed(wrapped[max(0, i - 2) : i])]
            if wanted.intersection(following):
                advice.lines.append(_prefetch(wrapped[i].module, "backward", following))
    again = [m for m in wrapped if m.gathers > 1.5 and m.exposed_gather_s > 0]
    if again and again[-1] is wrapped[-1]:
        last = again.pop()
        advice.findings.append(
            f"'{last.module}' is resharded after forward although its backward comes next: reshard_after_forward=False "
            "saves its second all_gather and, at that moment, no memory"
        )
        advice.lines.append(f"{_expression(last.module)}.set_reshard_after_forward(False)")
    rest = sum(m.exposed_gather_s for m in again) / 2
    if rest > worth:
        advice.findings.append(
            "where memory allows, reshard_after_forward=False in fully_shard() halves the other all_gathers: up to "
            f"{format_seconds(rest)}"
        )
    scattered = [m for m in advice.modules if m.exposed_scatter_s > worth]
    sizes = sorted(m.gradient_bytes for m in advice.modules if m.gradient_bytes)
    median = sizes[len(sizes) // 2] if sizes else 0
    first = wrapped[0] if wrapped else None
    for m in _largest(scattered, lambda m: m.exposed_scatter_s):
        words = f"{format_seconds(m.exposed_scatter_s)} of the gradients of '{m.module}' are waited for"
        if m.module == _ROOT:
            advice.findings.append(words + ": what no other fully_shard() call took; wrap its larger parts (embedding, head) themselves")
        elif median and m.gradient_bytes > _LARGE * median:
            advice.findings.append(words + ": it is larger than the others; call fully_shard() on its parts too")
        elif m is first:
            advice.findings.append(words + ": backward ends with it, so its last bytes cannot be hidden; smaller parts expose less")
        else:
            advice.findings.append(words + ": the network is behind; fewer bytes (MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)) or more work per step")
    if not advice.findings:
        advice.findings.append(f"no module waits for more than {_WORTH:.0%} of the step: nothing to change here")


def _largest(modules: list[ModuleWaits], key: Any, most: int = 3) -> list[ModuleWaits]:
    return sorted(modules, key=key, reverse=True)[:most]


def _prefetch(module: str, way: str, following: list[str]) -> str:
    listed = ", ".join(_expression(name) for name in following)
    return f"{_expression(module)}.set_modules_to_{way}_prefetch([{listed}])"
