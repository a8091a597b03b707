# SPDX-License-Identifier: Apache-2.0
"""Convolutions with batch norm: python -m stretto run -n 2 -- python examples/pytorch/convolutions.py"""

import torch
from torch import nn

import three_ways


def block(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


def main() -> None:
    options = three_ways.arguments(steps=12)
    width = 8 if options.small else 48

    def make() -> nn.Module:
        return nn.Sequential(
            block(3, width),
            block(width, width),
            nn.MaxPool2d(2),
            block(width, 2 * width),
            block(2 * width, 2 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * width, 10),
        )

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        """Ten classes of noise that differ in their mean colour."""
        generator = torch.Generator().manual_seed(2 * step + three_ways.dist.get_rank())
        labels = torch.randint(10, (16,), generator=generator)
        shift = torch.stack([torch.sin(labels * k) for k in (1.0, 2.0, 3.0)], 1).view(16, 3, 1, 1)
        pictures = torch.randn(16, 3, 24, 24, generator=generator) + shift
        return nn.functional.cross_entropy(model(pictures), labels)

    three_ways.run(make, loss, options)


main()
