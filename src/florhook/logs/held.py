"""Holds back what a resumed program prints again on its way to the place where the run before ended.

The stream objects stay the ones that Python made, as in `output.py`: the program may keep them.
"""

from __future__ import annotations

import sys
from typing import Any


class Held:
    """Takes `sys.stdout` until `release`. What C code and child processes write is let pass: no record has it."""

    def __init__(self) -> None:
        self.holding = True
        self.passed: list[str] = []  # what was held back
        self._skip = 0  # characters that an attempt before this one has printed
        self._through = False
        self._stream: Any = None
        self._patched: list[Any] = []

    def install(self) -> None:
        """Hold back from now on."""
        self._stream = sys.stdout
        for stream in (self._stream, getattr(self._stream, "buffer", None)):
            if stream is not None:
                is_text = stream is self._stream
                write = self._taker(stream.write, is_text)
                try:
                    stream.write = write
                except AttributeError:  # a stream of somebody else's that allows no attributes
                    continue
                self._patched.append(stream)

    def _taker(self, original: Any, is_text: bool) -> Any:
        def write(data: Any, /) -> Any:
            if self.holding:
                self.passed.append(data if is_text else bytes(data).decode(errors="surrogateescape"))
                return len(data)
            if not self._skip or self._through:
                return original(data)
            return self._print_rest(original, data, is_text)

        return write

    def _print_rest(self, original: Any, data: Any, is_text: bool) -> int:
        """The part of the data that was not printed by an earlier attempt."""
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._through = True
        try:
            original(data[skipped:])
            if is_text:
                self._stream.flush()  # now, so that the layer below does not count it again
        finally:
            self._through = False
        return len(data)

    def release(self, text: str, already: int) -> None:
        """Print `text`, the output before the point, and let pass what follows; `already` characters were printed."""
        self.holding = False
        if self._stream is None:
            return
        self._skip = max(0, already - len(text))
        if not self._skip:
            self._uninstall()
        self._through = True
        try:
            self._print(text[already:])
        finally:
            self._through = False

    def _uninstall(self) -> None:
        while self._patched:
            del self._patched.pop().write

    def _print(self, text: str) -> None:
        if not text:
            return
        binary = getattr(self._stream, "buffer", None)
        if binary is None:
            self._stream.write(text)
        else:
            errors = self._stream.errors or "strict"
            binary.write(
                text.encode(self._stream.encoding, "surrogateescape" if errors == "strict" else errors)
            )
        self._stream.flush()
