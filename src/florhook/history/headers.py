"""Loop variables that only count, as a loop's header says: `range(10)`, `enumerate(loader, 1)`. Pure.

By these, an iteration that was left before its variables were recorded (the run crashed in it, or was killed) has its
own all the same.
"""

from __future__ import annotations

import ast

from ..dataclass import dataclass


@dataclass(frozen=True)
class Count:
    """A variable at a place in the loop's item is `start + step * iteration`."""

    place: tuple[int, ...]
    start: int
    step: int


def counts(tree: ast.Module) -> dict[int, Count]:
    """By line: the `for` loops one of whose variables counts from and by numbers that stand in the header."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and (count := _count(node.iter)) is not None:
            found[node.lineno] = count
    return found


def _count(iterable: ast.expr) -> Count | None:
    if not isinstance(iterable, ast.Call):
        return None
    name = (
        iterable.func.attr if isinstance(iterable.func, ast.Attribute) else getattr(iterable.func, "id", "")
    )
    if name == "tqdm" and iterable.args:
        return _count(iterable.args[0])
    if any(isinstance(each, ast.Starred) for each in iterable.args):
        return None
    if name == "enumerate":
        given = iterable.args[1:] or [each.value for each in iterable.keywords if each.arg == "start"]
        start = _number(given[0]) if given else 0
        return None if start is None else Count((0,), start, 1)
    if name in ("range", "trange") and iterable.args:
        first = _number(iterable.args[0]) if len(iterable.args) > 1 else 0
        step = _number(iterable.args[2]) if len(iterable.args) > 2 else 1
        return None if first is None or step is None else Count((), first, step)
    return None


def _number(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if type(value) is int else None
