"""Tables of a run's lines and of the named values in them: rows as dicts, in the order of their columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..dataclass import dataclass
from ..errors import RefusedError
from ..logs.values import Number
from .lines import History, Line
from .places import Key

Row = dict[str, Any]
STEP = "global_step"  # the innermost loop's running count over the whole run, from 0 on


@dataclass(frozen=True)
class Value:
    """A named value, and the line that it was printed in."""

    name: str
    value: Number
    line: Line


def line_rows(history: History) -> Iterator[Row]:
    """One row for each line: the loop variables, then `text`, `source`, `replay`, `rank`, `time`, `via` and `place`."""
    for line in history.lines:
        yield {**_cells(history, line), "text": line.text, **_facts(line)}


def value_rows(history: History, names: Sequence[str]) -> Iterator[Row]:
    """One row for each value of these names, of all without any: the loop variables, then `name`, `value` and so on."""
    for value in values_of(history, names):
        yield {
            **_cells(history, value.line),
            "name": value.name,
            "value": value.value,
            STEP: value.line.step,
            **_facts(value.line),
        }


def _facts(line: Line) -> Row:
    return {
        "source": line.source,
        "replay": line.replay or None,
        "rank": line.rank,
        "time": line.time,
        "via": line.via,
        "place": line.place or None,
    }


def _cells(history: History, line: Line) -> Row:
    return history.columns.cells(line.places)


def values_of(history: History, names: Sequence[str]) -> list[Value]:
    """The values of these names, of all without any. RefusedError for a name that nothing printed has.

    A name that is not found as it stands is found whatever its case, and with spaces and hyphens for underscores.
    """
    found = [Value(name, value, line) for line in history.lines for name, value in line.values]
    known = dict.fromkeys(value.name for value in found)
    wanted = {each for name in names for each in _matching(name, known)}
    return [value for value in found if not names or value.name in wanted]


def _matching(name: str, known: dict[str, None]) -> list[str]:
    if name in known:
        return [name]
    matches = [each for each in known if _folded(each) == _folded(name)]
    if not matches:
        there = ", ".join(list(known)[:12]) + (", ..." if len(known) > 12 else "")
        raise RefusedError(
            f"nothing that was printed is named {name!r}; there are: {there or 'no named values'}"
        )
    return matches


def _folded(name: str) -> str:
    return name.casefold().replace(" ", "_").replace("-", "_")


def pivoted(history: History, names: Sequence[str]) -> tuple[list[str], list[Row]]:
    """Columns and rows, one for each iteration: the loop variables, `global_step`, then one column for each name.

    Values of a replay stand in the row of their iteration; where the run printed another value under the same name, in
    a column named `loss (hindsight)`. Where a name was printed several times in one iteration, as in a loop of which
    the record does not tell the iterations, each time after the first makes a row of its own. Lines that know less of
    their place (an epoch's summary) have rows of their own as well.
    """
    values = values_of(history, names)
    several = len({value.line.rank for value in values}) > 1
    rows: dict[tuple[Any, ...], Row] = {}
    front = dict.fromkeys(["rank"] if several else [])
    seen: dict[tuple[Any, ...], int] = {}
    for value in values:
        line = value.line
        place: tuple[int, tuple[Key, ...]] = line.rank, tuple(each.key for each in line.places)
        turn = seen[place, value.name, line.replay] = seen.get((place, value.name, line.replay), -1) + 1
        row = rows.get((place, turn))
        if row is None:
            cells = {"rank": line.rank, **_cells(history, line)} if several else _cells(history, line)
            front.update(dict.fromkeys(cells))
            row = rows[place, turn] = {**cells, STEP: line.step}
        _put(row, value)
    columns = dict.fromkeys([*front, STEP, *(name for row in rows.values() for name in row)])
    return list(columns), list(rows.values())


def _put(row: Row, value: Value) -> None:
    """Where a loop variable or the run's own value has the name already, a value that is the same is there."""
    name = value.name
    if name in row and not _same(row[name], value.value):
        name = f"{name} ({value.line.source})"
    if name not in row or name != value.name:
        row[name] = value.value


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


def columns_of(rows: Sequence[Row], last: Sequence[str] = ()) -> list[str]:
    """All columns of rows, in the order in which they first come; those of `last` behind the others."""
    found = dict.fromkeys(name for row in rows for name in row)
    return [*(name for name in found if name not in last), *(name for name in last if name in found)]
