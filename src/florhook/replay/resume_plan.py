"""From which checkpoint a run is taken up again, and which loops are open there.

Pure: a recorded run in, places of it out.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from ..dataclass import dataclass
from ..errors import RefusedError, UsageError
from ..store.rows import CheckpointRow
from .plan import EXIT, value_or_number
from .record import Loop, Record

FROM_THE_BEGINNING = "*"  # to be avoided: every checkpoint
NOT_AFTER = "after:"  # to be avoided: checkpoints later than these seconds since the origin
MOST_MISSES = 3  # so many unusable checkpoints of a loop speak for the others
MOST_VALUES = 8


@dataclass(frozen=True)
class Point:
    """A place from which a run can go on: a checkpoint of a loop, and the loops around it."""

    loop: Loop
    checkpoint: CheckpointRow
    around: dict[int, int]  # loop executions around, outermost first -> the iteration that they are in

    @property
    def open(self) -> dict[int, int]:
        """The loop executions that go on from here, outermost first."""
        iteration = self.checkpoint.iteration
        return self.around if iteration == EXIT else {**self.around, self.loop.row.ctx: iteration}

    @property
    def name(self) -> str:
        """How an attempt tells the next that this checkpoint cannot be used."""
        return f"{self.loop.row.ctx}@{self.checkpoint.iteration}"


@dataclass(frozen=True)
class Moment:
    """The begin of one iteration: `began` in seconds since the origin, infinity where the record ended before."""

    loop: Loop
    iteration: int
    began: float

    def around(self, record: Record) -> dict[int, int]:
        """The loop executions that are open then, outermost first, and of each the iteration."""
        return {**(_around(record, self.loop) or {}), self.loop.row.ctx: self.iteration}


def points(record: Record, avoid: Collection[str], sites: Collection[str], before: float) -> list[Point]:
    """The places to go on from, newest first, but those that are to be avoided or later than `before`.

    `sites` are the recorded loops that the program of now has.
    """
    if FROM_THE_BEGINNING in avoid:
        return []
    misses = Counter(name.partition("@")[0] for name in avoid if "@" in name)
    limits = [float(name[len(NOT_AFTER) :]) for name in avoid if name.startswith(NOT_AFTER)]
    before, printed = min([before, *limits]), len(record.output)
    found = []
    for loop in record.loops.values():
        around = _around(record, loop)
        used = around is not None and {record.loops[ctx].site.key for ctx in around} | {loop.site.key}
        if not used or not used <= set(sites) or used & set(avoid) or not loop.row.entry:
            continue
        if misses[str(loop.row.ctx)] >= MOST_MISSES:
            continue
        for checkpoint in loop.checkpoints.values():
            point = Point(loop, checkpoint, around or {})
            left = checkpoint.iteration != EXIT or loop.row.exit in ("end", "break")
            whole = checkpoint.out <= printed  # else the run was killed before the rest was sent
            if left and whole and checkpoint.taken <= before:
                found.append(point)
    return sorted(found, key=lambda point: point.checkpoint.taken, reverse=True)


def leave_out(record: Record, avoid: Collection[str]) -> None:
    """Take the checkpoints that cannot be used out of a record."""
    for loop in record.loops.values():
        loop.checkpoints = {
            iteration: checkpoint
            for iteration, checkpoint in loop.checkpoints.items()
            if loop.site.key not in avoid and f"{loop.row.ctx}@{iteration}" not in avoid
        }


def _around(record: Record, loop: Loop) -> dict[int, int] | None:
    found: list[tuple[int, int]] = []
    row = loop.row
    while row.parent >= 0:
        if row.parent not in record.loops:
            return None  # the run was killed before that row was sent
        found.append((row.parent, row.iteration))
        row = record.loops[row.parent].row
    return dict(reversed(found))


# `epoch=7`: which moment is meant ------------------------------------------------------------------------------


def parse_moment(text: str) -> dict[str, int]:
    """`epoch=3,step=10`: loop variables, outermost first, and the value of each."""
    wanted: dict[str, int] = {}
    for piece in re.split(r"[,;\s]+", text.strip()):
        match = re.fullmatch(r"(\w+)=(-?\d+)", piece)
        if match is None:
            raise UsageError(f"--at: {piece!r} is not of the form epoch=7")
        wanted[match[1]] = int(match[2])
    return wanted


def find_moment(record: Record, wanted: Mapping[str, int]) -> Moment:
    """The first iteration in which the loop variables have those values."""
    known = {name for site in record.sites.values() for name, _ in site.labels}
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"--at: no loop of the program has a variable {name}; there are {', '.join(sorted(known)) or 'none'}"
            )
    moments = [
        Moment(loop, iteration, began)
        for loop in record.loops.values()
        for iteration, began in _iterations(loop)
        if _has(record, loop, iteration, wanted)
    ]
    if not moments:
        raise RefusedError(_never(record, wanted))
    return min(moments, key=lambda moment: moment.began)


def _iterations(loop: Loop) -> Iterator[tuple[int, float]]:
    """Iterations whose begin is known, and the one that the run was in when it was killed or failed."""
    for iteration, row in loop.iterations.items():
        yield iteration, row.began
    if loop.known not in loop.iterations and loop.row.exit not in ("end", "break"):
        yield max([*loop.iterations, -1]) + 1, math.inf


def _has(record: Record, loop: Loop, iteration: int, wanted: Mapping[str, int]) -> bool:
    """Whether the last of the variables belongs to this loop and has its value, and the others to loops around it."""
    *_, last = wanted
    if last not in values_of(loop, iteration):
        return False
    values: dict[str, float] = {}
    at: tuple[Loop, int] | None = (loop, iteration)
    while at is not None:
        values = {**values_of(*at), **values}
        parent = record.loops.get(at[0].row.parent)
        at = (parent, at[0].row.iteration) if parent is not None else None
    return all(values.get(name) == value for name, value in wanted.items())


def values_of(loop: Loop, iteration: int) -> dict[str, float]:
    """The loop's own variables in an iteration; counted on where the run ended in it."""
    labels = loop.labels_of(iteration)
    if iteration not in loop.iterations and loop.iterations:
        last, before = (loop.labels_of(iteration - back) for back in (1, 2))
        for name, value in last.items():
            step = value - before[name] if _is_number(value) and _is_number(before.get(name)) else 1
            labels[name] = value + step if _is_number(value) else None
    return {name: value_or_number(labels.get(name), iteration) for name, _ in loop.site.labels}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _never(record: Record, wanted: Mapping[str, int]) -> str:
    said = ", ".join(f"{name}={value}" for name, value in wanted.items())
    there = []
    for name in wanted:
        values = sorted(
            {
                values_of(loop, iteration)[name]
                for loop in record.loops.values()
                if name in dict(loop.site.labels)
                for iteration in loop.iterations
            }
        )
        there.append(f"{name} was {_listed(values)}")
    return f"run {record.run.id} has no iteration with {said}: {'; '.join(there)}"


