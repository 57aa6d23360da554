"""What the injected code calls, under the name `__flor__`. Inert until a recorder or replayer is put in.

A real module, so that pickling a function that uses it (cloudpickle, loky) refers to it by name: in the process that
receives the function everything here is inert.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from . import compiled
from .passes import Passes

CHILDREN = "<children>"  # the key of the mark that the program started a process of its own
LOADERS = "<loaders>"  # and of the mark that a DataLoader started its workers
asleep: list[Any] = []
"""What a recorder sleeps in: while there is something, nothing is looked at."""
AWAKE: Callable[[], int] = bool
"""Counts steps: called, it is False, and no Python code runs that a tracer would see."""
nothing: Callable[[], int] = asleep.__len__
"""The same for loops that are not open, but while a recorder sleeps: its step has nothing to do then."""
FOREIGN = 1 << 15  # marks, flags and loops
_flags = 0
marks: list[list[bool]] = []
"""By id, whether each function or loop ran, in a list of one. It is an attribute too: `m3` is `marks[3]`."""


def reserve_marks(count: int) -> int:
    """Room for `count` more marks; the id of the first."""
    first = len(marks)
    for number in range(first, first + count):
        marks.append([False])
        globals()[f"m{number}"] = marks[number]
    return first


def reserve_flags(count: int) -> int:
    """Room for the flags of `count` more statements: whether one may take long and is looked at. The first's id."""
    global _flags
    first, _flags = _flags, _flags + count
    for number in range(first, _flags):
        globals()[f"h{number}"] = False
    return first


def reserve_ticks(sites: Iterable[int]) -> None:
    """Room for what counts the iterations of these `while` loops that are not looked at."""
    for site in sites:
        globals()[f"t{site}"] = nothing


def tick(site: int, ticks: Callable[[], int] | None = None) -> None:
    """Let `ticks` count the iterations of a `while` loop, as often as it says True."""
    globals()[f"t{site}"] = nothing if ticks is None else ticks


def torch_is_there() -> None:
    """torch.compile takes a type for a constant, and the length of a list for something that it has to watch."""
    global nothing
    before, nothing = nothing, AWAKE
    globals().update(
        {name: AWAKE for name, ticks in globals().items() if ticks is before and name[:1] == "t"}
    )


def look_at(number: int, looks: bool) -> None:
    """Set the flag of a statement."""
    globals()[f"h{number}"] = looks


def expect_foreign_code() -> None:
    """Functions may come by value from a recorded process that had more marks than this one has yet."""
    nobodys = [False]
    for number in range(len(marks), FOREIGN):
        globals()[f"m{number}"] = nobodys
    for number in range(FOREIGN):
        globals().setdefault(f"h{number}", False)
        globals().setdefault(f"t{number}", AWAKE)


def __getattr__(name: str) -> Any:
    """A mark, flag or counter of the program that sent a function here (cloudpickle, loky): nobody asks for it.

    Where a program is recorded there is no such function: Python would look marks up several times as slowly.
    """
    if name[:1] == "m" and name[1:].isdecimal():
        return [False]
    if name[:1] == "h" and name[1:].isdecimal():
        return False
    if name[:1] == "t" and name[1:].isdecimal():
        return AWAKE
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def loop(site: int, iterable: Any, cells: Callable[[], Any] | None = None) -> Any:
    return iterable


def enter(site: int, cells: Callable[[], Any] | None = None) -> None:
    pass


def step(site: int) -> bool:
    return True


def leave(site: int) -> None:
    pass


def begin(statement: int) -> None:
    pass


def end(statement: int) -> None:
    pass


def heard(kind: str, *arguments: Any) -> None:
    """A library that logs was called (`loggers.py`)."""


hindsight: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()

# The form of a replay: these calls stand in code that was rewritten for one, or for a resumed run. What torch.compile
# reads is folded. A loop that it entered may go on in a frame that it does not compile, and that the handler does not
# know.

