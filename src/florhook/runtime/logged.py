"""What a recorded program hands to libraries that log: rows with the loops around, kept until they are sent."""

from __future__ import annotations

import json
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..dataclass import astuple
from ..frames import line_of
from ..store.rows import LoggedRow
from .context import Context, by_address, labels_of
from .loggers import LOGGED, said

if TYPE_CHECKING:
    from .recorder import Recorder

AT_ONCE = 1000  # rows that are kept


class Logged:
    """Of one recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.seconds = 0.0  # that it took
        self._rows: list[LoggedRow] = []
        self._began: dict[int, list[int]] = {}  # by thread: what was printed before the records being handled
        # Not the contexts themselves, which would keep objects of the program alive.
        self._key: list[tuple[int, int, int]] = []
        self._loops = "[]"
        self._ends: dict[str, dict[int, int]] = {}  # by module and line: the last line of a `while`'s body

    def begins(self) -> None:
        """A record of `logging` is about to be handled."""
        self._began.setdefault(threading.get_ident(), []).append(self._recorder.written)

    def take(self, kind: str, arguments: tuple[Any, ...], frame: FrameType) -> bool:
        """A call of a library's; whether so many rows are there that they should be sent."""
        recorder, thread = self._recorder, threading.get_ident()
        out = after = recorder.written
        if kind == LOGGED:
            out = self._began[thread].pop()
        found = said(kind, arguments, frame, recorder.program.user_modules)
        if found is not None:
            around = self._around(thread, frame)
            self._rows.append(LoggedRow(recorder.now(), out, after, around, *astuple(found)))
        return len(self._rows) >= AT_ONCE

    def taken(self) -> list[tuple[Any, ...]]:
        """The rows since the last time."""
        rows, self._rows = self._rows, []
        return [astuple(row) for row in rows]

    def _around(self, thread: int, frame: FrameType) -> str:
        """The loops around, as far as they are known for certain; for other threads, those of the main thread."""
        main = self._recorder.main_thread
        is_main = thread == main
        frames = by_address(frame if is_main else sys._current_frames().get(main))
        known = []
        for context in list(self._recorder.stack):
            if context.iteration < 0 or not self._runs_in(context, frames):
                break
            known.append((context, context.begun))
        if not is_main:
            return json.dumps([_place(context, begun, None) for context, begun in known])
        key = [(context.site_id, context.nth, begun) for context, begun in known]
        if key != self._key:
            self._loops = json.dumps([_place(each, begun, frames[each.frame_id]) for each, begun in known])
            self._key = key
        return self._loops

    def _runs_in(self, context: Context, frames: dict[int, FrameType]) -> bool:
        """Whether a loop was not left by a return or an exception, which is told later."""
        frame = frames.get(context.frame_id)
        if context.broken or frame is None or frame.f_code is not context.code:
            return False
        if context.site.kind == "for":  # its iterator tells
            return True
        first = context.site.line
        return first <= line_of(frame) <= self._end_of(context.site.key.partition(":")[0], first)

    def _end_of(self, module: str, line: int) -> int:
        if module not in self._ends:
            import ast

            tree = ast.parse(self._recorder.program.sources[module][1])
            whiles = (node for node in ast.walk(tree) if isinstance(node, ast.While))
            self._ends[module] = {node.lineno: node.body[-1].end_lineno or 0 for node in whiles}
        return self._ends[module].get(line, 0)


def _place(context: Context, begun: int, frame: FrameType | None) -> list[Any]:
    # What the test of a `while` reads is looked at as a stretch begins, and holds for the iteration that does.
    is_known = context.labels is None or begun - 1 == context.extra.ended
    labels = labels_of(context, frame, begun - 1) if frame is not None and is_known else {}
    return [context.site.key, context.nth, begun - 1, labels]
