"""`--until`: the first iteration after which an expression is true, found by jumping from checkpoint to checkpoint.

Each boundary of the main loops is a place to ask: one with a checkpoint costs a restore, the others are run up to. Once
an iteration is found, the loops inside it are asked, to name the step. With `--monotone`, some checkpoints are asked
first, spread evenly, then some of those between the last where it was false and the first where it was true.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from ..dataclass import replace
from ..errors import RefusedError, UsageError
from ..hook.logpoints import Search, parse_search
from ..launch import Target
from ..runs import write_stats
from ..runtime.searcher import Inquiry, Stop
from ..settings import Settings
from ..store.rows import RunRow
from .asked import Asked, asked, refuse_ranks
from .outcome import DIVERGED
from .plan import EXIT
from .record import Loop, Record
from .supervisor import run_until_done

AT_ONCE = 8  # checkpoints that one process asks when it bisects; it cannot go back
NOT_FOUND = 1  # exit code


def search(target: Target, settings: Settings) -> int:
    """Print the first place; 1 where there is none."""
    assert settings.until is not None
    what = parse_search(settings.until)
    if settings.plan or settings.probe or settings.select:
        raise UsageError("--until goes alone: without --plan, --probe and --select")
    question = asked(target, settings, [what] if what.file else [])
    refuse_ranks(question.run, "searched")
    looker = _Looker(question, settings, what)
    answer = looker.before_a_line() if what.file else looker.between_iterations()
    if answer is None:
        sys.stderr.write(f"florhook: {what.text} is not true {looker.nowhere}\n")
    else:
        place = " ".join(f"{name}={value}" for name, value in answer["labels"])
        print(f"{what.text}: first true {answer['when']}{' ' if place else ''}{place} ({answer['where']})")
    exit_code = DIVERGED if looker.differences else NOT_FOUND if answer is None else 0
    for difference in looker.differences:
        sys.stderr.write(f"florhook: this replay is not exact: {difference}\n")
    write_stats(settings.stats, {**looker.figures(), "exit_code": exit_code}, question.run.rank)
    return exit_code


class _Looker:
    """Runs workers that ask."""

    def __init__(self, question: Asked, settings: Settings, what: Search) -> None:
        self.asked, self.settings, self.what = question, settings, what
        self.nowhere = "after any iteration of the main loops"
        self._attempts: list[dict[str, Any]] = []
        self._began = time.perf_counter()
        with question.store:
            self.record = Record(question.store, question.run)

    def before_a_line(self) -> dict[str, Any] | None:
        """Run what is needed to come to the line, until it is true there."""
        self.nowhere = f"wherever the run came to {self.what.file}:{self.what.line}"
        report = self._run({})
        found = report.get("found")
        return None if found is None else {**found, "when": "at"}

    def between_iterations(self) -> dict[str, Any] | None:
        loops = [loop for loop in _main_loops(self.record) if loop.known and not loop.site.tight]
        stops = [stop for loop in loops for stop in _stops(loop)]
        if self.settings.monotone:
            low, high = self._bisect([stop for stop in stops if _is_kept(self.record, stop)])
            stops = [stop for stop in stops if (low is None or stop > low) and (high is None or stop <= high)]
        found = self._ask(Inquiry(self.what.text, tuple(stops))) if stops else None
        if found is None:
            return None
        ctx, boundary = found["after"]
        if any(loop.row.iteration == boundary - 1 for loop in self.record.inside.get(ctx, ())):
            found = self._ask(Inquiry(self.what.text, inside=(ctx, boundary - 1))) or found
        return {**found, "when": "after"}

    def _bisect(self, kept: Sequence[Stop]) -> tuple[Stop | None, Stop | None]:
        """The last checkpoint at which it is false, and the first at which it is true."""
        low: Stop | None = None
        high: Stop | None = None
        while kept:
            count = min(AT_ONCE, len(kept))
            some = [kept[(number + 1) * len(kept) // count - 1] for number in range(count)]
            found = self._ask(Inquiry(self.what.text, tuple(some)))
            if found is None:
                return some[-1], high
            high = (found["after"][0], found["after"][1])
            before = some.index(high) - 1
            low = some[before] if before >= 0 else low
            kept = [stop for stop in kept if (low is None or stop > low) and stop < high]
        return low, high

    def _ask(self, inquiry: Inquiry) -> dict[str, Any] | None:
        report = self._run({"search": inquiry.as_task()})
        found: dict[str, Any] = report.get("found") or {}
        if "error" in found:
            place = " ".join(f"{name}={value}" for name, value in found["labels"])
            raise UsageError(f"--until: after {place}, {inquiry.text} raises {found['error']}")
        if found.get("unbound") and not inquiry.inside:
            raise UsageError(
                f"--until: {found['unbound']} between iterations of the main loops; "
                f"ask where it is: --until FILE:LINE:'{inquiry.text}'"
            )
        return found if "labels" in found else None

    def _run(self, task: dict[str, Any]) -> dict[str, Any]:
        settings = replace(self.settings, workers=1)
        attempt, _ = run_until_done(settings, self.asked, None, None, task)
        self._attempts.append(attempt.report)
        ended = self.asked.run.exit_code
        if "found" not in attempt.report and ended is not None and attempt.status != ended:
            raise RefusedError(
                f"the program ended with status {attempt.status} in the replay, not with {ended}"
            )
        return attempt.report

    @property
    def differences(self) -> list[str]:
        """Where what was executed on the way was not as in the run."""
        return [text for report in self._attempts for text in report.get("differences", [])]

    def figures(self) -> dict[str, Any]:
        """For FLOR_STATS: those of all processes together."""
        names = (
            *(
                "iterations_executed",
                "iterations_skipped",
                "iterations_left_early",
                "blocks_skipped",
                "jumps",
            ),
            *("verified", "diverged", "unverified", "restore_s"),
        )
        totals = {name: sum(report.get(name, 0) for report in self._attempts) for name in names}
        run: RunRow = self.asked.run
        wall = time.perf_counter() - self._began
        return {"mode": "replay", "run_id": run.id, "workers": 1, **totals, "wall_s": wall}


def _main_loops(record: Record) -> list[Loop]:
    return sorted(record.inside.get(-1, []), key=lambda loop: loop.row.ctx)


def _stops(loop: Loop) -> list[Stop]:
    """The boundaries after each iteration that ended."""
    ended = loop.known + (not loop.is_open and loop.row.exit in ("end", "break"))
    return [(loop.row.ctx, boundary) for boundary in range(1, ended)]


def _is_kept(record: Record, stop: Stop) -> bool:
    """Whether a boundary can be restored."""
    loop = record.loops[stop[0]]
    return stop[1] in loop.checkpoints or (stop[1] == loop.known and EXIT in loop.checkpoints)
