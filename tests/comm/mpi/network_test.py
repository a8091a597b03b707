#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Backend mpi between hosts: network namespaces joined by shaped links.

    network_test.py openmpi|mpich

STRETTO_MPI_RANKS names the program of ranks_test.cpp, STRETTO_MODULES the folder of the modules.
"""

import os
import re
import signal
import subprocess
import sys
import time
import unittest

import network
from launchers import LAUNCHERS

RANKS = os.environ["STRETTO_MPI_RANKS"]
MODULES = os.environ["STRETTO_MODULES"]
REPORT = re.compile(r"^rank (\d+): (\w+): (.*)$", re.M)
FAST = "1gbit"
SLOW = "200mbit"
# What crosses the wire in every way there is; the whole suite runs on one host.
SUITE = "--gtest_filter=Mpi.*:*LargePrivate*:*EveryAlgorithmGives*:*UnequalBlocks*"


def bytes_sent(net, node):
    text = network.ip("-s", "-n", net.namespace(node), "link", "show", "net0").stdout
    return int(re.search(r"TX:.*\n\s*(\d+)", text)[1])


class BetweenHosts(unittest.TestCase):
    launcher = None

    def run_on(self, net, ranks_per_node, *command, survive=False, timeout=150, meanwhile=None):
        """mpirun's exit code (None: it did not end, once it has lost a node or a rank) and its output."""
        more = self.launcher.survive_variables
        process = subprocess.Popen(
            net.mpirun(self.launcher, ranks_per_node, *command, survive=survive),
            env=net.environment(self.launcher, **more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            if meanwhile:
                meanwhile()
            output, _ = process.communicate(timeout=timeout)
            return process.returncode, output
        except subprocess.TimeoutExpired as expired:
            if not survive:
                raise
            return None, (expired.output or b"").decode()
        finally:
            process.kill()

    def test_two_hosts(self):
        with network.Network([FAST, FAST]) as net:
            before = [bytes_sent(net, node) for node in (0, 1)]
            code, output = self.run_on(net, 1, RANKS, "--gtest_color=no", SUITE)
            self.assertEqual(code, 0, output)
            self.assertIn("[  PASSED  ]", output)
            for node in (0, 1):
                # 8 MB of floats there and back, to name one test.
                self.assertGreater(bytes_sent(net, node) - before[node], 8_000_000)

    def test_two_fast_hosts_of_two_ranks_and_a_slow_one(self):
        with network.Network([FAST, FAST, SLOW]) as net:
            filters = "--gtest_filter=*EveryAlgorithmGives*:Mpi.ManyInFlight*:Mpi.MessagesOfOneAddress*"
            code, output = self.run_on(net, 2, RANKS, "--gtest_color=no", filters)
            self.assertEqual(code, 0, output)
            self.assertIn("[  PASSED  ]", output)

    def reports(self, output):
        return {int(rank): (code, message) for rank, code, message in REPORT.findall(output)}

    def test_a_rank_killed_on_another_host_is_named(self):
        with network.Network([FAST, FAST]) as net:
            _, output = self.run_on(net, 1, RANKS, "--fail", "kill", survive=True, timeout=20)
        reports = self.reports(output)
        self.assertEqual(reports.get(0, ("nothing", ""))[0], "peer_lost", output)
        self.assertIn("rank 1 (pid", reports[0][1])
        self.assertIn("node1", reports[0][1])

    def test_a_link_that_goes_down_is_no_hang(self):
        with network.Network([FAST, FAST, FAST]) as net:

            def cut():
                # Once the ranks reduce: the link is busy.
                before = bytes_sent(net, 1)
                for _ in range(200):
                    time.sleep(0.1)
                    if bytes_sent(net, 1) - before > 3_000_000:
                        break
                network.ip("-n", net.namespace(1), "link", "set", "net0", "down")

            _, output = self.run_on(net, 1, RANKS, "--fail", "for-ever", survive=True, timeout=25, meanwhile=cut)
        reports = self.reports(output)
        named = [m for rank, (code, m) in reports.items() if rank != 1 and code == "peer_lost" and "rank 1 (pid" in m]
        self.assertTrue(named, output)


class CleanUp(unittest.TestCase):
    def test_nothing_is_left_after_ctrl_c(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            code = (
                "import sys, time; sys.path.insert(0, sys.argv[1]); import network\n"
                "with network.Network(['1gbit', '1gbit']) as net:\n"
                "    print(net.name, flush=True); time.sleep(60)\n"
            )
            process = subprocess.Popen(
                [sys.executable, "-c", code, os.path.dirname(__file__)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            name = process.stdout.readline().strip()
            self.assertIn(name, network.ip("netns", "list").stdout)
            process.send_signal(number)
            process.wait(timeout=30)
            process.stdout.close()
            self.assertNotIn(name, network.ip("netns", "list").stdout)


def main(name):
    BetweenHosts.launcher = next(each for each in LAUNCHERS if each.name == name)
    missing = network.missing() or BetweenHosts.launcher.missing(MODULES)
    if missing:
        print(f"skipped: {missing}")
        return 77
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
