"""The lines that a run printed, and those that replays of it printed since, each with the loops around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..dataclass import dataclass
from ..errors import RefusedError
from ..logs import kept
from ..replay.plan import selection_of
from ..replay.record import Record
from ..store.rows import RunRow
from ..store.store import Store
from .places import Columns, Place
from .positions import Positions

NEWEST, ALL = "last", "all"  # of the replays that printed
# One that "\r" ends was overwritten on a terminal, but printed all the same.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|$)")


@dataclass(frozen=True)
class Line:
    """A printed line.

    `time`: seconds from the start of the run, of the last thing recorded before it; None where nothing was.
    `replay`: the id of the replay that printed it, "" of the run's own. `step`: how many iterations of the innermost
    loop had begun in the whole run before the one that printed it. `at`: the module and line of the statement of a
    replay that printed it, where that is known.
    """

    places: tuple[Place, ...]
    text: str
    rank: int = 0
    time: float | None = None
    replay: str = ""
    step: int = 0
    at: kept.At | None = None

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
    found = [((position, 1), line) for position, line in recorded_lines(record, positions)]
    for name, path in _wanted(home, record.run, replays):
        latest = 0
        for position, line in _hindsight(record, positions, name, path):
            latest = max(latest, position)
            found.append(((latest, 0), line))
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
    for loops, out, exact, text, at in kept.read(path):
        places = positions.recorded(loops)
        if not exact:
            out = positions.nearest(places, out)
        time = positions.time_of(places)
        yield out, Line(places, text, record.run.rank, time, name, step_of(positions, places), at)


def step_of(positions: Positions, places: tuple[Place, ...]) -> int:
    """The running count of the innermost loop that the record knows, from 0 on; 0 outside of all loops."""
    for place in reversed(places):
        if place.ctx >= 0 and place.iteration >= 0:
            return positions.iterations_before[place.ctx] + place.iteration
    return 0
