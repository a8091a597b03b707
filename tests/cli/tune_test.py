#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stretto tune` as its users meet it.

    STRETTO=build/dev/cli/stretto tests/cli/tune_test.py
"""

import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from cli_test import STRETTO, CliTest, parents, stretto

SHORT = ["--steps", 2, "--warmup", 1]


class Tune(CliTest):
    def program(self, *more):
        return ["--", "train", "-n", 2, "--data", self.data, "--layers", "784-64-64-10", "--batch", 16, *more]

    def tune(self, *arguments, program=(), **options):
        options.setdefault("timeout", 150)
        return stretto("tune", *SHORT, *arguments, *self.program(*program), **options)

    def test_the_grid_is_the_plain_experiment(self):
        plan, log = self.directory / "grid.json", self.directory / "grid.csv"
        grid = ["--grid", "buckets=8K,single,streams=1,4", "--log", log, "-o", plan, "--json"]
        document = self.result(self.tune(*grid))
        self.assertEqual(document["schema"], "stretto.tune/1")
        self.assertEqual(document["verdict"], "grid")
        rows = document["candidates"]
        self.assertEqual(
            sorted(row["setting"] for row in rows),
            sorted(f"buckets={b} streams={s}" for b in ("8K", "single") for s in (1, 4)),
        )
        for row in rows + [document["default"]]:
            self.assertEqual(len(row["trial_steps_s"]), 1)
            self.assertGreater(row["samples_per_s"], 0)
        quickest = min(rows + [document["default"]], key=lambda row: row["step_s"])
        self.assertEqual(document["setting"], quickest["setting"])
        # The plan says how it was found, and is a plan for all that.
        saved = json.loads(plan.read_text())
        self.assertEqual(saved["evidence"]["setting"], document["setting"])
        again = stretto("train", *self.program()[2:], "--steps", 2, "--plan", plan, "--json")
        self.assertEqual(again.returncode, 0, again.stdout)
        # The same command takes all trials from the log, in which a last line was cut off.
        with log.open("a") as lines:
            lines.write('17,"half a li')
        second = self.result(self.tune(*grid))
        self.assertEqual(second["trials_from_log"], 5)
        self.assertEqual(second["default"]["trial_steps_s"], document["default"]["trial_steps_s"])
        self.assertEqual(len(log.read_text().splitlines()), 6)

    def test_a_log_of_another_program_is_refused(self):
        log = self.directory / "other.csv"
        self.tune("--grid", "buckets=8K", "--log", log)
        error = self.error(self.tune("--grid", "buckets=8K", "--log", log, "--json", program=["--lr", 0.1]), 3)
        self.assertIn("another program", error["message"])
        log.write_text("not,a,log\n")
        self.assertIn("no log", self.error(self.tune("--log", log, "--json"), 3)["message"])

    def test_it_searches_and_says_what_it_decided(self):
        document = self.result(self.tune("--candidates", 2, "--budget", "40s", "--explain", "--json"))
        self.assertIn(document["verdict"], ("better", "noise", "stopped", "nothing"))
        self.assertGreater(document["combinations"], 20)
        chosen = document["setting"]
        if document["verdict"] == "better":
            self.assertGreater(document["gain"]["low"], 1.0)
            self.assertIn(chosen, [row["setting"] for row in document["candidates"]])
            self.assertEqual(document["explained"][0]["setting"], "default")
            self.assertEqual(document["explained"][-1]["setting"], chosen)
        else:
            self.assertEqual(chosen, "default")
        self.assertIn("stretto train", document["command"])

    def test_what_fails_is_reported_and_left_out(self):
        document = self.result(self.tune("--grid", "algorithm=direct,in_switch", "--json"))
        by_name = {row["setting"]: row for row in document["candidates"]}
        self.assertIsNone(by_name["algorithm=direct"]["error"])
        self.assertIn("in_switch", by_name["algorithm=in_switch"]["error"])
        self.assertIsNone(by_name["algorithm=in_switch"]["step_s"])
        done = self.tune(program=["--no-such-flag"])
        self.assertEqual(done.returncode, 1)
        self.assertIn("no flag", done.stderr)

    def test_wrong_usage(self):
        for arguments, words in (
            (["--grid", "bukets=1M"], "Did you mean 'buckets'"),
            (["--grid", "buckets=1X"], "'1X'"),
            (["--grid", "buckets=1M,1M"], "twice"),
            (["--fix", "streams=many"], "number of streams"),
            (["--fix", "streams"], "NAME=VALUE"),
            (["--env", "NAME"], "NAME=VALUE"),
            (["--codecs", "zip"], "zip"),
            (["--budget", "soon"], "soon"),
            (["--grid", "places=in_order"], "emulated"),
            (["--grid", "codec=fp16,ratio=0.1"], "one of them"),
        ):
            done = self.tune(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr, arguments)
        done = self.tune("-o", self.directory / "no" / "such" / "folder.json")
        self.assertEqual(done.returncode, 5)
        self.assertIn("could not be written", done.stderr)
        self.assertEqual(stretto("tune").returncode, 2)
        self.assertIn("replay, train, or run", stretto("tune", "--", "python3", "x.py").stderr)

    def test_a_script_gets_its_settings_in_the_environment(self):
        """Stands in for stretto.torch.DDP, whose own tests are in tests/python/ranks/test_runs.py."""
        source = self.directory / "source"
        done = self.train("-n", 2, "--steps", 2, "--json", "--timeline", f"{source}.t", "--save-plan", f"{source}.p")
        summary = json.dumps(self.result(done)["runs"][0]["summary"])
        pathlib.Path(f"{source}.s").write_text(summary)
        seen = self.directory / "seen.txt"
        script = (
            f'[ $RANK = 0 ] || exec sleep 60; echo "$STRETTO_STREAMS $COLOUR $STRETTO_TRIAL_STEPS" >> {seen}; '
            f"cp {source}.t $STRETTO_TRIAL/timeline.json; cp {source}.p $STRETTO_TRIAL/plan.json; "
            f"cp {source}.s $STRETTO_TRIAL/summary.json; touch $STRETTO_TRIAL/done; exec sleep 60"
        )
        begin = time.monotonic()
        done = stretto(
            "tune", "--grid", "streams=3,COLOUR=red", "--env", "COLOUR=red,blue", "--steps", 7, "--json",
            "--", "run", "-n", 2, "--", "sh", "-c", script, timeout=120,
        )  # fmt: skip
        document = self.result(done)
        self.assertLess(time.monotonic() - begin, 50)  # nobody waited for the sleeps
        self.assertEqual(document["candidates"][0]["setting"], "streams=3 COLOUR=red")
        self.assertIn("3 red 7", seen.read_text().splitlines())
        failing = stretto("tune", "--", "run", "-n", 1, "--", "sh", "-c", "echo no luck >&2; exit 3")
        self.assertEqual(failing.returncode, 1)
        self.assertIn("no luck", failing.stderr)

    def test_interrupted_it_leaves_a_log_to_go_on_from(self):
        log = self.directory / "interrupted.csv"
        arguments = ["tune", *SHORT, "--grid", "buckets=8K,16K,32K,64K,128K,single", "--log", log, "--json"]
        tuning = subprocess.Popen(
            [STRETTO, *map(str, arguments + self.program())],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        deadline = time.monotonic() + 100
        while not log.exists() or len(log.read_text().splitlines()) < 3:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        tuning.send_signal(signal.SIGINT)
        output, errors = tuning.communicate(timeout=30)
        self.assertEqual(tuning.returncode, 130, errors)
        self.assertEqual(json.loads(output)["error"]["code"], "interrupted")
        self.assertNotIn(tuning.pid, parents().values())
        lines = log.read_text().splitlines()
        self.assertGreaterEqual(len(lines), 3)
        self.assertTrue(all(line.count(",") >= 10 for line in lines))


if __name__ == "__main__":
    unittest.main()
