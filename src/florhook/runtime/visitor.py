"""Brings a recorded program to the first line of one iteration's body, where somebody wants to look around.

Which iteration that is, is known from the record (`around`), or found by looking at the loop variables where the
record has no rows of short iterations (`wanted`). The line is met by a trace function, which is set on the loop's frame
when the iteration is about to begin: the loop variable is bound by then.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, NoReturn

from ..frames import users_frame
from ..replay.plan import Step
from ..replay.record import Record
from .context import Context, labels_of
from .program import Program
from .replayer import Turn
from .resumer import Guide


class Visitor(Guide):
    """Calls `arrive(frame)` at the place; `around` are the open loops there, and of each the iteration.

    `wanted` are loop variables that have to have a value besides. `missed()` is called where the program runs past.
    """

    def __init__(
        self,
        program: Program,
        record: Record,
        around: Mapping[int, int],
        wanted: Mapping[str, int],
        restart: Callable[[str, str], NoReturn],
        arrive: Callable[[FrameType], NoReturn],
        missed: Callable[[], NoReturn],
    ) -> None:
        keys = {key: key for key in record.sites}
        super().__init__(program, record, around, keys, restart)
        self.wanted, self.arrive = wanted, arrive
        self.on_end = missed
        *_, self.innermost = [-1, *around]

    def _plan(self, context: Context, turn: Turn, frame: FrameType) -> None:
        if (
            self.wanted
            and self._is_inside()
            and turn.loop is not None
            and turn.loop.row.ctx not in self.around
        ):
            turn.steps = deque([Step(None)])  # it may hold the place
        else:
            super()._plan(context, turn, frame)

    def _is_inside(self) -> bool:
        """Whether all loops that are known to be open at the place are open, in their iterations."""
        numbers = {
            context.extra.loop.row.ctx: context.iteration
            for context in self.stack
            if context.extra is not None and context.extra.loop is not None
        }
        return all(numbers.get(ctx) == iteration for ctx, iteration in self.around.items())

    def _is_candidate(self, context: Context, turn: Turn) -> bool:
        """Whether the iteration that is about to begin may be the one."""
        if self.wanted:
            *_, last = self.wanted
            return last in dict(context.site.labels) and self._is_inside()
        return turn.loop is not None and turn.loop.row.ctx == self.innermost

    def _blocks(self, context: Context, turn: Turn, flow: Iterator[Any]) -> Iterator[Iterator[Any]]:
        try:
            while True:
                if context.begun == turn.step.stop:
                    yield from self._stop(turn, flow)
                    return
                self.close_inner(context)
                before = context.begun
                if self._is_candidate(context, turn) and self._is_time(context):
                    self._watch(context, users_frame(sys._getframe(1)))
                yield itertools.islice(flow, 1)
                if context.begun == before:
                    return
                self.executed += 1
        except GeneratorExit:
            context.broken = True

    def items(self, site: int) -> Any:
        """Tight loops are looked into as well: the place may be inside."""
        frame = users_frame(sys._getframe(1))
        context = self._context(site, frame)
        turn: Turn = context.extra
        turn.restored = None
        if not turn.runs:
            return ()
        return itertools.chain.from_iterable(self._blocks(context, turn, self._flow(context, turn)))

    def step(self, site: int, frame: FrameType | None = None) -> bool:
        frame = frame or users_frame(sys._getframe(1))
        context = self._context(site, frame)
        runs = super().step(site, frame)
        if runs and self._is_candidate(context, context.extra) and self._is_time(context, begun=1):
            self._watch(context, frame)
        return runs

    def _is_time(self, context: Context, begun: int = 0) -> bool:
        """Whether an iteration is the known one; any may be where the variables decide."""
        return bool(self.wanted) or context.begun - begun == self.around[self.innermost]

    # The line ------------------------------------------------------------------------------------------------

    def _watch(self, context: Context, frame: FrameType) -> None:
        """Come back at the next line that begins in the frame."""
        loop_line = frame.f_lineno

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line" and frame.f_lineno != loop_line:
                sys.settrace(None)
                frame.f_trace = None
                if self._has_values(context, frame):
                    self.arrive(frame)
                return None
            return trace

        sys.settrace(lambda *_: None)
        frame.f_trace = trace

    def _has_values(self, context: Context, frame: FrameType) -> bool:
        values = dict(self.labels())
        values.update(
            {
                name: value
                for name, value in labels_of(context, frame, context.iteration).items()
                if name in self.wanted
            }
        )
        return all(values.get(name) == value for name, value in self.wanted.items())
