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
    """Passes everything written to `sys.stdout` on, less the first `skip` characters, and tells `sink` all of it."""

    def __init__(self, sink: Sink, skip: int = 0) -> None:
        self.sink, self.skip = sink, skip
        self._undo: list[Callable[[], None]] = []
        self._pending: list[str] = []  # text that the text layer has not handed to the binary one

    def install(self) -> None:
        stream = sys.stdout
        if stream is None:
            return
        self._replace(stream, self._text_writer(stream.write))
        binary = getattr(stream, "buffer", None)
        if binary is not None:
            encoding = getattr(stream, "encoding", None) or "utf-8"
            self._replace(binary, self._binary_writer(binary.write, encoding))

    def uninstall(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _replace(self, stream: Any, write: Callable[[Any], Any]) -> None:
        try:
            stream.write = write
        except AttributeError:  # a stream of somebody else's that allows no attributes
            return
        self._undo.append(lambda: delattr(stream, "write"))

    def _rest(self, text: str) -> str:
        skipped = min(self.skip, len(text))
        self.skip -= skipped
        return text[skipped:]

    def _text_writer(self, original: Callable[[str], Any]) -> Callable[[str], Any]:
        def write(text: str, /) -> Any:
            passed = self._rest(text)
            self._pending.append(passed)
            try:
                result = original(passed) if passed or not text else 0
            except BaseException:
                self._pending.clear()
                raise
            self.sink(text)
            return result if passed == text else len(text)

        return write

    def _binary_writer(self, original: Callable[[Any], Any], encoding: str) -> Callable[[Any], Any]:
        def write(data: Any, /) -> Any:
            text = bytes(data).decode(encoding, "surrogateescape")
            # The text layer writes through here too, what was counted already.
            if self._pending and text == "".join(self._pending):
                self._pending.clear()
                return original(data)
            passed = self._rest(text)
            result = original(data if passed == text else passed.encode(encoding, "surrogateescape"))
            self.sink(text)
            return result if passed == text else len(data)

        return write
