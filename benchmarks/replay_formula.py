#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays on emulated machines against the model the planner stands on.

For every case a profile's step is replayed with real ranks and real bytes, overlapped, and the end of its
communication is compared with

    comm_end = max(comm_end, ready_b) + 2 a + 2 (P-1)/P n_b/B      over buckets b in order of launch,

where ready_b is what the run recorded (the latest rank, median over steps), and the step with
max(compute_end, comm_end + the optimizer's time for the last bucket).

    replay_formula.py [PATH/TO/stretto]
"""

import json
import subprocess
import sys

CASES = [  # model, ranks, bit/s, latency s, total compute s
    ("resnet50", 2, 1e9, 50e-6, 0.6),
    ("resnet50", 4, 2e9, 50e-6, 0.4),
    ("resnet50", 8, 1e9, 50e-6, 1.2),
    ("resnet50", 2, 10e9, 20e-6, 0.12),
    ("vgg16", 2, 4e9, 50e-6, 0.8),
    ("bert_large", 2, 8e9, 50e-6, 1.5),
]


def main() -> int:
    program = sys.argv[1] if len(sys.argv) > 1 else "build/release/cli/stretto"
    print("model       ranks  Gbit/s  formula step ms  measured step ms  off      within 5 %")
    failed = 0
    for model, ranks, bits, latency, compute in CASES:
        machine = f"{ranks}@{bits / 1e9:g}Gbit/s,{latency * 1e6:g}us"
        command = [program, "replay", model, "--emulate", machine, "--compute-s", str(compute), "--schedule", "overlap",
                   "--steps", "10", "--warmup", "2", "--json"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        document = json.loads(run.stdout)
        if run.returncode != 0:
            print(f"{model:11} {ranks:5}  {bits / 1e9:6g}  {document['error']['message']}; found {document['error']['found']}")
            failed = 1
            continue
        summary = document["runs"][0]["summary"]
        rate = bits / 8
        end = 0.0
        for bucket in sorted(summary["buckets"], key=lambda b: b["launched_s"]):
            end = max(end, bucket["ready_s"]) + 2 * latency + 2 * (ranks - 1) / ranks * bucket["bytes"] / rate
        formula = max(summary["compute_s"], end)
        off = summary["step_s"] / formula - 1
        failed |= abs(off) > 0.05
        print(f"{model:11} {ranks:5}  {bits / 1e9:6g}  {formula * 1e3:15.2f}  {summary['step_s'] * 1e3:16.2f}  "
              f"{off * 100:+5.2f} %  {'yes' if abs(off) <= 0.05 else 'NO'}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
