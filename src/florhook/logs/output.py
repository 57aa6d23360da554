"""Sees what a program writes to stdout, without being in its way.

The stream objects stay the ones that Python made: only their `write` is replaced, on the instance, so that types,
buffering, encodings and errors are as without florhook.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Sink = Callable[[str], object]


class Tee:
    """Passes everything written to `sys.stdout` on, and tells `sink` the text after it was written."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.undo: list[Callable[[], None]] = []

    def install(self) -> None:
        stream = sys.stdout
        if stream is None:
            return
        self._wrap(stream, lambda text: text)
        binary = getattr(stream, "buffer", None)
        if binary is not None:
            encoding = getattr(stream, "encoding", None) or "utf-8"
            self._wrap(binary, lambda data: bytes(data).decode(encoding, "surrogateescape"))

    def _wrap(self, stream: Any, as_text: Callable[[Any], str]) -> None:
        write, sink = stream.write, self.sink

        def tee(data: Any, /) -> Any:
            result = write(data)
            sink(as_text(data))
            return result

        try:
            stream.write = tee
        except AttributeError:  # a stream of somebody else's that allows no attributes
            return
        self.undo.append(lambda: delattr(stream, "write"))

    def uninstall(self) -> None:
        while self.undo:
            self.undo.pop()()
