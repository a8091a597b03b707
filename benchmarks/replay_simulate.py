#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays on emulated machines against what the simulator predicts, and planned buckets against uniform ones.

First part: for every model and number of ranks, the step of real ranks moving real bytes (serial, PyTorch's default
rule, planned buckets) and the one that `stretto simulate` predicts for the same machine, compute and buckets.

Second part, paired and interleaved: planned buckets against the best uniform size that `plan --sweep` finds.

    replay_simulate.py [--stretto PATH] [--log FILE] [MODEL...]

All of it takes about an hour of an otherwise idle machine with two cores. With --log every row is written when it is
there, and a run that was stopped goes on with the rows that are missing; without, it begins from the start. A row that
fails, as where the host was too late, is tried again; one that does not fit into memory, takes too long or keeps
failing is said, with the reason, and the exit status is 1.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

# model -> seconds of compute on 2 ranks (with the rates below communication takes about as long), bytes of gradients.
MODELS = {
    "resnet50": (0.3, 102e6),
    "vgg16": (0.8, 553e6),
    "gpt2_124m": (0.8, 498e6),
    "bert_large": (2.0, 1345e6),
}
RANKS = {2: 4e9, 4: 2e9, 8: 1e9}  # ranks -> bit/s: what two cores can emulate
ROWS = {"serial": ["--schedule", "serial"], "ddp": ["--buckets", "ddp"], "planned": ["--buckets", "planned"]}
# An estimate, so that a host is not driven out of memory: every rank's gradients, and half as much beside them.
BYTES_PER_GRADIENT_BYTE = 1.5
TRIES = 3
PAIRS = 5
# A median this much above 1 is no better plan that lost, if the pairs are spread as far.
NOISE = 0.01


def free_memory_bytes():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return float("inf")


class Program:
    def __init__(self, path, limit_s):
        self.path = path
        self.limit_s = limit_s

    def run(self, *arguments):
        """The document, or None and why there is none."""
        command = [self.path, *map(str, arguments), "--json"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            return None, f"not done in {self.limit_s:g} s"
        except OSError as error:
            sys.exit(f"{self.path}: {error.strerror}")
        try:
            document = json.loads(done.stdout)
        except json.JSONDecodeError:
            return None, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}, and no result"])[-1]
        if done.returncode != 0:
            return None, document["error"]["message"]
        return document, None

    def replay(self, model, machine, ranks, compute, flags, steps):
        """Seconds of a step; tried again where the host was too late, which the next time it need not be."""
        needed = ranks * MODELS[model][1] * BYTES_PER_GRADIENT_BYTE
        free = free_memory_bytes()
        if needed > free:
            return None, f"takes {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} are free"
        why = None
        for _ in range(TRIES):
            document, why = self.run(
                "replay", model, "--emulate", machine, "--compute-s", compute, "--steps", steps, "--warmup", 1, *flags
            )
            if document is not None:
                return document["runs"][0]["summary"]["step_s"], None
        return None, f"{why} (tried {TRIES} times)"

    def simulated(self, model, machine, compute, flags):
        document, why = self.run(
            "simulate", model, "--machine", machine, "--compute-s", compute, "--algorithm", "direct", *flags
        )
        return (None, why) if document is None else (document["step_s"], None)


class Log:
    """Rows by key, kept in a file of one JSON object per line; rows that failed are tried again."""

    def __init__(self, path):
        self.path = path
        self.rows = {}
        self.begin = ""
        if path and os.path.exists(path):
            text = pathlib.Path(path).read_text()
            self.begin = "" if text.endswith("\n") else "\n"  # what was cut off keeps a line of its own
            for line in text.splitlines():
                try:
                    row = json.loads(line)
                    self.rows[tuple(row["key"])] = row
                except (json.JSONDecodeError, KeyError, TypeError):
                    print(f"{path}: a line that was cut off is left out", file=sys.stderr)

    def row(self, key, make):
        known = self.rows.get(key)
        if known and "failed" not in known:
            return known
        row = {"key": list(key), **make()}
        self.rows[key] = row
        if self.path:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(self.begin + json.dumps(row) + "\n")
            self.begin = ""
        return row


