"""What a replay prints: the hindsight statements' output, or everything, in program order and nothing twice."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import xxhash

from ..dataclass import dataclass
from ..descriptors import high_copy
from .beside import Beside
from .kept import KeptLines, Logged, holds


class Hindsight:
    """The context manager around each hindsight statement: what is written inside it is the replay's output."""

    def __init__(self) -> None:
        self.depth = 0
        self.reached = False  # by the program, at any time
        self.raised = (
            False  # whether an exception has left a hindsight statement: how the program ends is its doing
        )
        self.stream: Any = None  # where the program prints, unless it put a stream of its own there
        self._beside: Beside | None = None

    def __enter__(self) -> None:
        if not self.depth:
            self._beside = Beside(self.stream)
        self.depth += 1
        self.reached = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.depth -= 1
        self.raised |= error is not None
        if not self.depth and self._beside is not None:
            self._beside.undo()
            self._beside = None


@dataclass
class Printed:
    """How much a replay has printed: what a later attempt leaves out."""

    probes: int = 0  # pieces that hindsight statements wrote; their text may depend on the clock
    recorded: int = 0  # characters of the run's own output
    live: int = 0  # characters of the program's own output, where that cannot be taken from the record
    left_out: int = 0  # bytes that are still to be left out, since several processes have printed them
    digest: int = 0  # of these
    torn: int = 0  # whether what several processes had printed is not what one prints


class _Standard(io.FileIO):
    """Where the replay prints. When nobody reads that any more (`| head`), this process ends as most programs do."""

    def write(self, data: Any, /) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except BrokenPipeError:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGPIPE)
            raise


