"""The frames of ours below the program: the recursion limit is raised by as many, so that it fails as deep as ever."""

from __future__ import annotations

import sys
from types import FrameType

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
