# SPDX-License-Identifier: Apache-2.0
"""Hosts that are network namespaces, joined by links of a given rate: a real network in one machine.

Only addresses of these namespaces are used. They go with the object, also after Ctrl-C, and what a
killed run left behind goes with the next one.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess

PREFIX = "stretto-"
AGENT = pathlib.Path(__file__).with_name("launch_agent.sh")


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def missing():
    """Why there can be no such network here, or None."""
    for program in ("ip", "tc", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    probe = f"{PREFIX}{os.getpid()}-probe"
    try:
        ip("netns", "add", probe)
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.strip()}"
    try:
        inside = ["netns", "exec", probe]
        ip(*inside, "ip", "link", "add", "probe", "type", "veth", "peer", "name", "other")
        ip(*inside, "tc", "qdisc", "add", "dev", "probe", "root", "tbf", "rate", "1gbit", "burst", "256kb", "latency", "50ms")
        return None
    except subprocess.CalledProcessError as error:
        return f"links cannot be shaped here: {error.stderr.strip()}"
    finally:
        ip("netns", "del", probe, check=False)


def remove(namespaces):
    """The namespaces, and first every process in them: all of them were started there by us."""
    for name in namespaces:
        for pid in ip("netns", "pids", name, check=False).stdout.split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        ip("netns", "del", name, check=False)


def remove_left_behind():
    for line in ip("netns", "list").stdout.splitlines():
        found = re.match(PREFIX + r"(\d+)-\w+", line)
        if found and not pathlib.Path(f"/proc/{found[1]}").exists():
            remove([found[0]])


class Network:
    """Nodes 0, 1, ...; `rates` holds the rate of each node's link, as tc writes it (`1gbit`).

    Two nodes are joined directly, more by a bridge in a namespace of its own. A rate holds in both
    directions.
    """

    def __init__(self, rates):
        self.name = f"{PREFIX}{os.getpid()}"
        self.rates = rates
        self.namespaces = []

    def __enter__(self):
        self.handlers = {s: signal.signal(s, self.interrupted) for s in (signal.SIGTERM, signal.SIGHUP)}
        remove_left_behind()
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    @staticmethod
    def interrupted(number, _frame):
        raise SystemExit(128 + number)

    def __exit__(self, *_):
        remove(self.namespaces)
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    def namespace(self, node):
        return f"{self.name}-{node}"

    def address(self, node):
        return f"10.77.0.{node + 1}"

    @property
    def hosts(self):
        return [self.address(node) for node in range(len(self.rates))]

    def build(self):
        switch = self.namespace("switch")
        for name in [self.namespace(node) for node in range(len(self.rates))] + [switch]:
            ip("netns", "add", name)
            self.namespaces.append(name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for node, rate in enumerate(self.rates):
            name = self.namespace(node)
            ip("-n", name, "link", "add", "net0", "type", "veth", "peer", "name", f"port{node}", "netns", switch)
            ip("-n", switch, "link", "set", f"port{node}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"{self.address(node)}/24", "dev", "net0")
            ip("-n", name, "link", "set", "net0", "up")
            # Out of the node, and out of the switch towards it.
            for where, device in ((name, "net0"), (switch, f"port{node}")):
                self.shape(where, device, rate)

    @staticmethod
    def shape(namespace, device, rate):
        words = ["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
        ip("netns", "exec", namespace, *words)

    def on(self, node, *command):
        """The words of a command that runs on a node, under the node's name."""
        script = f'hostname node{node}; exec "$@"'
        return ["ip", "netns", "exec", self.namespace(node), "unshare", "--uts", "sh", "-c", script, "node", *command]

    def mpirun(self, launcher, ranks_per_node, *command, survive=False, flags=()):
        """The words that start ranks, node by node, by the mpirun of an MPI on node 0."""
        hosts = [f"{host}:{ranks_per_node}" for host in self.hosts]
        if launcher.name == "openmpi":
            network = ["10.77.0.0/24"]
            flags = [
                *["--mca", "plm_rsh_agent", str(AGENT), "--mca", "pml", "ob1"],
                *["--mca", "oob_tcp_if_include", *network, "--mca", "btl_tcp_if_include", *network],
                *["--bind-to", "none", "-H", ",".join(hosts), *flags],
            ]
        else:
            flags = ["-launcher", "ssh", "-launcher-exec", str(AGENT), "-hosts", ",".join(hosts), *flags]
        ranks = ranks_per_node * len(self.rates)
        return self.on(0, *launcher.command(ranks, *command, survive=survive, flags=flags))

    def environment(self, launcher, **more):
        return launcher.environment(STRETTO_TEST_NETWORK=self.name, **more)
