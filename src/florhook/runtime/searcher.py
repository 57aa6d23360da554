"""Replay mode for `--until`: runs no probes, but stops between iterations and asks whether an expression is true."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

from ..dataclass import asdict, dataclass
from ..frames import users_frame, variables_of
from ..replay.plan import EXIT, Step, steps_to
from ..replay.record import Loop
from .context import Context, by_address, labels_of
from .replayer import Replayer

Stop = tuple[int, int]  # a loop execution's number in the record, and one of its boundaries


@dataclass(frozen=True)
class Inquiry:
    """Where to ask: at boundaries of main loops, in order (`at`), or in all loops inside one iteration (`inside`)."""

    text: str
    at: tuple[Stop, ...] = ()
    inside: Stop | None = None

    def as_task(self) -> dict[str, Any]:
        """What a worker makes the same object of."""
        return asdict(self)

    @classmethod
    def from_task(cls, task: Mapping[str, Any]) -> Inquiry:
        inside = task["inside"]
        at = tuple((ctx, boundary) for ctx, boundary in task["at"])
        return cls(task["text"], at, None if inside is None else (inside[0], inside[1]))


class Searcher(Replayer):
    """`tell(answer)` ends the process: with the first place where it is true, or without one at the end."""

    inquiry: Inquiry
    tell: Callable[[dict[str, Any]], NoReturn]

    def look_for(self, inquiry: Inquiry, tell: Callable[[dict[str, Any]], NoReturn]) -> None:
        """To be called before the program starts."""
        self.inquiry, self.tell = inquiry, tell
        self._code = compile(inquiry.text, "<until>", "eval")
        self._boundaries: dict[int, list[int]] = {}
        for ctx, boundary in inquiry.at:
            self._boundaries.setdefault(ctx, []).append(boundary)
        self._asked: tuple[Context, int] | None = None
        self._unbound = ""  # the name that was missing at the last place
        self._answers = 0  # how often the expression had a value
        self.on_end = self._end

    def _end(self) -> NoReturn:
        self.tell({"unbound": "" if self._answers else self._unbound})

    # The way -------------------------------------------------------------------------------------------------

    def _steps(self, loop: Loop, unusable: set[int]) -> Sequence[Step]:
        ctx = loop.row.ctx
        if self.inquiry.inside is not None and ctx == self.inquiry.inside[0]:
            iteration = self.inquiry.inside[1]
            return steps_to(loop, [iteration, iteration + 1], {*unusable, iteration + 1, EXIT})
        if self._is_inside():
            return [Step(None)]
        if ctx in self._boundaries:
            return steps_to(loop, self._boundaries[ctx], unusable)
        return super()._steps(loop, unusable)

    def _is_inside(self) -> bool:
        """Whether the iteration in which all loops are asked is the one that runs."""
        return self.inquiry.inside is not None and any(
            context.extra.loop is not None
            and (context.extra.loop.row.ctx, context.iteration) == self.inquiry.inside
            for context in self.stack
            if context.extra is not None
        )

    # The question --------------------------------------------------------------------------------------------

    def segment(self, site: int) -> bool:
        if self._is_main():
            frame = users_frame(sys._getframe(1))
            context = self._context(site, frame)
            if context.extra.stopped:
                self._ask(context, context.begun, frame)
        return super().segment(site)

    def _boundary(self, context: Context, turn: Any, frame: FrameType) -> bool:
        goes_on = super()._boundary(context, turn, frame)
        if goes_on and context.begun and self._is_main():
            self._ask(context, context.begun, users_frame(frame))
        return goes_on

    def leave(self, site: int, frame: FrameType | None = None) -> None:
        frame = frame or users_frame(sys._getframe(1))
        if not self._is_main():
            super().leave(site, frame)
            return
        context = self._context(site, frame)
        loop: Loop | None = context.extra.loop
        if context.extra.runs:
            self._ask(context, context.begun, frame)
        elif loop is not None:
            self._ask(context, loop.known, frame)
        super().leave(site, frame)
        last = max(self._boundaries, default=None) if self.inquiry.inside is None else self.inquiry.inside[0]
        if loop is not None and loop.row.ctx == last:
            self._end()

    def _ask(self, context: Context, boundary: int, frame: FrameType) -> None:
        loop: Loop | None = context.extra.loop
        inside = self._is_inside()
        if not inside and (loop is None or boundary not in self._boundaries.get(loop.row.ctx, ())):
            return
        here = (context, boundary)  # the object itself: its address may be used again
        if here == self._asked:
            return
        self._asked = here
        try:
            holds = bool(eval(self._code, {**frame.f_globals, **variables_of(frame)}))
        except NameError as error:
            self._unbound = str(error)
            return
        except Exception as error:
            self.tell({**self._told(context), "error": f"{type(error).__name__}: {error}"})
        self._answers += 1
        if holds:
            after = None if loop is None else (loop.row.ctx, boundary)
            self.tell({**self._told(context), "after": after})

    def _told(self, context: Context) -> dict[str, Any]:
        labels: list[tuple[str, Any]] = []
        frames = by_address(sys._getframe(1))
        for each in self.stack[: self.stack.index(context) + 1]:
            loop: Loop | None = each.extra.loop
            # Those of a `while` are what they were as the iteration began, which only the record knows.
            known = {} if loop is None else loop.labels_of(each.iteration)
            known = known or labels_of(each, frames.get(each.frame_id), each.iteration)
            labels += known.items() or [("iteration", each.iteration)]
        return {"where": self.program.place(context.site), "labels": labels}
