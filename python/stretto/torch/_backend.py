# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a model are connected: shared memory, MPI, or the process group that is there."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from typing import Any, Optional

import torch
import torch.distributed as dist

from .. import _core
from ..errors import InvalidArgument, Unavailable
from ._process_group import GroupLink, connect_process_group

BACKENDS = ("auto", "shm", "mpi", "process_group")


def _group_is_up() -> bool:
    return dist.is_available() and dist.is_initialized()


def _host_id() -> str:
    """Equal for processes that can share memory and sockets: one boot, one network namespace, one name."""

    def read(function: Any, path: str) -> str:
        try:
            return function(path)
        except OSError:
            return ""

    def content(path: str) -> str:
        with open(path, encoding="ascii") as file:
            return file.read().strip()

    boot = read(content, "/proc/sys/kernel/random/boot_id")
    network = read(os.readlink, "/proc/self/ns/net")
    return f"{boot} {network} {socket.gethostname()}"


def _one_host(group: Optional[dist.ProcessGroup]) -> bool:
    hosts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(hosts, _host_id(), group=group)
    return len(set(hosts)) == 1


def _connect_shm_of_group(group: Optional[dist.ProcessGroup], options: dict[str, Any]) -> _core.Communicator:
    """Shared memory among the ranks of a process group, which only introduces them to each other."""
    rank = dist.get_rank(group)
    directory = [tempfile.mkdtemp(prefix="stretto-") if rank == 0 else None]
    root = 0 if group is None else dist.get_global_rank(group, 0)
    try:
        dist.broadcast_object_list(directory, src=root, group=group)
        communicator = _core.connect_shm(str(directory[0]), rank, dist.get_world_size(group), **options)
        communicator.barrier()
    finally:
        if rank == 0 and directory[0] is not None:
            shutil.rmtree(directory[0], ignore_errors=True)
    return communicator


def _connect_mpi(
    group: Optional[dist.ProcessGroup], timeout_s: float, emulate: Optional[_core.Machine]
) -> _core.Communicator:
    if emulate is not None:
        raise InvalidArgument("backend mpi cannot emulate a machine", "emulate", emulate.name, "backend='shm'")
    if group is not None:
        raise InvalidArgument(
            "backend mpi connects the ranks of mpirun", "process_group", "a process group", "None",
            "Use backend='process_group'.",
        )
    communicator = _core.connect_mpi(timeout_s)
    if _group_is_up() and (dist.get_rank(), dist.get_world_size()) != (communicator.rank, communicator.size):
        raise InvalidArgument(
            "mpirun and torch.distributed number the ranks differently",
            "backend",
            f"rank {dist.get_rank()} of {dist.get_world_size()} in torch",
            f"rank {communicator.rank} of {communicator.size}, as mpirun has it",
            "Pass init_process_group() the rank and the size that mpirun gave.",
        )
    return communicator


def connect(
    process_group: Optional[dist.ProcessGroup],
    backend: str,
    device: torch.device,
    timeout_s: float,
    emulate: Optional[_core.Machine],
) -> tuple[_core.Communicator, Optional[GroupLink]]:
    """The communicator; and what belongs to a process group, if one carries the gradients."""
    if backend not in BACKENDS:
        raise InvalidArgument("no such backend", "backend", repr(backend), "one of " + ", ".join(BACKENDS))
    up = _group_is_up()
    if backend == "auto":
        through_group = (
            process_group is not None or device.type != "cpu" or (up and emulate is None and not _one_host(None))
        )
        backend = "process_group" if through_group else "shm"
    if backend == "process_group":
        if not up:
            raise InvalidArgument(
                "there is no process group",
                "backend",
                "torch.distributed is not initialized",
                "torch.distributed.init_process_group() before DDP()",
                "CPU tensors on one host need none: start with stretto run or torchrun.",
            )
        if emulate is not None:
            raise InvalidArgument(
                "a process group cannot emulate a machine", "emulate", emulate.name, "backend='shm'"
            )
        return connect_process_group(process_group, timeout_s)
    if device.type != "cpu":
        raise Unavailable(
            f"backend {backend} reaches host memory only", "backend", f"parameters on {device}", "cpu",
            "Use backend='process_group'.",
        )
    if backend == "mpi":
        return _connect_mpi(process_group, timeout_s, emulate), None
    options = {"timeout_s": timeout_s, "emulate": emulate}
    if not up:
        return _core.connect(**options), None
    if not _one_host(process_group):
        raise Unavailable(
            "shared memory connects ranks of one host", "backend", "ranks on several hosts", "one host",
            "Use backend='process_group'.",
        )
    return _connect_shm_of_group(process_group, options), None
