# SPDX-License-Identifier: Apache-2.0
"""Updates under the next forward pass: python -m stretto run -n 2 -- python examples/pytorch/next_forward.py

The same training twice, on an emulated network: gradients that are all waited for at the end of backward, and gradients
that each layer waits for where it needs its weights. Clipped, with AdamW and a schedule of rates; the weights are equal.
"""

import argparse
import statistics
import time

import torch
from torch import nn

import stretto.torch


def train(schedule: str, options: argparse.Namespace) -> tuple[stretto.torch.DDP, float]:
    torch.manual_seed(0)
    layers, width = (4, 64) if options.small else (12, 512)
    module = nn.Sequential(*[layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.Tanh())])
    model = stretto.torch.DDP(module, schedule=schedule, bucket_cap_mb=1, emulate=options.emulate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if schedule == "priority":
        optimizer = stretto.torch.overlap(optimizer, model)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    begins = []
    for step in range(options.steps):
        begins.append(time.perf_counter())
        optimizer.zero_grad()
        model(torch.randn(width // 2, width)).square().mean().backward()
        stretto.torch.clip_grad_norm_(model, 0.1)
        optimizer.step()
        rates.step()
    model.drain()  # anything that reads a weight would do so
    return model, statistics.median(b - a for a, b in zip(begins[2:], begins[3:]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--emulate", metavar="M", default="2@1Gbit/s,50us")
    options = parser.parse_args()
    options.steps = max(options.steps, 4)
    torch.set_num_threads(1)
    weights = []
    for schedule in ("overlap", "priority"):
        model, seconds = train(schedule, options)
        weights.append([p.detach().clone() for p in model.parameters()])
        summary = model.summary()  # the network is emulated: so are these times
        if model.plan is not None and "rank 0 of" in repr(model):
            print(f"{schedule:10}{seconds * 1e3:9.2f} ms per step; {summary}")
    assert all(torch.equal(a, b) for a, b in zip(*weights)), "weights differ"


main()
