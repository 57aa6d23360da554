"""What a run left in the store, arranged for replay: sites and marks by key, loops by place, checkpoints by loop."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from ..dataclass import dataclass, field
from ..hook.rewrite import rewrite
from ..hook.sites import STATEMENT, Site, place_of_statement
from ..launch import INTERRUPTED
from ..runtime.trackers import ROW
from ..store.rows import CheckpointRow, ContextRow, IterationRow, RunRow, SourceRow
from ..store.store import Store

UNLIKE = ""  # among the recorded variables of a loop: the names of NumPy's
Place = tuple[int, int, str, int]  # parent, its iteration, site, how many of that site came before


@dataclass
class Loop:
    """One recorded execution of a loop, or of a statement that has no iterations."""

    row: ContextRow
    site: Site
    iterations: dict[int, IterationRow] = field(default_factory=dict)
    checkpoints: dict[int, CheckpointRow] = field(default_factory=dict)
    witnesses: dict[int, CheckpointRow] = field(default_factory=dict)
    begun: int = 0  # iterations in which a loop inside this one was entered
    goodbye: bool = True  # whether the run ended with one
    limit: int | None = None  # of several ranks: how many iterations all of them know
    cut: bool = False  # of several ranks: whether one of them ended inside this loop
    asked: frozenset[int] = frozenset()  # of several ranks: the iterations that others are asked for

    @property
    def is_open(self) -> bool:
        """Whether the run ended without goodbye inside this loop."""
        return self.cut or (self.row.exit == "" and not self.goodbye)

    @property
    def known(self) -> int:
        """How many iterations were begun, as far as the record goes."""
        told = self.row.iterations or 0
        if self.limit is not None:
            return self.limit
        if self.row.exit:
            return told
        return max([told - 1, self.begun - 1, *self.iterations, *(k - 1 for k in self.checkpoints)]) + 1

    def at(self, iteration: int) -> CheckpointRow | None:
        """What the run left of its state at a place, to compare with."""
        return self.checkpoints.get(iteration) or self.witnesses.get(iteration)

    def marks_of(self, iteration: int) -> set[str]:
        """Ids of what ran in an iteration; of all that ran in the loop where that is all we know."""
        row = self.iterations.get(iteration)
        return set((self.row.marks if row is None else row.marks).split(","))

    def time_at(self, boundary: int) -> float:
        """When the run was at a boundary, or at the last place before it that is known; in seconds from its start."""
        if boundary in self.iterations:
            return self.iterations[boundary].began
        return self.checkpoints[boundary].taken if boundary in self.checkpoints else self.row.entered

    @property
    def is_statement(self) -> bool:
        return self.site.kind == STATEMENT

    def seconds(self, start: int, stop: int) -> float:
        """How long the run took from one boundary to another."""
        end = self.row.left if stop == self.known and self.row.left is not None else self.time_at(stop)
        return max(0.0, end - self.time_at(start))

    def labels_of(self, iteration: int) -> dict[str, Any]:
        labels = self._labels(iteration)
        labels.pop(UNLIKE, None)
        return labels

    def computable_labels_of(self, iteration: int) -> dict[str, Any]:
        """Those with which Python computes as the program did: not NumPy's, which are rounded or overflow otherwise."""
        labels = self._labels(iteration)
        unlike = labels.pop(UNLIKE, ())
        return {name: value for name, value in labels.items() if name not in unlike}

    def _labels(self, iteration: int) -> dict[str, Any]:
        row = self.iterations.get(iteration)
        return {} if row is None else json.loads(row.labels)


def is_state(row: SourceRow) -> bool:
    """Whether a row holds a random state rather than a module."""
    return row.module.startswith("<")


def line_of_statement(key: str) -> int | None:
    """The line in the recorded source of a statement; None for the key of a loop."""
    place = place_of_statement(key)
    return None if place is None else place[0]


def _by_parent(executions: Iterable[Loop]) -> dict[int, list[Loop]]:
    found: dict[int, list[Loop]] = {}
    for each in executions:
        found.setdefault(each.row.parent, []).append(each)
    return found


def modules_of(rows: list[SourceRow]) -> list[SourceRow]:
    return [row for row in rows if not is_state(row)]


