"""The processes of a replay of several ranks, which share a folder: what they write there keeps them in step.

Each rank has a supervisor and a worker. Workers meet before and after each jump, so that none of them goes on while
another still brings files and state to the same place. Where one of them cannot use a checkpoint, all halt: each
reports what it has printed and stops itself by SIGSTOP, so that nobody sees another's connections break; once all
have, the supervisors end them and start them again without that checkpoint.
"""

from __future__ import annotations

import _thread
import contextlib
import hashlib
import json
import mmap
import os
import signal
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ..dataclass import asdict, dataclass
from ..ranks import Rank

TICK = 0.01  # seconds between looks at the folder
HALTING = 60.0  # seconds for all ranks to halt
_WHAT, _NUMBER = struct.Struct("8s"), struct.Struct("q")
_SLOT = _WHAT.size + _NUMBER.size  # what a meeting is about, and then its number
_SLOTS = 2  # nobody can be more than one meeting ahead


@dataclass(frozen=True)
class Group:
    """The ranks of a replay: their common folder, this one, and the ids under which the others stand in the store."""

    root: Path
    rank: Rank
    others: list[str]

    def attempt(self, number: int) -> Folder:
        """The folder for one attempt."""
        path = self.root / f"attempt-{number}"
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Folder(path, self.rank.number, self.rank.world, number, self.others)


@dataclass(frozen=True)
class Folder:
    """What ranks tell each other in one attempt."""

    path: Path
    rank: int
    world: int
    number: int
    others: list[str]

    def as_task(self) -> dict[str, Any]:
        """What a worker makes the same object of."""
        return {**asdict(self), "path": str(self.path)}

    @classmethod
    def from_task(cls, task: dict[str, Any]) -> Folder:
        return cls(**{**task, "path": Path(task["path"])})

    @property
    def overlay(self) -> Path:
        """What one rank writes, the others find."""
        return self.path / "overlay"

    def tell(self, what: str, content: object = None) -> None:
        """Let the other ranks know."""
        path = self.path / f"{what}.{self.rank}"
        spare = path.with_suffix(f"{path.suffix}.new")
        spare.write_text(json.dumps(content))
        spare.rename(path)

    def told(self, what: str) -> dict[int, Any]:
        """What ranks have told, by rank."""
        found = {}
        for rank in range(self.world):
            with contextlib.suppress(FileNotFoundError):
                found[rank] = json.loads((self.path / f"{what}.{rank}").read_text())
        return found

    def halt(self) -> list[str]:
        """This rank has halted: wait for the others; the sites whose checkpoints are to be left out."""
        self.tell("halted")
        until = time.monotonic() + HALTING
        while len(self.told("halted")) < self.world and time.monotonic() < until:
            time.sleep(TICK)
        return sorted(each["site"] for each in self.told("again").values())

    def wait_for_the_end(self) -> bool:
        """This rank has ended well: whether the others do, too. If not, all are to start again."""
        self.tell("done")
        parent = os.getppid()
        while len(self.told("done")) < self.world and os.getppid() == parent:
            if self.told("again"):
                return False
            time.sleep(TICK)
        return not self.told("again")

    def address(self) -> dict[str, str]:
        """Where the workers of a later attempt meet: the launcher's store still holds what the first ones wrote."""
        if self.number == 0:
            return {}
        if self.rank == 0:
            with socket.socket() as sock:
                sock.bind(("", 0))
                self.tell("port", sock.getsockname()[1])
        while 0 not in (port := self.told("port")):
            time.sleep(TICK)
        return {"MASTER_PORT": str(port[0]), "TORCHELASTIC_USE_AGENT_STORE": "False"}


class Member:
    """A worker among those of the other ranks. `halt()` gives its report, and from then on nothing is printed."""

    def __init__(self, folder: Folder, halt: Callable[[list[dict[str, Any]]], None]) -> None:
        self.folder, self._halt = folder, halt
        self._meetings = 0
        size = _SLOT * _SLOTS * folder.world
        with open(folder.path / "meetings", "a+b") as file:
            os.ftruncate(file.fileno(), size)
            self._table = mmap.mmap(file.fileno(), size)
        _thread.start_new_thread(self._watch, ())  # so that the program does not find it among its own

    def again(self, site: str, reason: str) -> NoReturn:
        """This rank cannot go on: let all start again without the checkpoints of that site."""
        self.folder.tell("again", {"site": site, "reason": reason})
        while True:
            time.sleep(HALTING)  # the other thread ends this

    def _watch(self) -> None:
        pid = os.getpid()
        while True:
            time.sleep(TICK)
            reasons = self.folder.told("again")
            if reasons:
                self._halt(list(reasons.values()))
                os.kill(pid, signal.SIGSTOP)

    def meet(self, what: str) -> bool:
        """Wait until all ranks are here; whether they are for the same reason."""
        self._meetings += 1
        mine = hashlib.blake2b(what.encode(), digest_size=8).digest()
        at = self._at(self.folder.rank)
        _WHAT.pack_into(self._table, at, mine)
        _NUMBER.pack_into(self._table, at + _WHAT.size, self._meetings)
        return all(self._of(rank) == mine for rank in range(self.folder.world))

    def _of(self, rank: int) -> bytes:
        at = self._at(rank)
        while _NUMBER.unpack_from(self._table, at + _WHAT.size)[0] != self._meetings:
            time.sleep(TICK / 10)
        return bytes(_WHAT.unpack_from(self._table, at)[0])

    def _at(self, rank: int) -> int:
        return _SLOT * (rank * _SLOTS + self._meetings % _SLOTS)