def _listed(values: list[float]) -> str:
    texts = [f"{value:g}" for value in values]
    if not texts:
        return "not recorded, its iterations are too short"
    if values == list(range(int(values[0]), int(values[0]) + len(values))) and len(values) > 2:
        return f"{texts[0]} to {texts[-1]}"
    return ", ".join(texts[:MOST_VALUES]) + (", ..." if len(texts) > MOST_VALUES else "")


def place_text(record: Record, point: Point) -> str:
    """Where a run goes on, for people: `before iteration 5 of the loop at line 12 (epoch=5)`."""
    loop, iteration = point.loop, point.checkpoint.iteration
    labels = [
        f"{name}={value}"
        for ctx, at in point.open.items()
        for name, value in known_labels(record.loops[ctx], at).items()
    ]
    where = "after" if iteration == EXIT else f"before iteration {iteration} of"
    return f"{where} the loop at line {loop.site.line}" + (f" ({', '.join(labels)})" if labels else "")


def known_labels(loop: Loop, iteration: int) -> dict[str, str]:
    """The loop's variables in an iteration as JSON spells them, where they are known."""
    if iteration in loop.iterations:
        return {name: json.dumps(value) for name, value in loop.labels_of(iteration).items()}
    values = values_of(loop, iteration) if loop.iterations else {}
    return {name: f"{value:g}" for name, value in values.items() if name in loop.labels_of(iteration - 1)}
