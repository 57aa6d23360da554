"""What a hindsight statement leaves behind beside its line: it is undone, since the run had no such statement.

A program that keeps a log file hands each line to it, too: by a handler of `logging`, or by an object of its own in the
place of `sys.stdout` that writes to both. A print that was added makes that file longer, and a counter of lines larger.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from typing import Any

from ..descriptors import STANDARD

PLAIN = (int, float, str, bool, type(None))


class Beside:
    """What was there before a statement, by which it is undone."""

    def __init__(self, ours: Any) -> None:
        """`ours` is the stream that the replay put in the place of stdout."""
        stdout = sys.stdout
        self._attributes = {} if stdout is ours else getattr(stdout, "__dict__", {})
        self._plain = {name: value for name, value in self._attributes.items() if type(value) in PLAIN}
        streams = [*_of_handlers(), *([] if stdout is ours else [stdout, *self._attributes.values()])]
        self._files = [(file, _end_of(file)) for file in streams if _is_written_file(file)]

    def undo(self) -> None:
        self._attributes.update(self._plain)
        for file, end in self._files:
            if not file.closed and _end_of(file) > end:
                file.seek(end)
                file.truncate()


def _of_handlers() -> Iterator[Any]:
    """The streams of the handlers that the program has made."""
    for reference in getattr(sys.modules.get("logging"), "_handlerList", ()):
        handler = reference()
        if handler is not None:
            yield getattr(handler, "__dict__", {}).get("stream")


def _is_written_file(stream: Any) -> bool:
    """Whether it is a file on disk at whose end the program writes."""
    if not isinstance(stream, io.IOBase) or stream.closed or not stream.writable():
        return False
    try:
        return stream.fileno() >= STANDARD and stream.seekable() and _is_at_its_end(stream)
    except (OSError, ValueError):
        return False


def _is_at_its_end(stream: io.IOBase) -> bool:
    return _end_of(stream) == os.fstat(stream.fileno()).st_size


def _end_of(stream: io.IOBase) -> int:
    stream.flush()
    return stream.tell()
