#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the traces in this folder: two ranks on one host train a small network with fully_shard (FSDP2) over gloo.

Made with Python 3.11 and torch 2.13.0 (CPU build); no other package. Writes gloo_fsdp2_rank0.json.gz and
gloo_fsdp2_rank1.json.gz beside this file, or into the folder that is named.
"""

import gzip
import os
import pathlib
import re
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile, schedule

RANKS = 2
BATCH = 64
WIDTH, CLASSES, LAYERS = 256, 10, 3
WAIT, WARMUP, ACTIVE = 1, 2, 3


class Network(nn.Module):
    """Blocks that are sharded one by one; the head stays with the root."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images):
        for layer in self.layers:
            images = layer(images).relu()
        return self.head(images)


def save(profiler, path):
    """The recording as PyTorch writes it, less the names of this host and of its folders."""
    with tempfile.TemporaryDirectory() as directory:
        raw = pathlib.Path(directory) / "trace.json"
        profiler.export_chrome_trace(str(raw))
        text = raw.read_text().replace(str(raw), path.name)
    text = re.sub(r'^ *"(host_name|trace_id)": .*\n', "", text, flags=re.MULTILINE)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def train(rank, directory, rendezvous):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    model = Network()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(BATCH, WIDTH)
    labels = torch.randint(CLASSES, (BATCH,))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
        on_trace_ready=lambda profiler: save(profiler, directory / f"gloo_fsdp2_rank{rank}.json.gz"),
        record_shapes=True,  # Without them gloo's rows do not tell how many bytes they carry.
    ) as profiler:
        for step in range(WAIT + WARMUP + ACTIVE):
            if step == WAIT + WARMUP:
                profiler.add_metadata("torch_version", torch.__version__)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            profiler.step()
    dist.destroy_process_group()


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as scratch:
        mp.spawn(train, (directory, pathlib.Path(scratch) / "rendezvous"), nprocs=RANKS)


if __name__ == "__main__":
    main()
