# SPDX-License-Identifier: Apache-2.0
"""What a run says about itself."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from .. import _core


def some_words(names: Sequence[str]) -> str:
    """The first of them by name, the others by number."""
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def bucket_words(bucket: int, names: Sequence[str]) -> str:
    return f"bucket {bucket}" + (f" ({some_words(names)})" if names else "")


class StepSummary:
    """Exposed communication per step, in words and numbers; `str()` is one line."""

    def __init__(
        self, timeline: _core.Timeline, tensors_of_buckets: Sequence[Sequence[str]], samples_per_step: int = 0
    ) -> None:
        self.analysis: _core.Analysis = _core.analyze_timeline(timeline, None, samples_per_step)
        summary = self.analysis.summary
        assert summary is not None  # the caller has seen a whole step
        self.summary: _core.Summary = summary
        self._tensors = tensors_of_buckets

    @property
    def least_exposed_s(self) -> Optional[float]:
        """What no schedule could hide; None where the recording does not say what communication costs."""
        if self.summary.bound_s is None:
            return None
        return max(0.0, self.summary.bound_s - self.summary.compute_s)

    @property
    def worst_bucket(self) -> Optional[int]:
        """The bucket with most of the exposed time."""
        exposed = [b for b in self.summary.buckets if b.exposed_share_s > 0]
        return max(exposed, key=lambda b: b.exposed_share_s).bucket if exposed else None

    def bucket_name(self, bucket: int) -> str:
        return bucket_words(bucket, self._tensors[bucket] if bucket < len(self._tensors) else [])

    def metrics(self) -> dict[str, float]:
        """Numbers for a tracker: times in ms, ratios from 0 to 1. What is undefined is left out."""
        s = self.summary
        numbers = {
            "step_ms": s.step_s * 1e3,
            "exposed_ms": s.exposed_s * 1e3,
            "communication_ms": s.communication_s * 1e3,
            "hidden_ratio": s.hidden_ratio,
            "overlap_degree": s.overlap_degree,
            "communication_ratio": s.communication_ratio,
            "scaling_efficiency": s.scaling_efficiency,
            "samples_per_s": s.samples_per_s,
        }
        return {name: float(value) for name, value in numbers.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        return self.summary.to_dict()

    def __str__(self) -> str:
        s = self.summary
        text = f"exposed {_core.format_seconds(s.exposed_s)} of {_core.format_seconds(s.step_s)}"
        least = self.least_exposed_s
        text += f", bound {_core.format_seconds(least)}" if least is not None else ""
        worst = self.worst_bucket
        text += f", worst bucket: {self.bucket_name(worst)}" if worst is not None else ""
        return text

    def __repr__(self) -> str:
        return f"<StepSummary: {self}>"

    def _repr_html_(self) -> str:
        return f"<p>{self}</p>" + self.summary._repr_html_()
