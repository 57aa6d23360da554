"""The edits since the record: which are probes and where, which are refused."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from ..dataclass import dataclass, field
from ..hook.carries import carries
from ..hook.diff import Refusal, SourceDiff
from ..hook.rewrite import rewrite
from ..hook.sites import Instrumented
from ..runtime.probes import CHILDREN, LOADERS
from ..store.rows import RunRow, SourceRow
from .plan import Question, Selection
from .record import Record
from .versions import Versions, file_now, is_library

CALLED_BY_LOADERS = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "__len__")


@dataclass(frozen=True)
class Added:
    """A statement without a counterpart in the record: its lines in the tree that runs, and the one in messages."""

    module: str
    path: str
    start: int
    stop: int  # the last one
    line: int


@dataclass
class Edits:
    """All differences between a run's sources and those of now."""

    # keys of the loops and functions that probes stand in; under which conditions on the loop's variables ("": none)
    places: dict[str, set[str]] = field(default_factory=dict)
    lines: list[tuple[str, int]] = field(default_factory=list)  # of the probes: path, line
    refusals: list[Refusal] = field(default_factory=list)
    ends_early: set[str] = field(default_factory=set)  # sites whose iterations go on after their last probe
    printing_changed: bool = False
    carries: bool = False  # what was added depends on more than the program's state
    added: list[Added] = field(default_factory=list)  # of several in one another, the outermost

    def question(self, record: Record, selection: Selection) -> Question:
        """What a replay of a run asks."""
        places = {*self.places, CHILDREN} if self.places else set()
        loaders = record.mark_ids.get(LOADERS) if self._may_run_in_loaders(record) else None
        marks = frozenset(record.mark_ids[place] for place in places if place in record.mark_ids)
        conditions = {place: tuple(sorted(each)) for place, each in self.places.items() if "" not in each}
        early = frozenset() if self.carries else frozenset(self.ends_early)
        return Question(frozenset(places), marks, selection, conditions, early, loaders)

    def _may_run_in_loaders(self, record: Record) -> bool:
        """Whether a probe stands in a function that the workers of a DataLoader may have run: they leave no marks.

        So it is where none of the recorded loops ran it, and with those methods that a DataLoader calls.
        """
        ran = {mark for loop in record.loops.values() for mark in loop.row.marks.split(",")}
        around = {loop.site.key.rpartition(":")[0] for loop in record.loops.values()}
        for place in self.places:
            module, name = place.split(":")[:2]
            function = f"{module}:{name}"
            known = function in around or record.mark_ids.get(function) in ran
            if name and (not known or name.rpartition(".")[2] in CALLED_BY_LOADERS):
                return True
        return False


def find_edits(sources: list[SourceRow], run: RunRow, cwd: str, versions: Versions) -> Edits:
    """Compare every recorded module with what a replay will run. SyntaxErrors are the user's to see."""
    edits = Edits()
    for source in sources:
        path = file_now(source, run, cwd)
        diff = versions.compared(source, versions.text(source, path), path)
        if diff is None:
            continue
        edits.refusals += _of_a_library(diff.refusals, source) if is_library(source, run) else diff.refusals
        edits.printing_changed |= diff.printing_changed
        edits.carries |= carries(diff.tree, diff.added)
        edits.added += _added(diff.added, diff.lines, source.module, path)
        probed = probes_of(diff, source.module, path)
        edits.ends_early |= set(probed.ends_early)
        for place, line, condition in probed.probes:
            edits.places.setdefault(place, set()).add(condition)
            edits.lines.append((path, diff.lines.get(line, line)))
    return edits


def probes_of(diff: SourceDiff, module: str, path: str) -> Instrumented:
    """Where the added statements stand, and under which conditions."""
    if not diff.added:
        return Instrumented(module, path, (), ())
    return rewrite(diff.tree, module, path, added=diff.added)


def _added(statements: Sequence[ast.stmt], lines: Mapping[int, int], module: str, path: str) -> list[Added]:
    spans = [(stmt.lineno, stmt.end_lineno or stmt.lineno) for stmt in statements]
    return [Added(module, path, start, stop, lines.get(start, start)) for start, stop in spans]


def _of_a_library(refusals: list[Refusal], source: SourceRow) -> list[Refusal]:
    """One reason for all: nobody edited them one by one."""
    if not refusals:
        return []
    reason = f"{source.module} is another version than in the run ({refusals[0].reason})"
    return [Refusal(refusals[0].path, refusals[0].line, reason)]
