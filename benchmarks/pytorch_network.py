#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step in PyTorch between two hosts at 1 Gbit/s: torch's DDP over gloo and Stretto's over MPI, in turns.

    benchmarks/pytorch_network.py BUILD_FOLDER [--rate 1gbit] [--batch 448] [--rounds 3] [--steps 6]     (as root)

Hosts are network namespaces. 24 x Linear(1024, 1024) + ReLU (25,190,400 parameters), MSE, SGD, one thread per rank.
`compute` is the same step without communication. A round runs --steps steps of every setting, one setting after the
other; the first step of a round is not counted, and what still travels at its end is waited for outside. Medians,
[lowest, highest step], processor time per step of this rank, rank 0.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# What runs beside us on this machine should not be what is measured.
PRIORITY = ["setsid", "-w", "sh", "-c", 'echo -19 > /proc/self/autogroup; exec "$@"', "rank"]


def measure(options):
    import torch
    import torch.distributed as dist
    from torch import nn

    import stretto
    import stretto.torch

    torch.set_num_threads(1)
    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    os.environ["GLOO_SOCKET_IFNAME"] = "net0"
    dist.init_process_group("gloo", init_method=f"tcp://{options.rank}:29511", rank=rank, world_size=size)

    def layers():
        torch.manual_seed(0)
        return nn.Sequential(*[layer for _ in range(24) for layer in (nn.Linear(1024, 1024), nn.ReLU())])

    def stretto_ddp(schedule):
        return stretto.torch.DDP(layers(), backend="mpi", schedule=schedule, bucket_cap_mb=options.bucket_mb)

    torch_ddp = torch.nn.parallel.DistributedDataParallel
    models = {
        "compute": layers(),
        "torch DDP": torch_ddp(layers(), gradient_as_bucket_view=True),
        "torch DDP, 1 MB": torch_ddp(layers(), gradient_as_bucket_view=True, bucket_cap_mb=1),
        "stretto overlap": stretto_ddp("overlap"),
        "stretto priority": stretto_ddp("priority"),
    }
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=1e-3) for name, model in models.items()}
    stretto.torch.overlap(optimizers["stretto priority"], models["stretto priority"])
    times = {name: [] for name in models}
    processor = {name: [] for name in models}
    x, target = torch.randn(options.batch, 1024), torch.randn(options.batch, 1024)
    for round_number in range(options.rounds + 1):
        for name, model in models.items():
            dist.barrier()
            for step in range(options.steps):
                begin, used = time.perf_counter(), time.process_time()
                optimizers[name].zero_grad(set_to_none=False)
                nn.functional.mse_loss(model(x), target).backward()
                optimizers[name].step()
                if round_number > 0 and step > 0:  # the first round warms up
                    times[name].append(time.perf_counter() - begin)
                    processor[name].append(time.process_time() - used)
            if isinstance(model, stretto.torch.DDP):
                model.drain()
    same = [torch.cat([p.detach().flatten() for p in models[n].parameters()]) for n in ("stretto overlap", "stretto priority")]
    assert torch.equal(*same), "the schedules gave different weights"
    if rank == 0:
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        for name, values in times.items():
            print(
                f"{name:18}{statistics.median(values) * 1e3:9.1f} ms  [{min(values) * 1e3:.1f}, {max(values) * 1e3:.1f}]"
                f"{statistics.median(processor[name]) * 1e3:9.1f} ms of processor"
            )
        for name in ("stretto overlap", "stretto priority"):
            print(f"{name}: {models[name].summary()}")
    dist.barrier()
    for name in ("stretto overlap", "stretto priority"):
        models[name].close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--batch", type=int, default=448)
    parser.add_argument("--bucket-mb", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        measure(options)
        return 0
    if options.build is None:
        parser.error("which build?")
    sys.path.insert(0, str(HERE.parent / "tests/comm/mpi"))
    import network
    from launchers import LAUNCHERS

    launcher = next(each for each in LAUNCHERS if each.name == "openmpi")
    words = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in ("batch", "bucket_mb", "rounds", "steps")]
    with network.Network([options.rate] * 2) as net:
        command = [sys.executable, str(HERE / "pytorch_network.py"), f"--rank={net.address(0)}", *words]
        build = pathlib.Path(options.build).resolve()
        folders = {"PYTHONPATH": str(build / "python"), "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
        with_path = ["env", *(f"{k}={v}" for k, v in folders.items()), *PRIORITY, *command]
        return subprocess.run(net.mpirun(launcher, 1, *with_path), env=net.environment(launcher), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
