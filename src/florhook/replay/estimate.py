"""What a replay will do and about how long it takes, by the times of the run. Pure: a record and a question in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property

from ..dataclass import dataclass
from .plan import EXIT, RESTORE, RESTORE_RATE, Question, steps_for
from .record import Loop, Record

OWN_START = 0.5  # seconds until the program begins: two processes of ours, and reading the record


@dataclass(frozen=True)
class LoopPlan:
    """What is done in one execution of a main loop."""

    loop: Loop
    runs: tuple[tuple[int, int], ...]  # iterations, from one to before another
    restores: int  # here, in the loops inside and after statements
    seconds: float
    skipped: int = 0  # of these, instead of statements

    @property
    def iterations(self) -> int:
        """How many are run."""
        return sum(stop - start for start, stop in self.runs)


class Estimate:
    """Of one replay by one worker."""

    def __init__(self, record: Record, question: Question) -> None:
        self.record, self.question = record, question
        self._restores = self._skipped = 0

    @cached_property
    def loops(self) -> list[LoopPlan]:
        """The main loops, in order."""
        return [
            self._plan(loop) for loop in sorted(self.record.inside.get(-1, []), key=lambda loop: loop.row.ctx)
        ]

    @cached_property
    def around(self) -> float:
        """Seconds of what lies before, between and after the main loops."""
        run = self.record.run
        end = run.stats.get("wall_s") or max((_left(plan.loop) for plan in self.loops), default=0.0)
        return OWN_START + max(
            0.0, end - sum(_left(plan.loop) - plan.loop.row.entered for plan in self.loops)
        )

    @property
    def seconds(self) -> float:
        """In all."""
        return self.around + sum(plan.seconds for plan in self.loops)

    def _plan(self, loop: Loop) -> LoopPlan:
        self._restores = self._skipped = 0
        seconds, runs = self._of(loop)
        return LoopPlan(loop, tuple(runs), self._restores, seconds, self._skipped)

    def _of(self, loop: Loop) -> tuple[float, list[tuple[int, int]]]:
        times = _Times(loop)
        seconds, at = 0.0, 0
        runs: list[tuple[int, int]] = []
        for step in steps_for(loop, self.question, () if loop.row.entry else set(loop.checkpoints)):
            if step.restore is not None:
                seconds += self._restored(loop, step.restore)
                at = max(at, step.restore)
            if step.restore != EXIT:
                stop = loop.known if step.stop is None else step.stop
                seconds += times.between(at, stop) + self._saved(loop, at, stop)
                if stop > at:
                    runs.append((at, stop))
                at = stop
        return seconds, runs

    def _restored(self, loop: Loop, place: int) -> float:
        """The seconds of a restore."""
        self._restores += 1
        return RESTORE + sum(loop.checkpoints[place].lengths) / RESTORE_RATE

    def _saved(self, loop: Loop, start: int, stop: int) -> float:
        """What the loops and statements inside take now, less what they took; in seconds, mostly negative."""
        skipped = [
            each
            for each in self.record.statements_inside(loop.row.ctx, start, stop)
            if steps_for(each, self.question)[0].restore == EXIT
        ]
        self._skipped += len(skipped)
        spans = [(each.row.entered, _left(each)) for each in skipped]
        inside = [
            each
            for each in self.record.inside.get(loop.row.ctx, ())
            if start <= each.row.iteration < stop and not _is_within(each.row.entered, spans)
        ]
        saved = sum(self._of(each)[0] - (_left(each) - each.row.entered) for each in inside)
        saved += sum(self._restored(each, EXIT) for each in skipped)
        return saved - sum(end - begin for begin, end in spans)


class _Times:
    """When a loop was at its boundaries; between those that are known it is taken to have gone on evenly."""

    def __init__(self, loop: Loop) -> None:
        known = dict(_known(loop))
        self._boundaries = sorted(known)
        self._times = [known[boundary] for boundary in self._boundaries]

    def between(self, start: int, stop: int) -> float:
        return max(0.0, self._at(stop) - self._at(start))

    def _at(self, boundary: int) -> float:
        index = bisect_right(self._boundaries, boundary) - 1
        before, since = self._boundaries[index], self._times[index]
        if before == boundary or index + 1 == len(self._boundaries):
            return since
        share = (boundary - before) / (self._boundaries[index + 1] - before)
        return since + share * (self._times[index + 1] - since)


def _is_within(time: float, spans: list[tuple[float, float]]) -> bool:
    """Whether a time lies in one of the spans, which are in order and do not overlap."""
    at = bisect_right(spans, (time, float("inf"))) - 1
    return at >= 0 and time < spans[at][1]


def _known(loop: Loop) -> Iterator[tuple[int, float]]:
    yield 0, loop.row.entered
    yield max(1, loop.known), _left(loop)
    yield from ((k, row.taken) for k, row in loop.checkpoints.items() if k > 0)
    yield from ((k, row.began) for k, row in loop.iterations.items())


def _left(loop: Loop) -> float:
    """When a loop was left, or the last that is known of it; in seconds from the start of the run."""
    if loop.row.left is not None:
        return loop.row.left
    times = [row.taken for row in loop.checkpoints.values()]
    return max([loop.row.entered, *times, *(row.began for row in loop.iterations.values())])
