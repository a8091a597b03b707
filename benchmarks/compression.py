#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What codecs lose and gain in a training: loss, bytes and time of a step, on an emulated slow link.

    compression.py [--stretto PATH] [--machine M] [--steps N] [--rounds N] [CODEC...]

Each row is `stretto train --emulate M --compress CODEC --steps N` on Fashion-MNIST, rate 0.15, no momentum; rounds
have seeds 1, 2, ... and all rows one after the other. Printed are medians over rounds, with the lowest and the highest:
loss and accuracy at the end (which depend on the seed only), bytes that rank 0 sent per step, the step, and the step
as a part of that of `none` in the same round, of the rounds in which the host was not too late for the emulated
machine. About three minutes per round on two cores that do nothing else.
"""

import argparse
import json
import statistics
import subprocess
import sys

TRIES = 3
CODECS = ["none", "fp16", "int8", "onebit", "topk:0.001", "topk:0.01", "topk:0.1", "threshold:0.002", "threshold:0.01"]
CODECS += ["threshold:3rms", "threshold:6rms", "powersgd:4"]


def train(program, machine, steps, seed, codec):
    """The document, and whether its times are the emulated machine's: where the host is too late for that, tried again,
    which the next time it need not be; in the end without a machine."""
    command = [program, "train", "--compress", codec, "--steps", steps, "--seed", seed, "--buckets", "4M"]
    command += ["--lr", "0.15", "--momentum", "0", "--json"]
    ranks = ["-n", machine.split("@")[0]]
    for emulated in [["--emulate", machine]] * TRIES + [ranks]:
        done = subprocess.run(
            [str(part) for part in command + emulated], capture_output=True, text=True, check=False
        )
        if not done.stdout.strip():
            sys.exit(f"{codec}: {done.stderr.strip()}")
        document = json.loads(done.stdout)
        if done.returncode == 0:
            return document, emulated != ranks
        print(f"  {document['error']['message']}", file=sys.stderr)
    sys.exit(f"{codec}: {document['error']['message']}")


def step_s(document):
    return document["runs"][0]["summary"]["step_s"]


def final(document, what):
    return document["runs"][0][what]


def sent_bytes(document):
    """Of rank 0, per step. Without a codec: what a direct exchange of all gradients sends."""
    compression = document.get("compression")
    if compression is not None:
        return compression["sent_bytes"]
    ranks = document["ranks"]
    return 2 * (ranks - 1) / ranks * sum(b["bytes"] for b in document["runs"][0]["summary"]["buckets"])


def spread(values, text):
    middle = text.format(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} [{text.format(min(values))} to {text.format(max(values))}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stretto", default="build/release/cli/stretto")
    parser.add_argument("--machine", default="2@500Mbit/s,50us")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("codecs", nargs="*", default=CODECS, metavar="CODEC")
    options = parser.parse_args()
    rows = ["none"] + [codec for codec in options.codecs if codec != "none"]
    found = {codec: [] for codec in rows}
    for seed in range(1, options.rounds + 1):
        for codec in rows:
            print(f"round {seed}: {codec}", file=sys.stderr)
            found[codec].append(train(options.stretto, options.machine, options.steps, seed, codec))
    print(f"{options.machine}, {options.steps} steps, {options.rounds} rounds: median [lowest to highest]\n")
    print("| `--compress` | sent per step | last loss | accuracy | step | to none |\n|---|---|---|---|---|---|")
    for codec in rows:
        runs = [run for run, _ in found[codec]]
        pairs = [(step_s(run), step_s(none)) for (run, ok), (none, fine) in zip(found[codec], found["none"]) if ok and fine]
        times = "host too late | "
        if pairs:
            times = spread([step * 1e3 for step, _ in pairs], "{:.1f}") + " ms | "
            times += spread([step / none for step, none in pairs], "{:.2f}")
        print(
            f"| `{codec}` | {spread([sent_bytes(run) / 1024 for run in runs], '{:.0f}')} KiB"
            f" | {spread([final(run, 'loss') for run in runs], '{:.4f}')}"
            f" | {spread([final(run, 'accuracy') for run in runs], '{:.4f}')} | {times} |"
        )


if __name__ == "__main__":
    main()
