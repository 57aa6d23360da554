"""What a replay prints: the hindsight statements' output, or everything, in program order and nothing twice."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from ..descriptors import high_copy


class Hindsight:
    """The context manager around each hindsight statement: what is written inside it is the replay's output."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.depth -= 1


class ReplayOutput:
    """Takes stdout over. `everything` prints the program's own output too, from the record where it is skipped.

    `recorded` gives all the output of the run, `asked_for` tells whether the place that runs now was selected.
    The first `already` characters were printed by an attempt before this one. What the program prints itself is
    compared with the record, unless its statements were edited (`comparable`).
    """

    def __init__(
        self,
        everything: bool,
        recorded: Callable[[], str],
        asked_for: Callable[[], bool],
        already: int,
        comparable: bool,
    ) -> None:
        self.hindsight = Hindsight()
        self.everything, self.recorded, self.asked_for = everything, recorded, asked_for
        self.already = already
        self.printed = 0
        self.position = 0  # in the recorded output
        self.ending = False  # nobody flushes any more
        self.quiet = 0  # what is written is no part of the run's output
        self.comparable = self._in_step = comparable
        self.difference: tuple[str, str] | None = None  # the first: recorded, printed
        self._out = io.BufferedWriter(io.FileIO(high_copy(1), "w"))
        self._encoding, self._errors = "utf-8", "strict"
        self._by_line = False

    def install(self) -> None:
        """From here on, descriptor 1 leads nowhere: children and C code do not write among our lines."""
        old = sys.stdout
        if old is None:
            return
        self._encoding, self._errors = old.encoding, old.errors or "strict"
        self._by_line = bool(getattr(old, "line_buffering", False))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        binary = io.BufferedWriter(io.FileIO(1, "w", closefd=False))
        stream = io.TextIOWrapper(binary, old.encoding, old.errors, line_buffering=self._by_line)
        # On the instances, as in output.py: the program sees the types that it expects.
        vars(binary).update(write=self._take_bytes, flush=self.flush)
        vars(stream).update(mode="w", write=self._take, flush=self.flush)
        sys.stdout = sys.__stdout__ = stream  # type: ignore[misc]

    def _take_bytes(self, data: Any, /) -> int:
        data = bytes(data)
        self._take(data.decode(self._encoding, "surrogateescape"))
        return len(data)

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """What the program writes inside is dropped."""
        self.quiet += 1
        try:
            yield
        finally:
            self.quiet -= 1

    def _take(self, text: str, /) -> int:
        if self.quiet:
            return len(text)
        if self.hindsight.depth:
            if self.asked_for():
                self._print(text)
            return len(text)
        if self._in_step:
            self._compare(text)
        self.position += len(text)
        if self.everything:
            self._print(text)
        return len(text)

    def _compare(self, text: str) -> None:
        recorded = self.recorded()[self.position : self.position + len(text)]
        if recorded != text:
            self._in_step = False
            self.difference = self.difference or (recorded, text)

    def _print(self, text: str) -> None:
        start = self.printed
        self.printed += len(text)
        if start < self.already:
            text = text[self.already - start :]
        errors = "surrogateescape" if self._errors == "strict" and not text.isascii() else self._errors
        self._out.write(text.encode(self._encoding, errors))
        if self.ending or (self._by_line and "\n" in text):
            self._out.flush()

    def restored(self, out: int) -> None:
        """The program was brought to a place where so many characters of output had been written."""
        if self.everything and out > self.position:
            self._print(self.recorded()[self.position : out])
        self.position = out
        self._in_step = self.comparable

    def flush(self) -> None:
        self._out.flush()

    def end(self) -> None:
        """The program has ended; finalizers may still print."""
        self.ending = True
        self._out.flush()
