"""`florhook view`: one HTML file with curves, times, sources and replays of runs, which asks no network."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..history.lines import ALL, History, history_of
from ..history.tables import Value, values_of
from ..logs.replays import accounts_of, verdict
from ..replay.record import Record
from ..store.rows import RunRow
from ..store.store import Store
from .margins import Margins
from .tables import COLUMNS, cells_of

MOST_REPLAYS = 50  # that are shown, the newest
MOST_BARS = 4000  # executions of loops that are drawn, the longest first
HERE = "/*DATA*/"  # in the page, where the data goes


def page(home: Path, which: Sequence[str], live: bool = False) -> str:
    """The whole page; with `live` it asks its server for news."""
    text = files("florhook.views").joinpath("report.html").read_text(encoding="utf-8")
    # In a script element nothing but its end has a meaning to HTML.
    return text.replace(HERE, json.dumps(data_of(home, which, live)).replace("<", "\\u003c"))


def data_of(home: Path, which: Sequence[str], live: bool = False) -> dict[str, Any]:
    """What the page shows. Nothing is unpickled."""
    return {
        "made": time.strftime("%Y-%m-%d %H:%M:%S"),
        "live": live,
        "runs": [_run(home, name) for name in which],
    }


def _run(home: Path, which: str) -> dict[str, Any]:
    with Store.open(home) as store:
        run = store.find(which)
        record = Record(store, run)
        cells = dict(zip(COLUMNS, cells_of(store, run), strict=True))
    history = history_of(home, run.id, replays=ALL)
    accounts = accounts_of(home, run.id)
    margins = Margins(record, history, accounts)
    loops = sorted(_loops(record), key=lambda bar: bar[0] - bar[1])[:MOST_BARS]
    checkpoints = sorted(_checkpoints(record))
    ends = [bar[1] for bar in loops] + [each[0] for each in checkpoints]
    return {
        "id": run.id,
        "cells": [cells[name] for name in COLUMNS[1:-2]],
        "summary": f"{cells['checkpoints']} checkpoints, {cells['stored']}, overhead {cells['overhead']}",
        "seconds": max([run.stats.get("wall_s") or 0.0, *ends]),
        "curves": _curves(history, margins),
        "statements": margins.statements,
        "loops": loops,
        "checkpoints": checkpoints,
        "stall": _stall(run),
        "replays": [
            {**account, "verdict": verdict(account)} for account in reversed(accounts[-MOST_REPLAYS:])
        ],
        "sources": [
            {
                "path": row.path,
                "name": row.path.removeprefix(run.cwd.rstrip("/") + "/"),
                "text": row.source.decode("utf-8", "replace"),
            }
            for row in record.sources
        ],
    }


def _stall(run: RunRow) -> dict[str, Any] | None:
    """Seconds that the program waited for checkpoints, by what for; None of a run without figures."""
    stats = run.stats
    parts = stats.get("stall")
    if parts is None:
        return None
    named = {**parts, "other": max(0.0, stats["stall_s"] - sum(parts.values()))}
    whole = {name: stats[name] for name in ("stall_s", "overhead_s", "writer_cpu_s", "wall_s")}
    return {"parts": [[name, round(seconds, 4)] for name, seconds in named.items()], **whole}


def _curves(history: History, margins: Margins) -> list[dict[str, Any]]:
    """Columns, which are shorter than rows.

    A name that was printed in several loops, whose steps are different ones, is a curve for each; what the newest
    replay that printed a name did is one of its own. `at` are the numbers of the statements that printed the values, or
    one where it is the same for all.
    """
    values = _newest([*values_of(history, ()), *margins.values()])
    sites: dict[str, set[str]] = {}
    for value in values:
        sites.setdefault(value.name, set()).add(_site(value))
    curves: dict[tuple[str, bool], list[tuple[int, float | None, float | None, str, int | None]]] = {}
    for value in values:
        line, cells = value.line, history.columns.cells(value.line.places)
        if cells.get(value.name) == value.value:
            continue  # it tells where the line was printed
        notes = [next(reversed(cells), "outside")] if len(sites[value.name]) > 1 else []
        notes += [f"rank {line.rank}"] if line.rank else []
        name = f"{value.name} ({', '.join(notes)})" if notes else value.name
        number = float(value.value) if math.isfinite(value.value) else None
        place = " ".join(f"{variable}={cell}" for variable, cell in cells.items())
        seconds = None if line.time is None else round(line.time, 4)
        curves.setdefault((name, bool(line.replay)), []).append(
            (line.step, seconds, number, place, margins.of(line))
        )
    names = ("name", "hindsight", "steps", "times", "values", "places", "at")
    return [
        dict(zip(names, (*key, _spread(steps), *columns, at[0] if len(set(at)) == 1 else at), strict=True))
        for key, points in curves.items()
        for steps, *columns, at in [zip(*sorted(points, key=lambda point: point[0]), strict=True)]
    ]


def _spread(steps: Sequence[int]) -> list[float]:
    """Several values of one step, as of a loop whose iterations were not recorded, stand evenly up to the next one."""
    found: list[float] = []
    for step, group in itertools.groupby(steps):
        count = len(list(group))
        found += [step] if count == 1 else [round(step + turn / count, 6) for turn in range(count)]
    return found


def _newest(values: list[Value]) -> list[Value]:
    """Less those of replays of which a later one has printed the same name."""
    last = {value.name: value.line.replay for value in sorted(values, key=lambda value: value.line.replay)}
    return [value for value in values if value.line.replay in ("", last[value.name])]


def _site(value: Value) -> str:
    return value.line.places[-1].site if value.line.places else ""


def _loops(record: Record) -> list[tuple[float, float, int]]:
    """When each execution of a main loop's iteration, and of a loop in it, began and ended; how deep it lies."""
    bars = []
    for loop in record.inside.get(-1, []):
        left = loop.row.left if loop.row.left is not None else loop.time_at(loop.known)
        begins = sorted(row.began for row in loop.iterations.values()) or [loop.row.entered]
        bars += [(start, end, 0) for start, end in zip(begins, [*begins[1:], left], strict=True)]
        bars += [
            (inner.row.entered, inner.row.left, 1)
            for inner in record.inside.get(loop.row.ctx, [])
            if inner.row.left is not None
        ]
    return bars


def _checkpoints(record: Record) -> list[tuple[float, int, str]]:
    """When each was taken, how many bytes it refers to, and where."""
    found = []
    for loop in (*record.loops.values(), *record.statements.values()):
        line = loop.site.line
        for iteration, row in loop.checkpoints.items():
            where = (
                f"end of the loop of line {line}" if iteration < 0 else f"line {line}, iteration {iteration}"
            )
            if loop.is_statement:
                where = f"after the statement of line {line}"
            found.append((round(row.taken, 3), sum(row.lengths), where))
    return found
