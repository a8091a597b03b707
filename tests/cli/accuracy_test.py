#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains to an accuracy that only a network that really learns reaches.

    STRETTO=build/dev/cli/stretto tests/cli/accuracy_test.py
"""

import json
import os
import subprocess
import unittest


class Accuracy(unittest.TestCase):
    def test_five_epochs_on_two_ranks(self):
        command = [os.environ["STRETTO"], "train", "-n", "2", "--layers", "784-512-512-10"]
        command += ["--batch", "64", "--epochs", "5", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        run = json.loads(done.stdout)["runs"][0]
        self.assertGreaterEqual(run["accuracy"], 0.88)


if __name__ == "__main__":
    unittest.main()
