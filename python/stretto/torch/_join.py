# SPDX-License-Identifier: Apache-2.0
"""Ranks with different numbers of batches: those that are done take part with zeros."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional

import torch

from ..errors import Error, InvalidArgument

if TYPE_CHECKING:
    from .ddp import DDP


def samples_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Size of the first dimension of the first tensor of a call."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and value.dim() > 0:
            return int(value.shape[0])
        if isinstance(value, (tuple, list)):
            found = samples_in(tuple(value), {})
        elif isinstance(value, dict):
            found = samples_in((), value)
        else:
            found = 0
        if found:
            return found
    return 0


class UnevenInputsEnded(RuntimeError):
    """Raised on all ranks when one has no more data, as join(throw_on_early_termination=True) asks."""


class Join:
    """The context of DDP.join(); before every forward the ranks tell each other who still has data."""

    def __init__(
        self, model: "DDP", divide_by_initial_world_size: bool, sample_weighted: bool, throw_on_early_termination: bool
    ) -> None:
        if sample_weighted and not divide_by_initial_world_size:
            raise InvalidArgument(
                "a sample-weighted mean is over the samples there are",
                "DDP.join",
                "sample_weighted=True with divide_by_initial_world_size=False",
                "one of them",
            )
        self._model = model
        self._reducer = model._reducer
        self._whole = divide_by_initial_world_size
        self._weighted = sample_weighted
        self._throw = throw_on_early_termination
        self.authority = 0  # the lowest rank that still has data: its buffers and weights count

    def __enter__(self) -> "Join":
        self._reducer.in_join = True
        self._model._join = self
        return self

    def _tell(self, samples: int, reduces: bool) -> tuple[list[int], bool]:
        """Samples of every rank, and whether the step reduces. Collective."""
        size, rank = self._reducer.communicator.size, self._reducer.communicator.rank
        mine = torch.zeros(2 * size, dtype=torch.int64)
        mine[rank], mine[size + rank] = samples, int(reduces)
        before = self._reducer.doing
        self._reducer.now("word of who has data, as join() asks", waits=True)
        self._reducer.communicator.all_reduce(mine.data_ptr(), mine.numel(), "i64", "sum")
        self._reducer.doing = before
        told = mine.tolist()
        counts = told[:size]
        active = [r for r in range(size) if counts[r] > 0]
        if active:
            self.authority = active[0]
        if self._throw and len(active) < size:
            raise UnevenInputsEnded(f"rank {[r for r in range(size) if counts[r] == 0][0]} has no more data")
        return counts, any(told[size:])

    def before_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        samples = samples_in(args, kwargs) if self._weighted else 1
        if samples < 1:
            raise InvalidArgument(
                "the number of samples is not known",
                "DDP.join(sample_weighted=True)",
                "no tensor with a first dimension among forward()'s arguments",
                "a batch of one sample or more",
            )
        counts, _ = self._tell(samples, not self._reducer.no_sync)
        size = len(counts)
        if self._weighted:
            self._reducer.factor = samples * size / sum(counts)
        elif not self._whole:
            self._reducer.factor = size / sum(count > 0 for count in counts)

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._model._join = None
        reducer = self._reducer
        try:
            if kind is None:
                self._shadow()
            elif not issubclass(kind, (UnevenInputsEnded, Error)):
                # The others would wait for this rank's next word.
                reducer.fail(
                    Error(f"an exception left join(): {kind.__name__}", f"rank {reducer.communicator.rank}")
                )
        finally:
            reducer.factor = 1.0
            reducer.in_join = False

    def _shadow(self) -> None:
        model, reducer = self._model, self._reducer
        reducer.factor = 1.0
        while True:
            counts, reduces = self._tell(0, False)
            if not any(counts):
                break
            if model._buffers_travel() and reduces:
                reducer.broadcast(model._buffers_to_sync(), self.authority)
            if reduces:
                reducer.shadow_step()
        # Ranks that ended early have not stepped their optimizers since.
        reducer.broadcast((t.parameter for t in reducer.tracked), self.authority)
        if model._buffers_travel():
            reducer.broadcast(model._buffers_to_sync(), self.authority)
