"""Tells when a replayed program is about to read its standard input."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any


class _Told(io.FileIO):
    """Descriptor 0. Of a file, one line is given at a time: what a buffer holds already, nobody would ask for again."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__(0, "r", closefd=False)
        self.name = "<stdin>"
        self._tell = tell

    def readinto(self, buffer: Any, /) -> int | None:
        self._tell()
        count = super().readinto(buffer)
        if count and self.seekable():
            end = bytes(memoryview(buffer)[:count]).find(b"\n") + 1
            if 0 < end < count:
                self.seek(end - count, io.SEEK_CUR)
                return end
        return count

    def readall(self) -> bytes:
        self._tell()
        return super().readall()


def watch_stdin(tell: Callable[[], None]) -> None:
    """Have `tell` called before each read from `sys.stdin`; what the program reads by descriptor goes unseen."""
    old = sys.stdin
    if old is None or not isinstance(old, io.TextIOWrapper):
        return
    try:
        buffer = io.BufferedReader(_Told(tell))
    except OSError:  # closed
        return
    stream = io.TextIOWrapper(buffer, old.encoding, old.errors)
    vars(stream).update(mode="r")
    sys.stdin = sys.__stdin__ = stream  # type: ignore[misc]
