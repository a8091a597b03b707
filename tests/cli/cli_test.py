#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program as its users meet it: exit codes, messages, streams, dead ranks.

    STRETTO=build/dev/cli/stretto tests/cli/cli_test.py
"""

import gzip
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest

STRETTO = os.environ["STRETTO"]
ERROR_KEYS = {"code", "message", "where", "found", "expected", "help"}


def stretto(*arguments, **options):
    options.setdefault("timeout", 60)
    return subprocess.run([STRETTO, *map(str, arguments)], capture_output=True, text=True, **options)


def parents():
    """Process id -> parent's, of all processes that are not zombies."""
    result = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] != "Z":
                result[int(entry.name)] = int(fields[1])
    return result


def ranks_of(launcher):
    """Rank -> process id, of the ranks that a running launcher has started."""
    result = {}
    for pid, parent in parents().items():
        if parent == launcher:
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            for variable in environment:
                if variable.startswith(b"STRETTO_RANK="):
                    result[int(variable.partition(b"=")[2])] = pid
    return result


def write_idx(path, shape, values):
    header = bytes([0, 0, 8, len(shape)]) + b"".join(struct.pack(">I", extent) for extent in shape)
    path.write_bytes(gzip.compress(header + values, compresslevel=1))


class CliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.directory = pathlib.Path(cls.temporary.name)
        # A tiny data set of the same form: class k is bright in row k.
        cls.data = cls.directory / "data"
        cls.data.mkdir()
        for prefix, count in (("train", 512), ("t10k", 64)):
            labels = bytes(i * 7 % 10 for i in range(count))
            images = bytearray()
            for label in labels:
                image = bytearray(28 * 28)
                image[28 * label : 28 * (label + 1)] = b"\xff" * 28
                images += image
            write_idx(cls.data / f"{prefix}-images-idx3-ubyte.gz", [count, 28, 28], bytes(images))
            write_idx(cls.data / f"{prefix}-labels-idx1-ubyte.gz", [count], labels)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def train(self, *arguments, **options):
        small = ["--data", self.data, "--layers", "784-64-64-10", "--batch", 16]
        return stretto("train", *small, *arguments, **options)

    def result(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def error(self, done, code):
        """The error of a --json run, after checking that it is all of stdout."""
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(document["schema"], "stretto.error/1")
        self.assertEqual(set(document["error"]), ERROR_KEYS)
        return document["error"]


class Usage(CliTest):
    def test_wrong_usage_is_exit_2_and_says_what_was_meant(self):
        for arguments, expected in (
            ([], "no command"),
            (["trai"], "Did you mean 'train'"),
            (["train", "--bucket", "4M"], "Did you mean '--buckets'"),
            (["train", "--buckets", "4Q"], "--buckets"),
            (["train", "--schedule", "seriel"], "serial"),
            (["train", "--steps", "many"], "--steps"),
            (["train", "--steps", "3", "--epochs", "2"], "--epochs"),
            (["train", "--layers", "784-x-10"], "784-x-10"),
            (["train", "--layers", "100-10", "-n", "1"], "784 inputs"),
            (["train", "extra"], "extra"),
            (["train", "--emulate", "2@fast"], "fast"),
            (["train", "-n", "3", "--emulate", "2@1Gbit/s,50us"], "machine of 2"),
            (["train", "--plan", "/nonexistent.json"], "/nonexistent.json"),
            (["train", "--timeout", "soon"], "--timeout"),
            (["train", "--timeout", "0s"], "above 0"),
            (["train", "--seed", "-1"], "--seed"),
            (["doctor", "--hosts", "5"], "--topology"),
            (["doctor", "--order", "/nonexistent.txt"], "--order /nonexistent.txt"),
            (["replay"], "PROFILE"),
            (["replay", "resnet5"], "Did you mean 'resnet50'"),
            (["replay", "resnet50", "--compute", "run"], "wait or busy"),
            (["run", "-n", "2"], "no program"),
            (["run", "--", "true"], "ranks"),
        ):
            with self.subTest(arguments=arguments):
                done = stretto(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertTrue(done.stderr.startswith("error[invalid_argument]: "), done.stderr)
                self.assertIn(expected, done.stderr)

    def test_help_and_version(self):
        for arguments in (["--help"], ["train", "--help"], ["replay", "--help"], ["run", "--help"],
                          ["measure", "--help"], ["doctor", "--help"]):
            done = stretto(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertGreaterEqual(done.stdout.count("  stretto "), 3, "three examples")
        self.assertRegex(stretto("--version").stdout, r"^stretto \d+\.\d+\.\d+\n$")

    def test_json_on_failure_is_one_document(self):
        self.assertEqual(self.error(stretto("train", "--nope", "--json"), 2)["code"], "invalid_argument")
        self.assertEqual(self.error(stretto("trai", "--json"), 2)["code"], "invalid_argument")
        missing = stretto("train", "-n", 2, "--data", "/nonexistent", "--json")
        error = self.error(missing, 5)
        self.assertEqual(error["code"], "unavailable")
        self.assertIn("apt-get install dataset-fashion-mnist", error["help"])
        self.assertEqual(missing.stderr, "")

    def test_what_this_build_has_not(self):
        missing = self.error(stretto("train", "--backend", "nccl", "--json"), 5)
        self.assertEqual((missing["found"], missing["expected"]), ("nccl", "shm or mpi"))
        # MPI's ranks are mpirun's to start.
        alone = self.error(stretto("train", "--backend", "mpi", "--json"), 5)
        self.assertIn("mpirun -n 2 stretto train --backend mpi", alone["help"])
        planned = self.error(stretto("train", "--buckets", "planned", "--json"), 2)
        self.assertIn("stretto plan", planned["help"])

    def test_bad_files_are_exit_3(self):
        broken = self.directory / "broken.json"
        broken.write_text('{"schema": "stretto.plan/1", "bukets": []}')
        for arguments in (
            ["train", "--plan", broken],
            ["replay", broken],
            ["train", "--emulate", broken],
            ["train", "-n", 1, "--baseline", broken],
            ["train", "-n", 1, "--rank-map", broken],
        ):
            with self.subTest(arguments=arguments):
                error = self.error(stretto(*arguments, "--json"), 3)
                self.assertEqual(error["code"], "parse")
                self.assertIn(str(broken), error["where"])

    def test_damaged_data_is_exit_3(self):
        damaged = self.directory / "damaged"
        damaged.mkdir()
        for file in self.data.iterdir():
            (damaged / file.name).write_bytes(file.read_bytes()[:-100])
        self.assertEqual(self.error(stretto("train", "--data", damaged, "--json"), 3)["code"], "parse")

    def test_a_reader_that_has_gone_is_no_error(self):
        for arguments in (["--help"], ["train", "--data", self.data, "--steps", 1, "-n", 1]):
            read, write = os.pipe()
            os.close(read)
            done = subprocess.run(
                [STRETTO, *map(str, arguments)], stdout=write, stderr=subprocess.PIPE, timeout=60
            )
            os.close(write)
            self.assertEqual((done.returncode, done.stderr), (0, b""))


def kineto(rank=0, world_size=2, late=0, names=("ncclDevKernel_AllReduce_Sum_f32_RING_LL",)):
    """Three steps of 1000 us: 300 of compute, then 200 of all_reduce, of which 100 beside compute."""
    events = []
    correlation = 0
    for step in range(3):
        at = 10_000 + 1000 * step
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step + 1}",
                       "pid": 9, "tid": 9, "ts": at - 500, "dur": 990, "args": {}})
        kernels = [("gemm", 0, 300, 7), (names[0], 200 + late, 200 - late, 20), ("sgd", 900, 100, 7)]
        for name, begin, length, stream in kernels:
            correlation += 1
            args = {"device": 0, "stream": stream, "correlation": correlation}
            if name == names[0]:
                args |= {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000,
                         "dtype": "Float", "Group size": world_size, "Process Group Name": "0"}
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
                           "ts": at - 400 + correlation, "dur": 1, "args": {"correlation": correlation}})
            events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream,
                           "ts": at + begin, "dur": length, "args": args})
    return {"schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size},
            "traceEvents": events}


