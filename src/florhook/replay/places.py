"""Places of a recorded run and names of its state, in the words of the program's author."""

from __future__ import annotations

import os

from ..runtime.digests import Digests
from ..runtime.verifier import readable, title
from ..store.rows import CheckpointRow
from .record import Loop, Record

EXIT = -1
STREAM, TABLE, LEAVES = 0, 1, 2  # the pieces of a checkpoint; leaves come last


def place_text(record: Record, loop: Loop, iteration: int) -> str:
    """A boundary: "after epoch=3 of the loop at train.py:41", with the iterations of the loops around."""
    return f"{boundary_text(record, loop, iteration)}{_around(record, loop)}"


def boundary_text(record: Record, loop: Loop, iteration: int) -> str:
    """The same without what is around."""
    where = loop_text(record, loop)
    if loop.is_statement:
        return f"after {where}"
    if iteration == EXIT:
        return f"at the end of {where}"
    return f"before {where}" if iteration == 0 else f"after {iteration_text(loop, iteration - 1)} of {where}"


def loop_text(record: Record, loop: Loop) -> str:
    """ "the loop at train.py:41", "the statement at train.py:43" """
    source = record.source_of(loop.site.key.partition(":")[0])
    name = "?" if source is None else os.path.basename(source.path)
    what = "statement" if loop.is_statement else "loop"
    return f"the {what} at {name}:{loop.site.line}"


def iteration_text(loop: Loop, iteration: int) -> str:
    """An iteration by the loop's own variables, where they were recorded."""
    named = ", ".join(f"{name}={value!r}" for name, value in loop.labels_of(iteration).items())
    return named or f"iteration {iteration}"


def _around(record: Record, loop: Loop) -> str:
    outer = record.loops.get(loop.row.parent)
    if outer is None:
        return ""
    inside = f", in {iteration_text(outer, loop.row.iteration)} of {loop_text(record, outer)}"
    return inside + _around(record, outer)


def piece_text(row: CheckpointRow, piece: int) -> str:
    """What a piece of a checkpoint holds: the objects, or a value of one of the program's variables."""
    if piece in (STREAM, TABLE):
        return "its objects"
    try:
        roots = Digests.from_row(row).roots
    except (ValueError, KeyError, TypeError):
        return "a value"
    name = next((root.name for root in roots if piece - LEAVES < root.leaves), None)
    return "a value" if name is None else f"a value of {readable(title(name))}"
