# SPDX-License-Identifier: Apache-2.0
"""Small tables for notebooks."""

from __future__ import annotations

import html as _escape
from typing import Any, Iterable, Sequence

from . import _core


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def cells(tag: str, values: Sequence[Any]) -> str:
        return "<tr>" + "".join(f"<{tag}>{_escape.escape(str(value))}</{tag}>" for value in values) + "</tr>"

    return (
        "<table><thead>"
        + cells("th", header)
        + "</thead><tbody>"
        + "".join(cells("td", row) for row in rows)
        + "</tbody></table>"
    )


def _seconds(value: float | None) -> str:
    return "n/a" if value is None else _core.format_seconds(value)


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _summary(summary: Any) -> str:
    return _table(
        ("exposed", "step", "compute", "communication", "hidden", "bound", "gap"),
        [
            (
                _seconds(summary.exposed_s),
                _seconds(summary.step_s),
                _seconds(summary.compute_s),
                _seconds(summary.communication_s),
                _percent(summary.hidden_ratio),
                _seconds(summary.bound_s),
                _percent(summary.bound_gap_ratio),
            )
        ],
    )


def _analysis(analysis: Any) -> str:
    text = f"<p>{_escape.escape(analysis.verdict)}</p>"
    if analysis.summary is not None:
        text += _summary(analysis.summary)
    if analysis.diagnoses:
        text += _table(("finding", "evidence", "advice"), [(d.finding, d.evidence, d.advice) for d in analysis.diagnoses])
    return text


def _plan_result(result: Any) -> str:
    rows = [("this plan", len(result.plan.buckets), _seconds(result.predicted_step_s))]
    rows += [(other.name, len(other.plan.buckets), _seconds(other.step_s)) for other in result.alternatives]
    return f"<p>{_escape.escape(result.verdict)}</p>" + _table(("schedule", "buckets", "step"), rows)


def _plan(plan: Any) -> str:
    rows = [
        (number, bucket.dtype, _core.format_bytes(bucket.bytes), ", ".join(plan.tensor_names(number)))
        for number, bucket in enumerate(plan.buckets)
    ]
    return _table(("bucket", "dtype", "size", "tensors"), rows)


def html(value: Any) -> str:
    if isinstance(value, _core.Summary):
        return _summary(value)
    if isinstance(value, _core.Analysis):
        return _analysis(value)
    if isinstance(value, _core.PlanResult):
        return _plan_result(value)
    if isinstance(value, _core.Plan):
        return _plan(value)
    if isinstance(value, _core.Simulation):
        return _summary(value.summary) + f"<pre>{_escape.escape(value.timeline.draw())}</pre>"
    if isinstance(value, _core.Timeline) and value.steps_recorded:
        return f"<pre>{_escape.escape(value.draw())}</pre>"
    return f"<code>{_escape.escape(repr(value))}</code>"
