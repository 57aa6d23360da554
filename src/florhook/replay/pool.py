"""Parallel replay: several workers take the items of one replay, and what they print is merged in program order.

A worker that dies has its item done again by another. Whatever else goes wrong ends the pool, and one process replays
alone, leaving out what has been printed.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import socket
import stat
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import xxhash

from ..dataclass import dataclass, field
from ..errors import RefusedError
from .attempt import Attempt
from .display import Display
from .items import Item
from .share import KEPT, Part

TICK = 0.02  # seconds between looks at what the worker of the first unfinished item prints
MOST_DEATHS = 1  # of workers on one item
LISTS = ("differences", "reasons", "clock", "moved", "notes")
COUNTS = (
    "iterations_executed",
    "iterations_left_early",
    "blocks_skipped",
    "jumps",
    "verified",
    "diverged",
    "unverified",
    "restore_s",
)


class Process(Protocol):
    """A worker's process, here or elsewhere."""

    returncode: Any

    def wait(self) -> int:
        """Its exit status, once it has ended."""

    def kill(self) -> None:
        """End it."""


@dataclass(eq=False)
class Hand:
    """A worker as the pool sees it."""

    process: Process
    sock: socket.socket
    number: int
    held: int | None
    said: bytes = b""
    report: dict[str, Any] = field(default_factory=dict)


class TroubleError(Exception):
    """The replay has to be done by one process; `report` says what it has to leave out, if anything."""

    def __init__(self, reason: str, report: dict[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.report = report or {}


class Pool:
    """`start(task, stdin, number)` starts a worker; its task is completed here."""

    def __init__(
        self,
        items: list[Item],
        folder: Path,
        start: Callable[[dict[str, Any], int, int], Process],
        close: Callable[[], None] = lambda: None,
        display: Display | None = None,
    ) -> None:
        """`close` is called when no more workers will be started."""
        self.items, self.folder, self._start, self.close = tuple(items), folder, start, close
        self._display = display or Display()
        self._ahead = deque(range(1, len(items)))  # not taken yet
        self._done: set[int] = set()
        self._deaths: Counter[int] = Counter()
        self._hands: list[Hand] = []
        self._reports: list[dict[str, Any]] = []
        self._numbers = 0
        self._selector = selectors.DefaultSelector()
        self._head = self._offset = 0  # the item that is printed, and how much of it has been
        self.printed = 0  # bytes in all
        self.digest = xxhash.xxh3_128()  # of them

    def run(self, count: int) -> Attempt:
        """Replay with so many workers. TroubleError if one process has to do it, in its beginning or from there on."""
        self.folder.mkdir(mode=0o700, parents=True)
        try:
            for number in range(count):
                self._begin(0 if number == 0 else None)
            while True:
                for key, _ in self._selector.select(TICK):
                    self._hear(key.data)
                self._print()
                if self._head == len(self.items):
                    return self._end()
        finally:
            self._stop()

    def _begin(self, first: int | None) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            part = Part(self.items, first, str(self.folder))
            task = {"status": theirs.fileno(), "share": part.as_task()}
            process = self._start(task, _stdin(), self._numbers)
        hand = Hand(process, ours, self._numbers, first)
        self._numbers += 1
        self._hands.append(hand)
        self._selector.register(ours, selectors.EVENT_READ, hand)

    def _hear(self, hand: Hand) -> None:
        try:
            said = hand.sock.recv(1 << 20)
        except OSError:
            said = b""
        *lines, hand.said = (hand.said + said).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "next" in message:
                self._answer(hand, message["next"])
            elif "ran" in message:
                self._display.ran(hand.number, message["ran"])
            else:
                hand.report = message
        if not said:
            self._is_gone(hand)

    def _answer(self, hand: Hand, done: int | None) -> None:
        if done is not None:
            self._done.add(done)
        hand.held = self._ahead.popleft() if self._ahead else None
        hand.sock.sendall(b"%d\n" % (-1 if hand.held is None else hand.held))

    def _is_gone(self, hand: Hand) -> None:
        hand.process.wait()
        self._selector.unregister(hand.sock)
        hand.sock.close()
        self._hands.remove(hand)
        last = len(self.items) - 1
        if "refused" in hand.report:
            raise RefusedError(hand.report["refused"])
        if "again" in hand.report:
            raise TroubleError(hand.report["reason"], hand.report)
        if "idle" in hand.report or (hand.held == last and hand.report):
            self._reports.append({**hand.report, "status": hand.process.returncode})
            self._done |= {last} if hand.held == last else set()
        elif hand.report:
            raise TroubleError("the program ended earlier than in the run")
        elif hand.held is not None:
            self._again(hand.held)
        if not self._hands and last not in self._done:
            raise TroubleError("all workers have died")

    def _again(self, item: int) -> None:
        self._deaths[item] += 1
        if self._deaths[item] > MOST_DEATHS:
            raise TroubleError("workers die")
        (self.folder / str(item)).unlink(missing_ok=True)
        (self.folder / f"{item}{KEPT}").unlink(missing_ok=True)
        self._begin(item)

    def _print(self) -> None:
        """What the items have printed, in their order, as far as they have come."""
        while self._head < len(self.items):
            done = self._head in self._done
            path = self.folder / str(self._head)
            if path.exists():
                with open(path, "rb") as file:
                    file.seek(self._offset)
                    while data := file.read(1 << 20):
                        self._write(data)
            if not done:
                return
            path.unlink(missing_ok=True)
            self._head, self._offset = self._head + 1, 0

    def _write(self, data: bytes) -> None:
        self._offset += len(data)
        self.printed += len(data)
        self.digest.update(data)
        left = memoryview(data)
        with self._display.giving_way(data):
            while left:
                try:
                    left = left[os.write(1, left) :]
                except OSError as error:
                    if error.errno != errno.EBADF:  # there is no standard output
                        raise
                    return

    def _end(self) -> Attempt:
        """One report of all: the last item's worker says how the program ended."""
        ending = next(report for report in self._reports if "idle" not in report)
        report = dict(ending)
        for name in COUNTS:
            report[name] = sum(each[name] for each in self._reports)
        for name in LISTS:
            report[name] = list(dict.fromkeys(text for each in self._reports for text in each[name]))
        whole = ending["iterations_executed"] + ending["iterations_skipped"]
        report["iterations_skipped"] = max(0, whole - report["iterations_executed"])
        report["reached"] = any(each["reached"] for each in self._reports)
        differences = [each["output_difference"] for each in self._reports if each["output_difference"]]
        report["output_difference"] = differences[0] if differences else None
        kept = [self.folder / f"{item}{KEPT}" for item in range(len(self.items))]
        return Attempt(report.pop("status"), report, kept)

    def _stop(self) -> None:
        for hand in self._hands:
            hand.process.kill()
        for hand in self._hands:
            hand.process.wait()
            hand.sock.close()
        self._selector.close()


def _stdin() -> int:
    """The same file with a place of its own, if it is one; else nothing, and a program that reads it is done alone."""
    try:
        if stat.S_ISREG(os.fstat(0).st_mode):
            own = os.open("/proc/self/fd/0", os.O_RDONLY)
            os.lseek(own, os.lseek(0, 0, os.SEEK_CUR), os.SEEK_SET)
            return own
    except OSError:
        pass
    return os.open(os.devnull, os.O_RDONLY)
