# SPDX-License-Identifier: Apache-2.0
"""A rank of mpirun that trains with stretto.torch.DDP(backend="mpi"), and knows what must come out."""

import os
import sys

import torch
from torch import nn

import stretto
import stretto.torch


def make():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 300), nn.Linear(300, 4))


def batch(step, rank):
    return torch.randn(8, 12, generator=torch.Generator().manual_seed(100 * step + rank))


def loss(model, step, rank):
    return model(batch(step, rank)).square().mean()


def trains():
    """Equals one process that adds up the gradients of all ranks, each with rank 0's buffers."""
    model = stretto.torch.DDP(make(), backend="mpi", bucket_cap_mb=0.01, timeout_s=20)
    rank, size = model._communicator.rank, model._communicator.size
    assert "mpi" in repr(model)
    alone = make()
    steppers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (model, alone)]
    for step in range(5):
        for stepper in steppers:
            stepper.zero_grad()
        loss(model, step, rank).backward()
        buffers = {n: b.clone() for n, b in alone.named_buffers()}
        for r in reversed(range(size)):  # rank 0's buffers are the ones that stay
            alone.load_state_dict(buffers, strict=False)
            (loss(alone, step, r) / size).backward()
        for stepper in steppers:
            stepper.step()
        for expected, found in zip(alone.parameters(), model.parameters()):
            torch.testing.assert_close(found, expected)
    assert len(model.plan.buckets) > 5 and model.summary().summary.steps == 4


def disagrees():
    width = 5 if int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0"))) == 0 else 6
    try:
        stretto.torch.DDP(nn.Linear(3, width), backend="mpi", timeout_s=20)
    except stretto.Mismatch as error:
        assert "'weight'" in str(error) and "[5, 3]" in str(error) and "[6, 3]" in str(error), error
    else:
        raise AssertionError("no Mismatch")


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"trains": trains, "disagrees": disagrees}[sys.argv[1]]()
    print(f"{sys.argv[1]}: all is well")
