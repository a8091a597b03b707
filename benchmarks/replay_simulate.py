#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays on emulated machines against what the simulator predicts, and planned buckets against uniform ones.

First part: for every model and number of ranks, the step of real ranks moving real bytes (serial, PyTorch's default rule,
planned buckets) and the one that `stretto simulate` predicts for the same machine, compute and buckets.

Second part, paired and interleaved: planned buckets against the best uniform size that `plan --sweep` finds.

    replay_simulate.py [PATH/TO/stretto] [MODEL...]
"""

import json
import statistics
import subprocess
import sys

# model, seconds of compute: with the rate below communication takes about as long.
MODELS = {"resnet50": 0.3, "vgg16": 0.8, "bert_large": 2.0, "gpt2_124m": 0.8}
RANKS = {2: 4e9, 4: 2e9, 8: 1e9}  # ranks -> bit/s: what two cores can emulate
ROWS = {"serial": ["--schedule", "serial"], "ddp": ["--buckets", "ddp"], "planned": ["--buckets", "planned"]}


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments), "--json"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout), done.returncode


def replay(program, model, machine, compute, flags, steps):
    document, code = run(
        program, "replay", model, "--emulate", machine, "--compute-s", compute, "--steps", steps, "--warmup", 1, *flags
    )
    return (document["runs"][0]["summary"], None) if code == 0 else (None, document["error"]["message"])


def simulated(program, model, machine, compute, flags):
    document, code = run(
        program, "simulate", model, "--machine", machine, "--compute-s", compute, "--algorithm", "direct", *flags
    )
    assert code == 0, document
    return document["step_s"]


def main() -> int:
    program = sys.argv[1] if len(sys.argv) > 1 else "build/release/cli/stretto"
    models = sys.argv[2:] or list(MODELS)
    print("model       ranks  row      simulated ms  replayed ms      off  within 5 %")
    failed = 0
    for model in models:
        for ranks, bits in RANKS.items():
            machine = f"{ranks}@{bits / 1e9:g}Gbit/s,50us"
            # The share of communication stays the same on every machine.
            compute = MODELS[model] * 4e9 / bits
            for row, flags in ROWS.items():
                summary, error = replay(program, model, machine, compute, flags, 4)
                if summary is None:
                    print(f"{model:11} {ranks:5}  {row:8} {error}")
                    failed = 1
                    continue
                predicted = simulated(program, model, machine, compute, flags)
                off = summary["step_s"] / predicted - 1
                failed |= abs(off) > 0.05
                print(
                    f"{model:11} {ranks:5}  {row:8} {predicted * 1e3:12.2f}  {summary['step_s'] * 1e3:11.2f}  "
                    f"{off * 100:+6.2f} %  {'yes' if abs(off) <= 0.05 else 'NO'}",
                    flush=True,
                )
    print("\nmodel       machine           best uniform  planned : uniform, medians of 5 interleaved pairs [spread]")
    for model, machine, compute in (("resnet50", "2@8Gbit/s,200us", 0.2), ("gpt2_124m", "2@8Gbit/s,200us", 1.0)):
        if model not in models:
            continue
        document, _ = run(
            program, "plan", model, "--machine", machine, "--compute-s", compute, "--algorithm", "direct", "--sweep"
        )
        best = min(document["sweep"], key=lambda point: point["step_s"])["cap_bytes"]
        ratios = []
        for _ in range(5):
            planned, _ = replay(program, model, machine, compute, ROWS["planned"], 6)
            uniform, _ = replay(program, model, machine, compute, ["--buckets", f"{best}"], 6)
            if planned and uniform:
                ratios.append(planned["step_s"] / uniform["step_s"])
        if ratios:
            print(
                f"{model:11} {machine:16}  {best / 2**20:8.2f} MiB  {statistics.median(ratios):.4f} "
                f"[{min(ratios):.4f}-{max(ratios):.4f}]"
            )
    return failed


if __name__ == "__main__":
    sys.exit(main())
