"""`florhook replay --runs last:5`: the same probes, asked of runs of older versions of the program.

Probes are what the files of now have more than a recorded version of theirs, and what `--probe` names. A run whose
version fits the files of now is replayed with them. Any other is replayed from its recorded text: the syntax trees are
aligned, and each probe comes before the counterpart of the statement that follows it now, or else behind that of the
one before, or else at the beginning or the end of the block that it stands at the beginning or the end of.
"""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..dataclass import dataclass, replace
from ..errors import FlorError, RefusedError, UsageError
from ..hook.diff import SourceDiff, compare
from ..hook.logpoints import parse_logpoint
from ..hook.placed import Placed, Where, list_at, place_of
from ..settings import Settings
from ..store.rows import RunRow, SourceRow
from ..store.store import Store
from .record import modules_of
from .supervisor import replay
from .target import target_of
from .versions import Versions, file_now, with_probes

HEADING = "run"


@dataclass(frozen=True)
class Probes:
    """Statements of the files of now, by module; each by its place in the tree and its line."""

    versions: Versions  # what `--probe` names
    places: Mapping[str, Sequence[tuple[Where, int]]]


def replay_runs(settings: Settings) -> int:
    """Replay several runs, and print what comes of it with the run in front of each line; the highest exit status."""
    with Store.open(settings.home) as store:
        newest = store.find(settings.run)
        family = [run for run in store.runs() if run.program == newest.program and run.rank == 0]
        runs = chosen(family, settings.runs or "")
        probes = _find(store, family, settings)
        plans = [_plan(store, run, probes) for run in runs]
    width = max(map(len, [HEADING, *(run.id for run in runs)]))
    print(f"{HEADING:{width}}  output")
    worst = 0
    for run, plan in zip(runs, plans, strict=True):
        if isinstance(plan, str):
            _skip(run, plan)
            continue
        try:
            status = _replay(run, plan, settings, width)
        except FlorError as error:
            _skip(run, str(error))
            status = error.exit_code
        worst = max(worst, status)
    if all(isinstance(plan, str) for plan in plans):
        raise RefusedError("none of the runs could be replayed")
    return worst


def chosen(runs: Sequence[RunRow], text: str) -> list[RunRow]:
    """Those that `--runs` names: `last:5`, `all`, ids or prefixes of ids with commas, or `args:TEXT`."""
    kind, _, rest = text.partition(":")
    if kind == "last" and (not rest or (rest.isdecimal() and int(rest))):
        found = list(runs)[-int(rest or 1) :]
    elif kind == "args":
        found = [run for run in runs if rest in " ".join(run.argv)]
    elif text == "all":
        found = list(runs)
    else:
        names = [name for name in text.split(",") if name]
        found = [run for run in runs if run.id.startswith(tuple(names))] if names else []
        if len(found) < len(names):
            raise UsageError(f"--runs: {text!r} is none of last:5, all, args:TEXT, or ids of runs")
    if not found:
        raise UsageError(f"--runs: no run of {runs[-1].program} matches {text!r}")
    return found


def _skip(run: RunRow, reason: str) -> None:
    sys.stderr.write(f"florhook: {run.id} is left out: {reason}\n")


def _replay(run: RunRow, versions: Versions, settings: Settings, width: int) -> int:
    settings = replace(settings, run=run.id, stats=None)
    with _captured() as lines:
        status = replay(target_of(run, settings), settings, versions)
    for line in lines:
        print(f"{run.id:{width}}  {line}")
    sys.stdout.flush()
    return status


@contextlib.contextmanager
def _captured() -> Iterator[list[str]]:
    """What processes write to stdout meanwhile; there once it is over."""
    lines: list[str] = []
    sys.stdout.flush()
    own = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield lines
        finally:
            os.dup2(own, 1)
            os.close(own)
            file.seek(0)
            lines += file.read().decode(errors="surrogateescape").splitlines()


# The probes ------------------------------------------------------------------------------------------------------


