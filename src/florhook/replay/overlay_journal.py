"""Which real files a replay has deleted: marks in memory, shared between forked processes through a small file."""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path

from florhook.replay.overlay_real import real

HIDE, SHOW, LINKS = b"-", b"+", b"~"


class Journal:
    """An append-only file of marks. Every process that has the overlay reads what the others appended.

    A record is one of `-path` (the real file there, and all below, is hidden), `+path` (it shows again) and `~`
    (a symbolic link or a folder changed its place), each ended by a zero byte. The file's length stands in a shared
    memory map, so that a process sees at the cost of one comparison that nothing is new.
    """

    def __init__(self, folder: Path, on_change: Callable[[], None]) -> None:
        self._path = str(folder / "journal")
        self._on_change = on_change
        self._marks: dict[str, bool] = {}  # path -> hidden
        self._offset = 0
        self._seen = bytes(8)
        self._lock = threading.Lock()
        self._length = _shared_word(str(folder / "journal.length"))

    def renew_lock(self) -> None:
        """Forget a lock that another thread held when this process was forked."""
        self._lock = threading.Lock()

    def hidden(self, path: str) -> bool:
        """Whether the real file at this path is hidden: the nearest mark at it or above it decides."""
        self.sync()
        marks = self._marks
        if not marks:
            return False
        while len(path) > 1:
            mark = marks.get(path)
            if mark is not None:
                return mark
            path = path[: path.rfind("/")] or "/"
        return False

    def marks_below(self, folder: str) -> list[str]:
        """The marked paths below a folder."""
        self.sync()
        prefix = folder.rstrip("/") + "/"
        return [path for path in self._marks if path.startswith(prefix)]

    def add(self, kind: bytes, path: str = "") -> None:
        """Append one record for all processes."""
        descriptor = real.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, kind + os.fsencode(path) + b"\0")
            self._length[:8] = os.fstat(descriptor).st_size.to_bytes(8, "little")
        finally:
            os.close(descriptor)
        self.sync()

    def sync(self) -> None:
        """Take in what any process has appended."""
        if self._length[:8] != self._seen:
            with self._lock:
                self._read()

    def _read(self) -> None:
        seen = self._length[:8]
        with real.FileIO(self._path) as file:
            file.seek(self._offset)
            data = file.read(int.from_bytes(seen, "little") - self._offset)
        self._offset += len(data)
        for record in data.split(b"\0")[:-1]:
            if record[:1] != LINKS:
                self._marks[os.fsdecode(record[1:])] = record[:1] == HIDE
        self._seen = seen
        self._on_change()


def _shared_word(path: str) -> mmap.mmap:
    descriptor = real.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, 8)
        return mmap.mmap(descriptor, 8)
    finally:
        os.close(descriptor)
