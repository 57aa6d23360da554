"""Everything that two runs differ in: arguments, environment, code, output, state."""

from __future__ import annotations

import ast
import os
import re
import shlex
from itertools import zip_longest

from ..dataclass import dataclass, field
from ..errors import RefusedError
from ..hook.changes import CHANGED, Change, changes
from ..hook.rewrite import rewrite
from ..runtime.entropy import LIBRARIES, version_name
from ..state.recorded import without_addresses
from ..store.rows import RunRow, SourceRow
from ..store.store import Store
from .boundaries import States, compare_states
from .record import Record

READ = "read"
__all__ = ["CHANGED", "FileChange", "Line", "Pair", "RunDiff", "compare_runs", "first_line"]


@dataclass(frozen=True)
class Pair:
    """One thing that both runs have, each another one; None where a run has none."""

    name: str
    was: str | None
    now: str | None


@dataclass(frozen=True)
class FileChange:
    """A changed statement, with its files in both runs; without one, a module that only one run has."""

    old_path: str | None
    new_path: str | None
    change: Change | None = None


@dataclass(frozen=True)
class Line:
    """The first line of output that differs; None where a run's output has ended."""

    number: int
    was: str | None
    now: str | None


@dataclass
class RunDiff:
    """What differs between two runs; empty where nothing does."""

    first: RunRow
    second: RunRow
    arguments: list[Pair] = field(default_factory=list)
    environment: list[Pair] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what is no difference, but may be the reason for one
    code: list[FileChange] = field(default_factory=list)
    output: Line | None = None
    exit: Pair | None = None
    states: States = field(default_factory=States)

    @property
    def differ(self) -> bool:
        parts = (self.arguments, self.environment, self.code, self.output, self.exit)
        return any(part for part in parts) or self.states.differ


def compare_runs(store: Store, first: RunRow, second: RunRow) -> RunDiff:
    """Compare two runs of one store."""
    records = _record(store, first), _record(store, second)
    found = RunDiff(first, second)
    found.arguments = _arguments(first, second)
    found.environment = _environment(*records)
    found.notes = _notes(first, second)
    found.code, sites = _code(*records)
    found.output = first_line(records[0].output, records[1].output)
    found.exit = next(iter(_pairs({"exit code": _ending(first)}, {"exit code": _ending(second)})), None)
    found.states = compare_states(*records, sites, same_code=not found.code)
    return found


def _record(store: Store, run: RunRow) -> Record:
    try:
        return Record(store, run)
    except SyntaxError as error:
        raise RefusedError(f"the sources of run {run.id} cannot be read by this Python: {error}") from None


def _pairs(was: dict[str, str | None], now: dict[str, str | None]) -> list[Pair]:
    """What differs between two tables."""
    return [
        Pair(name, was.get(name), now.get(name))
        for name in dict.fromkeys([*was, *now])
        if was.get(name) != now.get(name)
    ]


def _arguments(first: RunRow, second: RunRow) -> list[Pair]:
    return _pairs(
        {"program": first.program, "arguments": shlex.join(first.argv)},
        {"program": second.program, "arguments": shlex.join(second.argv)},
    )


def _environment(first: Record, second: Record) -> list[Pair]:
    """Versions, the folder, the number of ranks, and the files that both runs read and that had other sizes."""
    return _pairs(_surroundings(first), _surroundings(second)) + _files(first, second)


def _surroundings(record: Record) -> dict[str, str | None]:
    run = record.run
    found: dict[str, str | None] = {"python": run.meta.get("python"), "florhook": run.meta.get("florhook")}
    for library in LIBRARIES:
        version = record.states.get(version_name(library))
        if version is not None:
            found[library.partition(".")[0]] = version.decode("utf-8", "replace")
    return {**found, "folder": run.cwd, "ranks": str(run.world)}


def _files(first: Record, second: Record) -> list[Pair]:
    """By their paths within the runs' folders."""
    sizes: list[dict[str, str | None]] = []
    for record in (first, second):
        rows = [row for row in record.store.files(record.run) if row.how == READ]
        sizes.append({os.path.relpath(row.path, record.run.cwd): f"{row.size} bytes" for row in rows})
    both = sizes[0].keys() & sizes[1].keys()
    return _pairs(*({name: table[name] for name in table if name in both} for table in sizes))


def _notes(first: RunRow, second: RunRow) -> list[str]:
    seeds = [str(run.meta.get("hash_seed", "")) for run in (first, second)]
    if seeds[0] == seeds[1]:
        return []
    return [f"hash seeds {seeds[0]} and {seeds[1]}: sets of text iterate in other orders"]


def _ending(run: RunRow) -> str:
    return "none" if run.exit_code is None else str(run.exit_code)


# Code -----------------------------------------------------------------------------------------------------


def _code(first: Record, second: Record) -> tuple[list[FileChange], dict[str, str]]:
    """All changes, and the loops of the second run by those of the first."""
    found: list[FileChange] = []
    sites: dict[str, str] = {}
    old = {source.module: source for source in first.sources}
    new = {source.module: source for source in second.sources}
    for module in dict.fromkeys([*old, *new]):
        was, now = old.get(module), new.get(module)
        if was is None or now is None:
            here = None if was is None else _name(was, first.run)
            there = None if now is None else _name(now, second.run)
            found.append(FileChange(here, there))
        else:
            _module(was, now, found, sites, (_name(was, first.run), _name(now, second.run)))
    return found, sites


def _module(
    was: SourceRow, now: SourceRow, found: list[FileChange], sites: dict[str, str], paths: tuple[str, str]
) -> None:
    here = rewrite(ast.parse(was.source, was.path), was.module, was.path).sites
    if was.source == now.source:
        sites.update((site.key, site.key) for site in here)
        return
    there = rewrite(ast.parse(now.source, now.path), now.module, now.path).sites
    compared = changes(was.source, now.source, now.path)
    found += [FileChange(*paths, change) for change in compared.changes]
    keys = {site.line: site.key for site in there}
    for site in here:
        line = compared.loops.get(site.line)
        if line in keys:
            sites[site.key] = keys[line]


def _name(source: SourceRow, run: RunRow) -> str:
    """A module's file, as seen from the run's folder where it lies in it."""
    inside = source.path.startswith(run.cwd.rstrip(os.sep) + os.sep)
    return os.path.relpath(source.path, run.cwd) if inside else source.path


# Output ---------------------------------------------------------------------------------------------------


def first_line(was: str, now: str) -> Line | None:
    """The first line that differs in more than the addresses of objects."""
    for number, (old, new) in enumerate(zip_longest(_lines(was), _lines(now)), 1):
        if old is None or new is None:
            return Line(number, old, new)
        if without_addresses(old) != without_addresses(new):
            texts = old.removesuffix("\n"), new.removesuffix("\n")
            return Line(number, *texts) if texts[0] != texts[1] else Line(number, old, new)
    return None


def _lines(text: str) -> list[str]:
    """With their ends."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
