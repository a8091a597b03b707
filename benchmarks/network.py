#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce between two hosts at 1 Gbit/s: ours over each MPI, that MPI's own, and iperf3, in turns.

    benchmarks/network.py BUILD_FOLDER [ROUNDS [LEAST [MOST]]]      (as root, for network namespaces)

Prints a table of medians of rounds in microseconds, [least, most] of them, and the processor time as a
share of one core; and the wire's rate as iperf3 sees it.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/comm/mpi"))
import network  # noqa: E402
from launchers import LAUNCHERS  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
# What runs beside us on this machine should not be what is measured.
PRIORITY = ["setsid", "-w", "sh", "-c", 'echo -19 > /proc/self/autogroup; exec "$@"', "rank"]


def iperf3(net):
    server = subprocess.Popen(net.on(1, "iperf3", "-s", "-1"), stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        done = subprocess.run(
            net.on(0, "iperf3", "-c", net.address(1), "-t", "3", "-O", "1", "-J"), capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8
    finally:
        server.wait(timeout=10)


def run(net, launcher, *command):
    done = subprocess.run(
        net.mpirun(launcher, 1, *PRIORITY, *command),
        env=net.environment(launcher, **launcher.survive_variables),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    rows = [line.split(",") for line in done.stdout.splitlines() if line.endswith(",ok")]
    if not rows:
        raise SystemExit(done.stdout + done.stderr)
    return {int(row[0]): (float(row[1]), float(row[4])) for row in rows}


def main(build, rounds="3", least="4", most="67108864"):
    ours = str(pathlib.Path(build).resolve() / "benchmarks/bench_mpi_all_reduce")
    results, wire = {}, []
    with tempfile.TemporaryDirectory() as folder, network.Network(["1gbit", "1gbit"]) as net:
        commands = []
        for launcher in LAUNCHERS:
            peer = f"{folder}/{launcher.name}"
            subprocess.run([f"mpicxx.{launcher.name}", "-O2", "-o", peer, HERE / "mpi_peer.cpp"], check=True)
            commands += [
                (f"{launcher.name} itself", launcher, [peer, least, most, "0.5"]),
                (f"stretto, {launcher.name}", launcher, [ours, "auto", least, most, "0.5"]),
                (f"stretto, {launcher.name}, background", launcher, [ours, "--background", "auto", least, most, "0.5"]),
            ]
        for _ in range(int(rounds)):
            wire.append(iperf3(net))
            for name, launcher, command in commands:
                for size, row in run(net, launcher, *command).items():
                    results.setdefault(size, {}).setdefault(name, []).append(row)
    print(f"iperf3: {statistics.median(wire) / 1e6:.1f} MB/s [{min(wire) / 1e6:.1f}, {max(wire) / 1e6:.1f}]\n")
    names = [name for name, _, _ in commands]
    print("| bytes | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 1))
    for size, row in results.items():
        cells = []
        for name in names:
            times = [time_us for time_us, _ in row[name]]
            share = statistics.median(share for _, share in row[name])
            cells.append(f"{statistics.median(times):.0f} [{min(times):.0f}, {max(times):.0f}], {share:.2f} core")
        print(f"| {size} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(*sys.argv[1:])
