"""A worker's part of a replay that several divide among themselves: it takes item after item, and prints only these."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NoReturn

from ..dataclass import dataclass
from ..descriptors import high_copy, moved_up
from ..logs.hindsight import ReplayOutput
from .items import Item, leaving
from .plan import EXIT, Step
from .record import Loop

KEPT = ".kept"  # behind an item's number: the file of its hindsight lines


@dataclass(frozen=True)
class Part:
    """What a worker is told: all items, the one that it begins with (None: it has to ask), and where they print."""

    items: tuple[Item, ...]
    first: int | None
    folder: str

    def as_task(self) -> dict[str, Any]:
        """What a worker makes the same object of."""
        return {
            "items": [list(vars(item).values()) for item in self.items],
            "first": self.first,
            "folder": self.folder,
        }

    @classmethod
    def from_task(cls, task: dict[str, Any]) -> Part:
        return cls(tuple(Item(*each) for each in task["items"]), task["first"], task["folder"])


class Share:
    """`ask(done)` gives the next item's number, once the one before is done; `alone(reason)` stops all but one."""

    def __init__(
        self,
        part: Part,
        output: ReplayOutput,
        ask: Callable[[int | None], int],
        alone: Callable[[str], NoReturn],
    ) -> None:
        self.part, self.output, self.ask, self.alone = part, output, ask, alone
        self.divided = {item.ctx for item in part.items}
        self.held = part.first
        self.doing = False  # what is held
        self.leaving: int | None = None  # a loop
        self._nowhere = moved_up(os.open(os.devnull, os.O_WRONLY))
        self._errors = high_copy(2)
        if self.held == 0:
            self._begin()
        else:
            self._send(self._nowhere, self._nowhere)

    def divides(self, loop: Loop) -> bool:
        """Whether the steps of a loop come from here."""
        return loop.row.ctx in self.divided

    def steps(self, loop: Loop, usable: Collection[int], begun: int) -> list[Step]:
        """What to do next in a loop that is at boundary `begun` (-1: its state is not as recorded)."""
        if self.leaving == loop.row.ctx:
            return []
        item = self._next()
        if item.ctx == loop.row.ctx and item.start != EXIT:
            self._begin()
            goes_on = item.start == begun > 0
            return [Step(None if goes_on else item.start, item.stop)]
        self.leaving = loop.row.ctx
        return [leaving(loop, usable, begun)]

    def left(self, loop: Loop) -> None:
        """The program has left a divided loop, by what it was told or by itself."""
        self.leaving = None
        if self.doing:
            self._next()
        if self.held is not None and self._is_after(loop):
            self._begin()

    def _is_after(self, loop: Loop) -> bool:
        assert self.held is not None
        item = self.part.items[self.held]
        return item.ctx == loop.row.ctx and item.start == EXIT

    def _next(self) -> Item:
        """The item to do now; one that is being done ends here."""
        done = None
        if self.doing:
            done = self.held
            self._end()
        if self.held is None:
            self.held = self.ask(done)
        return self.part.items[self.held]

    def _begin(self) -> None:
        assert self.held is not None
        path = Path(self.part.folder) / str(self.held)
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._send(target, self._errors)
        os.close(target)
        self._keep(f"{path}{KEPT}")
        self.output.printed.recorded = self.part.items[self.held].out
        self.doing = True

    def _end(self) -> None:
        assert self.held is not None
        until = self.part.items[self.held].until
        if until is not None:
            self.output.tell(until)
        self._send(self._nowhere, self._nowhere)
        self._keep(None)
        self.doing, self.held = False, None

    def _keep(self, path: str | None) -> None:
        if self.output.kept is not None:
            with self.output.lock:
                self.output.kept.goes_to(path)

    def _send(self, output: int, errors: int) -> None:
        self.output.goes_to(output)
        if sys.stderr is not None:
            sys.stderr.flush()
        os.dup2(errors, 2)


def asks(descriptor: int, stop: Callable[[], NoReturn]) -> Callable[[int | None], int]:
    """Asks the pool; `stop` is called where nothing is left."""

    def ask(done: int | None) -> int:
        os.write(descriptor, json.dumps({"next": done}).encode() + b"\n")
        answer = os.read(descriptor, 64)
        if not answer.strip() or int(answer) < 0:
            stop()
        return int(answer)

    return ask