def compare(program, model, ranks, name):
    machine = f"{ranks}@{RANKS[ranks] / 1e9:g}Gbit/s,50us"
    # The share of communication stays the same on every machine.
    compute = MODELS[model][0] * 4e9 / RANKS[ranks]
    predicted, why = program.simulated(model, machine, compute, ROWS[name])
    if predicted is None:
        return {"failed": why}
    step, why = program.replay(model, machine, ranks, compute, ROWS[name], 4)
    return {"failed": why} if step is None else {"predicted_s": predicted, "step_s": step}


def pair(program, model, machine, ranks, compute):
    document, why = program.run(
        "plan", model, "--machine", machine, "--compute-s", compute, "--algorithm", "direct", "--sweep", "--emit", "ddp"
    )
    if document is None:
        return {"failed": why}
    best = min(document["sweep"], key=lambda point: point["step_s"])["cap_bytes"]
    ratios = []
    for _ in range(PAIRS):
        planned, why = program.replay(model, machine, ranks, compute, ROWS["planned"], 6)
        if planned is None:
            return {"failed": why}
        uniform, why = program.replay(model, machine, ranks, compute, ["--buckets", f"{best}"], 6)
        if uniform is None:
            return {"failed": why}
        ratios.append(planned / uniform)
    return {"cap_bytes": best, "ratios": ratios}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all by default")
    parser.add_argument("--stretto", default="build/release/cli/stretto", metavar="PATH")
    parser.add_argument("--log", metavar="FILE", help="rows that are there; what is missing is added")
    parser.add_argument("--limit-s", type=float, default=900.0, metavar="S", help="of one replay (900)")
    arguments = parser.parse_args()
    unknown = [model for model in arguments.models if model not in MODELS]
    if unknown:
        parser.error(f"{unknown[0]}: no model of this benchmark; known: {', '.join(MODELS)}")
    models = arguments.models or list(MODELS)
    program = Program(arguments.stretto, arguments.limit_s)
    log = Log(arguments.log)
    failed = 0
    print("model       ranks  row      simulated ms  replayed ms      off  within 5 %")
    for model in models:
        for ranks in RANKS:
            for name in ROWS:
                row = log.row(("step", model, ranks, name), lambda m=model, r=ranks, n=name: compare(program, m, r, n))
                head = f"{model:11} {ranks:5}  {name:8}"
                if "failed" in row:
                    print(f"{head} {row['failed']}", flush=True)
                    failed = 1
                    continue
                off = row["step_s"] / row["predicted_s"] - 1
                failed |= abs(off) > 0.05
                print(
                    f"{head} {row['predicted_s'] * 1e3:12.2f}  {row['step_s'] * 1e3:11.2f}  {off * 100:+6.2f} %  "
                    f"{'yes' if abs(off) <= 0.05 else 'NO'}",
                    flush=True,
                )
    print(f"\nmodel       machine           best uniform  planned : uniform, medians of {PAIRS} interleaved [spread]")
    for model in models:
        ranks, machine, compute = 2, "2@8Gbit/s,200us", MODELS[model][0]
        key = ("pair", model, machine)
        row = log.row(key, lambda m=model, c=compute: pair(program, m, machine, ranks, c))
        head = f"{model:11} {machine:16}"
        if "failed" in row:
            print(f"{head}  {row['failed']}", flush=True)
            failed = 1
            continue
        median = statistics.median(row["ratios"])
        slower = median > 1 + NOISE and min(row["ratios"]) > 1
        failed |= slower
        print(
            f"{head}  {row['cap_bytes'] / 2**20:8.2f} MiB  {median:.4f} [{min(row['ratios']):.4f}-"
            f"{max(row['ratios']):.4f}]{'  SLOWER' if slower else ''}",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
