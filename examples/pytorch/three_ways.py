# SPDX-License-Identifier: Apache-2.0
"""What the examples share: one loop, three ways to average gradients."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Callable, Optional

import torch
import torch.distributed as dist

import stretto
import stretto.torch


class Serial(torch.nn.Module):
    """Backward, then one blocking all_reduce of all gradients."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)

    def forward(self, *inputs):
        return self.module(*inputs)

    def average(self) -> None:
        gradients = [p.grad for p in self.module.parameters()]
        flat = torch.cat([g.flatten() for g in gradients])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients])):
            gradient.copy_(mean.view_as(gradient))


def arguments(steps: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--small", action="store_true", help="a smaller model, to see that it runs")
    parser.add_argument("--emulate", metavar="M", help="a network for Stretto's ranks, as 2@1Gbit/s,50us")
    return parser.parse_args()


def run(
    make_model: Callable[[], torch.nn.Module],
    loss_of: Callable[[torch.nn.Module, int], torch.Tensor],
    options: argparse.Namespace,
) -> None:
    """Trains three times and prints a table on rank 0. `loss_of(model, step)` is this rank's loss."""
    torch.set_num_threads(1)
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    rows, weights, last = [], [], None
    for name in ("serial", "torch DDP", "stretto"):
        torch.manual_seed(0)
        model = make_model()
        if name == "serial":
            model = Serial(model)
        elif name == "torch DDP":
            model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        else:
            model = stretto.torch.DDP(model, emulate=options.emulate)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        times, loss = [], torch.zeros(())
        for step in range(options.steps):
            begin = time.perf_counter()
            optimizer.zero_grad(set_to_none=False)
            loss = loss_of(model, step)
            loss.backward()
            if isinstance(model, Serial):
                model.average()
            optimizer.step()
            times.append(time.perf_counter() - begin)
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        rows.append((name, 1e3 * statistics.median(times[2:] or times), float(mean) / ranks))
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        last = model
    for other in weights[1:]:
        torch.testing.assert_close(weights[0], other, rtol=1e-3, atol=1e-4)
    if rank == 0:
        print(f"{'':12}{'step':>12}{'loss':>10}")
        for name, milliseconds, loss_value in rows:
            print(f"{name:12}{milliseconds:9.2f} ms{loss_value:10.4f}")
        print(f"weights agree; stretto: {last.summary()}")
    dist.barrier()
    dist.destroy_process_group()