def _find(store: Store, family: Sequence[RunRow], settings: Settings) -> Probes:
    """By the newest run that the files of now fit, but for probes; else only those that `--probe` names."""
    points = [parse_logpoint(text) for text in settings.probe]
    here = os.getcwd()
    for run in reversed(family):
        sources = modules_of(store.sources(run))
        try:
            versions = with_probes(points, sources, run, here)
            diffs = _diffs(sources, run, versions)
        except (FlorError, SyntaxError):
            continue
        if not any(diff.refusals for diff in diffs.values()):
            return Probes(versions, {module: _added(diff) for module, diff in diffs.items()})
    if not points:
        raise RefusedError(
            "what was added cannot be told from what was changed: no run was recorded from these files; "
            "record one, or name what to show with --probe"
        )
    run = family[-1]
    sources = modules_of(store.sources(run))
    versions = with_probes(points, sources, run, here)
    alone = {}
    for row in sources:
        path = file_now(row, run, here)
        text = versions.text(row, path)
        diff = versions.compared(replace(row, source=text), text, path)
        alone[row.module] = [] if diff is None else _added(diff)
    return Probes(versions, alone)


def _diffs(sources: Sequence[SourceRow], run: RunRow, versions: Versions) -> dict[str, SourceDiff]:
    found = {}
    for row in sources:
        path = file_now(row, run, os.getcwd())
        diff = versions.compared(row, versions.text(row, path), path)
        if diff is not None:
            found[row.module] = diff
    return found


def _added(diff: SourceDiff) -> list[tuple[Where, int]]:
    return [
        (place_of(diff.tree, stmt), diff.lines.get(stmt.lineno, stmt.lineno))
        for stmt in diff.added
        if isinstance(stmt, ast.stmt)
    ]


# Their places in another version ---------------------------------------------------------------------------------


def _plan(store: Store, run: RunRow, probes: Probes) -> Versions | str:
    """What to replay the run with, or why it cannot be."""
    if run.world > 1:
        return "it had several ranks"
    sources = modules_of(store.sources(run))
    here = os.getcwd()
    missing = [path for row in sources if not os.path.exists(path := file_now(row, run, here))]
    if missing:
        return f"{os.path.relpath(missing[0], here)} is not there any more"
    try:
        diffs = _diffs(sources, run, probes.versions)
    except SyntaxError as error:
        return f"{error.filename}:{error.lineno}: {error.msg}"
    if not any(diff.refusals for diff in diffs.values()):
        return probes.versions
    placed: list[Placed] = []
    known = {row.module: row for row in sources}
    for module, places in probes.places.items():
        if places and module not in known:
            return f"module {module} is not part of it"
        for where, line in places:
            row = known[module]
            path = file_now(row, run, here)
            diff = diffs.get(module) or compare(row.source, row.source, path)
            found = _counterpart(diff, module, where, line, {place for place, _ in places})
            if found is None:
                return f"{os.path.basename(path)}:{line}: nothing around the probe is in that version"
            placed.append(found)
    return Versions(tuple(placed), recorded=True)


def _counterpart(
    diff: SourceDiff, module: str, where: Where, line: int, probes: Collection[Where]
) -> Placed | None:
    """The place of a probe in the recorded text, by the nearest statements that both have; `probes` are all of them."""
    siblings, index = list_at(diff.tree, where)
    code = ast.unparse(siblings[index])
    for sibling in siblings[index:]:  # the probe itself, where that version had it
        if sibling in diff.pairs:
            return Placed(module, _recorded_place(diff, sibling), code, line)
    for sibling in reversed(siblings[:index]):
        if sibling in diff.pairs:
            *around, (field, at) = _recorded_place(diff, sibling)
            return Placed(module, (*around, (field, at + 1)), code, line)
    block = _recorded_block(diff, where)
    if block is None:
        return None
    *around, (field, _) = where
    others = [at for at in range(len(siblings)) if (*around, (field, at)) not in probes]
    if all(at > index for at in others):
        return Placed(module, (*block, (field, 0)), code, line)
    if all(at < index for at in others):
        return Placed(
            module, (*block, (where[-1][0], len(list_at(diff.old_tree, (*block, where[-1]))[0]))), code, line
        )
    return None


def _recorded_block(diff: SourceDiff, where: Where) -> Where | None:
    """The statement around a place in the recorded text, if that has it."""
    if len(where) == 1:
        return ()
    siblings, index = list_at(diff.tree, where[:-1])
    around = siblings[index]
    return _recorded_place(diff, around) if around in diff.pairs else None


def _recorded_place(diff: SourceDiff, stmt: ast.stmt) -> Where:
    old = diff.pairs[stmt]
    assert isinstance(old, ast.stmt)
    return place_of(diff.old_tree, old)
