# SPDX-License-Identifier: Apache-2.0
"""Overlap by hand, wrong and right: python -m stretto run -n 2 -- python examples/pytorch/manual_overlap.py

Often shown: call loss.backward(), then start all_reduce(async_op=True) for every gradient, then wait for all of
them. Nothing is hidden that way: backward is over when the first of them starts. Started from a hook of each
parameter, they run beside the rest of backward.
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    layers, width = (4, 64) if options.small else (12, 1024)

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())])
    parameters = list(model.parameters())
    started = []  # when, and the operation

    def start(parameter: torch.Tensor) -> None:
        started.append((time.perf_counter(), dist.all_reduce(parameter.grad, async_op=True)))

    def after_backward() -> None:
        for parameter in parameters:
            start(parameter)

    def step(hooked: bool) -> tuple[float, int]:
        """Its time, and how many operations began before backward was over."""
        started.clear()
        model.zero_grad(set_to_none=True)
        begin = time.perf_counter()
        model(torch.randn(64, width)).square().mean().backward()
        backward_end = time.perf_counter()
        if not hooked:
            after_backward()
        for _, work in started:
            work.wait()
        for parameter in parameters:
            parameter.grad /= ranks
        return time.perf_counter() - begin, sum(at < backward_end for at, _ in started)

    for name, hooked in (("after backward", False), ("from hooks", True)):
        hooks = [p.register_post_accumulate_grad_hook(start) for p in parameters] if hooked else []
        results = [step(hooked) for _ in range(options.steps)]
        for hook in hooks:
            hook.remove()
        early = results[-1][1]
        if rank == 0:
            median = 1e3 * statistics.median(t for t, _ in results[1:] or results)
            print(f"{name:16}{median:9.2f} ms per step, {early} of {len(parameters)} all_reduces began during backward")
        assert early == (len(parameters) if hooked else 0)
    dist.barrier()
    dist.destroy_process_group()


main()