class Measure(CliTest):
    QUICK = ["-b", "4", "-e", "64K", "-f", "128", "-n", "3", "-w", "1", "--budget", "0"]

    def measure(self, *arguments):
        return stretto("measure", *arguments)

    def test_the_fixed_keys(self):
        result = self.result(self.measure("all_reduce", *self.QUICK, "--json"))
        self.assertEqual("stretto.measure/1", result["schema"])
        self.assertEqual(("all_reduce", "shm", 2), (result["op"], result["backend"], result["ranks"]))
        self.assertEqual([4, 512, 65536], [row["size_bytes"] for row in result["rows"]])
        for row in result["rows"]:
            self.assertEqual(("auto", "f32", "arena", 0),
                             (row["algorithm"], row["dtype"], row["buffers"], row["wrong"]))
            self.assertLessEqual(row["time_p10_s"], row["time_s"])
            self.assertLessEqual(row["time_s"], row["time_p90_s"])
            self.assertAlmostEqual(row["size_bytes"] / row["time_s"], row["algbw_bytes_per_s"], delta=1)
            self.assertAlmostEqual(row["algbw_bytes_per_s"], row["busbw_bytes_per_s"], delta=1)  # 2 ranks
        self.assertGreater(result["fit"]["latency_s"], 0)
        self.assertGreater(result["fit"]["bandwidth_bytes_per_s"], 0)
        self.assertEqual(["node"], [level["name"] for level in result["fit"]["levels"]])

    def test_columns_and_footer_of_nccl_tests(self):
        done = self.measure("reduce_scatter", *self.QUICK, "-g", "3", "-d", "half,int64", "-o", "max",
                            "--algorithm", "direct,ring", "--buffers", "both")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual("", done.stderr)
        rows = [line.split() for line in done.stdout.splitlines() if line and line[0] == " "]
        self.assertEqual(3 * 2 * 2 * 2, len(rows))
        self.assertEqual(["4", "2", "half", "max", "-1"], rows[0][:5])
        self.assertEqual({"0"}, {row[8] for row in rows})
        self.assertRegex(done.stdout, r"(?m)^# +size +count +type +redop +root +time +algbw +busbw +#wrong")
        self.assertRegex(done.stdout, r"(?m)^# Out of bounds values : 0 OK$")
        self.assertRegex(done.stdout, r"(?m)^# Avg bus bandwidth    : [0-9.]+$")

    def test_rows_are_written_as_they_are_measured(self):
        command = [STRETTO, "measure", "all_reduce", "-b", "8", "-e", "1G", "-f", "2", "--max-iters", "1000000",
                   "--precision", "0", "--budget", "1s", "--no-fit"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sweep:
            lines = [sweep.stdout.readline() for _ in range(6)]  # a comment's three, columns, the first row
            sweep.send_signal(signal.SIGINT)
            rest, _ = sweep.communicate(timeout=60)
        self.assertEqual(["8", "2", "float"], lines[5].split()[:3])
        self.assertNotIn("Avg bus bandwidth", rest)  # it was far from its end
        self.assertEqual(130, sweep.returncode)

    def test_the_machine_is_a_file_that_plan_takes(self):
        machine = self.directory / "measured.json"
        for _ in range(3):
            done = self.measure("all_reduce", *self.QUICK, "--emulate", "4@1Gbit/s,50us", "-o", machine, "--json")
            if "cannot keep up" not in done.stdout:
                break
        else:
            self.skipTest("this host was too busy for an emulated machine, three times")
        measured = self.result(done)
        self.assertEqual([str(machine)], measured["files"])
        written = json.loads(machine.read_text())
        self.assertEqual(written, measured["machine"])
        self.assertEqual("measured", written["basis"])
        self.assertIn("emulated", written["source"])
        self.assertEqual(4, written["levels"][0]["group_size"])
        self.assertEqual(["auto"], [curve["algorithm"] for curve in written["curves"]])
        # The emulated clock is never early: no less than the machine's latency, no more than its rate.
        self.assertGreater(measured["fit"]["latency_s"], 45e-6)
        self.assertLess(measured["fit"]["bandwidth_bytes_per_s"], 1.1 * 125e6)
        plan = self.result(stretto("plan", "resnet50", "--machine", machine, "--json"))
        self.assertEqual(4, plan["ranks"])

    def test_levels(self):
        result = self.result(self.measure("all_gather", *self.QUICK, "--levels", "2x2", "-g", "4", "--json"))
        self.assertEqual([2, 2], [level["group_size"] for level in result["machine"]["levels"]])
        self.assertEqual([1, 2], [level["ranks_sharing"] for level in result["fit"]["levels"]])

    def test_overlap_has_the_columns_of_osu(self):
        arguments = ["all_reduce", "-b", "256K", "-e", "256K", "-n", "3", "--budget", "0", "--overlap"]
        done = self.measure(*arguments)
        self.assertEqual(0, done.returncode, done.stderr)
        for column in ("Overall(us)", "Compute(us)", "Pure-Comm(us)", "Overlap(%)"):
            self.assertIn(column, done.stdout)
        row = self.result(self.measure(*arguments, "--json"))["rows"][0]
        overlap = 1 - (row["overall_s"] - row["compute_s"]) / row["pure_communication_s"]
        self.assertAlmostEqual(min(1, max(0, overlap)), row["overlap_ratio"])

    def test_wrong_usage(self):
        for arguments, expected in (
            ([], "all_reduce"),
            (["allreduce"], "Did you mean 'all_reduce'"),
            (["all_reduce", "-b", "1G", "-e", "1M"], "Swap them"),
            (["all_reduce", "-o", "prod"], "sum, avg"),
            (["all_reduce", "-d", "fp8"], "bfloat16"),
            (["all_reduce", "-f", "1"], "above 1"),
            (["all_reduce", "-i", "0"], "1 byte or more"),
            (["all_reduce", "-i", "1K", "-f", "2"], "--stepfactor excludes --stepbytes"),
            (["all_reduce", "-b", "0"], "1 byte or more"),
            (["all_reduce", "--buffers", "heap"], "arena, private or both"),
            (["all_reduce", "--levels", "2by2"], "2x4"),
            (["all_reduce", "--levels", "3x2", *self.QUICK], "6"),
            (["all_reduce", "--algorithm", "rign"], "ring"),
            (["all_reduce", "-g", "1", "-o", "m.json", *self.QUICK], "2 or more"),
            (["sendrecv", "-g", "1", *self.QUICK], "2 or more"),
            (["broadcast", "-r", "5", *self.QUICK], "0 to 1"),
        ):
            with self.subTest(arguments=arguments):
                done = self.measure(*arguments)
                self.assertEqual(2, done.returncode, done.stdout + done.stderr)
                self.assertIn(expected, done.stderr)
                self.assertEqual("", done.stdout)


class Codecs(CliTest):
    """What codecs cost, from measuring to choosing."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.machine = cls.directory / "codecs.json"
        cls.profile = cls.directory / "steep.json"
        tensors = [{"name": f"t{i}.weight", "dtype": "f32", "shape": [262144], "ready_s": 0.002 + 0.001 * i}
                   for i in range(4)]
        cls.profile.write_text(json.dumps({
            "schema": "stretto.step_profile/1", "model": "steep", "batch": 1, "basis": "assumed", "assumptions": "", "beside_communication": False,
            "forward": [{"name": "layer", "forward_s": 0.001}], "forward_end_s": 0.001,
            "backward_end_s": 0.006, "compute_end_s": 0.006, "tensors": tensors}))

    def rates(self, machine):
        return {row["codec"]: row for row in machine["codecs"]}

    def test_measured_alone_and_put_into_a_machine(self):
        missing = self.error(stretto("measure", "--codec", "int8", "-o", self.directory / "none.json", "--json"), 2)
        self.assertIn("no such file", missing["message"])
        done = stretto("measure", "all_reduce", *Measure.QUICK, "--codec", "int8", "-o", self.machine, "--json")
        self.assertEqual(["int8"], [row["codec"] for row in self.result(done)["codecs"]])
        done = stretto("measure", "--codec", "topk:0.01,int8", "-o", self.machine)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertIn("topk:0.01", done.stdout)
        rates = self.rates(json.loads(self.machine.read_text()))
        self.assertEqual({"int8", "topk:0.01"}, set(rates))
        self.assertAlmostEqual(50, rates["topk:0.01"]["ratio"], delta=0.1)
        self.assertGreater(0.02, rates["int8"]["error_ratio"])
        self.assertIn("--codec", self.error(stretto("measure", "--codec", "int9", "--json"), 2)["where"])
        # A file that has rates is what plans reckon with.
        text = stretto("simulate", self.profile, "--machine", self.machine, "--compress", "int8").stdout
        self.assertIn("codecs as the machine's file has them", text)

    def test_simulated_with_their_time(self):
        on = [self.profile, "--machine", "4@1Gbit/s,50us"]
        dense = self.result(stretto("simulate", *on, "--json"))
        plan = self.directory / "int8.json"
        int8 = self.result(stretto("simulate", *on, "--compress", "int8", "--save-plan", plan, "--json"))
        self.assertLess(int8["step_s"], 0.6 * dense["step_s"])
        self.assertIsNone(int8["summary"]["bound_s"])  # that is of bytes that travel as they are
        self.assertEqual({"int8"}, {bucket["codec"] for bucket in json.loads(plan.read_text())["buckets"]})
        again = self.result(stretto("simulate", *on, "--plan", plan, "--json"))
        self.assertAlmostEqual(int8["step_s"] / again["step_s"], 1, delta=0.2)  # rates are measured each time
        text = stretto("simulate", *on, "--compress", "int8").stdout
        self.assertIn("codecs measured on this computer, now", text)
        planned = self.result(stretto("plan", *on, "--compress", "int8", "--json"))
        self.assertLess(planned["predicted_step_s"], 0.6 * dense["step_s"])
        error = self.error(stretto("simulate", *on, "--compress", "int8", "--zero", "1", "--json"), 5)
        self.assertIn("ZeRO", error["expected"])

    def test_chosen_where_they_pay(self):
        plan = self.directory / "auto.json"
        slow = [self.profile, "--machine", "4@1Gbit/s,50us", "--compress", "auto:int8,fp16"]
        result = self.result(stretto("plan", *slow, "--save-plan", plan, "--json"))["codecs"]
        self.assertLess(result["predicted_step_s"], 0.6 * result["predicted_exact_step_s"])
        self.assertIn("int8", {bucket["codec"] for bucket in result["buckets"]})
        self.assertTrue(all(bucket["why"] for bucket in result["buckets"]))
        self.assertIn("int8", {bucket.get("codec") for bucket in json.loads(plan.read_text())["buckets"]})
        kept = self.result(stretto("plan", *slow, "--compress-except", "t*", "--json"))["codecs"]
        self.assertEqual({"none"}, {bucket["codec"] for bucket in kept["buckets"]})
        # Compute hides it, or the link is quick: no.
        for no in ["--compute-s", "1"], ["--bandwidth", "1000", "--latency", "0"]:
            result = self.result(stretto("plan", *slow, *no, "--json"))["codecs"]
            self.assertEqual({"none"}, {bucket["codec"] for bucket in result["buckets"]}, no)
            self.assertEqual(result["predicted_step_s"], result["predicted_exact_step_s"])
        self.assertIn("none", stretto("plan", *slow, "--compute-s", "1").stdout)

    def test_tried_before_they_are_kept(self):
        slow = [self.profile, "--emulate", "2@100Mbit/s,50us", "--steps", "2", "--warmup", "1", "--json"]
        done = stretto("replay", *slow, "--compress", "auto")
        if done.returncode == 1 and "cannot keep up" in done.stdout:
            self.skipTest("the host is too busy to emulate a network")
        result = self.result(done)
        choice = result["codec_choice"]
        self.assertLess(choice["predicted_step_s"], choice["predicted_exact_step_s"])
        self.assertGreater(choice["tried_exact_step_s"], 0)
        # What was measured decides, either way.
        self.assertEqual(choice["reverted"], "compression" not in result)
        self.assertEqual(
            choice["reverted"], choice["tried_step_s"] > choice["tried_exact_step_s"] * (1 - 0.015))
        hidden = self.result(stretto("replay", *slow, "--compress", "auto", "--compute-s", "5", "--steps", "1"))
        self.assertIsNone(hidden["codec_choice"]["tried_step_s"])
        self.assertNotIn("compression", hidden)
        error = self.error(stretto("train", "--compress", "auto", "--steps", 1, "--json"), 2)
        self.assertIn("no machine", error["found"])


class Doctor(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        corpus = pathlib.Path(__file__).parent.parent / "fuzz" / "corpus"
        cls.cluster = cls.directory / "cluster.toml"
        cls.cluster.write_text((corpus / "topology_toml" / "cluster.txt").read_text())
        cls.xml = cls.directory / "topo.xml"
        cls.xml.write_text((corpus / "nccl_topology" / "dgx.txt").read_text())
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("NCCL_", "STRETTO_"))}
        cls.environment = clean | {"HOME": str(cls.directory)}

    def doctor(self, *arguments, **variables):
        return stretto("doctor", *arguments, env=self.environment | variables)

    def test_the_tree_the_edges_and_the_saving(self):
        done = self.doctor("--topology", self.cluster)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertIn("rank 28  device 7", done.stdout)
        self.assertIn("32 of 32 edges cross hosts, 4 would do", done.stdout)
        self.assertRegex(done.stdout, r"ranks ordered by place: .* times as quick")
        self.assertIn("--emit rankfile", done.stdout)
        ring = self.result(self.doctor("--topology", self.cluster, "--json"))["ring"]
        self.assertEqual((32, 32, 4), (ring["ranks"], ring["crossing_edges"], ring["fewest_crossing_edges"]))
        self.assertEqual({"from": 0, "to": 1, "from_host": "a", "to_host": "b"}, ring["edges_across_hosts"][0])
        self.assertGreater(ring["all_reduce_s"], 7 * ring["best_all_reduce_s"])

    def test_the_better_order_is_used_by_rank_map(self):
        order = self.directory / "order.txt"
        order.write_text(self.doctor("--topology", self.cluster, "--emit", "rank-map").stdout)
        moved = [int(word) for word in order.read_text().splitlines()[-1].split()]
        self.assertEqual(list(range(32)), sorted(moved))
        self.assertEqual([0, 8, 16, 24, 1], moved[:5])
        # What they are in this order at their places is what doctor calls the best.
        small = self.directory / "small.toml"
        small.write_text('hosts = 2\ndevices = 2\nranks = [[0, 2], [1, 3]]\n'
                         'inside = { bandwidth = "1GB/s", latency = "1us" }\n'
                         'network = { bandwidth = "1GB/s", latency = "9us" }\n')
        order.write_text(self.doctor("--topology", small, "--emit", "rank-map").stdout)
        done = stretto("run", "-n", 4, "--rank-map", order, "--", "sh", "-c", "echo $RANK")
        self.assertEqual(["0", "1", "2", "3"], sorted(done.stdout.split()))
        ordered = self.directory / "ordered.txt"
        ordered.write_text("0 1 2 3")
        ring = self.result(self.doctor("--topology", small, "--order", ordered, "--json"))["ring"]
        self.assertEqual(ring["fewest_crossing_edges"], ring["crossing_edges"])

    def test_every_launcher_has_its_text(self):
        for kind, expected in (("rankfile", "rank 8=b slot=0"), ("slurm", "--distribution=arbitrary"),
                               ("torchrun", "--node-rank=3"), ("cuda", "CUDA_VISIBLE_DEVICES=0,1,2"),
                               ("pytorchjob", "hostNetwork: true"), ("mpijob", "slotsPerWorker: 8")):
            done = self.doctor("--topology", self.cluster, "--emit", kind)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            self.assertIn(expected, done.stdout)

    def test_ranks_say_where_they_are(self):
        done = self.doctor("-n", 3, "--json")
        result = self.result(done)
        self.assertEqual(1, len(result["topology"]["hosts"]))
        places = result["topology"]["hosts"][0]["places"]
        self.assertEqual([0, 1, 2], sorted(place["rank"] for place in places))
        self.assertEqual(0, result["ring"]["crossing_edges"])
        self.assertIsNone(result["ring"]["all_reduce_s"])
        priced = self.result(self.doctor("-n", 3, "--machine", "3@1Gbit/s,50us", "--json"))
        self.assertGreater(priced["ring"]["all_reduce_s"], 0)
        self.assertEqual(priced["ring"]["best_all_reduce_s"], priced["ring"]["all_reduce_s"])

    def test_variables_have_value_source_and_effect(self):
        (self.directory / ".nccl.conf").write_text("# comment\nNCCL_PROTO=LL\nNCCL_ALGO=Tree\n")
        try:
            result = self.result(self.doctor("--json", NCCL_ALGO="Ring", NCCL_OWN="1", STRETTO_RNAK="1"))
        finally:
            (self.directory / ".nccl.conf").unlink()
        found = {variable["name"]: variable for variable in result["variables"]}
        self.assertEqual(("Ring", "environment"), (found["NCCL_ALGO"]["value"], found["NCCL_ALGO"]["source"]))
        self.assertEqual(("LL", f"{self.directory}/.nccl.conf"),
                         (found["NCCL_PROTO"]["value"], found["NCCL_PROTO"]["source"]))
        self.assertIn("protocols", found["NCCL_PROTO"]["effect"])
        self.assertIsNone(found["NCCL_OWN"]["effect"])
        self.assertEqual(1, len(result["warnings"]))
        self.assertIn("Did you mean STRETTO_RANK?", result["warnings"][0])
        every = self.result(self.doctor("--json", "--all"))["variables"]
        self.assertIn(("NCCL_IB_HCA", "default"), [(one["name"], one["source"]) for one in every])

    def test_an_interface_that_is_not_there_is_exit_5_with_those_that_are(self):
        for name, value in (("NCCL_SOCKET_IFNAME", "=nothere0"), ("STRETTO_SOCKET_IFNAME", "nothere")):
            error = self.error(self.doctor("--json", **{name: value}), 5)
            self.assertEqual("unavailable", error["code"])
            self.assertIn(f"{name}={value}", error["message"])
            for interface in os.listdir("/sys/class/net"):
                self.assertIn(interface, error["expected"])
        self.assertEqual(0, self.doctor(NCCL_SOCKET_IFNAME="^nothere").returncode)
        self.assertEqual(0, self.doctor(NCCL_SOCKET_IFNAME="lo").returncode)

    def test_nccl_dump_runs_the_program_and_reads_what_nccl_wrote(self):
        # There is no GPU here: a program that writes what NCCL would.
        program = ["sh", "-c", f'cp {self.xml} "$NCCL_TOPO_DUMP_FILE"']
        result = self.result(self.doctor("--nccl-dump", "--hosts", 2, "--json", "--", *program))
        self.assertEqual(2, len(result["topology"]["hosts"]))
        self.assertEqual([0, 1, 2, 3], [p["index"] for p in result["topology"]["hosts"][0]["places"]])
        self.assertEqual(2, result["ring"]["crossing_edges"])
        warnings = " ".join(result["warnings"])
        self.assertIn("GPU 3, 0000:90:00.0: its links give 160 GB/s, those of others 240 GB/s", warnings)
        self.assertIn("no network card on its NUMA node 1", warnings)
        for program in (["true"], ["sh", "-c", "exit 3"]):
            error = self.error(self.doctor("--nccl-dump", "--json", "--", *program), 5)
            self.assertIn("exit code", error["found"])
        self.assertEqual(5, self.doctor("--nccl-dump", "--", "/nonexistent").returncode)

    def test_wrong_usage(self):
        broken = self.directory / "broken.toml"
        broken.write_text("hosts = 2\ndevics = 3\n")
        other = self.directory / "topology.yaml"
        other.write_text("hosts: 2\n")
        map_of_two = self.directory / "two.txt"
        map_of_two.write_text("1 0")
        for arguments, code, expected in (
            (["--nccl-dump"], 2, "--nccl-dump -- all_reduce_perf"),
            (["--", "true"], 2, "--nccl-dump"),
            (["--topology", "/nonexistent.xml"], 2, "/nonexistent.xml"),
            (["--topology", other], 2, ".toml"),
            (["--topology", broken], 3, "'devices'"),
            (["--topology", self.cluster, "--hosts", 2], 2, "4 hosts"),
            (["--topology", self.cluster, "--order", map_of_two], 3, "32 places"),
            (["--topology", self.cluster, "--emit", "pbs"], 2, "rankfile"),
            (["--topology", self.cluster, "--machine", "4@1Gbit/s,50us"], 2, "0 to 3"),
        ):
            with self.subTest(arguments=arguments):
                done = self.doctor(*arguments)
                self.assertEqual(code, done.returncode, done.stdout + done.stderr)
                self.assertIn(expected, done.stderr)


class Analyze(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.traces = cls.directory / "traces"
        cls.traces.mkdir()
        for rank in range(2):
            text = json.dumps(kineto(rank, late=50 * rank))
            (cls.traces / f"job_rank{rank}.json.gz").write_bytes(gzip.compress(text.encode()))
        cls.one = cls.traces / "job_rank0.json.gz"

    def test_the_fixed_keys(self):
        result = self.result(stretto("analyze", self.traces, "--json"))
        self.assertEqual("stretto.analyze/1", result["schema"])
        self.assertEqual([0, 1], [file["rank"] for file in result["files"]])
        device = result["files"][0]["devices"][0]
        self.assertEqual(
            {"communication_ns": 600_000, "communication_sum_ns": 600_000, "compute_ns": 1_200_000,
             "exposed_ns": 300_000, "hidden_ns": 300_000, "idle_ns": 1_500_000, "communication_count": 3,
             "compute_count": 6},
            {key: device[key] for key in ("communication_ns", "communication_sum_ns", "compute_ns",
                                          "exposed_ns", "hidden_ns", "idle_ns", "communication_count",
                                          "compute_count")})
        self.assertEqual(0, result["files"][0]["lost_events"])
        self.assertEqual(3, result["summary"]["steps"])
        self.assertAlmostEqual(1e-4, result["summary"]["exposed_s"])
        self.assertEqual([1], [rank["rank"] for rank in result["stragglers"] if rank["last"]])
        self.assertEqual([(1, 0, 3)], [(clock["rank"], clock["against"], clock["collectives"])
                                       for clock in result["clocks"]])
        self.assertGreaterEqual(result["clocks"][0]["residual_s"], 0.0)
        self.assertEqual(4000, result["buckets"][0]["bytes"])

    def test_text_begins_with_the_verdict_and_ends_with_the_next_command(self):
        done = stretto("analyze", self.traces)
        self.assertEqual(0, done.returncode, done.stderr)
        lines = done.stdout.splitlines()
        self.assertTrue(lines[0].startswith("exposed communication 100.0 us per step of 1.000 ms"), lines[0])
        self.assertTrue(lines[-1].startswith("next: stretto analyze "), lines[-1])
        self.assertIn("clocks: ranks end the same collectives", done.stdout)
        self.assertEqual("", done.stderr)

    def test_errors_name_the_flag(self):
        error = self.error(stretto("analyze", self.one, "--json", "--step-regex", "["), 2)
        self.assertEqual("--step-regex", error["where"])
        self.assertIn("/dev/stdin", self.error(stretto("analyze", "-", "--json"), 2)["help"])

    def test_missing_ranks_are_said(self):
        done = stretto("analyze", self.one)
        self.assertIn("1 of 2 ranks are here (missing: 1)", done.stderr)

    def test_one_rank_twice_is_an_error(self):
        error = self.error(stretto("analyze", self.one, self.one, "--json"), 2)
        self.assertIn("a trace is given twice", error["message"])
        again = self.directory / "again.json"
        again.write_bytes(pathlib.Path(self.one).read_bytes())
        error = self.error(stretto("analyze", self.one, again, "--json"), 2)
        self.assertIn("two files are of one rank", error["message"])

    def test_tables_and_csv(self):
        for per, head in (("rank", "rank,device,span_ns"), ("step", "step,name,rank"),
                          ("collective", "collective,name,group"), ("bucket", "bucket,collective,bytes"),
                          ("module", "module,collective,calls")):
            with self.subTest(per=per):
                self.assertEqual(0, stretto("analyze", self.traces, "--per", per).returncode)
                done = stretto("analyze", self.traces, "--per", per, "--csv")
                self.assertTrue(done.stdout.startswith(head), done.stdout)
                columns = {line.count(",") for line in done.stdout.splitlines()}
                self.assertEqual(1, len(columns), done.stdout)

    def test_no_communication_is_undefined(self):
        path = self.directory / "alone.json"
        path.write_text(json.dumps(kineto(world_size=1, names=("relu",))).replace("Collective name", "x"))
        done = stretto("analyze", path)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertTrue(done.stdout.startswith("no communication found"), done.stdout)
        self.assertIn("nccl", done.stdout)
        self.assertRegex(done.stdout, r"\n0, 0 .* n/a +n/a ")  # exposed, hidden
        self.assertIsNone(self.result(stretto("analyze", path, "--json"))["summary"]["exposed_s"])
        named = self.result(stretto("analyze", path, "--json", "--comm-regex", "^relu$"))
        self.assertAlmostEqual(1e-4, named["summary"]["exposed_s"])

    def test_communication_of_the_host_alone_is_said(self):
        path = self.directory / "host.json"
        trace = kineto(world_size=1, names=("relu",))
        trace["traceEvents"].append({"ph": "X", "cat": "cpu_op", "name": "nccl:all_reduce", "pid": 9, "tid": 1,
                                     "ts": 1, "dur": 5, "args": {}})
        path.write_text(json.dumps(trace).replace("Collective name", "x"))
        self.assertIn("though the host called for it 1 time:", stretto("analyze", path).stdout)

    def test_broken_traces_are_exit_3_unless_salvaged(self):
        path = self.directory / "cut.json"
        path.write_text(json.dumps(kineto())[:-900])
        error = self.error(stretto("analyze", path, "--json"), 3)
        self.assertIn("cut.json, byte", error["where"])
        self.assertIn("--salvage", error["help"])
        done = stretto("analyze", path, "--salvage", "--json")
        fault = self.result(done)["files"][0]["fault"]
        self.assertIn("at least 1 were lost", stretto("analyze", path, "--salvage").stderr)
        self.assertGreater(fault["offset_bytes"], 0)
        for name, content in (("empty.json", b""), ("text.json", b"hello"), ("cut.json.gz", gzip.compress(b"[" * 9999)[:40])):
            bad = self.directory / name
            bad.write_bytes(content)
            self.error(stretto("analyze", bad, "--json"), 3)
            self.error(stretto("analyze", bad, "--json", "--salvage"), 3)  # nothing of it can be used
        self.error(stretto("analyze", self.directory / "none.json", "--json"), 2)

    def test_classes_say_what_decided(self):
        done = stretto("analyze", self.one, "--classes")
        self.assertIn("NCCL: nccl", done.stdout)
        self.assertIn("no rule", done.stdout)

    def test_a_timeline_of_our_own(self):
        timeline = self.directory / "run.timeline.json"
        self.train("--json", "--timeline", timeline)
        result = self.result(stretto("analyze", timeline, "--json"))
        self.assertEqual("stretto", result["files"][0]["format"])
        self.assertGreater(len(result["buckets"]), 0)

    def test_convert(self):
        for suffix in (".trace.json", ".timeline.json", ".profile.json", ".csv"):
            with self.subTest(suffix=suffix):
                out = self.directory / f"out{suffix}"
                done = stretto("convert", self.traces, "-o", out)
                self.assertEqual(0, done.returncode, done.stderr)
                self.assertGreater(out.stat().st_size, 100)
        picture = self.error(stretto("analyze", self.directory / "out.trace.json", "--json"), 2)
        self.assertIn("a picture is no trace", picture["message"])
        again = self.result(stretto("analyze", self.directory / "out.timeline.json", "--json"))
        self.assertAlmostEqual(1e-4, again["summary"]["exposed_s"])
        replayed = stretto("replay", self.directory / "out.profile.json", "-n", "2", "--steps", "1", "--json")
        self.assertEqual(0, replayed.returncode, replayed.stderr)
        self.assertEqual(2, stretto("convert", self.one, "-o", "x.pdf").returncode)


class Plan(CliTest):
    MACHINE = "8@5Gbit/s,50us"
    TRACES = pathlib.Path(__file__).parents[2] / "examples" / "traces"
    KEYS = (
        "model ranks predicted_step_s optimum_s bound_s bound_gap_ratio optimum_gap_ratio buckets emit".split()
    )

    def plan(self, *arguments):
        return self.result(stretto("plan", *arguments, "--json", cwd=self.directory))

    def test_every_model_is_planned_and_no_rule_is_better(self):
        for model in ("resnet50", "vgg16", "bert_large", "gpt2_124m"):
            document = self.plan(model, "--machine", self.MACHINE, "--emit", "ddp")
            for key in self.KEYS:
                self.assertIn(key, document)
            self.assertEqual(document["ranks"], 8)
            self.assertTrue(document["optimum_is_exact"])
            self.assertLessEqual(document["bound_s"], document["predicted_step_s"] * (1 + 1e-9))
            self.assertGreaterEqual(document["optimum_gap_ratio"], 0)
            for other in document["alternatives"]:
                self.assertGreaterEqual(other["step_s"], document["predicted_step_s"] * (1 - 1e-9), other)
            for bucket in document["buckets"]:
                self.assertLessEqual(bucket["ready_s"], bucket["begin_s"])
                self.assertLess(bucket["begin_s"], bucket["end_s"])

    def test_simulate_agrees_with_plan_and_leaves_a_timeline(self):
        path = self.directory / "timeline.json"
        simulated = self.result(
            stretto(
                "simulate", "bert_large", "--machine", self.MACHINE, "--timeline", path, "--json", cwd=self.directory
            )
        )
        planned = self.plan("bert_large", "--machine", self.MACHINE, "--emit", "ddp")
        self.assertAlmostEqual(simulated["step_s"], planned["predicted_step_s"], places=9)
        self.assertGreater(simulated["events"], 0)
        self.assertGreaterEqual(simulated["elapsed_s"], 0)
        self.assertEqual(json.loads(path.read_text())["source"], "simulate")

    def test_a_saved_plan_is_simulated_and_replayed(self):
        path = self.directory / "plan.json"
        self.plan("resnet50", "--machine", "2@10Gbit/s,50us", "--save-plan", path)
        done = stretto("simulate", "resnet50", "--machine", "2@10Gbit/s,50us", "--plan", path, "--json")
        self.assertGreater(self.result(done)["step_s"], 0)
        other = stretto("simulate", "vgg16", "--machine", self.MACHINE, "--plan", path, "--json")
        self.assertIn("another model", self.error(other, 3)["message"])

    def test_sweep_marks_the_rules_of_thumb(self):
        done = stretto("plan", "gpt2_124m", "--machine", self.MACHINE, "--sweep")
        self.assertEqual(done.returncode, 0, done.stderr)
        for mark in ("5 MiB", "25 MiB", "one layer", "four layers", "best uniform size"):
            self.assertIn(mark, done.stdout)
        self.assertIn("*", done.stdout)
        document = self.plan("gpt2_124m", "--machine", self.MACHINE, "--sweep", "--emit", "ddp")
        best = min(point["step_s"] for point in document["sweep"])
        self.assertGreaterEqual(best, document["optimum_s"] * (1 - 1e-9))

    def test_scaling_has_a_row_per_number_and_algorithm(self):
        document = self.plan("resnet50", "--machine", "dgx-a100", "--ranks", "8,16,32", "--emit", "ddp")
        rows = document["scaling"]
        self.assertEqual({row["ranks"] for row in rows}, {8, 16, 32})
        self.assertIn("parameter_server", {row["algorithm"] for row in rows})
        self.assertIn("hierarchical", {row["algorithm"] for row in rows if row["ranks"] == 16})
        for row in rows:
            self.assertLessEqual(row["scaling_efficiency"], 1 + 1e-9)

    def test_scaling_says_which_prices_were_measured(self):
        curve = {"collective": "all_reduce", "ranks": 8, "size_bytes": [1 << 10, 1 << 27], "time_s": [5e-5, 2e-2]}
        level = {"name": "link", "group_size": 8, "latency_s": 2e-5, "bandwidth_bytes_per_s": 1e10}
        machine = {"schema": "stretto.machine/1", "name": "m", "basis": "measured", "source": "", "levels": [level]}
        path = self.directory / "one_curve.json"
        for algorithm, of_eight in (
            # A curve of no algorithm stands for all of them: one row.
            ("auto", {"auto": "measured"}),
            ("ring", {"auto": "both", "ring": "measured", "binomial_tree": "formula"}),
        ):
            path.write_text(json.dumps({**machine, "curves": [{**curve, "algorithm": algorithm}]}))
            rows = self.plan("resnet50", "--machine", path, "--ranks", "4,8", "--emit", "ddp")["scaling"]
            eight = {row["algorithm"]: row["prices"] for row in rows if row["ranks"] == 8}
            if algorithm == "auto":
                self.assertEqual(eight, of_eight)
            else:
                self.assertEqual({name: eight[name] for name in of_eight}, of_eight)
            self.assertEqual({row["prices"] for row in rows if row["ranks"] == 4}, {"formula"})
            text = stretto("plan", "resnet50", "--machine", path, "--ranks", "4,8").stdout
            self.assertIn("prices", text.splitlines()[0])

    def test_segments_that_nothing_overtakes_are_refused(self):
        for command in ("plan", "simulate"):
            arguments = (command, "resnet50", "--machine", self.MACHINE, "--segment")
            error = self.error(stretto(*arguments, "64K", "--json"), 2)
            self.assertEqual(error["where"], "--segment")
            self.assertIn("--schedule priority", error["expected"])
            self.assertEqual(stretto(*arguments, "0").returncode, 0)
        # Down to a byte: no event for each of them.
        self.assertEqual(stretto(*arguments, "1", "--schedule", "priority").returncode, 0)

    def test_flags_that_would_change_nothing_are_refused(self):
        for flags, words in (
            (["--global-batch", 5], "--layouts"),
            (["--shape", "layers=0"], "--layouts"),
            (["--compress-min", "-1"], "--compress"),
            (["--compress", "int8", "--compress-ratio", 0], "--compress auto"),
            (["--compress", "int8", "--compress-min", "1M"], "--compress auto"),
        ):
            done = stretto("plan", "resnet50", "--machine", self.MACHINE, *flags)
            self.assertEqual(done.returncode, 2, flags)
            self.assertIn(words, done.stderr)

    def test_a_simulation_is_of_all_ranks(self):
        path = self.directory / "eight.json"
        done = stretto("simulate", "resnet50", "--machine", self.MACHINE, "--timeline", path)
        self.assertIn("1 step, 8 ranks", done.stdout)
        done = stretto("analyze", path)
        self.assertNotIn("missing", done.stderr)
        self.assertIn("of 8 ranks 1 are drawn", done.stderr)

    def test_a_profile_of_a_trace_keeps_that_the_optimizer_comes_last(self):
        path = self.directory / "recorded.profile.json"
        done = stretto("convert", self.TRACES / "gloo_ddp_rank0.json.gz", "-o", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        profile = json.loads(path.read_text())
        self.assertIs(profile["optimizer_after_exchanges"], True)
        profile["compute_end_s"] = profile["backward_end_s"] + 0.01
        steps = []
        for last in (True, False):
            profile["optimizer_after_exchanges"] = last
            path.write_text(json.dumps(profile))
            steps.append(self.plan(path, "--machine", "8@1Gbit/s,50us")["predicted_step_s"])
        self.assertGreater(steps[0], steps[1])

    def test_a_machine_is_a_file_whatever_its_name(self):
        level = {"name": "link", "group_size": 2, "latency_s": 1e-5, "bandwidth_bytes_per_s": 1e9}
        machine = {"schema": "stretto.machine/1", "name": "m", "basis": "assumed", "source": "", "levels": [level]}
        (self.directory / "machine.txt").write_text(json.dumps(machine))
        self.assertEqual(self.plan("resnet50", "--machine", "machine.txt")["ranks"], 2)
        piped = stretto("plan", "resnet50", "--machine", "/dev/stdin", "--json", input=json.dumps(machine))
        self.assertEqual(self.result(piped)["ranks"], 2)
        self.assertIn("preset", self.error(stretto("plan", "resnet50", "--machine", "none", "--json"), 2)["message"])

    def test_emits_settings_of_each_framework(self):
        for framework, word in (
            ("ddp", "DistributedDataParallel("),
            ("fsdp", "fully_shard("),
            ("deepspeed", "reduce_bucket_size"),
            ("megatron", "--ddp-bucket-size"),
            ("nccl", "NCCL"),
            ("horovod", "HOROVOD_FUSION_THRESHOLD="),
        ):
            done = stretto("plan", "gpt2_124m", "--machine", "dgx-a100x2", "--emit", framework)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(word, done.stdout)
        json.loads(stretto("plan", "gpt2_124m", "--machine", "dgx-a100x2", "--emit", "deepspeed").stdout)

    def test_what_ifs(self):
        step = self.plan("vgg16", "--machine", self.MACHINE)["predicted_step_s"]
        for flags in (("--bandwidth", 2), ("--compute-speed", 2), ("--latency", 0.5)):
            self.assertLessEqual(self.plan("vgg16", "--machine", self.MACHINE, *flags)["predicted_step_s"], step)
        done = stretto("plan", "vgg16", "--machine", self.MACHINE, "--exposed-below", 5)
        self.assertIn("accumulation: ", done.stdout)
        self.assertIn("batch: ", done.stdout)

    def test_a_trace_needs_no_machine_and_certifies(self):
        traces = self.TRACES
        analyzed = self.result(stretto("analyze", traces, "--json"))
        certificate = analyzed["certificate"]
        self.assertAlmostEqual(certificate["exposed_now_s"], analyzed["summary"]["exposed_s"])
        self.assertLessEqual(certificate["exposed_bound_s"], certificate["exposed_best_s"] + 1e-12)
        self.assertLessEqual(certificate["exposed_best_s"], certificate["exposed_model_s"] + 1e-12)
        self.assertIn("DistributedDataParallel(", certificate["settings"])
        document = self.plan(traces)
        self.assertIn("measured", document["machine"])
        # One model for both: what analyze promises is what plan predicts.
        self.assertAlmostEqual(document["exposed_s"], certificate["exposed_best_s"])
        self.assertEqual(document["emit"]["ddp"]["text"], certificate["settings"])
        done = stretto("plan", traces, "--check", traces)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("achieved", done.stdout)

    def test_what_nccl_tests_measured_is_a_machine(self):
        def result(size, time_us):
            bandwidth = {"alg_bw": size / time_us / 1e3, "bus_bw": 1.75 * size / time_us / 1e3}
            return {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "-1",
                    "out_of_place": {"time": time_us, **bandwidth, "nwrong": 0}, "in_place": None}  # fmt: skip

        document = {
            "version": 3, "start_time": "2026-03-01 10:00:00", "args": ["./all_reduce_perf", "-J", "out.json"],
            "env": [], "nccl_version": 22809, "config": {"nthreads": 1, "ngpus": 8, "devices": [{"rank": 0}]},
            "results": [result(size, 50 + size / 100e3) for size in (1 << 16, 1 << 20, 1 << 24, 1 << 28)],
        }  # fmt: skip
        path = self.directory / "out.json"
        path.write_text(json.dumps(document))
        planned = self.plan("bert_large", "--machine", path)
        self.assertEqual(planned["ranks"], 8)
        self.assertIn("all_reduce_perf", planned["machine"])
        # 100 GB/s of algorithm bandwidth, 50 us: the same machine by hand, but for interpolation between sizes.
        other = self.plan("bert_large", "--machine", "8@175GB/s,3.571429us", "--algorithm", "ring")
        self.assertAlmostEqual(planned["predicted_step_s"], other["predicted_step_s"], delta=1e-4)
        self.assertIn("all_reduce was measured up to 256.0 MiB", stretto("plan", "bert_large", "--machine", path).stderr)
        self.assertNotIn("was measured up to", stretto("plan", "resnet50", "--machine", path).stderr)
        document["config"]["ngpus"] = 1
        path.write_text(json.dumps(document))
        error = self.error(stretto("plan", "bert_large", "--machine", path, "--json"), 2)
        self.assertIn("out.json", error["where"])
        self.assertIn("1 rank", error["found"])

    def test_compute_that_communication_slowed(self):
        """A gemm of 100 us takes 150 beside an all_reduce."""
        events = []
        for step in range(6):
            at = 10_000 + 1000 * step
            for i, (name, begin, length, stream, more) in enumerate((
                ("gemm", 10, 100, 7, {"grid": [64, 1, 1], "block": [256, 1, 1]}),
                ("gemm", 500, 150, 7, {"grid": [64, 1, 1], "block": [256, 1, 1]}),
                ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 450, 150 + 50 * (step % 2), 20,
                 {"Collective name": "allreduce", "In msg nelems": 200_000 * (1 + step % 2), "dtype": "Float",
                  "Out msg nelems": 200_000 * (1 + step % 2), "Group size": 1}),
            )):  # fmt: skip
                correlation = {"correlation": 3 * step + i + 1}
                events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
                               "ts": at + 1 + i, "dur": 1, "args": correlation})  # fmt: skip
                events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": at + begin,
                               "dur": length, "args": {"device": 0, "stream": stream, **correlation, **more}})  # fmt: skip
            events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 9, "tid": 9,
                           "ts": at, "dur": 990})  # fmt: skip
        path = self.directory / "slowed.json"
        path.write_text(json.dumps({"traceEvents": events}))
        slowdown = self.result(stretto("analyze", path, "--json"))["slowdown"]
        self.assertAlmostEqual(slowdown["factor"], 1.5)
        self.assertLess(slowdown["compute_without_s"], 250e-6)
        done = stretto("plan", path, "--machine", "2@1GB/s,10us")
        self.assertIn("--slowdown auto", done.stderr)
        for factor in ("auto", "1.5"):
            planned = self.plan(path, "--machine", "2@1GB/s,10us", "--slowdown", factor)
            self.assertLess(planned["compute_s"], self.plan(path, "--machine", "2@1GB/s,10us")["compute_s"])
        self.assertEqual(stretto("convert", path, "-o", "slowed.profile.json", cwd=self.directory).returncode, 0)
        done = stretto("convert", path, "--without-slowdown", "-o", "freed.profile.json", cwd=self.directory)
        self.assertEqual(done.returncode, 0, done.stderr)
        slowed, freed = (
            json.loads((self.directory / f"{name}.profile.json").read_text()) for name in ("slowed", "freed")
        )
        self.assertEqual((slowed["beside_communication"], freed["beside_communication"]), (True, False))
        self.assertEqual(freed["compute_slowdown"], 1.5)
        self.assertLess(freed["compute_end_s"], slowed["compute_end_s"])
        refused = stretto("convert", path, "--without-slowdown", "-o", "x.trace.json", cwd=self.directory)
        self.assertEqual(refused.returncode, 2)
        refused = stretto("plan", "resnet50", "--machine", "2@1GB/s,10us", "--slowdown", "auto", "--json")
        self.assertIn("no slow-down was measured", self.error(refused, 2)["message"])
        refused = stretto("convert", self.TRACES, "--without-slowdown", "-o", "x.profile.json", cwd=self.directory)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("no slow-down", refused.stderr)

    def test_layouts_by_step_and_memory(self):
        document = self.plan("llama2_7b", "--layouts", "--machine", "dgx-a100x2", "--global-batch", 64)
        steps = [layout["step_s"] for layout in document["layouts"]]
        self.assertEqual(steps, sorted(steps))
        for layout in document["layouts"]:
            self.assertEqual(layout["data"] * layout["tensor"] * layout["pipeline"], 16)
            self.assertLess(layout["memory_bytes"], 80e9)
        shape = "layers=24,hidden=2048,heads=16,sequence=1024,vocab=51200"
        self.assertTrue(self.plan("--layouts", "--machine", "dgx-a100", "--shape", shape)["layouts"])

    def test_validation_says_what_is_missing(self):
        error = self.error(stretto("simulate", "--validate", self.directory / "none", "--json"), 2)
        self.assertIn("none", error["where"] + error["found"])

    def test_what_ifs_combine(self):
        # Everything twice as quick is half the step, whatever the plan.
        for schedule in ("serial", "overlap", "priority"):
            on = ("vgg16", "--machine", self.MACHINE, "--schedule", schedule)
            step = self.plan(*on)["predicted_step_s"]
            twice = self.plan(*on, "--bandwidth", 2, "--latency", 0.5, "--compute-speed", 2)["predicted_step_s"]
            self.assertAlmostEqual(step / 2, twice, delta=1e-9 * step)
        simulated = self.result(
            stretto("simulate", *on, "--bandwidth", 2, "--latency", 0.5, "--compute-speed", 2, "--json")
        )
        self.assertAlmostEqual(simulated["step_s"], twice, places=9)
        # What priority leaves exposed is what the step takes more than compute.
        self.assertAlmostEqual(simulated["summary"]["exposed_s"], twice - simulated["summary"]["compute_s"], places=6)

    def test_one_document_answers_several_questions(self):
        document = self.plan("resnet50", "--machine", self.MACHINE, "--sweep", "--ranks", "4,4", "--emit", "ddp")
        self.assertEqual({4}, {row["ranks"] for row in document["scaling"]})
        algorithms = [row["algorithm"] for row in document["scaling"]]
        self.assertEqual(len(algorithms), len(set(algorithms)))  # 4 was asked for twice
        self.assertEqual(["ddp"], list(document["emit"]))
        caps = [point["cap_bytes"] for point in document["sweep"]]
        self.assertEqual(caps, sorted(set(caps)))
        self.assertEqual(1, document["sweep"][-1]["buckets"])

    def test_a_plan_that_was_edited_has_to_be_right(self):
        path = self.directory / "plan.json"
        on = ("resnet50", "--machine", self.MACHINE)
        self.plan(*on, "--save-plan", path)
        good = json.loads(path.read_text())

        def refused(change):
            plan = json.loads(json.dumps(good))
            change(plan)
            path.write_text(json.dumps(plan))
            return self.error(stretto("simulate", *on, "--plan", path, "--json"), 3)

        error = refused(lambda plan: plan["buckets"][0].update(bytes=5))
        self.assertEqual("5", error["found"])
        self.assertIn("/buckets/0/bytes", error["where"])
        self.assertIn(str(good["buckets"][0]["bytes"]), error["expected"])
        error = refused(lambda plan: plan["buckets"][0]["tensors"].pop())
        self.assertIn("/buckets/0/tensors", error["where"])
        error = refused(lambda plan: plan.pop("tensors"))
        self.assertIn("'tensors' is missing", error["message"])
        self.assertIn("'buckets'", error["found"])
        self.assertIn("'tensors'", error["expected"])
        error = self.error(stretto("plan", path, "--machine", self.MACHINE, "--json"), 2)
        self.assertIn("a plan", error["found"])
        self.assertIn("--plan", error["help"])

    def test_wrong_buckets_and_two_questions_of_simulate(self):
        on = ("simulate", "resnet50", "--machine", self.MACHINE, "--json")
        error = self.error(stretto(*on, "--buckets", "planed"), 2)
        self.assertIn("planned, ddp, or a size", error["expected"])
        self.assertIn("'planned'", error["help"])
        self.assertIn("above 0", self.error(stretto(*on, "--buckets", "0"), 2)["expected"])
        error = self.error(stretto("simulate", "resnet50", "--validate", self.directory, "--json"), 2)
        self.assertIn("resnet50", error["found"])

    def test_wrong_input(self):
        for arguments, code, text in (
            ((), 2, "Models: "),
            (("resnet51", "--machine", self.MACHINE), 2, "resnet50"),
            (("resnet50",), 2, "--machine"),
            (("resnet50", "--machine", "dgx-h101"), 2, "dgx-h100"),
            (("resnet50", "--machine", "8@0Gbit/s,1us"), 2, "above zero"),
            (("resnet50", "--machine", "8@1Gbit/s,-1us"), 2, "-1us"),
            (("resnet50", "--machine", "0@1Gbit/s,1us"), 2, "from 1"),
            (("bert_large", "--machine", "dgx-a100", "--ranks", "12"), 2, "a multiple of 8"),
            (("resnet50", "--machine", self.MACHINE, "--algorithm", "bruck"), 2, "bruck"),
            (("resnet50", "--machine", self.MACHINE, "--rank-speed", "8=1"), 2, "0 to 7"),
            (("resnet50", "--machine", self.MACHINE, "--emit", "caffe"), 2, "deepspeed"),
            (("resnet50", "--machine", self.MACHINE, "--schedule", "priority", "--zero", "3"), 2, "ZeRO-3"),
            (("--layouts", "--machine", "dgx-a100", "--shape", "layers=2"), 2, "hidden=N"),
            (("resnet50", "--layouts", "--machine", "dgx-a100"), 2, "transformer"),
            (("resnet50", "--machine", self.MACHINE, "--check", "x"), 2, "another trace"),
            ((self.TRACES, "--batch", 8), 2, "--compute-speed"),
            (("resnet50", "vgg16", "--machine", self.MACHINE), 2, "one model at a time"),
            (("resnet50", "--machine", self.MACHINE, "--ranks", "8-32"), 2, "'8-32' is no whole number from 1"),
            (("resnet50", "--machine", self.MACHINE, "--ranks", "8,0"), 2, "'0' is no whole number from 1"),
            (("resnet50", "--machine", self.MACHINE, "--bandwidth", "nan"), 2, "'nan' is no number from"),
            (("resnet50", "--machine", self.MACHINE, "--compute-s", "nan"), 2, "'nan' is no number from"),
            (("resnet50", "--machine", self.MACHINE, "--flops", "1e14", "--mfu", "nan"), 2, "'nan' is no number from"),
            (("resnet50", "--machine", self.MACHINE, "--sweep", "--ranks", "8"), 2, "one question at a time"),
        ):
            done = stretto("plan", *arguments)
            self.assertEqual(done.returncode, code, (arguments, done.stderr))
            self.assertIn(text, done.stderr, arguments)
            self.assertEqual(done.stdout, "")


class Diff(CliTest):
    def write(self, name, late):
        path = self.directory / name
        path.write_text(json.dumps(kineto(world_size=1, late=late)))
        return path

    def test_a_number_that_got_worse_is_exit_4(self):
        good = self.write("a.json", 50)  # 100 of 150 us exposed
        result = self.directory / "a_result.json"
        result.write_text(stretto("analyze", good, "--json").stdout)
        bad = self.write("b.json", 0)
        self.assertEqual(0, stretto("diff", good, bad, "--fail-if", "exposed_s>+5%").returncode)
        done = stretto("diff", result, bad, "--fail-if", "communication_s>+5%", "--json")
        self.assertEqual(4, done.returncode, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(1, len(document["failures"]))
        self.assertAlmostEqual(200 / 150 - 1, document["runs"][0]["numbers"]["communication_s"]["change_ratio"])
        self.assertEqual(4, stretto("diff", good, bad, "--fail-if", "bound_s>+5%").returncode)
        # A flag takes one value each time, wherever it stands.
        before = stretto("diff", "--fail-if", "bound_s>+5%", "--fail-if", "exposed_s>+5%", good, bad)
        self.assertEqual(4, before.returncode, before.stderr)
        self.assertEqual(0, stretto("diff", "--comm-regex", "mine", good, bad).returncode)
        done = stretto("diff", good, bad, "--fail-if", "exposd_s>+5%")
        self.assertEqual(2, done.returncode)
        self.assertIn("Did you mean 'exposed_s'", done.stderr)

    def test_history(self):
        directory = self.directory / "history"
        directory.mkdir()
        for day, late in enumerate((50, 50, 50, 0)):
            (directory / f"day{day}.json").write_text(
                stretto("analyze", self.write(f"day{day}.json", late), "--json").stdout)
        done = stretto("diff", "--history", directory, "--fail-if", "communication_s>+10%")
        self.assertEqual(4, done.returncode, done.stderr)
        self.assertIn("day3.json", done.stdout)
        self.assertIn("communication_s went from 150.0 us to 200.0 us", done.stdout)


class SmallTraces(CliTest):
    def trace(self, name, kernel="gemm"):
        """One step of one device: 100 us of compute, then 30 us of communication that nothing hides."""
        path = self.directory / name
        rows = [(kernel, 0, 100, 7), ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 100, 30, 8)]
        path.write_text(json.dumps({"traceEvents": [
            {"ph": "X", "cat": "kernel", "name": title, "pid": 0, "tid": stream, "ts": 1000 + begin, "dur": length,
             "args": {"device": 0, "stream": stream, "correlation": stream}} for title, begin, length, stream in rows]}))
        return path

    def test_what_is_killed_while_it_writes_leaves_nothing(self):
        trace = self.trace("own.json")
        page = self.directory / "killed" / "page.html"
        page.parent.mkdir()
        page.write_text("as it was")

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # SIGXFSZ ends what writes more

        done = subprocess.run([STRETTO, "report", trace, "-o", page], preexec_fn=limit, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, -signal.SIGXFSZ, done.stderr)
        self.assertEqual(page.read_text(), "as it was")
        self.assertEqual(list(page.parent.iterdir()), [page])

    def test_a_result_never_replaces_what_it_is_made_from(self):
        path = self.trace("own.json")
        before = path.read_bytes()
        link = self.directory / "link.json"
        link.symlink_to(path)
        machine = self.directory / "machine.json"
        machine.write_text(json.dumps({"schema": "stretto.machine/1", "name": "m", "levels": [
            {"name": "net", "group_size": 2, "latency_s": 1e-5, "bandwidth_bytes_per_s": 1e9}]}))  # fmt: skip
        of_machine = machine.read_bytes()
        for arguments in (
            ["analyze", path, "-o", path],
            ["report", path, "-o", link],
            ["report", "--prometheus", path, path],
            ["convert", link, "-o", path],
            ["plan", path, "--machine", machine, "--save-plan", machine],
            ["simulate", "resnet50", "--machine", machine, "-o", machine],
        ):
            with self.subTest(arguments=arguments):
                done = stretto(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("would replace what it is made from", done.stderr)
                self.assertEqual(path.read_bytes(), before)
                self.assertEqual(machine.read_bytes(), of_machine)
        both = self.directory / "both.json"
        done = stretto("plan", "resnet50", "--machine", machine, "-o", both, "--save-plan", both)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("two results cannot go into one file", done.stderr)
        self.assertFalse(both.exists())

    def test_a_result_that_cannot_be_written_leaves_the_old_one(self):
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        directory = self.directory / "results"
        directory.mkdir()
        old = directory / "page.html"
        old.write_text("the old one")
        old.chmod(0o640)
        path = self.trace("written.json")
        done = stretto("report", path, "-o", old, preexec_fn=small_files)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("page.html", done.stderr)
        self.assertEqual(old.read_text(), "the old one")
        self.assertEqual(list(directory.iterdir()), [old])
        # What can be written keeps the file's rights, and a link to it stays one.
        link = directory / "link.html"
        link.symlink_to(old)
        self.assertEqual(stretto("report", path, "-o", link).returncode, 0)
        self.assertTrue(link.is_symlink())
        self.assertIn("<html", old.read_text())
        self.assertEqual(old.stat().st_mode & 0o777, 0o640)
        self.assertEqual(sorted(directory.iterdir()), [link, old])
        self.assertTrue(stretto("report", path, "-o", "/dev/stdout").stdout.startswith("<!doctype html>"))

    def test_diff_of_nothing_exposed(self):
        result = self.directory / "hidden.result.json"
        document = json.loads(stretto("analyze", self.trace("exposed.json"), "--json").stdout)
        summary = document["summary"]
        self.assertGreater(summary["exposed_s"], 0)
        exposed = self.directory / "exposed.result.json"
        exposed.write_text(json.dumps(document))
        summary["exposed_s"] = 0.0
        result.write_text(json.dumps(document))
        same = stretto("diff", result, result, "--fail-if", "exposed_s > +5%")  # spaces as people write them
        self.assertEqual((same.returncode, same.stderr), (0, ""))
        worse = stretto("diff", result, exposed, "--fail-if", "exposed_s>+5%")
        self.assertEqual(worse.returncode, 4)
        self.assertIn("went from 0 s to", worse.stdout)
        self.assertEqual(stretto("diff", result, exposed, "--fail-if", "exposed_s<-5%").returncode, 0)

    def test_history_goes_on_without_what_cannot_be_read(self):
        history = self.directory / "broken_history"
        history.mkdir()
        for day in ("1.json", "2.json", "4.json"):
            (history / day).write_text(self.trace("day.json").read_text())
        (history / "3.json").write_text("{")
        done = stretto("diff", "--history", history)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3.json: left out", done.stderr)
        (history / "5.json").write_text("{")  # the one that is asked about
        self.assertEqual(stretto("diff", "--history", history).returncode, 3)

    def test_analyze_json_has_every_table(self):
        path = self.trace("tables.json")
        document = json.loads(stretto("analyze", path, "--json").stdout)
        self.assertEqual([step["exposed_s"] for step in document["steps"]], [30e-6])
        self.assertEqual([(step["device"], step["communication_sum_s"], step["hidden_s"], step["idle_s"])
                          for step in document["steps"]], [(0, 30e-6, 0.0, 0.0)])
        self.assertEqual([(row["kernel"], row["counts_as"]) for row in document["classes"]],
                         [("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "communication"), ("gemm", "compute")])
        hta = json.loads(stretto("analyze", path, "--as", "hta", "--json").stdout)
        self.assertEqual(hta["ranks"][0]["stages"][0]["kernel_time_ns"], 130000)
        for flags in (("--json", "--csv"), ("--as", "hta", "--csv"), ("--classes", "--csv")):
            self.assertEqual(stretto("analyze", path, *flags).returncode, 2, flags)

    def test_next_keeps_the_flags_that_made_the_numbers(self):
        folder = self.directory / "two ranks"
        folder.mkdir()
        for rank in range(2):
            self.trace(f"two ranks/rank{rank}.json", kernel="my_exchange")
        done = stretto("analyze", folder, "--comm-regex", "my_ex", "--machine", "2@1Gbit/s,50us")
        self.assertEqual(done.returncode, 0, done.stderr)
        following = [line for line in done.stdout.splitlines() if line.startswith("next: ")][0]
        self.assertIn("--comm-regex my_ex", following)
        self.assertIn("--machine 2@1Gbit/s,50us", following)

    def test_names_cannot_move_the_cursor(self):
        path = self.trace("escapes.json", kernel="\x1b[31mred\x1b]0;title\x07\nline")
        for flags in (("--classes",), ("--per", "collective"), ()):
            done = stretto("analyze", path, *flags)
            self.assertNotIn("\x1b", done.stdout + done.stderr)
        self.assertIn("\\x1b[31mred", stretto("analyze", path, "--classes").stdout)

    def test_more_ranks_than_a_host_can_have(self):
        done = stretto("replay", "resnet50", "--emulate", "9999@1Gbit/s,50us")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("at most 256", done.stderr)


class Train(CliTest):
    def test_both_schedules_give_the_same_weights(self):
        common = ["-n", 2, "--steps", 6, "--warmup", 2, "--algorithm", "direct", "--json"]
        documents = [
            self.result(self.train(*common, *more))
            for more in (
                ["--schedule", "serial"],
                ["--schedule", "overlap", "--buckets", "16K", "--verify", 2],
                ["--schedule", "overlap", "--buckets", "ddp", "--streams", 0],
            )
        ]
        runs = [document["runs"][0] for document in documents]
        self.assertEqual(len({run["weights_hash"] for run in runs}), 1)
        self.assertEqual(len({run["plan_hash"] for run in runs}), len(runs) - 1)  # ddp: one bucket
        self.assertEqual([run["schedule"] for run in runs], ["serial", "overlap", "overlap"])
        for document, run in zip(documents, runs):
            self.assertEqual((document["ranks"], document["backend"]), (2, "shm"))
            self.assertEqual(run["summary"]["steps"], 6)
            self.assertGreater(run["summary"]["communication_s"], 0)
            self.assertGreater(run["accuracy"], 0.05)

    def test_priority_clipped_and_sharded_gives_the_weights_of_serial(self):
        common = ["-n", 2, "--steps", 6, "--buckets", "16K", "--algorithm", "direct", "--optimizer", "adamw"]
        common += ["--weight-decay", "0.01", "--clip-norm", "0.5", "--json"]
        documents = [
            self.result(self.train(*common, *more))
            for more in (["--schedule", "serial"], ["--schedule", "priority"], ["--schedule", "priority", "--zero", 1])
        ]
        self.assertEqual(len({document["runs"][0]["weights_hash"] for document in documents}), 1)
        whole, sharded = documents[1]["optimizer_state_bytes"], documents[2]["optimizer_state_bytes"]
        self.assertLess(abs(sharded / whole - 0.5), 0.05)
        refused = self.train("-n", 2, "--zero", 1, "--clip-norm", 1, "--schedule", "overlap", "--json")
        self.assertIn("clip", self.error(refused, 2)["message"])
        refused = self.train("--optimizer", "adam", "--momentum", "0.5", "--json")
        self.assertIn("momentum", self.error(refused, 2)["message"])

    def test_files(self):
        plan, trace = self.directory / "plan.json", self.directory / "run.trace.json"
        timeline, output = self.directory / "timeline.json", self.directory / "out.json"
        first = self.train(
            "--steps", 3, "--buckets", "8K", "--save-plan", plan, "--timeline", trace, "--json"
        )
        first = self.result(first)
        self.assertEqual(first["files"], [str(trace), str(plan)])
        self.assertIn("traceEvents", json.loads(trace.read_text()))
        done = self.train(
            "--steps", 3, "--plan", plan, "--timeline", timeline, "--json", "-o", output
        )
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        again = json.loads(output.read_text())
        self.assertEqual(again["runs"][0]["plan_hash"], first["runs"][0]["plan_hash"])
        self.assertEqual(json.loads(timeline.read_text())["schema"], "stretto.timeline/1")
        other = self.train("--plan", plan, "--layers", "784-32-10", "--json")
        self.assertIn("another model", self.error(other, 3)["message"])

    def test_a_codec_sends_less_and_all_ranks_end_alike(self):
        dense = self.result(self.train("-n", 2, "--steps", 5, "--json"))
        self.assertNotIn("compression", dense)
        done = self.train("-n", 2, "--steps", 5, "--compress", "int8", "--json")  # ranks compare weights
        compression = self.result(done)["compression"]
        self.assertEqual(compression["codecs"], ["int8"])
        self.assertLess(compression["sent_bytes"], 0.26 * compression["gradient_bytes"])
        self.assertGreater(compression["residual_norm"], 0)
        self.assertEqual(compression["not_finite"], 0)
        text = self.train("-n", 2, "--steps", 5, "--compress", "topk:0.01").stdout
        self.assertIn("compression topk:0.01: ", text)

    def test_codecs_begin_when_they_are_to_and_say_what_they_took(self):
        codec = "topk:0.01:momentum=0.9:warmup=3"
        flags = ["-n", 2, "--steps", 4, "--warmup", 2, "--compress", codec, "--json"]
        begun = self.result(self.train(*flags, "--compress-start", 4))
        self.assertEqual(begun["compression"]["exchanges"], 2)  # of steps 4 and 5
        (row,) = begun["runs"][0]["summary"]["codecs"]
        self.assertEqual(row["codec"], codec)
        self.assertGreater(row["encode_s"], 0)
        self.assertGreater(row["wire_s"], 0)
        later = self.result(self.train(*flags, "--compress-start", 100))
        self.assertEqual(later["runs"][0]["summary"]["codecs"], [])
        self.assertEqual(later["compression"]["sent_bytes"], 0)
        error = self.error(self.train("--compress", "int8:momentum=0.9", "--steps", 1, "--json"), 2)
        self.assertIn("momentum=0.9", error["found"])

    def test_a_codec_that_is_not_there_is_exit_2(self):
        error = self.error(self.train("--compress", "int9", "--steps", 1, "--json"), 2)
        self.assertIn("--compress", error["where"])
        self.assertIn("int8", error["help"])
        error = self.error(self.train("--compress", "int8", "--algorithm", "ring", "--steps", 1, "--json"), 2)
        self.assertIn("direct", error["expected"])

    def test_a_plan_keeps_its_codec(self):
        plan = self.directory / "compressed.json"
        self.result(self.train("-n", 2, "--steps", 1, "--compress", "int4", "--save-plan", plan, "--json"))
        again = self.result(self.train("-n", 2, "--steps", 1, "--plan", plan, "--json"))
        self.assertEqual(again["compression"]["codecs"], ["int4"])

    def test_a_baseline_of_another_model_is_refused(self):
        baseline = self.directory / "other.json"
        self.assertEqual(self.train("-n", 1, "--steps", 3, "--batch", 32, "--json", "-o", baseline).returncode, 0)
        error = self.error(self.train("--steps", 3, "--batch", 16, "--baseline", baseline, "--json"), 4)
        self.assertIn("batch 32", error["found"])
        self.assertIn("batch 16", error["expected"])

    def test_numbers_that_are_none(self):
        for flags in (("--lr", "nan"), ("--lr", -1), ("--momentum", 2)):
            self.assertEqual(self.train("--steps", 3, *flags).returncode, 2, flags)
        for seconds in ("nan", 1e300, -1):
            self.assertEqual(stretto("replay", "resnet50", "--compute-s", seconds).returncode, 2, seconds)

    def test_a_closed_stdout_is_an_error(self):
        done = subprocess.run(f"{STRETTO} plan resnet50 --machine 2@1Gbit/s,50us --json >&-", shell=True,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("stdout cannot be written", done.stderr)

    def test_a_rank_map_of_other_launchers_is_checked(self):
        for text in ("0 0", "0 2", "0", "0 1 2"):
            path = self.directory / "map.txt"
            path.write_text(text.replace(" ", "\n"))
            variables = {**os.environ, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2",
                         "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                         "OMPI_MCA_ess_base_jobid": "7"}
            done = self.train("--steps", 3, "--emulate", "2@1Gbit/s,50us", "--rank-map", path, env=variables)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(str(path), done.stderr)

    def test_baseline_is_what_scaling_is_measured_against(self):
        baseline = self.directory / "baseline.json"
        single = self.train("-n", 1, "--steps", 3, "--json", "-o", baseline)
        self.assertEqual(single.returncode, 0, single.stderr)
        document = self.result(self.train("--steps", 3, "--baseline", baseline, "--json"))
        one_rank = json.loads(baseline.read_text())["runs"][0]["summary"]["step_s"]
        summary = document["runs"][0]["summary"]
        self.assertAlmostEqual(summary["scaling_efficiency"], one_rank / summary["step_s"])

    def test_text_begins_with_the_verdict(self):
        done = self.train("--steps", 3)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("exposed communication: "), done.stdout)
        self.assertIn("\nnext: stretto ", done.stdout)
        self.assertNotIn("\033", done.stdout)
        self.assertEqual(done.stderr, "")

    def test_an_unwritable_file_is_exit_5(self):
        done = self.train("--steps", 1, "--timeline", "/nonexistent/x.json", "--json")
        self.assertEqual(self.error(done, 5)["where"], "/nonexistent/x.json")

    def test_ranks_of_another_launcher_run_without_a_launch(self):
        train = ["train", "--data", self.data, "--steps", 2, "--json"]
        ranks = self.as_ranks({0: train, 1: train})
        self.assertEqual([rank.returncode for rank in ranks], [0, 0])
        self.assertEqual(json.loads(ranks[0].stdout)["ranks"], 2)
        self.assertEqual(ranks[1].stdout, "")

    def as_ranks(self, commands, size=None):
        """Rank -> arguments, as torchrun would start these of `size` ranks. What each of them did."""
        with tempfile.TemporaryDirectory() as folder:
            ranks = []
            for rank, arguments in commands.items():
                environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), TMPDIR=folder)
                environment.update(WORLD_SIZE=str(size or len(commands)), LOCAL_WORLD_SIZE=str(size or len(commands)))
                environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(10000 + os.getpid() % 50000))
                ranks.append(
                    subprocess.Popen(
                        [STRETTO, *map(str, arguments)], env=environment,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    )
                )  # fmt: skip
                self.addCleanup(ranks[-1].kill)
            done = [
                subprocess.CompletedProcess(rank.args, *((rank.communicate(timeout=90), rank.returncode)[::-1]))
                for rank in ranks
            ]
            for one in done:
                one.stdout, one.stderr = one.stdout
            self.assertEqual(os.listdir(folder), [])
        return done

    def test_a_rank_that_never_comes_is_a_time_out_that_names_it(self):
        # Not the one of connecting without --timeout, after which this test has failed.
        train = ["train", "--data", self.data, "--steps", 2, "--timeout", "3s"]
        for rank, done in zip((0, 2), self.as_ranks({0: [*train, "--json"], 2: train}, size=3)):
            self.assertEqual(done.returncode, 124)
            if rank == 0:
                error = self.error(done, 124)
                self.assertEqual(error["code"], "timeout")
                self.assertRegex(error["found"], "^no sign of rank 1 after 3")
            else:
                self.assertIn("error[timeout]: not all ranks came to the rendezvous", done.stderr)
                self.assertIn("no sign of rank 1 after 3", done.stderr)

    def test_ranks_that_were_given_different_flags_all_say_which(self):
        train = ["train", "--data", self.data, "--timeout", "20s"]
        replay = ["replay", "resnet50", "--compute-s", 0.01, "--timeout", "20s"]
        other = self.directory / "other.plan.json"
        plan = self.directory / "first.plan.json"
        for path, size in ((plan, "64K"), (other, "1M")):
            self.result(self.train("-n", 1, "--steps", 1, "--buckets", size, "--save-plan", path, "--json"))
        small = ["--layers", "784-64-64-10"]
        for command, mine, theirs, name in (
            (train, ["--seed", 1], ["--seed", 2], "--seed"),
            (train, ["--batch", 16], ["--batch", 32], "--batch"),
            (train, ["--steps", 2], ["--steps", 3], "--steps"),
            (train, ["--schedule", "overlap"], ["--schedule", "serial"], "--schedule"),
            (train, ["--lr", 0.05], ["--lr", 0.06], "--lr"),
            (train, ["--buckets", "64K"], ["--buckets", "1M"], "--buckets"),
            (train, [*small, "--plan", plan], [*small, "--plan", other], "plan"),
            (train, small, [*small, "--plan", other], "--plan"),
            (replay, ["--steps", 2], ["--steps", 3], "--steps"),
            (replay, ["--batch", 8], ["--batch", 16], "--batch"),
        ):
            with self.subTest(command=command[0], flags=theirs):
                first, *others = self.as_ranks({rank: command + (theirs if rank == 1 else mine) for rank in range(3)})
                self.assertEqual([done.returncode for done in (first, *others)], [4, 4, 4], first.stderr)
                self.assertIn(f"error[mismatch]: ", first.stderr)
                self.assertIn(f"{name} of rank 1 differs from that of rank 0", first.stderr)
                if name.startswith("--"):
                    self.assertRegex(first.stderr, f"found: +{'a file' if name == '--plan' else theirs[-1]}\n")
                    self.assertRegex(first.stderr, f"expected: +{'none' if name == '--plan' else mine[-1]}\n")
                    self.assertEqual([done.stderr for done in others], [first.stderr] * 2)


class Planned(CliTest):
    def test_train_measures_and_plans(self):
        done = stretto(
            "train", "--emulate", "2@1Gbit/s,50us", "--buckets", "planned", "--batch", 8, "--layers", "784-64-10",
            "--steps", 3, "--data", self.data, "--json",
        )
        if done.returncode == 1 and "cannot keep up" in done.stdout:
            self.skipTest("the host is too busy to emulate a network")
        self.assertIn("planned", self.result(done)["runs"][0]["name"])

    def test_replay_plans_by_default(self):
        done = stretto("replay", "resnet50", "--emulate", "2@10Gbit/s,50us", "--steps", 2, "--warmup", 1, "--json")
        if done.returncode == 1 and "cannot keep up" in done.stdout:
            self.skipTest("the host is too busy to emulate a network")
        self.assertIn("planned", self.result(done)["runs"][0]["name"])


class Replay(CliTest):
    def test_values_are_checked_and_the_basis_is_said(self):
        document = self.result(
            stretto("replay", "resnet50", "-n", 2, "--steps", 2, "--compute-s", 0.02, "--json")
        )
        self.assertGreater(document["values_checked"], 0)
        self.assertEqual(document["basis"], "assumed")
        self.assertIn("assume", stretto("replay", "resnet50", "-n", 1, "--steps", 1).stdout)
        run = document["runs"][0]
        self.assertIsNone(run["weights_hash"])
        self.assertGreaterEqual(run["summary"]["compute_s"], 0.01)

    def test_emulated_machine_gives_ranks_and_bound(self):
        done = stretto("replay", "resnet50", "--emulate", "2@8Gbit/s,50us", "--steps", 3, "--json")
        if done.returncode == 1 and "cannot keep up" in done.stdout:
            self.skipTest("the host is too busy to emulate a network")
        document = self.result(done)
        self.assertEqual(document["ranks"], 2)
        self.assertEqual(document["emulated"], "2@8Gbit/s,50us")
        summary = document["runs"][0]["summary"]
        self.assertLessEqual(summary["bound_s"], summary["step_s"])


class Faults(CliTest):
    def start(self, *arguments):
        command = ["train", "-n", 2, "--data", self.data, "--epochs", 10000, "--json", *arguments]
        launcher = subprocess.Popen(
            [STRETTO, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(launcher.kill)
        deadline = time.monotonic() + 20
        while len(ranks_of(launcher.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        self.ranks = ranks_of(launcher.pid)
        self.assertEqual(sorted(self.ranks), [0, 1])
        time.sleep(1.0)  # into the training
        return launcher

    def finish(self, launcher, within_s):
        begin = time.monotonic()
        stdout, stderr = launcher.communicate(timeout=30)
        self.assertLess(time.monotonic() - begin, within_s)
        for pid in self.ranks.values():
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists(), f"process {pid} is left")
        return subprocess.CompletedProcess([], launcher.returncode, stdout, stderr)

    def test_a_killed_rank_ends_the_job_and_is_named(self):
        for victim in (0, 1):
            with self.subTest(victim=victim):
                for _ in range(3):  # on a busy host no step may have begun: then nobody names one
                    launcher = self.start()
                    os.kill(self.ranks[victim], signal.SIGKILL)
                    error = self.error(self.finish(launcher, within_s=3), 1)
                    if "noticed" in error["where"]:
                        break
                self.assertEqual(error["code"], "peer_lost")
                self.assertIn(f"rank {victim} (pid {self.ranks[victim]})", error["message"])
                self.assertIn("SIGKILL", error["message"])
                self.assertRegex(error["where"], rf"noticed by rank {1 - victim} in step \d+, bucket \d+")

    def test_an_interrupt_is_128_and_its_number_and_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            launcher = self.start()
            launcher.send_signal(number)
            done = self.finish(launcher, within_s=4)
            self.assertEqual(done.returncode, 128 + number)
            self.assertEqual(json.loads(done.stdout)["error"]["code"], "interrupted")

    def test_a_rank_that_stands_still_is_a_time_out(self):
        launcher = self.start("--timeout", "1s")
        os.kill(self.ranks[1], signal.SIGSTOP)
        self.assertEqual(self.error(self.finish(launcher, within_s=8), 124)["code"], "timeout")

    def test_a_killed_launcher_takes_its_ranks_along(self):
        folder = self.directory / "killed"
        folder.mkdir()
        before = os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = str(folder)
        try:
            launcher = self.start()
            launcher.kill()
            launcher.wait()
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline and set(self.ranks.values()) & set(parents()):
                time.sleep(0.02)
            self.assertFalse(set(self.ranks.values()) & set(parents()))
            # What it could not remove, the next one does.
            self.assertEqual(len(list(folder.iterdir())), 1)
            self.assertEqual(stretto("run", "-n", 1, "--", "true").returncode, 0)
            self.assertEqual(list(folder.iterdir()), [])
        finally:
            os.environ.pop("TMPDIR")
            if before is not None:
                os.environ["TMPDIR"] = before


class Run(CliTest):
    def test_the_exit_code_is_the_programs(self):
        self.assertEqual(stretto("run", "-n", 2, "--", "true").returncode, 0)
        self.assertEqual(stretto("run", "-n", 2, "--", "sh", "-c", "exit 7").returncode, 7)
        one = "test $RANK = 1 && exit 9; sleep 30"
        self.assertEqual(stretto("run", "-n", 3, "--", "sh", "-c", one).returncode, 9)

    def test_a_killed_program_is_named(self):
        done = stretto("run", "-n", 1, "--", "sh", "-c", "kill -9 $$")
        self.assertEqual(done.returncode, 137)
        self.assertIn("rank 0 (pid ", done.stderr)
        self.assertIn("SIGKILL", done.stderr)

    def test_ended_by_a_signal_it_is_128_and_its_number(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            started = self.directory / f"started-{number}"
            script = f"touch {started}-$RANK; exec sleep 60"
            launcher = subprocess.Popen(
                [STRETTO, "run", "-n", "2", "--", "sh", "-c", script], stderr=subprocess.PIPE, text=True
            )
            self.addCleanup(launcher.kill)
            deadline = time.monotonic() + 20
            while not all(pathlib.Path(f"{started}-{rank}").exists() for rank in (0, 1)):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            launcher.send_signal(number)
            _, errors = launcher.communicate(timeout=30)
            self.assertEqual(launcher.returncode, 128 + number)
            self.assertEqual(errors, "")

    def test_a_reader_that_has_gone_ends_it_quietly(self):
        # Rank 1 would stay; both write without end, as programs do that have a long story to tell.
        for script in ("yes", 'test $RANK = 0 && exec yes; sleep 60'):
            launcher = subprocess.Popen(
                [STRETTO, "run", "-n", "2", "--", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            self.addCleanup(launcher.kill)
            self.assertEqual(launcher.stdout.readline(), b"y\n")
            ranks = ranks_of(launcher.pid)
            launcher.stdout.close()
            with launcher.stderr:
                errors = launcher.stderr.read()
            self.assertEqual(launcher.wait(30), 128 + signal.SIGPIPE)
            self.assertEqual(errors, b"")
            for pid in ranks.values():
                self.assertFalse(pathlib.Path(f"/proc/{pid}").exists(), f"process {pid} is left")

    def test_ranks_and_flags_of_the_program_reach_it(self):
        done = stretto("run", "-n", 3, "--", "sh", "-c", 'echo "$RANK of $WORLD_SIZE $1"', "sh", "--json")
        self.assertEqual(sorted(done.stdout.split("\n"))[1:], [f"{i} of 3 --json" for i in range(3)])

    def test_rank_map(self):
        path = self.directory / "map.txt"
        path.write_text("1 0 # swapped\n")
        done = stretto("run", "-n", 2, "--rank-map", path, "--", "sh", "-c", "exit $RANK")
        self.assertEqual(done.returncode, 1)
        path.write_text("0 0\n")
        self.assertEqual(stretto("run", "-n", 2, "--rank-map", path, "--", "true").returncode, 2)

    def test_a_missing_program_is_exit_5(self):
        self.assertEqual(stretto("run", "-n", 1, "--", "no-such-program-here").returncode, 5)


class Report(CliTest):
    def test_a_pipe_is_read_once_and_a_machine_by_what_it_is(self):
        pipe = self.directory / "pipe"
        os.mkfifo(pipe)
        trace = gzip.decompress((self.EXAMPLES / "gloo_ddp_rank0.json.gz").read_bytes())
        writer = threading.Thread(target=lambda: pipe.write_bytes(trace))
        writer.start()
        done = self.report(pipe, "-o", "r.html")
        writer.join()
        self.assertEqual(done.returncode, 0, done.stderr)
        level = {"name": "link", "group_size": 2, "latency_s": 1e-5, "bandwidth_bytes_per_s": 1e9}
        machine = {"schema": "stretto.machine/1", "name": "m", "basis": "measured", "source": "", "levels": [level]}
        (self.directory / "machine.txt").write_text(json.dumps(machine))
        done = self.report("machine.txt", "-o", "r.html")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_steps_go_to_tensorboard(self):
        logs = self.directory / "logs"
        done = stretto("train", "-n", 2, "--data", self.data, "--steps", 3, "--tb", logs, "--json")
        (name,) = os.listdir(logs)
        self.assertIn("tfevents", name)
        self.assertEqual(self.result(done)["files"], [str(logs / name)])
        self.assertEqual((logs / name).read_bytes().count(b"stretto/step_ms"), 3)
        done = stretto("report", Plan.TRACES, "--tb", logs)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(os.listdir(logs)), 2)
        self.assertFalse((self.directory / "report.html").exists())
        self.assertEqual(stretto("train", "-n", 2, "--data", self.data, "--steps", 2, "--tb", "/dev/null").returncode, 5)

    EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "traces"

    def report(self, *arguments):
        """Skips in a build without a viewer, whose answer is always the same."""
        done = stretto("report", *arguments, cwd=self.directory)
        if done.returncode == 5 and "no viewer" in done.stderr:
            self.assertIn("esbuild", done.stderr)
            self.skipTest("this build has no viewer")
        return done

    def test_a_machine_by_pipe_is_said_to_need_its_name(self):
        level = {"name": "link", "group_size": 2, "latency_s": 1e-5, "bandwidth_bytes_per_s": 1e9}
        machine = {"schema": "stretto.machine/1", "name": "m", "basis": "assumed", "source": "", "levels": [level]}
        # Without -o there is no page, so a build without a viewer says the same.
        done = stretto("report", "/dev/stdin", "--prometheus", "-", input=json.dumps(machine), cwd=self.directory)
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn("/dev/stdin is a pipe", done.stderr)

    def test_prometheus_goes_to_stdout_too_and_is_never_empty(self):
        done = stretto("report", self.EXAMPLES, "--prometheus", "-", cwd=self.directory)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("# HELP stretto_step_seconds"), done.stdout[:80])
        self.assertNotIn("wrote", done.stdout)
        self.assertFalse((self.directory / "-").exists())
        level = {"name": "link", "group_size": 2, "latency_s": 1e-5, "bandwidth_bytes_per_s": 1e9}
        machine = {"schema": "stretto.machine/1", "name": "m", "basis": "assumed", "source": "", "levels": [level]}
        (self.directory / "only.json").write_text(json.dumps(machine))
        done = stretto("report", "only.json", "--prometheus", "x.prom", cwd=self.directory)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("no numbers", done.stderr)
        self.assertFalse((self.directory / "x.prom").exists())
        self.assertEqual(stretto("report", "only.json", "--prometheus", "-", "-o", "-", cwd=self.directory).returncode, 2)

    def test_traces_become_one_file(self):
        done = self.report(self.EXAMPLES, "-o", "r.html", "--lang", "zh")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("exposed communication", done.stdout.splitlines()[0])
        page = (self.directory / "r.html").read_text()
        self.assertIn('<html lang="zh-Hans">', page)
        self.assertEqual(self.report(self.EXAMPLES, "-o", "-", "--lang", "zh").stdout.count("<html"), 1)

    def test_redacted_it_names_no_file(self):
        traces = self.directory / "secret"
        traces.mkdir()
        for trace in self.EXAMPLES.glob("*.json.gz"):
            (traces / trace.name).write_bytes(trace.read_bytes())
        done = self.report("secret", "--redact", "-o", "r.html")
        self.assertEqual(done.returncode, 0, done.stderr)
        page = (self.directory / "r.html").read_text()
        for secret in ("secret", "gloo_ddp", str(self.directory)):
            self.assertNotIn(secret, page)

    def test_what_it_cannot_show_is_said(self):
        (self.directory / "other.json").write_text('{"schema": "stretto.doctor/1"}')
        (self.directory / "text.json").write_text("hello")
        for name, code, words in (("other.json", 3, "no page for"), ("text.json", 3, ""), ("none.json", 2, "none.json")):
            done = self.report(name, "-o", "none.html")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertFalse((self.directory / "none.html").exists())
        done = self.report(self.EXAMPLES, "-o", "no/such/folder.html")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertEqual(self.report(self.EXAMPLES, "--lang", "xx").returncode, 2)


class Demo(CliTest):
    def test_five_rows_with_equal_weights(self):
        done = stretto(
            "demo", "--data", self.data_for_demo(), "--steps", 2, "--json", cwd=self.directory, timeout=120
        )
        if done.returncode == 1 and "cannot keep up" in done.stdout:
            self.skipTest("the host is too busy to emulate a network")
        document = self.result(done)
        self.assertEqual(document["emulated"], "2@2Gbit/s,50us")
        self.assertEqual(len({run["weights_hash"] for run in document["runs"]}), 1)
        self.assertEqual(
            [run["schedule"] for run in document["runs"]], ["serial", "overlap", "overlap", "overlap", "priority"]
        )
        self.assertIn("planned", document["runs"][-1]["name"])
        files = [file for file in document["files"] if not file.endswith(".html")]
        self.assertEqual(len(files), 5)
        for file in files:
            json.loads((self.directory / file).read_text())
        for page in set(document["files"]) - set(files):  # none in a build without a viewer
            self.assertIn("<html", (self.directory / page).read_text())
        self.check_recorded(document["trace"])

    def check_recorded(self, trace):
        """What it says of the recording is what analyze says of the files that it leaves."""
        self.assertEqual(trace["ranks"], 2)
        self.assertEqual(len(trace["files"]), 2)
        self.assertEqual(len(trace["diagnoses"]), 3)
        analyzed = self.result(stretto("analyze", *trace["files"], "--json", cwd=self.directory))
        self.assertEqual(trace["exposed_s"], analyzed["summary"]["exposed_s"])
        self.assertGreater(trace["exposed_s"], 0)
        self.assertEqual(
            [diagnosis["id"] for diagnosis in trace["diagnoses"]],
            [diagnosis["id"] for diagnosis in analyzed["diagnoses"][:3]],
        )
        done = stretto("analyze", pathlib.Path(trace["files"][0]).parent, cwd=self.directory)
        self.assertEqual(done.stdout.splitlines()[0], trace["verdict"])

    def test_opens_with_the_recording(self):
        """Also where there is nothing to train on: it comes first."""
        done = stretto("demo", "--data", self.directory / "none", "--steps", 1, cwd=self.directory)
        self.assertNotEqual(done.returncode, 0)
        lines = done.stdout.splitlines()
        self.assertIn("recorded trace of 2 ranks, PyTorch", lines[0])
        self.assertTrue(lines[1].startswith("exposed communication"), lines[1])
        self.assertEqual(sum(line.startswith("- ") for line in lines), 3)
        self.assertIn("stretto analyze stretto-demo/recorded", done.stdout)

    def data_for_demo(self):
        """Two ranks x 512 images: more than the tiny data set has."""
        larger = self.directory / "larger"
        larger.mkdir()
        write_idx(larger / "train-images-idx3-ubyte.gz", [1024, 28, 28], bytes(range(256)) * 3136)
        write_idx(larger / "train-labels-idx1-ubyte.gz", [1024], bytes(i % 10 for i in range(1024)))
        for file in self.data.glob("t10k-*"):
            (larger / file.name).write_bytes(file.read_bytes())
        return larger


if __name__ == "__main__":
    unittest.main()
