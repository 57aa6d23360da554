"""Shows the progress of a replay on stderr: a line at the bottom of a terminal, or now and then a line of a file.

On a terminal, what the workers write must not run into the line. So they get a terminal of ours (a pty) in place of
the user's, for stderr and, where it is the same terminal, for stdout; what comes out there is handed on, byte for
byte, when the line has been taken away. The user's terminal keeps its modes and its cursor, so there is nothing to be
put right when a replay is interrupted or killed.

Things that don't work: pipes (the program would see that it writes to no terminal); a line that the workers draw
(C code and processes that the program starts write past it); a scroll region (a killed replay leaves it behind).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
import struct
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator

from .progress import Progress

EVERY = 30.0  # seconds between lines, and before the first one, where stderr is no terminal
LATER = 1.0  # seconds before a terminal shows anything: most replays are over by then
TICK = 0.1  # seconds between two drawings
LAST_WORDS = 0.2  # seconds of silence, after which nothing more comes of a process that has ended
COLUMNS = 80  # of a terminal that does not know how many it has
ERASE = b"\r\x1b[K"
SIZE = "HHHH"  # struct winsize of ioctl_tty(2)

Plan = Callable[
    [], tuple[int, float, float]
]  # iterations of main loops, seconds around them, seconds in them by one worker


class Display:
    """Shows nothing."""

    stdout: int | None = None  # descriptors for workers, where they are not to have the user's
    stderr: int | None = None
    wanted = False  # whether workers are to tell how far they are

    @contextlib.contextmanager
    def attempt(self, workers: int) -> Iterator[None]:
        """While workers run."""
        yield

    def ran(self, worker: int, count: int) -> None:
        """A worker has run so many iterations of main loops."""

    @contextlib.contextmanager
    def giving_way(self, data: bytes) -> Iterator[None]:
        """While the supervisor itself writes something to stdout."""
        yield


class Lines(Display):
    """Plain lines; also what both kinds have in common: a thread that shows, and asks for the plan at its time."""

    wanted = True
    tick, later = EVERY, EVERY

    def __init__(self, plan: Plan) -> None:
        self._plan: Plan | None = plan  # until it has been asked for
        self._progress = Progress(0.0)
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def attempt(self, workers: int) -> Iterator[None]:
        before = self._progress  # of an attempt that had to be given up
        self._progress = Progress(time.monotonic(), workers, before.planned, before.estimate)
        read, write = os.pipe()
        thread = threading.Thread(target=self._go, args=(read,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            os.close(write)
            thread.join()
            os.close(read)

    def ran(self, worker: int, count: int) -> None:
        with self._lock:
            self._progress.ran(worker, count, time.monotonic())

    def _go(self, stop: int) -> None:
        """Until the other end of the pipe is closed."""
        while not select.select([stop], [], [], self.tick)[0]:
            if time.monotonic() - self._progress.began >= self.later:
                self._show()

    def _show(self) -> None:
        self._ask()
        with contextlib.suppress(OSError), self._lock:
            os.write(2, f"florhook: replay: {self._progress.text(time.monotonic())}\n".encode())

    def _ask(self) -> None:
        """For the plan, once: to read a record takes its time, which short replays do not have."""
        if self._plan is None:
            return
        plan, self._plan = self._plan, None
        try:
            planned, around, inside = plan()
        except Exception:  # whatever is wrong with the record, the replay itself will tell
            return
        with self._lock:
            self._progress.planned = planned
            self._progress.estimate = around + inside / self._progress.workers


class Bar(Lines):
    """The line of a terminal."""

    tick, later = TICK, LATER

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._takes_stdout = _same_terminal(1, 2)
        self._drawn = False
        self._at_start = True  # of a line: else what stands there is not ours to write over
        self._master = -1
        self._rich = True

    @contextlib.contextmanager
    def attempt(self, workers: int) -> Iterator[None]:
        self._master, slave = os.openpty()
        tty.setraw(slave)
        self._resize()
        self._at_start = True
        self.stderr, self.stdout = slave, slave if self._takes_stdout else None
        try:
            with super().attempt(workers):
                yield
        finally:
            self.stderr = self.stdout = None
            os.close(slave)
            self._hand_on_the_rest()
            os.close(self._master)
            self._erase()

    @contextlib.contextmanager
    def giving_way(self, data: bytes) -> Iterator[None]:
        if not self._takes_stdout:
            yield
            return
        with self._lock:
            self._erase()
            yield
            self._at_start = data.endswith(b"\n")

    def _go(self, stop: int) -> None:
        while stop not in (ready := select.select([self._master, stop], [], [], self.tick)[0]):
            if ready:
                self._hand_on()
            elif time.monotonic() - self._progress.began >= self.later:
                self._show()

    def _hand_on(self) -> bool:
        """Whether anything came."""
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # EIO: nobody has the other side any more
            return False
        with self._lock:
            self._erase()
            _write(data)
            self._at_start = data.endswith(b"\n")
        return bool(data)

    def _hand_on_the_rest(self) -> None:
        while select.select([self._master], [], [], LAST_WORDS)[0]:
            if not self._hand_on():
                return

    def _show(self) -> None:
        self._ask()
        self._resize()
        with self._lock:
            if self._at_start and _in_foreground():
                line = self._line(time.monotonic(), (os.get_terminal_size(2).columns or COLUMNS) - 1)
                _write(b"\r" + line.encode(errors="replace") + b"\x1b[K")
                self._drawn = True

    def _line(self, now: float, width: int) -> str:
        if self._rich:
            try:
                return self._progress.rich(now, width)
            except ImportError:
                self._rich = False
        return self._progress.plain(now, width)

    def _erase(self) -> None:
        if self._drawn:
            _write(ERASE)
            self._drawn = False

    def _resize(self) -> None:
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(2, termios.TIOCGWINSZ, bytes(struct.calcsize(SIZE)))
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)


def display_for(quiet: bool, plan: Plan) -> Display:
    """What fits to stderr."""
    if quiet or sys.stderr is None:
        return Display()
    # Behind a pipe there may be a `tee` that writes to the same terminal, in the middle of a bar.
    if os.isatty(2) and os.environ.get("TERM", "dumb") != "dumb" and not _is_pipe(1):
        return Bar(plan)
    return Lines(plan)


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _same_terminal(one: int, other: int) -> bool:
    try:
        return os.isatty(one) and os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False


def _in_foreground() -> bool:
    """Whether the terminal is this process's to write on: one in the background might be stopped for it."""
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:  # it is not the one that controls this process
        return True


def _write(data: bytes) -> None:
    """To the terminal, all of it; nowhere, once that has gone."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(2, left) :]
        except BlockingIOError:
            select.select([], [2], [])
        except OSError:
            return
