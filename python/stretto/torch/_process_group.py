# SPDX-License-Identifier: Apache-2.0
"""The user's own process group under a Session: every operation in plan order, as c10d wants it."""

from __future__ import annotations

import json
import threading
import time
import uuid
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from .. import _core
from ..errors import Error, make
from ._memory import TORCH_DTYPES, over_memory

Done = Callable[..., None]

_OPS = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


def _tell(done: Done, error: BaseException) -> None:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    lost = any(word in text.lower() for word in ("closed by peer", "connection reset", "broken pipe", "peer closed"))
    done("peer_lost" if lost else "backend", f"the process group failed: {text}")


class _Starter:
    """Starts operations of the communicator on a process group."""

    def __init__(self, group: dist.ProcessGroup, link: "GroupLink") -> None:
        self._group = group
        self._link = link
        self._size = dist.get_world_size(group)
        self._staged = "nccl" in dist.get_backend(group)

    def _global(self, rank: int) -> int:
        return dist.get_global_rank(self._group, rank)

    def __call__(self, kind: str, address: int, count: int, dtype: str, op: str, peer: int, done: Done) -> None:
        try:
            if count == 0 and kind != "barrier":
                done()
            elif kind == "all_reduce" and self._link.in_step and not self._staged:
                self._reduce_bucket(over_memory(address, count, TORCH_DTYPES[dtype], None), op, done)
            else:
                self._run(kind, address, count, dtype, op, peer)
                done()
        except Error as error:
            done(error.code, error.message)
        except Exception as error:
            _tell(done, error)

    def _reduce_bucket(self, tensor: torch.Tensor, op: str, done: Done) -> None:
        """In place: a bucket's memory lives as long as its Session, whatever becomes of the step."""
        mean = op == "mean"
        # Sums of 16-bit floats overflow where their mean does not.
        before = mean and tensor.element_size() == 2
        if before:
            tensor.div_(self._size)

        def over(future: Any) -> None:
            try:
                future.value()
                if mean and not before:
                    tensor.div_(self._size)
                done()
            except Exception as error:
                _tell(done, error)

        work = dist.all_reduce(tensor, op=_OPS[op], group=self._group, async_op=True)
        work.get_future().add_done_callback(over)

    def _run(self, kind: str, address: int, count: int, dtype: str, op: str, peer: int) -> None:
        """What ranks tell each other between steps, from start to end.

        On a copy: when a peer gives up meanwhile, the library's memory may go before c10d lets go of it.
        """
        if kind == "barrier":
            self._wait(dist.barrier(group=self._group, async_op=True))
            return
        tensor = over_memory(address, count, TORCH_DTYPES[dtype], None)
        moved = tensor.cuda() if self._staged else tensor.clone()
        if kind == "all_reduce":
            self._wait(dist.all_reduce(moved, op=_OPS[op], group=self._group, async_op=True))
            if op == "mean":
                moved.div_(self._size)
        elif kind == "broadcast":
            self._wait(dist.broadcast(moved, src=self._global(peer), group=self._group, async_op=True))
        elif kind == "send":
            self._wait(dist.isend(moved, dst=self._global(peer), group=self._group))
        elif kind == "recv":
            self._wait(dist.irecv(moved, src=self._global(peer), group=self._group))
        else:
            raise NotImplementedError(f"{kind} through a process group")
        if kind != "send":
            tensor.copy_(moved)

    def _wait(self, work: Any) -> None:
        begin = time.monotonic()
        looked = begin
        while not work.is_completed():
            now = time.monotonic()
            time.sleep(0 if now - begin < 0.001 else 0.0002)
            if now - looked > 0.25:
                looked = now
                reason = self._link.reason()
                if reason is not None:
                    raise reason
        work.wait()


class GroupLink:
    """Tells the other ranks of a process group why one of them gave up, for c10d itself does not.

    The store that the group was made with carries the word; a rank that waits looks there.
    """

    _POLL_S = 0.25

    def __init__(self, group: dist.ProcessGroup, name: str) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        store = dist.distributed_c10d._get_default_store()
        self.store = dist.PrefixStore(f"stretto/{name}", store)
        self._communicator: Optional[_core.Communicator] = None
        self._waiting = threading.Event()
        self._closed = False
        self.in_step = False  # what is reduced now are buckets
        self._found: Optional[Error] = None

    def watch(self, communicator: _core.Communicator) -> None:
        self._communicator = communicator
        threading.Thread(target=self._look, name="stretto abort watch", daemon=True).start()

    def publish(self, error: Error) -> None:
        """First writer wins."""
        word = json.dumps([self.rank, error.code, error.message, error.where, error.found, error.expected, error.help])
        try:
            self.store.compare_set("abort", "", word)
        except Exception:  # the store's host may be the rank that died
            pass

    def begin_wait(self) -> None:
        self._waiting.set()

    def end_wait(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        self._closed = True
        self._waiting.set()

    def reason(self) -> Optional[Error]:
        """Why another rank gave up, in its own words."""
        if self._found is not None:
            return self._found
        try:
            if not self.store.check(["abort"]):
                return None
            rank, code, message, where, found, expected, help = json.loads(self.store.get("abort").decode())
        except Exception:
            return None
        if rank == self.rank:
            return None
        self._found = make(code, message, where, found, expected, help)
        return self._found

    def _look(self) -> None:
        pause = threading.Event()
        while True:
            self._waiting.wait()
            pause.wait(self._POLL_S)
            if self._closed:
                return
            if not self._waiting.is_set():
                continue
            error = self.reason()
            if error is not None and self._communicator is not None:
                self._communicator.abort(error.code, error.message, error.where, error.help)
                return


def connect_process_group(
    group: Optional[dist.ProcessGroup], timeout_s: float
) -> tuple[_core.Communicator, GroupLink]:
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    name = [uuid.uuid4().hex]
    dist.broadcast_object_list(name, src=dist.get_global_rank(group, 0), group=group)
    link = GroupLink(group, name[0])
    communicator = _core.callback_communicator(
        dist.get_rank(group), dist.get_world_size(group), _Starter(group, link), timeout_s
    )
    link.watch(communicator)
    return communicator, link
