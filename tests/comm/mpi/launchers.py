# SPDX-License-Identifier: Apache-2.0
"""How the tests start the ranks of an MPI job, for each MPI that there is."""

import os
import pathlib
import shutil
import subprocess

# What a rank inherits decides who it takes itself for.
FOREIGN = ("OMPI_", "PMI_", "PMIX_", "MPI_", "STRETTO_", "SLURM_", "HYD", "RANK", "WORLD_SIZE", "LOCAL_RANK")


class Launcher:
    """mpirun of one MPI."""

    def __init__(self, name, program, plain, survive, variables, survive_variables, shell=()):
        self.name = name
        self.program = program
        self.plain = plain
        self.survive = survive  # flags that keep mpirun from ending all ranks when one dies
        self.shell = shell  # what else that takes, between mpirun and the rank
        self.variables = variables
        self.survive_variables = survive_variables

    def missing(self, modules):
        """Why this MPI cannot be used, or None."""
        if not (pathlib.Path(modules) / f"libstretto_{self.name}.so").exists():
            return f"no module for {self.name} was built"
        if shutil.which(self.program) is None:
            return f"{self.program} is not installed"
        return None

    def environment(self, survive=False, **more):
        if survive:
            more = self.survive_variables | more
        kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        return kept | self.variables | more

    def command(self, ranks, *command, survive=False, flags=()):
        words = [self.program, *self.plain, *(self.survive if survive else ()), *flags, "-n", str(ranks)]
        return [*words, *(self.shell if survive else ()), *command]

    def run(self, ranks, *command, survive=False, flags=(), timeout=120, **more):
        return subprocess.run(
            self.command(ranks, *command, survive=survive, flags=flags),
            env=self.environment(survive, **more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


LAUNCHERS = [
    Launcher(
        "openmpi",
        "mpirun.openmpi",
        # TCP also on one host: what Open MPI does between hosts.
        ["--oversubscribe", "--mca", "btl", "tcp,self"],
        ["--mca", "orte_enable_recovery", "1"],
        {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        {},
    ),
    Launcher(
        "mpich",
        "mpiexec.mpich",
        [],
        ["-disable-auto-cleanup"],
        {},
        # What UCX uses on one host ends the process when a peer is gone, and so do puts over TCP that are not
        # confirmed (an assertion on UCT_TCP_EP_FLAG_PUT_TX_WAITING_ACK).
        {"UCX_TLS": "tcp,self", "UCX_TCP_PUT_ENABLE": "n", "MPIR_CVAR_NOLOCAL": "1"},
        # Also with that flag, Hydra ends all when a child of its own dies by a signal.
        ["bash", "-c", 'trap : USR1; "$@" & rank=$!; while kill -0 $rank 2>/dev/null; do wait $rank; done', "rank"],
    ),
]