class ReplayOutput:
    """Takes stdout over. `everything` prints the program's own output too, as the run had printed it.

    `recorded` gives all the output of the run, `asked_for` tells whether the place that runs now was selected.
    What was printed `already`, by an attempt before this one, is left out. What the program prints itself is compared
    with the record, unless its statements were edited (`comparable`).
    """

    def __init__(
        self,
        everything: bool,
        recorded: Callable[[], str],
        asked_for: Callable[[], bool],
        already: Printed,
        comparable: bool,
        descriptor: int | None = None,
    ) -> None:
        """`descriptor`: where to print, in a process whose descriptor 1 leads nowhere already."""
        self.hindsight = Hindsight()
        self.everything, self.recorded, self.asked_for = everything, recorded, asked_for
        self.already = already
        self.printed = Printed(
            recorded=already.recorded, left_out=already.left_out, digest=already.digest, torn=already.torn
        )
        self._left_out = xxhash.xxh3_128()
        self.position = 0  # in the recorded output
        self.ending = False  # nobody flushes any more
        self.quiet = 0  # what is written is no part of the run's output
        self.kept: KeptLines | None = None  # takes what hindsight statements write, too
        self.overheard: str | None = None  # what they wrote since a library began to log
        self.comparable = self._in_step = comparable
        self.difference: tuple[str, str] | None = None  # the first: recorded, printed
        self.lock = threading.RLock()  # what is printed is counted before anybody reads the count
        self.descriptor = high_copy(1) if descriptor is None else descriptor
        self._out: io.BufferedIOBase = io.BufferedWriter(_Standard(self.descriptor, "w"))
        self._encoding, self._errors = "utf-8", "strict"
        self._by_line = self._at_once = False

    def install(self) -> None:
        """From here on, descriptor 1 leads nowhere: children and C code do not write among our lines."""
        old = sys.stdout
        if old is None:
            return
        self._encoding, self._errors = old.encoding, old.errors or "strict"
        self._by_line = bool(getattr(old, "line_buffering", False))
        self._at_once = bool(getattr(old, "write_through", False))  # python -u, which keeps the other one off
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        binary = io.BufferedWriter(io.FileIO(1, "w", closefd=False))
        stream = io.TextIOWrapper(binary, old.encoding, old.errors, line_buffering=self._by_line)
        # On the instances, as in output.py: the program sees the types that it expects.
        vars(binary).update(write=self._take_bytes, flush=self.flush)
        to_terminal = old.isatty()  # as the program would see it; the stream itself leads nowhere
        vars(stream).update(mode="w", write=self._take, flush=self.flush, isatty=lambda: to_terminal)
        sys.stdout = sys.__stdout__ = self.hindsight.stream = stream  # type: ignore[misc]

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

    def hold(self) -> Callable[[bool], None]:
        """Hold back what is printed from here on. What this gives is called with whether it counts."""
        with self.lock:
            self._flush()
            out, held = self._out, io.BytesIO()
            self._out = held

        def let_go(counts: bool) -> None:
            with self.lock:
                if self._out is not held:
                    return
                self._out = out
                if counts:
                    out.write(held.getvalue())
                elif self.kept is not None:
                    self.kept.drop()

        return let_go

    def _take(self, text: str, /) -> int:
        with self.lock:
            return self._taken(text)

    def _taken(self, text: str) -> int:
        if self.quiet:
            return len(text)
        if not self.hindsight.depth:
            self._own(text)
        elif self.asked_for():
            if self.kept is not None:  # whole in each attempt
                self.kept.take(text, self.position, self.comparable)
                if self.ending:
                    self.kept.flush()
            if self.overheard is not None:
                self.overheard += text
            self.printed.probes += 1
            if self.printed.probes > self.already.probes:
                self._print(text)
        return len(text)

    def logged(self, said: Callable[[], tuple[str, Logged] | None]) -> None:
        """Something was handed to a library that logs; it is a line if a hindsight statement did that.

        `said` gives the text and the rest of it, or None where nothing of it can be told. What the library has printed
        itself is a line already.
        """
        with self.lock:
            if self.quiet or not self.hindsight.depth or self.kept is None or not self.asked_for():
                return
            found = said()
            if found is not None and not holds(self.overheard or "", found[0]):
                self.kept.log(*found, self.position, self.comparable)

    def _own(self, text: str) -> None:
        """The program's own output: the record's text is printed in its place, which is what the run had printed."""
        if not self.comparable:
            self._live(text)
            return
        recorded = self.recorded()
        if self._in_step and recorded.startswith(text, self.position):
            self.position += len(text)
        else:
            self._out_of_step(text, recorded)
        self._tell(self.position)

    def _out_of_step(self, text: str, recorded: str) -> None:
        """A time of the clock, say. Lines are taken to stand for the recorded ones, until they are the same again."""
        self.difference = self.difference or (recorded[self.position : self.position + len(text)], text)
        self._in_step = text.endswith("\n")
        for _ in range(text.count("\n")):
            end = recorded.find("\n", self.position)
            self.position = len(recorded) if end < 0 else end + 1

    def _live(self, text: str) -> None:
        self.position += len(text)
        if self.everything:
            start, self.printed.live = self.printed.live, self.printed.live + len(text)
            self._print(text[max(0, self.already.live - start) :])

    def _tell(self, position: int) -> None:
        """Print the recorded output up to a place, once."""
        if self.everything and position > self.printed.recorded:
            self._print(self.recorded()[self.printed.recorded : position])
            self.printed.recorded = position

    def _print(self, text: str) -> None:
        errors = "surrogateescape" if self._errors == "strict" and not text.isascii() else self._errors
        data = text.encode(self._encoding, errors)
        if self.printed.left_out:
            data = self._less_what_was_printed(data)
        self._out.write(data)
        if self.ending or self._at_once or (self._by_line and "\n" in text):
            self._out.flush()

    def _less_what_was_printed(self, data: bytes) -> bytes:
        count = self.printed.left_out
        self._left_out.update(data[:count])
        self.printed.left_out = max(0, count - len(data))
        if not self.printed.left_out and self._left_out.intdigest() != self.printed.digest:
            self.printed.torn = 1
        return data[count:]

    def restored(self, out: int) -> None:
        """The program was brought to a place where so many characters of output had been written."""
        with self.lock:
            self._restored(out)

    def _restored(self, out: int) -> None:
        if self.comparable:
            self._tell(out)
        elif out > self.position:
            self._live(self.recorded()[self.position : out])
        self.position = out
        self._in_step = self.comparable

    def goes_to(self, target: int) -> None:
        """From here on, what is printed goes to that descriptor."""
        with self.lock:
            self._out.flush()
            os.dup2(target, self.descriptor, inheritable=False)

    def tell(self, position: int) -> None:
        """Print what the run had printed up to a place."""
        with self.lock:
            self._tell(position)

    def flush(self) -> None:
        with self.lock:
            self._flush()

    def _flush(self) -> None:
        self._out.flush()
        if self.kept is not None:
            self.kept.flush()

    def halt(self) -> None:
        """Nothing is printed from here on by any other thread."""
        self.lock.acquire()
        self._out.flush()

    def end(self) -> None:
        """The program has ended; finalizers may still print."""
        self.ending = True
        self._out.flush()
