"""The lines that a run printed, and those that replays of it printed since, each with the loops around it."""

from __future__ import annotations

import bisect
import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..dataclass import dataclass, replace
from ..errors import RefusedError
from ..logs import kept
from ..logs.values import Number, values_in
from ..replay.plan import selection_of
from ..replay.record import Record
from ..store.rows import RunRow
from ..store.store import Store
from .places import Columns, Place
from .positions import Positions

NEWEST, ALL = "last", "all"  # of the replays that printed
PRINT = "print"
Named = tuple[str, Number]
# One that "\r" ends was overwritten on a terminal, but printed all the same.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|$)")


@dataclass(frozen=True)
class Line:
    """A printed line, or one that was handed to a library that logs.

    `time`: seconds from the start of the run, of the last thing recorded before it; None where nothing was. Of what was
    logged, its own. `replay`: the id of the replay that printed it, "" of the run's own. `step`: how many iterations of
    the innermost loop had begun in the whole run before the one that printed it. `at`: the module and line of the
    statement of a replay that printed it, where that is known. `via`: the library, "print" for none. `place`: file and
    line of who logged it. `values`: the names and numbers in it.
    """

    places: tuple[Place, ...]
    text: str
    rank: int = 0
    time: float | None = None
    replay: str = ""
    step: int = 0
    at: kept.At | None = None
    via: str = PRINT
    place: str = ""
    named: tuple[Named, ...] | None = None  # None: what can be found in the text

    @property
    def values(self) -> Sequence[Named]:
        """Names and numbers, in order; a name may come twice."""
        return values_in(self.text) if self.named is None else self.named

    @property
    def source(self) -> str:
        """Whether the run printed it, or a replay."""
        return "hindsight" if self.replay else "recorded"


@dataclass(frozen=True)
class History:
    """The lines of a run, of its ranks one after another, in program order."""

    run: RunRow
    lines: list[Line]
    columns: Columns


def history_of(home: Path, which: str, select: str | None = None, replays: str = NEWEST) -> History:
    """What a run printed and what a replay of it did: the newest that printed anything, `all`, or one by its id."""
    with Store.open(home) as store:
        run = store.find(which)
        members = [run]
        if run.world > 1 and run.rank == 0:
            members += [each for each in store.runs() if each.id.startswith(f"{run.id}.")]
        lines: list[Line] = []
        sites = {}
        selection = None
        for member in sorted(members, key=lambda member: member.rank):
            record = Record(store, member)
            sites.update(record.sites)
            selection = selection_of(record, select)
            lines += _merged(record, home, replays)
    columns = Columns(sites, (line.places for line in lines))
    if selection is not None and selection.slices:
        lines = [line for line in lines if columns.takes(selection, line.places)]
    return History(run, lines, columns)


def _merged(record: Record, home: Path, replays: str) -> list[Line]:
    """In program order: a hindsight line stands before what the run printed after it."""
    positions = Positions(record)
    printed = list(recorded_lines(record, positions))
    found = _logged(record, positions, printed)
    found += [((position, math.inf), line) for position, line in printed]
    for name, path in _wanted(home, record.run, replays):
        latest = 0, 0.0
        for position, line in _hindsight(record, positions, name, path):
            latest = max(latest, (position, line.time or 0.0))
            found.append((latest, line))
    return [line for _, line in sorted(found, key=lambda each: each[0])]


def recorded_lines(record: Record, positions: Positions) -> Iterator[tuple[int, Line]]:
    """What the run itself printed, by position. A line belongs to the loops around its beginning and its end."""
    output = record.output
    for match in _LINE.finditer(output):
        text = match[0].rstrip("\r\n")
        if not text and not match[0].endswith("\n"):
            continue
        start = match.start()
        places = _common(positions.at(start), positions.at(match.end() - 1))
        time = positions.time_at(start)
        yield start, Line(places, text, record.run.rank, time, "", step_of(positions, places))


def _common(one: tuple[Place, ...], other: tuple[Place, ...]) -> tuple[Place, ...]:
    count = 0
    for mine, its in zip(one, other, strict=False):
        if mine.key != its.key:
            break
        count += 1
    return one[:count]


def _logged(
    record: Record, positions: Positions, printed: list[tuple[int, Line]]
) -> list[tuple[tuple[int, float], Line]]:
    """What the run handed to libraries that log. What one of these printed is a printed line, and has more from it."""
    found = []
    starts = [position for position, _ in printed]
    for row in record.store.logged(record.run):
        places = positions.recorded(
            [(site, nth, number, labels) for site, nth, number, labels in json.loads(row.loops)]
        )
        named, step = _named(row.named, row.text), step_of(positions, places)
        at = bisect.bisect_right(starts, row.out) - 1
        if at >= 0 and kept.holds(record.output[row.out : row.out_after], row.text):
            line = printed[at][1]
            if len(places) >= len(line.places):
                line = replace(line, places=places, step=step)
            printed[at] = starts[at], replace(line, time=row.at, via=row.via, place=row.place, named=named)
            continue
        for text in row.text.splitlines() or [""]:
            shown = f"{row.head}: {text}" if row.head else text
            values = _named(row.named, text)
            line = Line(
                places, shown, record.run.rank, row.at, step=step, via=row.via, place=row.place, named=values
            )
            found.append(((row.out, row.at), line))
    return found


def _named(named: str, text: str) -> tuple[Named, ...]:
    """The values that a library was given by name, or those in a text."""
    if named:
        return tuple((str(name), value) for name, value in json.loads(named))
    return tuple(value for line in text.splitlines() for value in values_in(line))


def _wanted(home: Path, run: RunRow, replays: str) -> list[tuple[str, Path]]:
    found = [(str(about.get("replay", "")), path) for about, path in kept.replays_of(home, run.id)]
    if replays == ALL:
        return found
    if replays == NEWEST:
        return found[-1:]
    chosen = [each for each in found if each[0].startswith(replays)]
    if len(chosen) != 1 and run.rank == 0:
        names = ", ".join(name for name, _ in found) or "none"
        raise RefusedError(
            f"{replays!r} names {len(chosen)} replays of {run.id} that printed; there are: {names}"
        )
    return chosen


def _hindsight(record: Record, positions: Positions, name: str, path: Path) -> Iterator[tuple[int, Line]]:
    for loops, out, exact, text, at, logged in kept.read(path):
        places = positions.recorded(loops)
        if not exact:
            out = positions.nearest(places, out)
        time = positions.time_of(places)
        line = Line(places, text, record.run.rank, time, name, step_of(positions, places), at)
        if logged is None:
            yield out, line
            continue
        via, head, place, named = logged
        for each in text.splitlines():
            shown = f"{head}: {each}" if head else each
            yield out, replace(line, text=shown, via=via, place=place, named=_named(named, each))


def step_of(positions: Positions, places: tuple[Place, ...]) -> int:
    """The running count of the innermost loop that the record knows, from 0 on; 0 outside of all loops."""
    for place in reversed(places):
        if place.ctx >= 0 and place.iteration >= 0:
            return positions.iterations_before[place.ctx] + place.iteration
    return 0
