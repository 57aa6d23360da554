"""Resume mode inside the program: brings it to a checkpoint of the run before, then records from there on.

The program is rewritten in the form of a replay. Up to the *point*, a checkpoint, a `Resumer` takes its calls: loops
that the run had left are skipped by their exits, or run; those that are open at the point are entered at the newest
boundary before it. Once the point is restored, the open loops are handed to a `Resumed` recorder, which answers the
same calls. An open loop's `for` goes on in the iterator that it has, hence `Resumer._blocks` turns into the
recorder's.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, NoReturn

from ..frames import users_frame
from ..replay.plan import EXIT, Question, Step
from ..replay.record import Loop, Record
from ..replay.resume_plan import NOT_AFTER, Point
from ..state.scan import Entry, Scan
from ..store.recording import Recording
from .context import Context
from .passes import Passes
from .positions import can_position
from .program import Program
from .recorder import Recorder, Watch
from .replayer import Replayer, Turn

LEAST_PAUSE = 1e-3  # seconds between the run before and this one, should the clock have been set back


class Guide(Replayer):
    """Brings the program into given iterations of given loop executions (`around`, by number in the record).

    Loops on the way are skipped by their exits, or run. `restart(name, reason)` ends this attempt; the next leaves out
    what has that name: a checkpoint, or a loop's site. `keys` maps loops of the program of now to those of the record.
    """

    def __init__(
        self,
        program: Program,
        record: Record,
        around: Mapping[int, int],
        keys: Mapping[str, str],
        restart: Callable[[str, str], NoReturn],
    ) -> None:
        super().__init__(program, record, Question(frozenset(), frozenset()), frozenset(), self._give_up)
        self.around, self.keys, self.again = around, keys, restart
        self.restoring_now = ""

    def _give_up(self, site: str, reason: str) -> NoReturn:
        self.again(self.restoring_now or site, reason)

    # The way to the point ------------------------------------------------------------------------------------

    def _key(self, context: Context) -> str:
        return self.keys.get(context.site.key, "")

    def _plan(self, context: Context, turn: Turn, frame: FrameType) -> None:
        loop = turn.loop
        assert loop is not None
        if loop.row.ctx in self.around:
            self._plan_around(context, turn, frame, self.around[loop.row.ctx])
        else:
            super()._plan(context, turn, frame)

    def _plan_around(self, context: Context, turn: Turn, frame: FrameType, iteration: int) -> None:
        """To the newest boundary before the iteration, and on into it."""
        loop = turn.loop
        assert loop is not None
        known = bool(loop.row.entry) and self._enter(context, turn, frame)
        until = (0 if context.site.tight else iteration) if known else -1
        boundaries = [k for k in loop.checkpoints if 0 <= k <= until]
        turn.steps = deque([Step(max(boundaries, default=None), iteration + 1, last=True)])

    def _entered(self, turn: Turn, scan: Scan) -> None:
        super()._entered(turn, scan)
        turn.entry = Entry(scan)

    def _restore(self, context: Context, turn: Turn, iteration: int, frame: FrameType) -> None:
        assert turn.loop is not None
        self.restoring_now = f"{turn.loop.row.ctx}@{iteration}"
        super()._restore(context, turn, iteration, frame)
        self.restoring_now = ""

    def _verify(self, context: Context, turn: Turn, iteration: int, frame: FrameType) -> bool:
        """What runs before the point is overwritten there."""
        return True


class Resumer(Guide):
    """Runs the program up to `point`, then calls `take_over(self)`, which gives the recorder."""

    def __init__(
        self,
        program: Program,
        record: Record,
        point: Point,
        keys: Mapping[str, str],
        restart: Callable[[str, str], NoReturn],
        take_over: Callable[[Resumer], Resumed],
    ) -> None:
        super().__init__(program, record, point.around, keys, restart)
        self.point, self.take_over = point, take_over
        self.recorder: Resumed | None = None
        self.on_end = self.stray

    def stray(self) -> NoReturn:
        """The program did not come to the point: neither will it to what is later than where it parted."""
        last = max(
            (context.extra.loop for context in self.stack if context.extra.loop), key=_entered, default=None
        )
        inner = [self.record.loops[ctx] for ctx in self.point.around if ctx in self.record.loops]
        ahead = [
            loop for loop in (*inner, self.point.loop) if last is None or _entered(loop) > _entered(last)
        ]
        parted = _entered(ahead[0]) if ahead else 0.0
        if last is not None and last.row.left is not None and last.row.ctx not in self.point.open:
            parted = min(parted, last.row.left)
        self.again(f"{NOT_AFTER}{parted - LEAST_PAUSE}", "the program took another way than in the run")

    def _plan(self, context: Context, turn: Turn, frame: FrameType) -> None:
        if turn.loop is self.point.loop:
            self._plan_point(context, turn, frame)
        else:
            super()._plan(context, turn, frame)

    def _plan_point(self, context: Context, turn: Turn, frame: FrameType) -> None:
        iteration = self.point.checkpoint.iteration
        if iteration > 0 and context.site.tight:
            self.again(self.point.name, f"the loop at line {context.site.line} has no place to go to")
        if not self._enter(context, turn, frame):
            self.again(self.point.loop.site.key, self.notes.pop())
        turn.steps = deque([Step(iteration)])

    def marks(self) -> dict[str, str]:
        """Recorded ids of marks, and the ids of the same functions and loops in this process."""
        names = {old: new for new, old in self.keys.items()}
        now = {key: str(number) for number, key in enumerate(self.program.marks)}
        found = {mark: now.get(names.get(key, key)) for key, mark in self.record.mark_ids.items()}
        return {mark: number for mark, number in found.items() if number is not None}

    # The point -----------------------------------------------------------------------------------------------

    def _at_point(self, turn: Turn, iteration: int | None) -> bool:
        return self.recorder is None and turn.loop is self.point.loop and turn.step.restore == iteration

    def _arrive(self) -> Resumed:
        numbers = [context.extra.loop and context.extra.loop.row.ctx for context in self.stack]
        if numbers != list(self.point.open):
            self.stray()
        self.recorder = self.take_over(self)
        return self.recorder

    def _blocks(self, context: Context, turn: Turn, flow: Iterator[Any]) -> Iterator[Iterator[Any]]:
        if self._at_point(turn, self.point.checkpoint.iteration):
            self._arrive()
        else:
            yield from self._blocks_before(context, turn, flow)
        if self.recorder is not None and context in self.recorder.stack and not context.broken:
            yield from self.recorder._blocks(context, flow)

    def _blocks_before(self, context: Context, turn: Turn, flow: Iterator[Any]) -> Iterator[Iterator[Any]]:
        try:
            while self.recorder is None:
                if context.begun == turn.step.stop:
                    yield from self._stop(turn, flow)
                    return
                self._boundary(context, turn, users_frame(sys._getframe(1)))
                before = context.begun
                yield itertools.islice(flow, 1)
                if context.begun == before:
                    return
                self.executed += 1
        except GeneratorExit:
            context.broken = True
            raise

    def step(self, site: int, frame: FrameType | None = None) -> bool:
        frame = frame or users_frame(sys._getframe(1))
        turn: Turn = self._context(site, frame).extra
        if turn.runs and self._at_point(turn, self.point.checkpoint.iteration):
            return self._arrive().step(site, frame)
        return super().step(site, frame)

    def leave(self, site: int, frame: FrameType | None = None) -> None:
        frame = frame or users_frame(sys._getframe(1))
        turn: Turn = self._context(site, frame).extra
        super().leave(site, frame)
        if self.point.checkpoint.iteration == EXIT and self._at_point(turn, EXIT):
            self._arrive()


class Resumed(Recorder):
    """Records a program that is rewritten in the form of a replay."""

    def __init__(
        self, program: Program, recording: Recording, epsilon: float, origin: float, since: float
    ) -> None:
        """`origin` is the time from which all times of the run count; it went on, here, at `time.perf_counter()`
        `since`."""
        super().__init__(program, recording, epsilon, origin)
        self.since = since
        self._passes = Passes()
        self._begin(self.now())

    def _begin(self, now: float) -> None:
        """What the run before took, and the time in between, is no time of which a share may be spent."""
        self.before = now - (time.perf_counter() - self.since)
        self.allowance = 0.0 if self.everything else self.budget.epsilon * max(0.0, self.before)
        self.budget.spent += self.allowance

    def adopt(self, resumer: Resumer) -> None:
        """Take over the loops that are open at the point."""
        record, point, marks = resumer.record, resumer.point, resumer.marks()
        late = point.checkpoint.taken + LEAST_PAUSE - self.now()
        if late > 0:
            self.origin -= late
            self.budget.spent -= self.allowance
            self._begin(self.now())
        self.written = point.checkpoint.out
        self.stack, self.top_counts, self.open_sites = resumer.stack, resumer.top_counts, resumer.open_sites
        for context, iteration in zip(self.stack, point.open.values(), strict=True):
            turn: Turn = context.extra
            assert turn.loop is not None
            context.number = turn.loop.row.ctx
            context.entry = turn.entry
            context.total |= marks_before(turn.loop, iteration, record, marks)
            context.extra = self._watch(context, turn, iteration, point)
        self.numbers = itertools.count(max(record.loops) + 1)

    def _watch(self, context: Context, turn: Turn, iteration: int, point: Point) -> Watch:
        loop = turn.loop
        assert loop is not None
        began = loop.iterations.get(iteration)
        known = context.entry is not None
        return Watch(
            entered=loop.row.entered,
            entered_ran=self.ran(),
            began_ran=self.ran(),
            out=loop.row.out,
            cells=turn.cells,
            began=began.began if began else point.checkpoint.taken,
            began_out=began.out if began else point.checkpoint.out,
            ended=iteration,
            entry=loop.row.entry,
            wants_exit=known,
            boundaries=known and not context.site.tight,
            driven=not can_position(context.site.kind, context.iterable),
            checkpoints=sum(1 for each in loop.checkpoints.values() if each.taken <= point.checkpoint.taken),
            checkpoint_ran=self.ran(),
        )

    def figures(self, exit_code: int, wall: float) -> dict[str, Any]:
        figures = super().figures(exit_code, wall - self.before)
        return {**figures, "overhead_s": self.budget.spent - self.allowance}

    # Injected calls ------------------------------------------------------------------------------------------

    def open(self, site: int, *arguments: Any) -> None:
        frame = users_frame(sys._getframe(1))
        if self.program.sites[site].kind == "for":
            items = self.loop(site, arguments[0], arguments[1] if arguments[1:] else None, frame)
        else:
            items = None
            self.enter(site, arguments[0] if arguments else None, frame)
        self._passes.open(site, items)

    def segment(self, site: int) -> bool:
        return self._passes.segment(site)

    def restoring(self, site: int) -> bool:
        return False

    def items(self, site: int) -> Any:
        return self._passes.items(site)

    def done(self, site: int) -> None:
        self._passes.done(site)

    def completed(self, site: int) -> bool:
        return self._passes.completed(site)

    def leave(self, site: int, frame: FrameType | None = None) -> None:
        frame = frame or users_frame(sys._getframe(1))
        self._passes.leave(site, frame)
        super().leave(site, frame)

    def _boundary(self, context: Context, frame: FrameType) -> None:
        super()._boundary(context, users_frame(frame))


def _entered(loop: Loop) -> float:
    return loop.row.entered


def marks_before(loop: Loop, iteration: int, record: Record, marks: Mapping[str, str]) -> int:
    """What had run in a loop before an iteration, as the bitmask of this process."""
    found = set(loop.row.marks.split(","))
    for index, row in loop.iterations.items():
        if index < iteration:
            found |= set(row.marks.split(","))
    for inner in record.loops.values():
        if inner.row.parent == loop.row.ctx and inner.row.iteration <= iteration:
            found |= set(inner.row.marks.split(","))
    return sum(1 << 8 * int(marks[mark]) for mark in found if mark in marks)