handler: Any = Passes()
_failed: set[tuple[str, str]] = set()  # what `cannot_show` has said


class UnknownLoopError(LookupError):
    """There is no open loop of that site in the frame."""


def open(site: int, *arguments: Any) -> None:  # noqa: A001
    if compiled.is_compiling():
        compiled.open(site, *arguments)
    else:
        handler.open(site, *arguments)


def segment(site: int) -> bool:
    if not compiled.is_compiling():
        try:
            return handler.segment(site)  # type: ignore[no-any-return]
        except UnknownLoopError:
            pass
    return compiled.segment(site)


def restoring(site: int) -> bool:
    if not compiled.is_compiling():
        try:
            return handler.restoring(site)  # type: ignore[no-any-return]
        except UnknownLoopError:
            pass
    return False


def has(site: int, index: int) -> bool:
    return handler.has(site, index)  # type: ignore[no-any-return]


def value(site: int, index: int) -> Any:
    return handler.value(site, index)


def items(site: int) -> Any:
    return compiled.items(site) if compiled.is_compiling() else handler.items(site)


def stretch_step(site: int) -> bool:
    """`step` in this form."""
    if not compiled.is_compiling():
        try:
            return handler.step(site, sys._getframe(1))  # type: ignore[no-any-return]
        except UnknownLoopError:
            pass
    return compiled.step(site)


def enough(site: int) -> bool:
    """Whether the rest of the iteration is left out: the last probe in the body has run."""
    if not compiled.is_compiling():
        try:
            return handler.enough(site)  # type: ignore[no-any-return]
        except UnknownLoopError:
            pass
    return False


def show(*pairs: tuple[str, Any]) -> None:
    """What a probe of the command line prints: the loop variables around it, and its expressions."""
    print(*[f"{name}={value}" for name, value in (*handler.shown_labels(), *pairs)])


def cannot_show(place: str) -> None:
    """An expression of a probe of the command line raised an exception; said once for each place and type."""
    error = sys.exc_info()[1]
    said = (place, type(error).__name__)
    if said not in _failed:
        _failed.add(said)
        sys.stderr.write(f"florhook: --probe at {place}: {type(error).__name__}: {error}\n")


def found(text: str) -> None:
    """An expression that is looked for is true here."""
    handler.found(text)


def done(site: int) -> None:
    if not compiled.is_compiling():
        try:
            handler.done(site)
            return
        except UnknownLoopError:
            pass
    compiled.done(site)


def completed(site: int) -> bool:
    if not compiled.is_compiling():
        try:
            return handler.completed(site)  # type: ignore[no-any-return]
        except UnknownLoopError:
            pass
    return compiled.completed(site)


def executes(statement: int) -> bool:
    """Whether a statement is run; else what it had left is restored."""
    return compiled.is_compiling() or handler.executes(statement)


def after(statement: int) -> None:
    if not compiled.is_compiling():
        handler.after(statement)


def stretch_leave(site: int) -> None:
    """`leave` in this form."""
    if not compiled.is_compiling():
        try:
            handler.leave(site, sys._getframe(1))
        except UnknownLoopError:
            pass


_INERT = {
    name: globals()[name]
    for name in (
        *("loop", "enter", "step", "leave", "begin", "end"),
        *("heard", "hindsight", "handler", "__getattr__"),
    )
}


def use(new: object) -> None:
    """Let a recorder or a replayer take the calls."""
    if hasattr(new, "open"):
        globals().update(handler=new, step=stretch_step, leave=stretch_leave)
        if hasattr(new, "heard"):
            globals().update(heard=new.heard)
    else:
        names = ("loop", "enter", "step", "leave", "begin", "end", "heard")
        globals().pop("__getattr__", None)
        globals().update({name: getattr(new, name) for name in names if hasattr(new, name)})


def be_inert() -> None:
    """For a forked child of a recorded program: nothing of ours happens there."""
    globals().update(_INERT)
