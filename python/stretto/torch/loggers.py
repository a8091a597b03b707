# SPDX-License-Identifier: Apache-2.0
"""Numbers of a run into the tracker that is already there. Call these on rank 0."""

from __future__ import annotations

from typing import Any, Mapping

_PREFIX = "stretto/"


def _numbers(source: Any) -> Mapping[str, float]:
    return source if isinstance(source, Mapping) else source.metrics()


def log_tensorboard(writer: Any, source: Any, step: int) -> None:
    """`writer` is the SummaryWriter in use; `source` a DDP, a HookState, or metrics() of one."""
    for name, value in _numbers(source).items():
        writer.add_scalar(_PREFIX + name, value, step)


def log_wandb(run: Any, source: Any, step: int) -> None:
    """`run` is what wandb.init() returned."""
    run.log({_PREFIX + name: value for name, value in _numbers(source).items()}, step=step)


def log_mlflow(mlflow: Any, source: Any, step: int) -> None:
    """`mlflow` is the module, or an MlflowClient bound to a run: anything with log_metrics()."""
    mlflow.log_metrics({_PREFIX + name: value for name, value in _numbers(source).items()}, step=step)
