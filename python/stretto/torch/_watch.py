# SPDX-License-Identifier: Apache-2.0
"""STRETTO_DEBUG=1: says on stderr which rank waits for which, for how long and for which gradients."""

from __future__ import annotations

import json
import mmap
import os
import sys
import tempfile
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Optional, Protocol, Union

from .. import _core
from ._process_group import GroupLink
from .step_summary import bucket_words, some_words

if TYPE_CHECKING:
    from ._reducer import Reducer

_PERIOD_S = 0.25
_FIRST_REPORT_S = 1.0  # the next ones after 2, 4, 8... and then every minute
_SILENT_S = 2.0  # a rank that has written nothing for so long is said to be silent

Status = dict[str, Any]


def wanted() -> bool:
    return os.environ.get("STRETTO_DEBUG", "0") not in ("", "0")


class Board(Protocol):
    """Where every rank writes how it is doing, and reads how the others are."""

    def write(self, text: str) -> None: ...

    def read(self, rank: int) -> Optional[str]:
        """None: nothing was written, or this rank cannot see it."""


class _SharedFile:
    """For ranks of one host: a file that all have open and that has no name any more."""

    def __init__(self, communicator: _core.Communicator, slot_bytes: int) -> None:
        self._rank, self._slot = communicator.rank, slot_bytes
        path = ""
        if communicator.rank == 0:
            file, path = tempfile.mkstemp(prefix="stretto-debug-")
            os.ftruncate(file, communicator.size * slot_bytes)
            os.close(file)
        path = communicator.broadcast_text(path, 0)
        self._map: Optional[mmap.mmap] = None
        try:
            with open(path, "r+b") as opened:
                self._map = mmap.mmap(opened.fileno(), communicator.size * slot_bytes)
        except (OSError, ValueError):
            pass  # a rank of another host
        communicator.barrier()
        if communicator.rank == 0:
            os.unlink(path)

    def write(self, text: str) -> None:
        if self._map is not None:
            begin = self._rank * self._slot
            self._map[begin : begin + self._slot] = text.encode()[: self._slot].ljust(self._slot, b"\0")

    def read(self, rank: int) -> Optional[str]:
        if self._map is None:
            return None
        slot = self._map[rank * self._slot : (rank + 1) * self._slot]
        return slot.rstrip(b"\0").decode(errors="replace") or None


class _Store:
    """For ranks of a process group: the store that it was made with."""

    def __init__(self, link: GroupLink) -> None:
        self._store, self._rank = link.store, link.rank

    def write(self, text: str) -> None:
        self._store.set(f"debug{self._rank}", text)

    def read(self, rank: int) -> Optional[str]:
        key = f"debug{rank}"
        return self._store.get(key).decode() if self._store.check([key]) else None


class _Peer:
    """What is known of one rank, and since when it has said nothing new."""

    def __init__(self) -> None:
        self.status: Optional[Status] = None
        self.changed_s = time.monotonic()

    def look(self, text: Optional[str]) -> None:
        try:
            before, status, after = json.loads(text) if text else (0, None, 1)
        except (ValueError, TypeError):
            return  # caught in the middle of writing
        if before != after or (self.status is not None and self.status["number"] == before):
            return
        status["number"] = before
        self.status, self.changed_s = status, time.monotonic()

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self.changed_s


