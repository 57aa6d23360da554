"""Frames: those of ours below the program, and the variables of the program's own.

The recursion limit is raised by as many as there are of ours, so that a program fails as deep as ever.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

COPIES = sys.version_info < (3, 13)  # `f_locals` of a function is a dict that the frame keeps
OPTIMIZED = 1  # the flag of code whose variables are not in a dict
OURS = 3  # references to that dict: the frame's, and two while we look at it

below_program = 0


def allow_for(depth: int) -> None:
    """Called once, when the program is about to run."""
    global below_program
    below_program = depth
    sys.setrecursionlimit(sys.getrecursionlimit() + depth)


def recursion_limit() -> int:
    """The limit as the program would see it without us."""
    return sys.getrecursionlimit() - below_program


def set_recursion_limit(limit: int) -> None:
    sys.setrecursionlimit(limit + below_program)


def users_frame(frame: FrameType | None) -> FrameType:
    """The frame of the program's own that called, maybe through others of ours."""
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("florhook."):
        frame = frame.f_back
    assert frame is not None
    return frame


def variables_of(frame: FrameType) -> dict[str, Any]:
    """The variables that a frame has now; it is not left with a dict that would keep their values alive."""
    found, code = frame.f_locals, frame.f_code
    if not code.co_flags & OPTIMIZED:
        return found
    variables = dict(found)
    if COPIES and sys.getrefcount(found) <= OURS:
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            found.pop(name, None)
    return variables
