"""Tells whether torch.compile is reading the program right now: to its eyes a loop has no probes.

torch.compile (and torch.export) take torch's own `is_compiling` for a constant, so that what stands behind it is folded
away: no graph break, nothing to watch, nothing to compile again. A loop in the form of a replay needs to know whether
it has run. Frames cannot be asked for there, so that is kept by site.

Things that don't work: the call in the rewritten code itself, as in `x if is_compiling() else loop(7, x)`, which would
hold every iterable twice. States of all sites in one list: it would be watched as a whole.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

is_compiling: Callable[[], bool] = bool  # without torch: False, as fast as Python can say it
states: dict[
    int, list[Any]
] = {}  # by site, in a list of one: what `open` was given, then BROKEN or COMPLETED
BROKEN, COMPLETED = 0, 1


def torch_is_there() -> None:
    """To be called once torch has been imported."""
    global is_compiling
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", bool)


def add_sites(numbers: Iterable[int]) -> None:
    """Room for the states of loops in the form of a replay."""
    states.update((number, [BROKEN]) for number in numbers)


# The calls of a loop in the form of a replay ------------------------------------------------------------------


def open(site: int, *arguments: Any) -> None:  # noqa: A001
    states[site][0] = arguments


def segment(site: int) -> bool:
    return type(states[site][0]) is tuple


def items(site: int) -> Any:
    iterable = states[site][0][0]
    states[site][0] = BROKEN
    return iterable


def step(site: int) -> bool:
    states[site][0] = BROKEN
    return True


def done(site: int) -> None:
    states[site][0] = COMPLETED


def completed(site: int) -> bool:
    """Known limit: wrong after a break, if the same loop ran to its end deeper in a recursion."""
    return states[site][0] == COMPLETED  # type: ignore[no-any-return]
