# SPDX-License-Identifier: Apache-2.0
"""A small GPT that learns characters: python -m stretto run -n 2 -- python examples/pytorch/tiny_gpt.py [--text FILE]"""

import pathlib

import torch
from torch import nn

import three_ways

TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")  # English that every Debian has
CONTEXT = 64


class TinyGpt(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(128, width)
        self.positions = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 128, bias=False)
        self.head.weight = self.characters.weight  # tied: its gradient has two parts
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.characters(text) * 0.02 + self.positions.weight * 0.02
        return self.head(self.body(x, mask=self.mask, is_causal=True))


def main() -> None:
    options = three_ways.arguments(steps=12)
    width, layers = (32, 2) if options.small else (192, 4)
    text = torch.tensor([min(ord(c), 127) for c in TEXT.read_text(encoding="utf-8")])

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(2 * step + three_ways.dist.get_rank())
        at = torch.randint(len(text) - CONTEXT - 1, (8,), generator=generator)
        batch = torch.stack([text[i : i + CONTEXT + 1] for i in at.tolist()])
        logits = model(batch[:, :-1])
        return nn.functional.cross_entropy(logits.reshape(-1, 128), batch[:, 1:].reshape(-1))

    three_ways.run(lambda: TinyGpt(width, layers), loss, options)


main()
