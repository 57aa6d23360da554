"""What the injected code calls, under the name `__flor__`. Inert until a recorder or replayer is put in.

A real module, so that pickling a function that uses it (cloudpickle, loky) refers to it by name: in the process that
receives the function everything here is inert.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

marks: list[list[bool]] = []
"""By id, whether each function or loop ran, in a list of one. It is an attribute too: `m3` is `marks[3]`."""


def reserve_marks(count: int) -> int:
    """Room for `count` more marks; the id of the first."""
    first = len(marks)
    for number in range(first, first + count):
        marks.append([False])
        globals()[f"m{number}"] = marks[number]
    return first


def __getattr__(name: str) -> list[bool]:
    """A mark of the program that sent a function here (cloudpickle, loky): nobody asks for it."""
    if name[:1] == "m" and name[1:].isdecimal():
        return [False]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def loop(site: int, iterable: Any, cells: Callable[[], Any] | None = None) -> Any:
    return iterable


def enter(site: int, cells: Callable[[], Any] | None = None) -> None:
    pass


def step(site: int) -> bool:
    return True


def leave(site: int) -> None:
    pass


hindsight: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()

# The calls below stand in code that was rewritten for a replay only; a replayer is always there to take them.
open: Callable[..., None]  # noqa: A001
segment: Callable[[int], bool]
restoring: Callable[[int], bool]
has: Callable[[int, int], bool]
value: Callable[[int, int], Any]
items: Callable[[int], Iterable[Any]]
done: Callable[[int], None]
completed: Callable[[int], bool]

_INERT = {name: globals()[name] for name in ("loop", "enter", "step", "leave", "hindsight")}


def use(handler: object) -> None:
    """Let `handler` take the calls that it has methods for."""
    names = (*_INERT, "open", "segment", "restoring", "has", "value", "items", "done", "completed")
    globals().update({name: getattr(handler, name) for name in names if hasattr(handler, name)})


def be_inert() -> None:
    """For a forked child of a recorded program: nothing of ours happens there."""
    globals().update(_INERT)
