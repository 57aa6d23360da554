"""What a replay's account tells of its question and its plan, gathered while the workers run.

`logs/replays.py` says what an account holds.
"""

from __future__ import annotations

import contextlib
import os
import textwrap
import threading
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..settings import Settings
from ..store.rows import RunRow, SourceRow
from ..store.store import Store
from .estimate import Estimate, LoopPlan
from .plan import selection_of
from .record import Record, modules_of
from .sources import Added, Edits
from .versions import Versions, file_now

PATIENCE = 2.0  # seconds behind the last worker: it has read the same record
MOST_LOOPS, MOST_RUNS = 200, 500
LONGEST = 400  # characters of a statement


class Gathering:
    """Probes and plan, on a thread of their own; whatever fails there is left out, and no replay fails by it."""

    def __init__(self, settings: Settings, run: RunRow, versions: Versions, edits: Edits) -> None:
        self._found: dict[str, Any] = {"probes": [], "plan": None}
        work = partial(self._gather, settings, run, versions, edits)
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def result(self) -> dict[str, Any]:
        """What there is of `probes` and `plan`."""
        self._thread.join(PATIENCE)
        return dict(self._found)

    def _gather(self, settings: Settings, run: RunRow, versions: Versions, edits: Edits) -> None:
        # The store may be thinned meanwhile, or a file edited: the replay itself tells.
        with contextlib.suppress(Exception), Store.open(settings.home, trust=settings.trust) as store:
            self._found["probes"] = probes_of(modules_of(store.sources(run)), run, versions, edits)
            self._found["plan"] = plan_of(estimate_of(store, settings, run, edits))


def estimate_of(store: Store, settings: Settings, run: RunRow, edits: Edits) -> Estimate:
    """What the replay of a run will take."""
    record = Record(store, run)
    return Estimate(record, edits.question(record, selection_of(record, settings.select)))


def plan_of(estimate: Estimate) -> dict[str, Any]:
    """The main loops, and what is done in each."""
    shown = estimate.loops[:MOST_LOOPS]
    return {
        "seconds": round(estimate.seconds, 3),
        "around": round(estimate.around, 3),
        "loops": [_loop(estimate.record, plan) for plan in shown],
        "more": len(estimate.loops) - len(shown),
    }


def _loop(record: Record, plan: LoopPlan) -> dict[str, Any]:
    site = plan.loop.site
    source = record.source_of(site.key.partition(":")[0])
    return {
        "site": site.key,
        "path": "" if source is None else source.path,
        "line": site.line,
        "known": plan.loop.known,
        "iterations": plan.iterations,
        "runs": [list(run) for run in plan.runs[:MOST_RUNS]],
        "restores": plan.restores,
        "seconds": round(plan.seconds, 3),
    }


def probes_of(
    sources: Sequence[SourceRow], run: RunRow, versions: Versions, edits: Edits
) -> list[dict[str, Any]]:
    """The statements that were added, in the order of their lines in each module."""
    found = []
    for source in sources:
        added = [each for each in edits.added if each.module == source.module]
        if not added:
            continue
        now = (
            versions.text(source, file_now(source, run, os.getcwd())).decode("utf-8", "replace").splitlines()
        )
        before = _Places(source.source.decode("utf-8", "replace").splitlines(), now)
        said = {(each.module, each.line): each.said or each.code for each in versions.placed}
        for each in sorted(added, key=lambda one: (one.line, one.start)):
            text = _text(now, each) or said.get((each.module, each.line), "")
            place = {"module": each.module, "path": each.path, "line": each.line}
            found.append({**place, "text": text[:LONGEST], "before": before.of(each.line)})
    return found


def _text(lines: Sequence[str], added: Added) -> str:
    """A statement as it stands in the file; "" of one that was put in."""
    return textwrap.dedent("\n".join(lines[added.start - 1 : added.stop]))


class _Places:
    """Which line of the recorded text a line of now stands before, or is."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        import difflib  # slow to import: here it is done while the workers run

        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        self._blocks = blocks
        self._ends = [block.b + block.size for block in self._blocks]

    def of(self, line: int) -> int:
        """Both counted from 1; that behind the last line is one more."""
        index = bisect_left(self._ends, line)
        block = self._blocks[min(index, len(self._blocks) - 1)]
        return block.a + max(0, line - 1 - block.b) + 1
