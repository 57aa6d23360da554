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
            return original(data)

        return write

    def release(self, text: str, already: int) -> int:
        """Print `text`, the output before the point, and let pass what follows; `already` characters were printed.

        Gives how many characters of what follows were printed as well.
        """
        self.holding = False
        if self._stream is None:
            return 0
        self._uninstall()
        self._print(text[already:])
        return max(0, already - len(text))

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