def _list(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


class Watch:
    """One thread per model that writes what its rank does and, once it waits, prints for whom.

    Collective to make. Of the ranks that wait for the same, the lowest prints.
    """

    def __init__(self, reducer: "Reducer") -> None:
        communicator, link = reducer.communicator, reducer.link
        self._rank, self._size = communicator.rank, communicator.size
        self._keeps_order = communicator.keeps_order
        self._board: Union[_SharedFile, _Store] = (
            _SharedFile(communicator, 1024 + len(reducer.tracked) // 4) if link is None else _Store(link)
        )
        self._peers = [_Peer() for _ in range(self._size)]
        self._number = 0
        self._wait: Optional[int] = None  # when the wait began that this rank is in
        self._told = ""  # what was printed about it
        self._next_report_s = _FIRST_REPORT_S
        threading.Thread(target=self._run, args=(weakref.ref(reducer),), name="stretto debug", daemon=True).start()

    def _run(self, reference: "weakref.ref[Reducer]") -> None:
        while True:
            reducer = reference()
            if reducer is None:
                return
            try:
                self._look(reducer)
            except (RuntimeError, OSError):
                return  # the group is gone
            del reducer
            time.sleep(_PERIOD_S)

    # ---- what this rank does ----

    def _status(self, reducer: "Reducer") -> Status:
        doing = reducer.doing
        session = reducer.session
        arrived = list(reducer.arrived)
        bits = 0
        for position in set(arrived):
            bits |= 1 << position
        return {
            "step": reducer.steps,
            "doing": doing.what,
            "waits": doing.waits,
            "root": doing.root,
            "since_ns": doing.since_ns,  # by this host's clock
            "for_s": (time.monotonic_ns() - doing.since_ns) * 1e-9,
            "bucket": session.awaited if session is not None and doing.waits else None,
            "last": arrived[-1] if arrived else None,
            "arrived": f"{bits:x}",
        }

    def _look(self, reducer: "Reducer") -> None:
        mine = self._status(reducer)
        self._number += 1
        text = json.dumps([self._number, mine, self._number], separators=(",", ":"))
        self._board.write(text)
        wait = mine["since_ns"] if mine["waits"] else None
        if wait != self._wait:
            if self._told and self._wait is not None and mine["doing"] != "failed":
                _say(f"{self._told}: rank {self._rank} goes on after {(time.monotonic_ns() - self._wait) * 1e-9:.1f} s")
            self._wait, self._told, self._next_report_s = wait, "", _FIRST_REPORT_S
        for rank, peer in enumerate(self._peers) if wait is not None else ():
            peer.look(text if rank == self._rank else self._board.read(rank))
        if wait is not None and mine["for_s"] >= self._next_report_s:
            while self._next_report_s <= mine["for_s"]:
                self._next_report_s += min(self._next_report_s, 60.0)
            self._report(reducer, mine)

    # ---- who is to blame ----

    def _report(self, reducer: "Reducer", mine: Status) -> None:
        def waits_too(status: Optional[Status]) -> bool:
            return status is not None and all(status[key] == mine[key] for key in ("step", "doing", "waits"))

        waiting = [rank for rank, peer in enumerate(self._peers) if waits_too(peer.status) and peer.silent_s < _SILENT_S]
        if waiting and waiting[0] != self._rank:
            return
        plan = None if reducer.session is None else reducer.session.plan
        bucket = mine["bucket"]
        what = mine["doing"]
        self._told = f"step {mine['step']}, {what}"
        needed = list(range(len(reducer.tracked)))
        if bucket is not None and plan is not None:
            what += ", now " + bucket_words(bucket, plan.tensor_names(bucket))
            buckets = range(bucket + 1) if self._keeps_order else [bucket]
            if reducer.schedule == "serial":
                buckets = range(len(plan.buckets))
            names = {name for b in buckets for name in plan.tensor_names(b)}
            needed = [i for i, t in enumerate(reducer.tracked) if t.name in names]
        blamed = []
        for rank in [mine["root"]] if mine["root"] is not None else range(self._size):
            if rank != self._rank:
                words = self._blame(reducer, mine, rank, needed)
                blamed += [words] if words else []
        has = "has" if len(waiting) <= 1 else "have"
        _say(
            f"step {mine['step']}: {_list(waiting or [self._rank])} {has} waited {mine['for_s']:.1f} s for {what}: "
            + ("; ".join(blamed) or "no rank is behind, it is on its way")
        )

    def _blame(self, reducer: "Reducer", mine: Status, rank: int, needed: list[int]) -> str:
        """Why this rank waits for that one; nothing if it does not."""
        peer = self._peers[rank]
        status = peer.status
        if status is None:
            return f"nothing is known of rank {rank}, which may be on another host"
        arrived = int(status["arrived"], 16)
        missing = [reducer.tracked[i].name for i in needed if not arrived >> i & 1]
        behind = status["step"] < mine["step"]
        if status["step"] > mine["step"] or (not behind and status["waits"]):
            return ""
        if mine["root"] is not None and not behind and status["doing"] in ("forward", "backward"):
            return ""
        backward = status["doing"] == "backward"
        if not behind and backward and not missing:
            return ""
        words = f"rank {rank} has been " + ("in " if status["doing"] in ("forward", "backward") else "") + status["doing"]
        if behind:
            words += f" of step {status['step']}"
        if peer.silent_s > _SILENT_S:
            words += f", and has shown no life for {peer.silent_s:.1f} s (stopped, or busy outside Python)"
        else:
            words += f" for {status['for_s']:.1f} s"
        if backward and status["last"] is not None:
            words += f", last gradient '{reducer.tracked[status['last']].name}'"
        if backward and not behind:
            words += f", without {some_words(missing)}"
        return words


def _say(text: str) -> None:
    print(f"stretto: {text}", file=sys.stderr, flush=True)
