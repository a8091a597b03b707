#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the schedule priority gains over overlap, and how far both are from their bounds.

Real ranks move real bytes over emulated machines; compute is waited for. For every model the compute is stretched so that
communication takes 0.5, 1 and 2 times as long. Both schedules run interleaved, planned buckets each, three times; medians.

    cross_iteration.py [PATH/TO/stretto] [RANKS] [MODEL...]
"""

import json
import statistics
import subprocess
import sys

MODELS = ["resnet50", "vgg16", "bert_large", "gpt2_124m"]
RATES = {2: 4e9, 4: 2e9, 8: 1e9}  # ranks -> bit/s: what two cores can emulate
RATIOS = [0.5, 1.0, 2.0]
ROUNDS = 3


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments), "--json"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout), done.returncode


def main() -> int:
    program = sys.argv[1] if len(sys.argv) > 1 else "build/release/cli/stretto"
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    models = sys.argv[3:] or MODELS
    machine = f"{ranks}@{RATES[ranks] / 1e9:g}Gbit/s,50us"
    print(f"{machine}; steps in ms, gap to the bound of the schedule in brackets")
    print("model       comm/compute  compute   overlap            priority           priority/overlap")
    failed = 0
    for model in models:
        # One bucket after backward costs the whole communication: its step less the compute.
        document, code = run(program, "simulate", model, "--machine", machine, "--compute-s", 1, "--schedule", "serial",
                             "--algorithm", "direct")
        assert code == 0, document
        communication = document["step_s"] - 1
        for ratio in RATIOS:
            compute = communication / ratio
            steps = {"overlap": [], "priority": []}
            gaps = {"overlap": [], "priority": []}
            error = None
            for _ in range(ROUNDS):
                for schedule in steps:
                    document, code = run(program, "replay", model, "--emulate", machine, "--compute-s", compute,
                                         "--schedule", schedule, "--buckets", "planned", "--steps", 5, "--warmup", 2)
                    if code != 0:
                        error = document["error"]["message"]
                        continue
                    summary = document["runs"][0]["summary"]
                    steps[schedule].append(summary["step_s"])
                    gaps[schedule].append(summary["bound_gap_ratio"])
            if not steps["overlap"] or not steps["priority"]:
                print(f"{model:11} {ratio:12g}  {error}")
                failed = 1
                continue
            overlap, priority = (statistics.median(steps[s]) for s in ("overlap", "priority"))
            gap = {s: statistics.median(gaps[s]) * 100 for s in gaps}
            print(
                f"{model:11} {ratio:12g} {compute * 1e3:8.1f}  {overlap * 1e3:8.1f} ({gap['overlap']:4.1f} %)  "
                f"{priority * 1e3:8.1f} ({gap['priority']:4.1f} %)  {priority / overlap:.3f}",
                flush=True,
            )
    return failed


if __name__ == "__main__":
    sys.exit(main())
