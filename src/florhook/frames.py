"""Frames: those of ours below the program, and the variables of the program's own.

The recursion limit is raised by as many as there are of ours, so that a program fails as deep as ever.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

COPIES = sys.version_info < (3, 13)  # `f_locals` of a function is a dict that the frame keeps
OPTIMIZED = 1  # the flag of code whose variables are not in a dict
# Where a frame object has its inner frame, and that its dict; in 3.10 they are one.
PLACES = {(3, 10): (None, 56), (3, 11): (24, 24), (3, 12): (24, 40)}

below_program = 0
host = ""  # the module that runs the cells of a notebook, while one is recorded: its frames lie below the program's


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


def line_of(frame: FrameType) -> int:
    """The line that a frame is at; in code of ours, which has none, the last one before it."""
    if frame.f_lineno is not None:
        return frame.f_lineno
    last = frame.f_code.co_firstlineno
    for start, _, line in frame.f_code.co_lines():
        if start > frame.f_lasti:
            break
        last = last if line is None else line
    return last


def variables_of(frame: FrameType) -> dict[str, Any]:
    """The variables that a frame has now.

    Up to Python 3.12, whoever asks a function's frame for `f_locals` renews the dict that the function's own `locals()`
    gave it, and leaves it holding what the function deletes later. So that dict is put back as it was.
    """
    code = frame.f_code
    if not code.co_flags & OPTIMIZED:
        return frame.f_locals
    held = _dict_of(frame) if COPIES else None
    before = None if held is None else dict(held)
    found = frame.f_locals
    names = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    variables = {name: found[name] for name in names if name in found}
    if before is not None:
        found.clear()
        found.update(before)
    elif COPIES:
        for name in variables:
            del found[name]
    return variables


def _dict_of(frame: FrameType) -> dict[str, Any] | None:
    """The dict that a function's frame has already; Python gives no look at it that leaves it as it is."""
    import ctypes  # which takes long, and is not needed before the first function's loop is looked at

    inner, place = PLACES[sys.version_info[:2]]
    address = id(frame)
    if inner is not None:
        address = ctypes.c_void_p.from_address(address + inner).value or 0
    found = ctypes.c_void_p.from_address(address + place).value
    return None if not found else ctypes.cast(found, ctypes.py_object).value
