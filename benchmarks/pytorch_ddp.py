# SPDX-License-Identifier: Apache-2.0
"""A training step alone, under torch's DistributedDataParallel over gloo, and under Stretto, in turns.

    PYTHONPATH=build/release/python build/release/cli/stretto run -n 2 -- .venv/bin/python benchmarks/pytorch_ddp.py

24 x Linear(1024, 1024) + ReLU (25,190,400 parameters), batch 64, MSE, SGD, one thread per rank,
zero_grad(set_to_none=False). `compute` is the same step without communication. Medians over all rounds; with
--hooks instead what a hook costs per tensor, on this rank alone.
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

import stretto.torch


def layers(count: int, width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(count) for layer in (nn.Linear(width, width), nn.ReLU())])


def steps(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    torch_ddp = torch.nn.parallel.DistributedDataParallel
    models = {
        "compute": layers(24, 1024),
        "torch DDP": torch_ddp(layers(24, 1024), gradient_as_bucket_view=True),
        "torch DDP, 5 MB": torch_ddp(layers(24, 1024), gradient_as_bucket_view=True, bucket_cap_mb=5),
        "stretto": stretto.torch.DDP(layers(24, 1024)),
    }
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=1e-3) for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in models}
    x, target = torch.randn(64, 1024), torch.randn(64, 1024)
    for round_number in range(options.rounds + 1):
        for name, model in models.items():
            for _ in range(options.steps):
                dist.barrier()
                begin = time.perf_counter()
                optimizers[name].zero_grad(set_to_none=False)
                nn.functional.mse_loss(model(x), target).backward()
                optimizers[name].step()
                if round_number > 0:  # the first warms up
                    times[name].append(time.perf_counter() - begin)
    if dist.get_rank() == 0:
        compute = statistics.median(times["compute"])
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        for name, values in times.items():
            median = statistics.median(values)
            low, high = min(values) * 1e3, max(values) * 1e3
            print(f"{name:18}{median * 1e3:9.1f} ms  {median / compute:5.2f}x  [{low:.1f} to {high:.1f}]")
        print(models["stretto"].summary())
    dist.barrier()


class Many(nn.Module):
    """A tensor is used for a moment, so that what hooks add can be seen."""

    def __init__(self, tensors: int) -> None:
        super().__init__()
        self.tensors = nn.ParameterList(nn.Parameter(torch.randn(16, 16)) for _ in range(tensors))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for tensor in self.tensors:
            x = x @ tensor * 0.1
        return x


def hooks() -> None:
    def least(model: nn.Module) -> float:
        x = torch.randn(4, 16)
        times = []
        for _ in range(60):
            begin = time.perf_counter()
            model(x).sum().backward()
            times.append(time.perf_counter() - begin)
        return min(times[15:])

    for tensors in (161, 391, 1000):
        bare = least(Many(tensors))
        recorded = least(stretto.torch.DDP(Many(tensors)))
        silent = least(stretto.torch.DDP(Many(tensors), record_steps=0))
        print(
            f"{tensors:5} tensors: {(recorded - bare) / tensors * 1e6:6.2f} us per tensor more than without DDP, "
            f"{(silent - bare) / tensors * 1e6:.2f} without records"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--hooks", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.hooks:
        hooks()
    else:
        steps(options)


main()
