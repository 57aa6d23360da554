"""What is to be replayed, and what is refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ..dataclass import dataclass
from ..errors import RefusedError
from ..hook.logpoints import Logpoint, Search
from ..launch import Target
from ..ranks import Rank, member_id
from ..runs import is_cell, program_name
from ..runtime import trackers
from ..settings import Settings
from ..store.rows import RunRow
from ..store.store import Store, settle
from .plan import parse_selection
from .record import modules_of
from .sources import Edits, find_edits
from .versions import Versions, with_probes

PATIENCE = 30.0  # seconds for the writer of a run that ended just now


@dataclass(frozen=True)
class Asked:
    """What is to be replayed: a run in an open store, the ids of the other ranks' parts, the texts and the edits.

    `trackers` are those that the run used.
    """

    store: Store
    run: RunRow
    others: list[str]
    versions: Versions
    edits: Edits
    rank: Rank | None
    trackers: list[str]


def asked(
    target: Target,
    settings: Settings,
    probes: Sequence[Logpoint | Search],
    versions: Versions | None = None,
) -> Asked:
    """What is to be replayed; RefusedError where that must not be.

    `probes` are put into the files of now, if `versions` do not say what to replay.
    """
    parse_selection(settings.select)
    rank = Rank.of(os.environ, " ".join([program_name(target, settings), *target.argv]))
    # Of a run that was killed just now, even the row may be on its way.
    settle(settings.home, PATIENCE)
    store = Store.open(settings.home)
    run = store.find(settings.run, program_name(target, settings))
    run, others = _of_this_rank(store, run, rank)
    check_same_program(target, settings, run)
    rows = store.sources(run)
    sources = modules_of(rows)
    if not sources:
        raise RefusedError(
            f"run {run.id} recorded no module of {run.program}: what was added to it cannot be known "
            "(florhook doctor says why)"
        )
    if versions is None:
        versions = with_probes(probes, sources, run, os.getcwd())
    try:
        edits = find_edits(sources, run, os.getcwd(), versions)
    except SyntaxError as error:
        raise RefusedError(f"{error.filename}:{error.lineno}: {error.msg}") from None
    _refuse_unsafe(edits, settings)
    used = trackers.used(row.source for row in rows if row.module.startswith(trackers.ROW))
    return Asked(store, run, others, versions, edits, rank, used)


def _of_this_rank(store: Store, run: RunRow, rank: Rank | None) -> tuple[RunRow, list[str]]:
    """The part of a run that this process recorded, and the ids of the other ranks' parts."""
    world = 1 if rank is None else rank.world
    if world != run.world:
        raise RefusedError(
            f"run {run.id} had {run.world} ranks, and this launch has {world}: start the replay as the run was started"
        )
    members = [store.find(member_id(run.id, number)) for number in range(int(run.meta.get("here", 1)))]
    for member in members:
        store.wait(member, PATIENCE)
    own = member_id(run.id, 0 if rank is None else rank.number)
    return store.find(own), [member.id for member in members if member.id != own]


def check_same_program(target: Target, settings: Settings, run: RunRow) -> None:
    """A run is continued and replayed by its own program, with its own arguments."""
    name = program_name(target, settings)
    if run.program != name:
        raise RefusedError(f"run {run.id} is one of {run.program}, not of {name}")
    if tuple(target.argv) != run.argv and not settings.force:
        was, now = " ".join(run.argv) or "(none)", " ".join(target.argv) or "(none)"
        raise RefusedError(
            f"run {run.id} had other arguments: {was}; now: {now} (--force goes on all the same)"
        )


def refuse_ranks(run: RunRow, done: str) -> None:
    """What cannot be done yet with a run of several ranks."""
    if run.world > 1:
        raise RefusedError(
            f"run {run.id} had {run.world} ranks: such runs can be replayed, but not {done} yet"
        )


def refuse_cells(run: RunRow, done: str) -> None:
    """What cannot be done with a cell, which is no program by itself."""
    if is_cell(run.program):
        raise RefusedError(
            f"run {run.id} is one of a notebook's cell: such runs can be replayed, but not {done}"
        )


def _refuse_unsafe(edits: Edits, settings: Settings) -> None:
    if not edits.refusals or settings.force:
        return
    for refusal in edits.refusals:
        sys.stderr.write(f"florhook: {refusal.path}:{refusal.line}: {refusal.reason}\n")
    raise RefusedError(
        "the edit is no probe: what the program computes was changed (see above); "
        "record it as a new run, or replay all the same with --force"
    )
