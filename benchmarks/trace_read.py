#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast and in how much memory traces are read, against Holistic Trace Analysis.

  benchmarks/trace_read.py [--build build/release] [--python VENV/bin/python] [--size 512M]
                           [--hta-size 64M] [--rounds 3] [--folder /tmp] [--huge 0] [--convert] [FILE...]

Generates a two-rank job (rank 0 and rank 1, --size of JSON each), reads rank 0 plain and packed, and
each FILE, with bench_trace_read; and, if --python has HolisticTraceAnalysis (and ijson), reads a
part of it (--hta-size) and each FILE with that, with its default and with its fastest backend. All
kinds take turns, a new process each. --convert also writes the generated file in every form that
holds all records, and prints how much memory that takes. --huge 4G also streams a file of that size through a pipe.
Prints one table; what is measured is said in README.md.
"""
import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import zlib

# Proportions of a DDP step, of the events of a real 2-GPU recording: 26 % operators, 20 % runtime
# calls of which half launch something, 30 % flows, 13 % instants, 9 % kernels, 1 % copies, and one
# collective per 40 kernels.
OPERATORS, LAUNCHES, OTHER_CALLS, INSTANTS, COLLECTIVES, COPIES = 2300, 880, 900, 1150, 20, 30

HTA = """
import json, resource, sys, time, logging
logging.disable(logging.CRITICAL)
from hta.common.trace import Trace
from hta.common import trace_parser
from hta.configs.parser_config import ParserBackend
trace_parser.set_default_trace_parsing_backend(ParserBackend[sys.argv[2]])
begin = time.perf_counter()
trace = Trace({0: sys.argv[1]}, "")
trace.load_traces(True)
print(json.dumps({"read_s": time.perf_counter() - begin, "rows": len(trace.traces[0]),
                  "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


def size_of(text):
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return int(float(text[:-1]) * units[text[-1]]) if text[-1] in units else int(text)


class Step:
    """Text of one step, with places for its times and ids."""

    def __init__(self, rank):
        self.parts = []
        self.rank = rank
        self.pid = 783658 + rank
        at = 0
        for i in range(OPERATORS):
            at += 37
            self.slice("cpu_op", f"aten::operator_{i % 97}", self.pid, self.pid, at, 20.5 if i % 4 else 130.5,
                       f'"External id": %(id{i}), "Ev Idx": {i}, "Sequence number": {1573 + i % 300}')
            if i % 2 == 0:
                self.add('"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", '
                         f'"pid": {self.pid}, "tid": {self.pid},\n    "ts": %(at{at}),\n    "args": {{\n'
                         f'      "Ev Idx": {i}, "Device Type": 1, "Device Id": {rank}, "Addr": 139927987683328, '
                         '"Bytes": -14680064, "Total Allocated": 5645505536, "Total Reserved": 12782141440\n    }')
        at = 0
        for i in range(LAUNCHES + OTHER_CALLS):
            at += 47
            launches = i % 2 == 0 and i // 2 < LAUNCHES
            self.slice("cuda_runtime", "cudaLaunchKernel" if launches else "cudaStreamIsCapturing",
                       self.pid, self.pid, at, 6.125,
                       f'"External id": %(id{i}), "cbid": {211 if launches else 317}, "correlation": %(id{i})')
            if not launches:
                continue
            self.flow("s", self.pid, self.pid, at, i)
            kernel = i // 2
            if kernel % (LAUNCHES // COLLECTIVES) == 21:
                self.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20,
                            at + 60, 900.5, i, ', "Collective name": "allreduce", "In msg nelems": 2049000, '
                            '"Out msg nelems": 2049000, "Group size": 2, "dtype": "Float", "In split size": "[]", '
                            '"Out split size": "[]", "Process Group Name": "0", "Process Group Description": '
                            '"default_pg", "Process Group Ranks": "[0, 1]"')
            elif kernel % (LAUNCHES // COPIES) == 7:
                self.slice("gpu_memcpy", "Memcpy DtoD (Device -> Device)", rank, 7, at + 60, 24.25,
                           f'"External id": %(id{i}), "device": {rank}, "context": 1, "stream": 7, '
                           f'"correlation": %(id{i}), "bytes": 7217152, "memory bandwidth (GB/s)": 293.2847854356307')
            else:
                self.kernel(f"void at::native::vectorized_elementwise_kernel<4, at::native::Functor{kernel % 61}<float>, "
                            "at::detail::Array<char*, 3> >(int, at::native::Functor<float>, at::detail::Array<char*, 3>)",
                            7, at + 60, 80.75, i, "")
            self.flow("f", rank, 7, at + 60, i)
        self.text = "".join(self.parts)
        # From names to positions: one formatting operation per step.
        pieces = self.text.split("%(")
        self.head = pieces[0]
        self.fields = []
        for piece in pieces[1:]:
            name, rest = piece.split(")", 1)
            self.fields.append((name[:2] == "at", int(name[2:]), rest))

    def add(self, body):
        self.parts.append("  {\n    " + body + "\n  },\n")

    def slice(self, category, name, pid, tid, at, duration, args):
        self.add(f'"ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
                 f'    "ts": %(at{at}), "dur": {duration:.3f},\n    "args": {{\n      {args}\n    }}')

    def kernel(self, name, stream, at, duration, i, more):
        self.slice("kernel", name, self.rank, stream, at, duration,
                   f'"External id": %(id{i}), "queued": 0, "device": {self.rank}, "context": 1, "stream": {stream}, '
                   f'"correlation": %(id{i}), "registers per thread": 16, "shared memory": 0, "blocks per SM": 0.625, '
                   '"warps per SM": 2.5, "grid": [50, 1, 1], "block": [128, 1, 1], '
                   f'"est. achieved occupancy %": 4{more}')

    def flow(self, phase, pid, tid, at, i):
        end = ', "bp": "e"' if phase == "f" else ""
        self.add(f'"ph": "{phase}", "id": %(id{i}), "pid": {pid}, "tid": {tid}, "ts": %(at{at}),\n'
                 f'    "cat": "ac2g", "name": "ac2g"{end}')

    def at(self, number):
        base = 4458677000000 + number * 100000
        ids = number * (OPERATORS + 1) + 1
        out = [self.head]
        for is_time, value, rest in self.fields:
            out.append(f"{base + value}.{(value * 7) % 1000:03d}" if is_time else str(ids + value))
            out.append(rest)
        step = (f'  {{\n    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{number}", "pid": {self.pid}, '
                f'"tid": {self.pid},\n    "ts": {base}.000, "dur": 99999.000,\n    "args": {{\n      "Ev Idx": 0\n    }}\n  }},\n')
        return step + "".join(out)


def generate(path, rank, size):
    step = Step(rank)
    with open(path, "w") as out:
        written = out.write(
            '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {\n      "id": 0, "name": "Tesla V100-SXM2-32GB"\n'
            f'    }}\n  ],\n  "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": 2}},\n'
            '  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 1711964646000000000,\n  "traceEvents": [\n')
        number = 0
        while written < size:
            written += out.write(step.at(number))
            number += 1
        out.write('  {\n    "name": "process_name", "ph": "M", "ts": 4458677000000.000, "pid": %d, "tid": 0,\n'
                  '    "args": {\n      "name": "python"\n    }\n  }\n  ],\n  "traceName": "trace.json"\n}\n' % step.pid)


def pack(path):
    packed = path + ".gz"
    with open(path, "rb") as source, gzip.GzipFile(packed, "wb", compresslevel=6, mtime=0) as out:
        while block := source.read(1 << 22):
            out.write(block)
    return packed


def inflate_seconds(path):
    """zlib alone, in blocks as Stretto's."""
    begin = time.perf_counter()
    unpacker = zlib.decompressobj(31)
    with open(path, "rb") as source:
        while block := source.read(1 << 19):
            while block:
                unpacker.decompress(block, 1 << 19)
                block = unpacker.unconsumed_tail
    return time.perf_counter() - begin


def run(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        return {"error": (result.stderr or result.stdout).strip().splitlines()[-1][:200]}
    return json.loads(result.stdout.splitlines()[-1])


def median(results, key):
    values = [r[key] for r in results if key in r]
    return statistics.median(values) if values else float("nan")


def converted(stretto, path):
    """Peak memory of `stretto convert`, for each form that holds all records."""
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".timeline.json", ".csv", ".trace.json"):
            target = os.path.join(folder, "out" + suffix)
            child = subprocess.Popen([stretto, "convert", path, "-o", target], stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL, text=True)
            out = child.stdout.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                print(f"convert to {suffix}: failed")
                continue
            records = int(re.search(r": (\d+) records", out).group(1))
            peak = usage.ru_maxrss * 1024
            print(f"convert to {suffix}: {records} records, peak {peak / 2**20:.0f} MiB, "
                  f"{(peak - 32 * 2**20) / records:.0f} bytes per record above 32 MiB")
            os.remove(target)


def huge(bench, path, size):
    """A file of `size` that is nowhere: the events of `path` again and again, through a pipe."""
    with open(path) as source:
        text = source.read()
    begin = text.index('"traceEvents": [') + len('"traceEvents": [')
    end = text.rindex("\n  ],")
    events = text[begin:end]
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "huge.json")
        os.mkfifo(pipe)
        reader = subprocess.Popen([bench, pipe], stdout=subprocess.PIPE, text=True)
        with open(pipe, "w") as out:
            written = out.write(text[:begin])
            while True:
                written += out.write(events)
                if written >= size:
                    break
                written += out.write(",")
            out.write(text[end:])
        return json.loads(reader.communicate()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--python", help="with HolisticTraceAnalysis installed")
    parser.add_argument("--size", type=size_of, default=size_of("512M"))
    parser.add_argument("--hta-size", type=size_of, default=size_of("64M"))
    parser.add_argument("--huge", type=size_of, default=0)
    parser.add_argument("--convert", action="store_true", help="also the memory of stretto convert")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    options = parser.parse_args()
    bench = os.path.join(options.build, "benchmarks", "bench_trace_read")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        cases = []
        if options.size:
            for rank in (0, 1):
                generate(os.path.join(folder, f"rank{rank}.json"), rank, options.size)
            whole = os.path.join(folder, "rank0.json")
            part = os.path.join(folder, "part.json")
            generate(part, 0, options.hta_size)
            cases = [("generated", whole, False), ("generated, .gz", pack(whole), False),
                     ("generated, rank 1", os.path.join(folder, "rank1.json"), False),
                     ("generated, a part", part, True)]
        cases += [(os.path.basename(file), file, True) for file in options.files]
        measured = {}
        for _ in range(options.rounds):
            for name, path, with_hta in cases:
                kinds = measured.setdefault(name, {})
                kinds.setdefault("stretto", []).append(run([bench, path]))
                if path.endswith(".gz"):
                    kinds.setdefault("inflate", []).append({"read_s": inflate_seconds(path)})
                if with_hta and options.python:
                    for backend in ("JSON", "IJSON_BATCH_AND_COMPRESS"):
                        kinds.setdefault(backend, []).append(run([options.python, "-c", HTA, path, backend]))
        print("| file | JSON MB | events | kept | Stretto s | MB/s | MB/s per core | peak MiB | bound MiB | zlib alone s "
              "| HTA s (MiB) | HTA ijson s (MiB) | ratio |\n|" + "---|" * 13)
        for name, kinds in measured.items():
            ours = kinds["stretto"]
            if "error" in ours[0]:
                print(f"| {name} | {ours[0]['error']} |")
                continue
            megabytes = ours[0]["json_bytes"] / 1e6
            seconds = median(ours, "read_s")
            bound = (64 * ours[0]["kept"] + 32 * 2**20) / 2**20
            theirs = [kinds.get(b, []) for b in ("JSON", "IJSON_BATCH_AND_COMPRESS")]
            best = min((median(t, "read_s") for t in theirs if t and "read_s" in t[0]), default=float("nan"))
            cells = [name, f"{megabytes:.1f}", ours[0]["events"], ours[0]["kept"], f"{seconds:.3f}",
                     f"{megabytes / seconds:.0f}", f"{megabytes / median(ours, 'cpu_s'):.0f}",
                     f"{median(ours, 'peak_bytes') / 2**20:.0f}", f"{bound:.0f}",
                     f"{median(kinds['inflate'], 'read_s'):.3f}" if "inflate" in kinds else ""]
            for t in theirs:
                cells.append("" if not t else t[0].get("error") or
                             f"{median(t, 'read_s'):.2f} ({median(t, 'peak_bytes') / 2**20:.0f})")
            cells.append("" if best != best else f"**{best / seconds:.1f}**")
            print("| " + " | ".join(str(cell) for cell in cells) + " |")
        if options.convert and options.size:
            print()
            converted(os.path.join(options.build, "cli", "stretto"), os.path.join(folder, "rank0.json"))
        if options.huge and options.size:
            result = huge(bench, os.path.join(folder, "part.json"), options.huge)
            print(f"\n{result['json_bytes'] / 1e9:.2f} GB through a pipe: {result['events']} events in "
                  f"{result['read_s']:.1f} s, {result['json_bytes'] / 1e6 / result['cpu_s']:.0f} MB/s per core, peak "
                  f"{result['peak_bytes'] / 2**20:.0f} MiB for {result['kept']} records "
                  f"({64 * result['kept'] / 2**20:.0f} MiB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
