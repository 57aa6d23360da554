"""The training process's side of the store: hands state and rows to the writer without ever waiting for it.

Whatever breaks here ends the recording, never the training: `failed` says why, and every later call does nothing.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from florhook.descriptors import moved_up
from florhook.store.home import is_remote, prepare
from florhook.store.lean import Draft, Key, Lean
from florhook.store.rows import CheckpointRow, Piece, RunRow, split_digests
from florhook.store.spawn import start_writer
from florhook.store.staging import Region, StagingPool
from florhook.store.wire import Channel, Message

from ..dataclass import dataclass

if TYPE_CHECKING:
    from florhook.store.inherit import Heritage

MOST_WAITING = 64 << 20  # bytes of rows kept for a writer that does not read
PARTS = ("wait", "digest", "memory", "copy")  # "memory": to get it, and to fill it for the first time
_CROWDED = 8 << 20  # above this, checkpoints are skipped
_INLINE = 32 << 10  # checkpoints with less than this to copy travel in the message
_PATIENCE_S = 1.0  # for another thread that is in the middle of a hand-over

_Result = TypeVar("_Result")


@dataclass(eq=False)
class _InFlight:
    """A checkpoint that the writer still reads."""

    region: Region | None
    keys: list[Key]


class Recording:
    """One run being recorded. Made by `start`; usable from any thread and from signal handlers."""

    def __init__(self, limit_bytes: int | Callable[[], int]) -> None:
        self.failed: str | None = None
        self.skipped: str | None = None  # why the last checkpoint that was skipped was
        self.note: str | None = None  # something that the user should know, while all goes on
        self.left: str | None = None  # at the end: what is left to upload
        self.bytes_captured = 0  # of all pieces of the checkpoints that were taken
        self.bytes_written = 0  # to pack files, as last heard
        self.bytes_sent = 0  # copied for the writer
        self.writer_cpu_s = 0.0  # as last heard
        self.took = dict.fromkeys(PARTS, 0.0)  # seconds that checkpoints kept the caller
        self.writer_pid: int | None = None  # once it has started
        self._pool = StagingPool(limit_bytes)
        self._lean = Lean()
        self._in_flight: dict[int, _InFlight] = {}
        self._number = 0
        self._channel: Channel | None = None
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._done = False
        self._far: tuple[Path, RunRow] | None = None  # of a store at a URL, for the process that speaks of it

    @classmethod
    def start(
        cls,
        home: str | os.PathLike[str],
        run: RunRow,
        limit_bytes: int | Callable[[], int],
        max_bytes: int | None = None,
    ) -> Recording:
        """Begins a run; comes back before the writer is up. What fails later arrives in `failed`.

        `limit_bytes` are those of staging memory, `max_bytes` those of the store on the disk.
        """
        recording = cls(limit_bytes)
        try:
            recording._open(Path(home).absolute(), run, max_bytes)
        except Exception as error:
            recording._fail(f"cannot write to {home}: {_reason(error)}")
        return recording

    def _open(self, home: Path, run: RunRow, max_bytes: int | None) -> None:
        self._far = (home, run) if run.rank == 0 and is_remote(home) else None
        # Where stdin is closed, one of these would have its number, and the writer nothing but its own stdin there.
        lock = moved_up(prepare(home, run.id))
        try:
            ours, theirs = map(_out_of_the_way, socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
            with theirs:
                self._channel = Channel(ours)
                start_writer(home, theirs, lock)
        finally:
            os.close(lock)
        if max_bytes is not None:
            self._channel.post(("limit", max_bytes))
        argv = json.dumps(run.argv)
        self._channel.post(("run", run.id, run.program, argv, run.cwd, run.started, _json(run.meta)))
        self._exclusively(self._pump, None)

    def rows(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Adds rows to "sources", "contexts", "iterations", "output", "files" or "logged"; never waits."""
        if self.failed is not None or self._channel is None or not rows:
            return
        try:
            self._channel.post(("rows", table, rows))
            if self._channel.waiting > MOST_WAITING:
                self._fail("the writer does not keep up: too many rows are waiting")
            else:
                self._exclusively(self._pump, None)
        except Exception as error:
            self._fail(_reason(error))

    def inherit(self, heritage: Heritage) -> None:
        """Let the run have the rows of the one that it continues."""
        if self.failed is None and self._channel is not None:
            self._channel.post(("inherit", *heritage.packed()))
            self._exclusively(self._pump, None)

    def checkpoint(self, row: CheckpointRow, pieces: list[Piece]) -> bool:
        """Copies what has changed; the pieces may change as soon as this is back. False when it was skipped."""
        if self.failed is not None or self._channel is None:
            return False
        try:
            self.skipped = "another thread was recording"
            began = time.perf_counter()
            return self._exclusively(lambda: self._checkpoint(row, pieces, began), False, _PATIENCE_S)
        except Exception as error:
            self._fail(_reason(error))
            return False

    def finish(self, ended: float, exit_code: int | None, stats: dict[str, Any], timeout: float) -> bool:
        """Says goodbye and waits for the writer, which goes on alone after the timeout; whether all is committed."""
        if self.failed is not None or self._channel is None:
            return self._done
        try:
            self._channel.post(("end", ended, exit_code, _json(stats)))
            self._exclusively(lambda: self._await_goodbye(timeout), None, timeout)
            if self._channel is not None and self._channel.waiting:
                self._fail("the writer does not keep up: the end of the record is lost")
            if self._far is not None:
                self.left = self._to_upload(*self._far)
        except Exception as error:
            self._fail(_reason(error))
        self._close()
        return self._done

    def _to_upload(self, home: Path, run: RunRow) -> str:
        from florhook.store.remote import farewell

        return farewell(home, run.id, run.started, self.bytes_written)

    def after_fork_in_child(self) -> None:
        """Makes a forked child's copy inert, and closes its descriptors; `failed` stays as it was."""
        self._lock = threading.Lock()  # another thread may have held it
        self._owner = None
        self._close()

    def _exclusively(self, call: Callable[[], _Result], otherwise: _Result, patience: float = 0.0) -> _Result:
        """Calls with the lock. Gives `otherwise` where a signal handler or another thread came in between."""
        mine = threading.get_ident()
        if self._owner == mine:
            return otherwise
        held: list[bool] = []
        try:
            # one bytecode, as in wire.py: an exception from a signal handler cannot leave the lock behind
            held.extend(map(self._lock.acquire, (patience > 0,), (patience if patience > 0 else -1,)))
            if not held[0]:
                return otherwise
            self._owner = mine
            return call()
        finally:
            if held and held[0]:
                self._owner = None
                self._lock.release()

    def _pump(self) -> None:
        channel = self._channel
        if channel is None:
            return
        if not channel.is_ours():
            self._fail("the program closed the recorder's socket")
            return
        self._hear(channel.receive())
        try:
            channel.flush()
        except OSError:
            self._hear(channel.receive())  # its last words say more
            self._fail("the writer process has died")
        if channel.gone:
            self._fail("the writer process has died")

    def _hear(self, messages: list[Message]) -> None:
        for kind, *content in messages:
            if kind == "free":
                self._free(*content)
            elif kind == "written":
                self.bytes_written, self.writer_cpu_s = content
            elif kind == "hello":
                self.writer_pid = content[0]
            elif kind == "forget":
                self._lean.forget(split_digests(content[0]))
            elif kind == "note":
                self.note = content[0]
            elif kind == "failed":
                self._fail(content[0])
            elif kind == "bye":
                self._done = True

    def _free(self, number: int, digests: list[bytes], written: int) -> None:
        done = self._in_flight.pop(number)
        self.bytes_written = written
        if done.region is not None:
            self._pool.release(done.region)
        self._lean.learned(done.keys, digests)

    def _checkpoint(self, row: CheckpointRow, pieces: list[Piece], began: float) -> bool:
        self._pump()
        began = self._lap("wait", began)
        channel = self._channel
        if self.failed is not None or channel is None:
            return False
        if channel.waiting > _CROWDED:
            self.skipped = "the writer does not keep up"
            return False
        draft = self._lean.select(pieces, (pieces[0].key, row.iteration < 0))
        began = self._lap("digest", began)
        small = b"".join(draft.smalls)
        size = draft.large + len(small)
        region = self._pool.reserve(size) if size > _INLINE else None
        if region is None and size > _INLINE:
            self.skipped = self._no_room(size)
            return False
        part = "copy"
        if self._pool.made:
            part = "memory"
            began = self._lap(part, began)
        place = b"".join([*draft.copies, small]) if region is None else _copied(region, draft, small)
        began = self._lap(part, began)
        self._number += 1
        # Before the writer can answer. If a signal handler raises here, the region stays taken: it may be being read.
        self._in_flight[self._number] = _InFlight(region, draft.keys)
        self._hand_over(channel, row, draft, place)
        self._lean.sent(draft)
        self.skipped = None
        self.bytes_captured += sum(draft.lengths)
        self.bytes_sent += size
        self._pump()
        self._lap("copy", began)
        return True

    def _lap(self, part: str, began: float) -> float:
        now = time.perf_counter()
        self.took[part] += now - began
        return now

    def _no_room(self, size: int) -> str:
        if size > self._pool.limit:
            return f"its {size} bytes are more than the staging memory of {self._pool.limit}"
        return "staging memory is full"

    def _hand_over(
        self, channel: Channel, row: CheckpointRow, draft: Draft, place: bytes | tuple[int, int, int]
    ) -> None:
        while self._pool.dropped:
            channel.post(("drop", self._pool.dropped.pop()))
        while self._pool.made:
            slab = self._pool.made.pop()
            channel.post(("slab", slab.number, slab.size), (slab.fd,))
        columns = (row.ctx, row.iteration, row.taken, row.out, row.meta)
        channel.post(
            (
                "checkpoint",
                self._number,
                columns,
                place,
                bytes(draft.places),
                b"".join(draft.digests),
                draft.lengths.tobytes(),
            )
        )

    def _await_goodbye(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self._pump()
        while self.failed is None and not self._done and self._channel is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            poll = select.poll()
            poll.register(
                self._channel.sock, select.POLLIN | (select.POLLOUT if self._channel.waiting else 0)
            )
            poll.poll(left * 1000)
            self._pump()

    def _fail(self, reason: str) -> None:
        if self.failed is None and not self._done:
            self.failed = reason
            self._close()

    def _close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is None:
            return
        if not channel.is_ours():
            channel.sock.detach()  # the program has closed what was ours; the numbers may be its own files' by now
            return
        try:
            channel.close()
            self._pool.close()
        except OSError:
            pass  # it has closed some


def _copied(region: Region, draft: Draft, small: bytes) -> tuple[int, int, int]:
    target, at = region.view, 0
    for view in draft.copies:
        target[at : at + len(view)] = view
        at += len(view)
    target[at:] = small
    return region.slab.number, region.offset, region.size


def _out_of_the_way(sock: socket.socket) -> socket.socket:
    """The same socket under a high number."""
    family, kind = sock.family, sock.type
    return socket.socket(family, kind, 0, moved_up(sock.detach()))


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, default=str)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return "out of memory" if isinstance(error, MemoryError) else f"{type(error).__name__}: {error}"
