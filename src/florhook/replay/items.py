"""Divides a replay among several processes: items, in program order, which they take one after the other.

Main loops, those outside all others, are divided at their checkpoints. What runs before, between and after them is an
item as well: each process runs it on its way, one prints. Pure: a record in, items out.
"""

from __future__ import annotations

from collections.abc import Collection

from ..dataclass import dataclass
from .plan import EXIT, Question, Step
from .record import Loop, Record

BEGINNING = -1  # in place of a loop: the beginning of the program
PER_WORKER = 4  # items, about, so that nobody has to wait long for the last one


@dataclass(frozen=True)
class Item:
    """From boundary `start` of a main loop on (EXIT: what follows it), up to boundary `stop` (None: as far as it goes).

    `out` and `until` are how many characters of output had been recorded where it begins, and where the next one does.
    """

    ctx: int
    start: int
    stop: int | None
    out: int
    until: int | None = None


def divide(record: Record, question: Question, workers: int) -> list[Item]:
    """The items of a replay; one alone where nothing can be divided."""
    loops = [loop for ctx, loop in sorted(record.loops.items()) if loop.row.parent < 0]
    found = {loop.row.ctx: _stretches(loop, question) for loop in loops if _divides(loop)}
    seconds = sum(loop.seconds(*stretch) for loop in loops for stretch in found.get(loop.row.ctx, ()))
    enough = seconds / (PER_WORKER * workers)
    begun: list[tuple[int, int, int | None, int]] = [(BEGINNING, EXIT, None, 0)]
    for loop in loops:
        stretches = _grouped(loop, found.get(loop.row.ctx, []), enough)
        if not stretches:
            continue
        for start, stop in stretches:
            begun.append(
                (loop.row.ctx, start, stop if stop < loop.known else None, loop.checkpoints[start].out)
            )
        begun.append((loop.row.ctx, EXIT, None, loop.row.out_left or 0))
    ends = [out for *_, out in begun[1:]]
    return [Item(*each, until) for each, until in zip(begun, [*ends, None], strict=True)]


def leaving(loop: Loop, usable: Collection[int], begun: int) -> Step:
    """The shortest way out of a divided loop from boundary `begun` on."""
    if EXIT in usable:
        return Step(EXIT)
    return Step(max((k for k in usable if k > begun or not begun), default=None))


def _divides(loop: Loop) -> bool:
    boundaries = set(loop.checkpoints) - {EXIT}
    left = loop.row.exit in ("end", "break") and loop.row.out_left is not None
    return left and bool(loop.row.entry) and not loop.site.tight and 0 in boundaries and len(boundaries) > 1


def _stretches(loop: Loop, question: Question) -> list[tuple[int, int]]:
    """From each checkpoint to behind the last iteration that is wanted before the next one."""
    starts = sorted(set(loop.checkpoints) - {EXIT})
    found = []
    for start, end in zip(starts, [*starts[1:], loop.known], strict=True):
        wanted = [i for i in range(start, end) if question.wants(loop, i)]
        if wanted:
            found.append((start, wanted[-1] + 1))
    return found


def _grouped(loop: Loop, stretches: list[tuple[int, int]], enough: float) -> list[tuple[int, int]]:
    """Neighbours together, until they take long enough, in seconds of the run."""
    groups: list[tuple[int, int]] = []
    for start, stop in stretches:
        if groups and groups[-1][1] == start and loop.seconds(*groups[-1]) < enough:
            groups[-1] = (groups[-1][0], stop)
        else:
            groups.append((start, stop))
    return groups
