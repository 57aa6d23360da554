"""`logs` and `export`: what a run printed, as a table or a file."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..history.export import TOOLS, export
from ..history.lines import NEWEST, History, history_of
from ..history.parquet import write_parquet
from ..history.tables import Row, columns_of, line_rows, pivoted, value_rows
from ..settings import Settings
from ..store.store import Store, settle
from .options import Options, options_of

PATIENCE = 30.0  # seconds for the writer of a run that ended just now
FORMS = ("csv", "json", "parquet")
FACTS = ("source", "replay", "rank", "time", "via", "place")
LINE_COLUMNS = ("text", *FACTS)
VALUE_COLUMNS = ("name", "value", "global_step", *FACTS)


def logs(settings: Settings, words: list[str]) -> None:
    """Show the lines that a run printed, or the values of these names."""
    options, rest = options_of("logs", words, ("select", "replay", "parquet"), ("csv", "json", "pivot"))
    forms = [form for form in FORMS if form in options]
    if len(forms) > 1:
        raise UsageError(f"--{forms[0]} and --{forms[1]} do not go together")
    history, names = _asked(settings, options, rest)
    columns, rows = _table(history, names, "pivot" in options)
    if forms == ["parquet"]:
        write_parquet(columns, rows, Path(options["parquet"][-1]))
        return
    if hasattr(sys.stdout, "reconfigure"):  # what was no text when it was printed is printed as it was
        sys.stdout.reconfigure(errors="surrogateescape")
    if forms == ["csv"]:
        table = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    elif forms == ["json"]:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
    else:
        _print_table(columns, rows, len({line.rank for line in history.lines}) > 1)


def export_values(settings: Settings, words: list[str]) -> None:
    """Write the named values of a run for another tool."""
    options, rest = options_of("export", words, ("select", "replay", *TOOLS), ())
    tools = [tool for tool in TOOLS if tool in options]
    if len(tools) != 1:
        raise UsageError(f"export needs one of {', '.join(f'--{tool} FOLDER' for tool in TOOLS)}")
    history, names = _asked(settings, options, rest)
    folder = Path(options[tools[0]][-1])
    count = export(history, names, tools[0], folder)
    print(f"{history.run.id}: {count} values in {folder}")


def _asked(settings: Settings, options: Options, words: list[str]) -> tuple[History, list[str]]:
    """The run that the first word names, or else the default one, and the names that follow."""
    settle(settings.home, PATIENCE)
    which, names = settings.run, words
    if words and _is_run(settings.home, words[0]):
        which, names = words[0], words[1:]
    select = ",".join(options.get("select", [])) or settings.select
    return history_of(settings.home, which, select, options.get("replay", [NEWEST])[-1]), names


def _is_run(home: Path, word: str) -> bool:
    if word == "last" or re.match(r"\d{8}-", word):
        return True
    with Store.open(home) as store:
        return any(run.id.startswith(word) for run in store.runs())


def _table(history: History, names: Sequence[str], pivot: bool) -> tuple[list[str], list[Row]]:
    """The columns and rows that were asked for."""
    if pivot:
        return pivoted(history, names)
    rows = list(value_rows(history, names) if names else line_rows(history))
    return columns_of(rows, VALUE_COLUMNS if names else LINE_COLUMNS), rows


def _print_table(columns: Sequence[str], rows: Sequence[Row], several_ranks: bool) -> None:
    """The loop variables, what was printed, and the mark of what only a replay printed."""
    hidden = {"source", "replay", "time", "via", "place", *(() if several_ranks else ("rank",))}
    hidden |= {"global_step"} if "source" in columns else set()
    shown = [name for name in columns if name not in hidden]
    table = [shown, *([_cell(row.get(name)) for name in shown] for row in rows)]
    if any(row.get("source") == "hindsight" for row in rows):
        place = next(index for index, name in enumerate(shown) if name in ("text", "name"))
        for cells, row in zip(table, [{}, *rows], strict=True):
            cells.insert(place, "hindsight" if row.get("source") == "hindsight" else "")
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
