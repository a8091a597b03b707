# SPDX-License-Identifier: Apache-2.0
"""One rank of a job in which something goes wrong."""

import datetime
import json
import os
import signal
import time

import torch
import torch.distributed as dist

import stretto
import stretto.torch


class Bad(torch.autograd.Function):
    """Backward does what it is told to, halfway."""

    does = None

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        if Bad.does is not None:
            Bad.does()
        return gradient


def bug():
    raise ValueError("a bug in a layer")


def until_text(file, text):
    """Gives up after a while, so that a test fails rather than hangs."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        with open(file, encoding="utf-8") as opened:
            if text in opened.read():
                return
        time.sleep(0.02)


def until_seen(file):
    while not os.path.exists(file):
        time.sleep(0.02)


class Model(torch.nn.Module):
    def __init__(self, width, dtype=torch.float32, more=False):
        super().__init__()
        self.first = torch.nn.Linear(6, width)
        self.second = torch.nn.Linear(width, 6)
        self.third = torch.nn.Linear(6, 6)
        if more:
            self.fourth = torch.nn.Linear(6, 6)
        self.to(dtype)

    def forward(self, x, skip=False):
        x = self.second(Bad.apply(self.first(x)))
        return x if skip else self.third(x)


def step(model, **options):
    model(torch.randn(4, 6), **options).sum().backward()


def run(how, backend, rank, folder):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if backend == "process_group":
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    width = 7 + rank if how == "shapes" else 8
    options = {"find_unused_parameters": rank == 1} if how == "options" else {}
    timeout_s = 3 if how == "never" and rank == 0 else 30
    dtype = torch.float64 if how == "types" and rank == 1 else torch.float32
    module = Model(width, dtype, more=how == "counts" and rank == 1)
    model = stretto.torch.DDP(module, backend=backend, timeout_s=timeout_s, **options)
    if not how.endswith("_first"):
        for _ in range(3):
            step(model)
    how = how.removesuffix("_first")
    if how == "killed" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "left" and rank == 1:
        return "left"
    if rank == 1:
        stderr = os.path.join(folder, "stderr0")
        Bad.does = {
            "backward_raises": bug,
            # Until the other one has said that it waits; then it goes on.
            "late": lambda: until_text(stderr, "waited 2."),
            "never": lambda: until_seen(os.path.join(folder, "seen0.json")),
        }.get(how)
    step(model, skip=how == "unused" and rank == 1)
    Bad.does = None
    if how == "late":
        until_text(os.path.join(folder, "stderr0"), "goes on")
    step(model)
    return "went on"


class Giving(torch.optim.SGD):
    """Gives up in an update of `second` that has waited for its gradient."""

    up = False

    def step(self, closure=None):
        if Giving.up and self.param_groups[0]["params"][0].shape == (6, 8):
            bug()
        super().step()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def run_overlapped(how, rank):
    """Under the schedule priority: rank 1 goes in backward, between step() and forward, or in forward."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = stretto.torch.DDP(Model(8), backend="shm", timeout_s=30, schedule="priority", bucket_cap_mb=0.0003)
    optimizer = stretto.torch.overlap(Giving(model.parameters(), lr=0.1), model)
    for number in range(8):
        now = number == 4 and rank == 1
        if now and how == "overlap_killed_in_forward":
            model.module.second.register_forward_pre_hook(lambda module, args: die())
        if now and how == "overlap_gives_up":
            Giving.up = True
        if now and how == "overlap_killed_in_backward":
            Bad.does = die
        try:
            step(model)
            optimizer.step()
            optimizer.zero_grad()
        except stretto.Error:
            held = [p for p in model.parameters() if type(p) is not torch.nn.Parameter]
            for parameter in held:  # waits for an update that will not come
                try:
                    parameter.sum()
                except stretto.Error:
                    continue
                return "an old weight was read"
            model.close()
            assert all(torch.isfinite(p).all() for p in model.parameters())
            raise
        if now and how == "overlap_killed_between":
            die()
    return "went on"


def main(how, backend, folder, environment):
    """Leaves what this rank saw in `folder`/seenRANK.json."""
    os.environ.update(environment)
    rank = int(environment["RANK"])
    log = os.open(os.path.join(folder, f"stderr{rank}"), os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(log, 2)
    begin = time.monotonic()
    seen = {"rank": rank}
    try:
        seen["outcome"] = run_overlapped(how, rank) if how.startswith("overlap_") else run(how, backend, rank, folder)
    except stretto.Error as error:
        seen.update(outcome="error", type=type(error).__name__, code=error.code, text=str(error))
    except ValueError as error:
        seen.update(outcome="error", type="ValueError", text=str(error))
    seen["seconds"] = time.monotonic() - begin
    file = os.path.join(folder, f"seen{rank}.json")
    with open(file + ".part", "w", encoding="utf-8") as out:
        json.dump(seen, out)
    os.rename(file + ".part", file)
    # A rank that goes at once would hide from the others why it went: they would see only that it did.
    deadline = time.monotonic() + 25
    others = [r for r in range(int(environment["WORLD_SIZE"])) if not ("killed" in how and r == 1)]
    while how != "left" and time.monotonic() < deadline:
        if all(os.path.exists(os.path.join(folder, f"seen{r}.json")) for r in others):
            break
        time.sleep(0.02)
    os._exit(0)
