# SPDX-License-Identifier: Apache-2.0
"""measure(): the program does it, for it needs ranks of its own."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
from typing import Any, Optional

from ._core import Machine
from .errors import Unavailable, make

# Variables by which the program would take itself for a rank of the caller's job.
_OF_A_JOB = ("STRETTO_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "FLUX_", "MV2_", "HOROVOD_")
_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What `stretto measure` found: its rows, and the machine whose links fit them."""

    rows: list[dict[str, Any]]
    machine: Optional[Machine]
    document: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.document


def measure(
    op: str = "all_reduce",
    *,
    ranks: int = 2,
    min_bytes: str | int = "8",
    max_bytes: str | int = "16M",
    emulate: Optional[str] = None,
    arguments: tuple[str, ...] = (),
) -> Measurement:
    """Measures a collective among new ranks of this host, and fits a Machine for plan().

    `arguments` are further flags of `stretto measure`. Takes seconds, and the processors.
    """
    program = os.path.join(os.path.dirname(__file__), "bin", "stretto")
    if not os.path.exists(program):
        raise Unavailable("this build has no program, and measuring needs it", "stretto.measure", program, "", "")
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OF_A_JOB) and name not in _OF_TORCHRUN
    }
    with tempfile.TemporaryDirectory(prefix="stretto-") as folder:
        file = os.path.join(folder, "machine.json")
        command = [program, "measure", op, "-b", str(min_bytes), "-e", str(max_bytes), "--json", "--machine-out", file]
        command += ["--emulate", emulate] if emulate is not None else ["--ranks", str(ranks)]
        done = subprocess.run(
            [*command, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            document = json.loads(done.stdout)
        except ValueError:
            raise Unavailable("stretto measure gave no result", "stretto.measure", done.stderr.strip()) from None
        if "error" in document:
            raise make(**document["error"])
        machine = Machine.load(file) if os.path.exists(file) else None
    return Measurement(document["rows"], machine, document)
