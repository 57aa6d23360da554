"""Sees what a program writes to stdout, without being in its way.

The stream objects stay the ones that Python made: only their `write` is replaced, on the instance, so that types,
buffering, encodings and errors are as without florhook.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

Sink = Callable[[str], object]


class Tee:
    """Passes everything written to `sys.stdout` on, less the first `skip` characters, and tells `sink` all of it.

    The text layer hands to the binary one what was counted already, not always when it was written and not as a
    whole: of more than 8 KB into a pipe or a file, all but the last text comes first. Whose the bytes are is known by
    who is at work: what they say may be encoded otherwise, or be equal by chance.
    """

    def __init__(self, sink: Sink, skip: int = 0) -> None:
        self.sink, self.skip = sink, skip
        self._undo: list[Callable[[], None]] = []
        self._in_text: set[int] = set()  # threads in which the text layer is at work

    def install(self) -> None:
        stream = sys.stdout
        if stream is None:
            return
        self._replace(stream, "write", self._text_writer(self._as_text(stream.write)))
        binary = getattr(stream, "buffer", None)
        if binary is not None:
            encoding = getattr(stream, "encoding", None) or "utf-8"
            for name in ("flush", "tell"):  # what else hands text on (`close`, `seek` ...) calls these
                self._replace(stream, name, self._as_text(getattr(stream, name)))
            self._replace(binary, "write", self._binary_writer(binary.write, encoding))

    def uninstall(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _replace(self, stream: Any, name: str, method: Callable[..., Any]) -> None:
        try:
            setattr(stream, name, method)
        except AttributeError:  # a stream of somebody else's that allows no attributes
            return
        self._undo.append(lambda: delattr(stream, name))

    def _as_text(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the text layer, during which it is known to be at work."""

        def method(*arguments: Any) -> Any:
            thread = threading.get_ident()
            if thread in self._in_text:  # a signal handler that prints, `flush` in `write`
                return original(*arguments)
            self._in_text.add(thread)
            try:
                return original(*arguments)
            finally:
                self._in_text.discard(thread)

        return method

    def _rest(self, text: str) -> str:
        skipped = min(self.skip, len(text))
        self.skip -= skipped
        return text[skipped:]

    def _text_writer(self, original: Callable[[str], Any]) -> Callable[[str], Any]:
        def write(text: str, /) -> Any:
            passed = self._rest(text)
            result = original(passed) if passed or not text else 0
            self.sink(text)
            return result if passed == text else len(text)

        return write

    def _binary_writer(self, original: Callable[[Any], Any], encoding: str) -> Callable[[Any], Any]:
        def write(data: Any, /) -> Any:
            if threading.get_ident() in self._in_text:
                return original(data)
            text = bytes(data).decode(encoding, "surrogateescape")
            passed = self._rest(text)
            result = original(data if passed == text else passed.encode(encoding, "surrogateescape"))
            self.sink(text)
            return result if passed == text else len(data)

        return write