class Record:
    """A run, read. `read(digest)` gives the bytes of a checkpoint's piece."""

    def __init__(self, store: Store, run: RunRow) -> None:
        self.store, self.run = store, run
        rows = store.sources(run)
        self.sources: list[SourceRow] = modules_of(rows)
        self.states = {row.module: row.source for row in rows if is_state(row)}  # and the listing of files
        self.answers = [source for name, source in self.states.items() if name.startswith(ROW)]
        self.sites: dict[str, Site] = {}
        self.mark_ids: dict[str, str] = {key: str(i) for i, key in enumerate(run.meta.get("marks", ()))}
        for source in self.sources:
            info = rewrite(ast.parse(source.source, source.path), source.module, source.path)
            self.sites.update((site.key, site) for site in info.sites)
            for key in info.marks:
                self.mark_ids[key] = str(len(self.mark_ids))
        self.loops: dict[int, Loop] = {}
        self.by_place: dict[Place, Loop] = {}
        # Executions of statements that left a checkpoint: nothing lies in them, and nobody is told of them.
        self.statements: dict[int, Loop] = {}
        self.statement_at: dict[tuple[int, int, str], Loop] = {}  # by loop around, its iteration, and key
        self._read()

    def _read(self) -> None:
        goodbye = self.run.exit_code is not None
        for row in self.store.contexts(self.run):
            if row.site in self.sites:
                loop = self.loops[row.ctx] = Loop(row, self.sites[row.site], goodbye=goodbye)
                self.by_place[row.parent, row.iteration, row.site, row.nth] = loop
            elif (place := place_of_statement(row.site)) is not None:
                site = Site(row.site, place[0], STATEMENT)
                loop = self.statements[row.ctx] = Loop(row, site, goodbye=goodbye)
                self.statement_at[row.parent, row.iteration, row.site] = loop
        for loop in self.loops.values():
            outer = self.loops.get(loop.row.parent)
            if outer is not None:
                outer.begun = max(outer.begun, loop.row.iteration + 1)
        for iteration in self.store.iterations(self.run):
            if iteration.ctx in self.loops:
                self.loops[iteration.ctx].iterations[iteration.iteration] = iteration
        for checkpoint in self.store.checkpoints(self.run):
            of = self.execution(checkpoint.ctx)
            if of is not None:
                kept = of.witnesses if checkpoint.is_witness else of.checkpoints
                kept[checkpoint.iteration] = checkpoint

    def execution(self, ctx: int) -> Loop | None:
        """Of a loop or a statement."""
        return self.loops.get(ctx) or self.statements.get(ctx)

    def was_interrupted_in(self, loop: Loop) -> bool:
        """Whether Ctrl-C may have ended the run in a loop: nothing came after it."""
        if self.run.exit_code != INTERRUPTED:
            return False
        at: Loop | None = loop
        while at is not None:
            if any(each.row.entered > at.row.entered for each in self.inside[at.row.parent]):
                return False
            around = self.loops.get(at.row.parent)
            if around is not None and at.row.iteration + 1 < around.known:
                return False
            at = around
        return True

    def skippable(self) -> frozenset[str]:
        """Keys of the statements that have been checkpointed."""
        return frozenset(s.site.key for s in self.statements.values() if s.checkpoints)

    def statements_inside(self, ctx: int, start: int, stop: int) -> list[Loop]:
        """Executions of statements in the iterations of a loop from one to before another."""
        return [
            statement
            for statement in self._statements_in.get(ctx, ())
            if start <= statement.row.iteration < stop
        ]

    @cached_property
    def _statements_in(self) -> dict[int, list[Loop]]:
        return _by_parent(self.statements.values())

    @cached_property
    def inside(self) -> dict[int, list[Loop]]:
        """Loops by the number of the one around them, -1 for none."""
        return _by_parent(self.loops.values())

    def iterations_inside(self, ctx: int, iteration: int | None = None) -> int:
        """How many iterations of loops inside an iteration, or all of them, are recorded."""
        loops = (loop for loop in self.inside.get(ctx, ()) if iteration in (None, loop.row.iteration))
        return sum(loop.known + self.iterations_inside(loop.row.ctx) for loop in loops)

    def source_of(self, module: str) -> SourceRow | None:
        """A child that multiprocessing starts imports the main module of `-m` under its own name."""
        found = next((source for source in self.sources if source.module == module), None)
        if found is None and self.run.program in (f"-m {module}", f"-m {module.removesuffix('.__main__')}"):
            return self.source_of("__main__")
        return found

    def text_of(self, module: str, now: bytes) -> bytes:
        """A module's source as it was, whatever has become of it; `now` where it was not recorded."""
        recorded = self.source_of(module)
        return now if recorded is None else recorded.source

    @cached_property
    def output(self) -> str:
        """All that the run wrote to stdout."""
        return "".join(text for _, text in self.store.output(self.run))
