# SPDX-License-Identifier: Apache-2.0
"""Stretto for PyTorch.

    model = stretto.torch.DDP(model)                          # instead of DistributedDataParallel
    ddp.register_comm_hook(stretto.torch.HookState(ddp), stretto.torch.hook)   # or keep it, and see
    with stretto.torch.record("run.json"): ...                # or record any job

The package is not compiled against torch: any version from 2.1 on will do.
"""

try:
    import torch as _torch
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError("stretto.torch needs PyTorch 2.1 or later: pip install torch", name=_error.name) from None

if not hasattr(_torch.Tensor, "register_post_accumulate_grad_hook"):
    raise ImportError(f"stretto.torch needs PyTorch 2.1 or later, found {_torch.__version__}")

from .comm_hook import HookState, hook
from .ddp import DDP
from .fsdp import FsdpAdvice, fsdp_advice
from .loggers import log_mlflow, log_tensorboard, log_wandb
from ._overlap import clip_grad_norm_, overlap
from .recording import record
from .scaling import scale_lr
from .step_summary import StepSummary

DistributedDataParallel = DDP

__all__ = [
    "DDP",
    "DistributedDataParallel",
    "FsdpAdvice",
    "HookState",
    "StepSummary",
    "clip_grad_norm_",
    "fsdp_advice",
    "hook",
    "log_mlflow",
    "log_tensorboard",
    "log_wandb",
    "overlap",
    "record",
    "scale_lr",
]
