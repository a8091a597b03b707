# SPDX-License-Identifier: Apache-2.0
"""Layers of 1024 x 1024: python -m stretto run -n 2 -- python examples/pytorch/mlp.py"""

import torch
from torch import nn

import three_ways


def main() -> None:
    options = three_ways.arguments(steps=12)
    layers, width = (4, 128) if options.small else (12, 1024)

    def make() -> nn.Module:
        return nn.Sequential(*[layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())])

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(2 * step + three_ways.dist.get_rank())
        x = torch.randn(64, width, generator=generator)
        return (model(x) - x).square().mean()

    three_ways.run(make, loss, options)


main()
