"""Processes that a replayed program starts through multiprocessing: they run in full, and show their hindsight too.

A forked child has everything already. One that is spawned, or comes from a fork server, begins by unpickling what
`multiprocessing.spawn` prepares for it; an object of ours among this brings the child into the replay: its modules are
rewritten, what it writes lands in the overlay, and its hindsight statements print where this process prints.
"""

from __future__ import annotations

import builtins
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..launch import Target
from ..runtime.opened import starts_loader
from ..settings import Settings

HOOKED = (
    "multiprocessing.spawn",
    "multiprocessing.util",
)  # modules to be told of, once the program imports them


class Entrance:
    """What a child unpickles first."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return enter, self.arguments


def enter(target: Target, settings: Settings, task: dict[str, Any]) -> None:
    """In the child, before it runs anything of the program."""
    from .worker import Worker

    Worker(target, settings, task).enter_child()


class Children:
    """Hands the replay on to the processes that this one starts."""

    def __init__(
        self,
        target: Target,
        settings: Settings,
        task: dict[str, Any],
        output: int,
        started: Callable[[], None],
    ) -> None:
        """`output` is the descriptor at which hindsight is printed; `started` is called when a child begins."""
        self._output, self._started = output, started
        self.begun = False
        self._entrance = Entrance(target, settings, {**task, "output": output, "status": -1})

    def hook(self, name: str) -> None:
        """Called when one of HOOKED has been imported."""
        module = sys.modules[name]
        if name.endswith(".spawn"):
            module.get_preparation_data = self._prepared(module.get_preparation_data)  # type: ignore[attr-defined]
        else:
            module.spawnv_passfds = self._passed_on(module.spawnv_passfds)  # type: ignore[attr-defined]

    def begins(self) -> None:
        """A process is about to be started."""
        self.begun = True
        if not starts_loader():
            self._started()

    def _prepared(self, prepare: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        def get_preparation_data(name: str) -> dict[str, Any]:
            return {"florhook": self._entrance, **prepare(name)}

        return get_preparation_data

    def _passed_on(self, start: Callable[..., int]) -> Callable[..., int]:
        def spawnv_passfds(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
            self.begins()
            return start(path, args, [*passfds, self._output])

        return spawnv_passfds


def rewrite_main(path: str, transform: Callable[[bytes, str, str], Any]) -> None:
    """Let `runpy`, by which a child gets the program's classes, compile the script as the hook does.

    It asks no import hook for a file; a `compile` among its own names comes before Python's.
    """

    def compiled(source: Any, file: str, mode: str, *arguments: Any, **options: Any) -> Any:
        if mode == "exec" and os.path.realpath(file) == path and isinstance(source, bytes):
            return transform(source, file, "__main__")
        return builtins.compile(source, file, mode, *arguments, **options)

    runpy.compile = compiled  # type: ignore[attr-defined]
