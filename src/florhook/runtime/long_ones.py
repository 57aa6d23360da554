"""Statements of loop bodies that take long: they are SkipBlocks too, with a checkpoint after them.

Statements in a row cost a test of one flag as long as none of them is looked at (`hook/rewrite.py`). A loop's
statements are looked at when it is a main loop, so that its first iteration tells which of them take long, and else
when an iteration took long that no block inside explains. A statement that turns out quick is left alone again.

Its execution is no context among the open loops: loops inside it have the same names, whether it was looked at or not.
It leaves a row only where it leaves a checkpoint. Beside the entry's walk, that row has how many executions of each
loop the iteration had seen when it was over, from where a replay that skips it goes on counting.
"""

from __future__ import annotations

import json
from types import FrameType
from typing import TYPE_CHECKING

from ..dataclass import dataclass
from . import probes
from .context import Context, harvest

if TYPE_CHECKING:
    from .recorder import Recorder

LOOK = 0.05  # seconds of an iteration's own: its statements are looked at
LONG = 0.02  # seconds of a statement's own
GIVE_UP, GIVE_UP_LONG_ONE = 2, 64  # executions in a row that are quick; of one that took long before
MOST_WAIT = 64  # executions after one of which no checkpoint could be taken


@dataclass
class Known:
    """What was seen of a statement."""

    was_long: bool = False
    quick: int = 0  # executions in a row
    wait: int = 0  # executions before the next try
    refused: int = 0  # tries in a row


@dataclass
class Running:
    """An execution of a statement. Its loop's marks of before are kept here meanwhile."""

    number: int
    context: Context
    marks: int
    blind: bool
    inside: float  # what loops inside had taken of the iteration when it began, in seconds


class LongOnes:
    """Of one recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._program = recorder.program
        self._known: dict[int, Known] = {}
        self.looked_at: set[int] = set()
        self._sharing: dict[int, int] = {}  # by flag, how many of these share it

    def look_at_all(self, loop: Context) -> None:
        """The statements of a loop are looked at, but for those that were found quick."""
        if self._recorder.agreement is None:  # each rank would find others
            for number in self._program.statements_in.get(loop.site_id, ()):
                if number not in self._known:
                    self._known[number] = Known()
                    self._look_at(number)

    def iteration_ended(self, loop: Context, own: float) -> None:
        """`own`: the seconds that it took in neither loops inside nor statements that are looked at."""
        if own >= LOOK and self._recorder.agreement is None:
            for number in self._program.statements_in.get(loop.site_id, ()):
                self._known.setdefault(number, Known()).quick = 0
                self._look_at(number)

    def leave_all_alone(self, loop: Context) -> None:
        """So many iterations at once are too short for a statement that takes long."""
        for number in self._program.statements_in.get(loop.site_id, ()):
            self._leave_alone(number)

    def _look_at(self, number: int) -> None:
        if number not in self.looked_at:
            self.looked_at.add(number)
            flag = self._program.flag_of[number]
            self._sharing[flag] = self._sharing.get(flag, 0) + 1
            probes.look_at(flag, True)

    def _leave_alone(self, number: int) -> None:
        if number in self.looked_at:
            self.looked_at.discard(number)
            flag = self._program.flag_of[number]
            self._sharing[flag] -= 1
            probes.look_at(flag, bool(self._sharing[flag]))

    def begin(self, number: int, frame: FrameType) -> None:
        """Walk the state if this execution may be checkpointed."""
        recorder = self._recorder
        loop = recorder.find(self._program.loops_of.get(number, -1), frame)
        if loop is None or loop.extra is None:
            return
        self.abandon(loop)
        recorder.close_inner(loop)
        before = loop.marks | harvest()
        context = Context(-1 - number, self._program.statements[number], frame, loop)
        watch = recorder.watch_for(loop.extra.cells)
        context.extra = watch
        loop.extra.statement = Running(number, context, before, loop.blind, loop.extra.inside)
        loop.marks, loop.blind = 0, False
        self._enter(number, context, frame)

    def _enter(self, number: int, context: Context, frame: FrameType) -> None:
        recorder, known = self._recorder, self._known.setdefault(number, Known())
        if not known.was_long:
            return
        if known.wait:
            known.wait -= 1
            return
        block = recorder.budget.block(context.site_id, "exit")
        context.extra.exit_objection = recorder.objection_to(context, block)
        if not context.extra.exit_objection:
            recorder.walk_entry(context, frame, block)

    def end(self, number: int, frame: FrameType) -> None:
        """The statement is over; it raised nothing."""
        recorder = self._recorder
        loop = recorder.find(self._program.loops_of.get(number, -1), frame)
        if loop is None or loop.extra is None:
            return
        running: Running | None = loop.extra.statement
        if running is None or running.number != number:
            return
        recorder.close_inner(loop)
        context = running.context
        context.total = self._marks_inside(loop)
        inside = loop.extra.inside - running.inside
        self.abandon(loop)
        own = recorder.ran() - context.extra.entered_ran - inside
        loop.extra.stated += own
        block = recorder.budget.block(context.site_id, "exit")
        block.ran(own)
        known = self._known.setdefault(number, Known())
        self._learn(number, known, own)
        if context.entry is not None:
            self._checkpoint(known, loop, context, frame)
        elif context.extra.exit_objection:
            block.refused[context.extra.exit_objection] += 1

    def _marks_inside(self, loop: Context) -> int:
        marks = loop.marks | harvest()
        loop.marks = marks
        return self._program.with_loops_inside(marks) if loop.blind else marks

    def _learn(self, number: int, known: Known, own: float) -> None:
        if own >= LONG:
            known.was_long, known.quick = True, 0
            return
        known.quick += 1
        if known.quick >= (GIVE_UP_LONG_ONE if known.was_long else GIVE_UP):
            self._leave_alone(number)

    def _checkpoint(self, known: Known, loop: Context, context: Context, frame: FrameType) -> None:
        recorder = self._recorder
        block = recorder.budget.block(context.site_id, "exit")
        objection = recorder.objection_to(context, block)
        if objection:
            block.refused[objection] += 1
            return
        before = context.extra.checkpoints
        names, shape = json.loads(context.extra.entry)
        context.extra.entry = json.dumps([names, shape, self._counts(loop)])
        recorder.checkpoint_exit(context, frame, block)
        if context.extra.checkpoints > before:
            known.refused = 0
        else:
            known.refused += 1
            known.wait = min(MOST_WAIT, 1 << known.refused)

    def _counts(self, loop: Context) -> dict[str, int]:
        """How many executions of each loop this iteration has seen."""
        if loop.block != 1 and loop.counted != loop.iteration:
            return {}
        return {self._program.site(site).key: count for site, count in loop.counts.items()}

    @staticmethod
    def abandon(loop: Context) -> None:
        """Whatever statement ran in a loop runs no more: what ran in it ran in the loop's iteration."""
        running: Running | None = None if loop.extra is None else loop.extra.statement
        if running is not None:
            loop.extra.statement = None
            loop.marks |= running.marks
            loop.blind = loop.blind or running.blind
