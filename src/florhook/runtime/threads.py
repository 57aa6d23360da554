"""Other threads at a place in the user's code: no checkpoint holds it, and no restore brings them to another."""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .program import Program


def running_threads(user_modules: Collection[str]) -> list[str]:
    """Their names; those of a pool that wait for work are not among them."""
    if threading.active_count() == 1:
        return []
    frames, main = sys._current_frames(), threading.main_thread()
    return [
        thread.name
        for thread in threading.enumerate()
        if thread is not main
        and (_begins_in(thread, user_modules) or _is_in(frames.get(thread.ident or 0), user_modules))
    ]


def _begins_in(thread: threading.Thread, user_modules: Collection[str]) -> bool:
    """Whether what the thread is to run is the user's: it may not have come so far yet."""
    target = getattr(thread, "_target", None) or type(thread).run
    return getattr(target, "__module__", None) in user_modules


def _is_in(frame: FrameType | None, user_modules: Collection[str]) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") in user_modules:
            return True
        frame = frame.f_back
    return False


def marks_of_others(program: Program) -> int:
    """Of the functions that other threads are in, and of the loops there: they go on and call nothing that says so."""
    if threading.active_count() == 1:
        return 0
    own, marks = threading.get_ident(), 0
    for thread, top in sys._current_frames().items():
        frame: FrameType | None = top if thread != own else None
        while frame is not None:
            marks |= program.marks_in(frame.f_code)
            frame = frame.f_back
    return program.with_loops_inside(marks) if marks else 0
