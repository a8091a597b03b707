#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Backend mpi under mpirun: what succeeds, what fails, and the program.

    mpi_test.py openmpi|mpich|none    with one MPI, or without mpirun

STRETTO_MPI_RANKS names the program of ranks_test.cpp, STRETTO_MODULES the folder of the modules,
STRETTO the command-line program (optional).
"""

import json
import os
import re
import subprocess
import sys
import unittest

from launchers import LAUNCHERS

RANKS = os.environ["STRETTO_MPI_RANKS"]
MODULES = os.environ["STRETTO_MODULES"]
STRETTO = os.environ.get("STRETTO")
REPORT = re.compile(r"^rank (\d+): (\w+): (.*)$", re.M)


class UnderMpirun(unittest.TestCase):
    launcher = None

    def fail_by(self, scenario, ranks=3, **options):
        """{rank: (code, message)} of the ranks that reported."""
        done = self.launcher.run(ranks, RANKS, "--fail", scenario, **options)
        self.output = done.stdout + done.stderr
        self.assertNotIn("used again", self.output)
        return {int(rank): (code, message) for rank, code, message in REPORT.findall(done.stdout)}

    def test_ranks(self):
        for ranks in (1, 3):  # two and six run between hosts
            with self.subTest(ranks=ranks):
                done = self.launcher.run(ranks, RANKS, "--gtest_color=no", timeout=170)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("[  PASSED  ]", done.stdout)

    def test_ranks_that_disagree_on_a_size_name_both_sides(self):
        for scenario in ("mismatch-short", "mismatch-long", "mismatch-both", "mismatch-type"):
            with self.subTest(scenario):
                reports = self.fail_by(scenario)
                self.assertEqual(sorted(reports), [0, 1, 2], self.output)
                self.assertEqual({code for code, _ in reports.values()}, {"mismatch"})
                both = [m for _, m in reports.values() if m.count("rank ") >= 2 and "as on rank" in m]
                self.assertTrue(both, self.output)

    def test_an_abort_reaches_all_with_its_reason(self):
        for scenario in ("abort", "abort-while-idle"):
            with self.subTest(scenario):
                reports = self.fail_by(scenario)
                self.assertEqual(sorted(reports), [0, 1, 2], self.output)
                self.assertEqual({code for code, _ in reports.values()}, {"never_ready"})
                for rank in (0, 2):
                    self.assertRegex(reports[rank][1], r"rank 1 .*step 5, bucket 3")
                self.assertIn("tensor 'w'", reports[1][1])

    def test_a_rank_that_leaves_is_named(self):
        reports = self.fail_by("leave")
        for rank in (0, 2):
            self.assertEqual(reports[rank][0], "peer_lost", self.output)
            self.assertIn("rank 1 (pid", reports[rank][1])

    def test_a_killed_rank_is_a_typed_error_on_all_others(self):
        reports = self.fail_by("kill", survive=True, timeout=60)
        self.assertEqual(sorted(reports), [0, 2], self.output)
        for code, message in reports.values():
            self.assertEqual(code, "peer_lost", self.output)
            self.assertIn("rank 1 (pid", message)

    def test_a_rank_that_never_comes_is_waited_for_no_longer_than_the_time_out(self):
        reports = self.fail_by("never-comes", timeout=60)
        self.assertEqual({reports[0][0], reports[2][0]}, {"timeout"}, self.output)
        self.assertTrue(any("nothing from rank 1" in message for _, message in reports.values()), self.output)

    def stretto(self, ranks, *arguments):
        if not STRETTO:
            self.skipTest("the program is not part of this build")
        return self.launcher.run(ranks, STRETTO, *arguments)

    def test_train(self):
        done = self.stretto(2, "train", "--backend", "mpi", "--steps", "3", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        document = json.loads(done.stdout)  # and so there is one
        self.assertEqual((document["backend"], document["ranks"]), ("mpi", 2))
        shm = self.shm_weights("train", "--steps", "3")
        self.assertEqual(document["runs"][0]["weights_hash"], shm)

    def shm_weights(self, *arguments):
        done = subprocess.run(
            [STRETTO, *arguments, "-n", "2", "--json"],
            env=self.launcher.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return json.loads(done.stdout)["runs"][0]["weights_hash"]

    def test_replay(self):
        done = self.stretto(3, "replay", "resnet50", "--compute-s", "0.02", "--backend", "mpi", "--steps", "2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("exposed communication:"), 1)

    def test_an_error_of_one_rank_is_said_by_that_rank(self):
        done = self.stretto(2, "train", "--backend", "mpi", "--steps", "3", "--data", "/nowhere")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("error[unavailable]: the Fashion-MNIST data set cannot be read", done.stderr)
        self.assertNotIn("another rank stopped the job", done.stderr)


class WithoutMpirun(unittest.TestCase):
    def setUp(self):
        if not STRETTO:
            self.skipTest("the program is not part of this build")

    def run_stretto(self, *arguments, **more):
        return subprocess.run(
            [STRETTO, *arguments],
            env=LAUNCHERS[0].environment(**more),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def test_it_says_how_to_start(self):
        done = self.run_stretto("train", "--backend", "mpi", "-n", "3")
        self.assertEqual(done.returncode, 5)
        self.assertIn("mpirun -n 3 stretto train --backend mpi", done.stderr)

    def test_a_module_that_is_missing_is_named(self):
        done = self.run_stretto(
            "train", "--backend", "mpi", OMPI_COMM_WORLD_SIZE="1", OMPI_COMM_WORLD_RANK="0", STRETTO_MPI="/nowhere.so"
        )
        self.assertEqual(done.returncode, 5)
        self.assertIn("/nowhere.so", done.stderr)
        done = self.run_stretto(
            "train", "--backend", "mpi", OMPI_COMM_WORLD_SIZE="1", OMPI_COMM_WORLD_RANK="0", STRETTO_MPI="lam"
        )
        self.assertIn("openmpi, mpich, or the path of a module", done.stderr)


def main(name):
    case = WithoutMpirun
    if name != "none":
        case = UnderMpirun
        case.launcher = next(each for each in LAUNCHERS if each.name == name)
        missing = case.launcher.missing(MODULES)
        if missing:
            print(f"skipped: {missing}")
            return 77
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
