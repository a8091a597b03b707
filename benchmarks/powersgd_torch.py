# SPDX-License-Identifier: Apache-2.0
"""PowerSGD of rank 4 on one matrix of 4096 x 4096 with error feedback: torch's hook arithmetic against Stretto's, in turns.

    python benchmarks/powersgd_torch.py build/release/benchmarks/bench_codecs [--runs 9]

What torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook does to one bucket of one matrix on one rank, without the
all-reduces: gradient + residual, a copy of it, P = M Q, orthogonal columns, Q = M' P, M = P Q', residual = copy - M. One thread.
"""

import argparse
import re
import subprocess
import time

import torch
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

SIDE, RANK = 4096, 4


def torch_step(gradient, error, q, p):
    gradient.add_(error)
    copy = gradient.clone().detach()
    torch.matmul(gradient, q, out=p)
    powerSGD_hook._orthogonalize(p.unsqueeze(0), 0)
    torch.matmul(gradient.t(), p, out=q)
    torch.matmul(p, q.t(), out=gradient)
    torch.sub(copy, gradient, out=error)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench_codecs")
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    gradient = torch.randn(SIDE, SIDE)
    bucket, error = gradient.clone(), torch.zeros(SIDE, SIDE)
    q, p = torch.linalg.qr(torch.randn(SIDE, RANK))[0].contiguous(), torch.empty(SIDE, RANK)
    theirs, ours = [], []
    for _ in range(arguments.runs):
        for timed in (False, True):
            bucket.copy_(gradient)
            begin = time.perf_counter()
            torch_step(bucket, error, q, p)
            if timed:
                theirs.append((time.perf_counter() - begin) * 1e3)
        out = subprocess.run([arguments.bench_codecs, "--elements", "16M", "--runs", "5", "--only", "powersgd"],
                             check=True, capture_output=True, text=True).stdout
        ours.append(float(re.search(r"all, feedback .* B +[\d.]+ ms +([\d.]+) ms", out)[1]))
    for name, times in (("torch " + torch.__version__, theirs), ("stretto", ours)):
        times.sort()
        print(f"{name:14} median {times[len(times) // 2]:.2f} ms, {times[0]:.2f} to {times[-1]:.2f} ms")
    print(f"torch / stretto = {theirs[len(theirs) // 2] / ours[len(ours) // 2]:.2f}")


if __name__ == "__main__":
    main()
