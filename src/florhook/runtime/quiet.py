"""Keeps what florhook runs inside the program away from debuggers, profilers and coverage.

A trace function is told of every Python frame that begins, so of ours too: `step` at a loop would lead into the
recorder. Hooks for audit events are the one place where Python runs Python code without tracing it, and `sys.audit` is
written in C. So once anything traces, the injected calls are C down to an audit event of ours, and a hook answers it:

    __flor__.leave(7)  ->  sys.audit("florhook.quiet", _leave, 7)  ->  recorder.leave(7)

What runs between the iterations of a loop is called in this way from the start, since a tracer may begin inside it.

Audit events give nothing back. The result of `loop` is an object whose `__iter__` the hook sets; `step` is a class,
whose new object is true. Their methods are properties that bind, since methods of Python's would be traced.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from . import probes

EVENT = "florhook.quiet"
TRACING = frozenset(("sys.settrace", "sys.setprofile", "sys.monitoring.register_callback"))
Item = TypeVar("Item")

_audit: Callable[..., None] = sys.audit
_handler: Any = None  # whose calls are taken over
_pid = 0
_works = False  # another hook may forbid ours


def install(handler: Any) -> None:
    """Once for a process: the calls of `handler` become quiet as soon as something traces."""
    global _handler, _pid
    _handler, _pid = handler, os.getpid()
    if not _works:
        sys.addaudithook(_hook)
        sys.audit(EVENT, _see)
    if sys.gettrace() is not None or sys.getprofile() is not None or _is_monitored():
        _take_over()


def uninstall() -> None:
    """What traces from here on is nothing to us. The hook itself stays, since none can be taken out."""
    global _handler, _pid
    _handler, _pid = None, 0


def iterate(blocks: Iterator[Item], rest: Item) -> Iterator[Item]:
    """The same blocks; the generator that gives them runs, and is closed, where nothing traces it.

    `rest` is the block of all that is still to come, should there be no room for the generator's frame.
    """
    if not _works:
        return blocks
    turns = _Turns(blocks, rest)
    return map(turns.out.pop, iter(partial(_audit, EVENT, _advance, turns), 0))


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    try:
        if event == EVENT:
            arguments[0](*arguments[1:])
        elif event in TRACING and os.getpid() == _pid:
            _take_over()
    except RecursionError:  # the program is at its limit; there may be no room for one call more
        if arguments and arguments[0] is _advance:
            arguments[1].out[None] = arguments[1].rest
        elif arguments and arguments[0] is _loop:
            arguments[1].__iter__ = partial(iter, arguments[3])


def _see() -> None:
    global _works
    _works = True


def _is_monitored() -> bool:
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and any(monitoring.get_tool(number) for number in range(6))


def _take_over() -> None:
    if _works:
        probes.use(_Calls)


# What the hook calls: the program's frame is that of the one who raised the event ---------------------------------


def _advance(turns: _Turns) -> None:
    turns.out[None] = next(turns.blocks)


def _close(turns: _Turns) -> None:
    turns.blocks.close()


def _loop(made: _Loop, site: int, iterable: Any, cells: Any = None) -> None:
    items = _handler.loop(site, iterable, cells, sys._getframe(2))
    made.__iter__ = partial(iter, items)  # type: ignore[attr-defined]


def _enter(site: int, cells: Any = None) -> None:
    _handler.enter(site, cells, sys._getframe(2))


def _step(site: int) -> None:
    _handler.step(site, sys._getframe(2))


def _leave(site: int) -> None:
    _handler.leave(site, sys._getframe(2))


def _begin(statement: int) -> None:
    _handler.begin(statement, sys._getframe(2))


def _end(statement: int) -> None:
    _handler.end(statement, sys._getframe(2))


def _heard(kind: str, *arguments: Any) -> None:
    _handler.heard(kind, *arguments, frame=sys._getframe(2))


# What is C from end to end -----------------------------------------------------------------------------------------


def _bound(function: Callable[..., None]) -> Any:
    """A method that calls `function(self, ...)` by way of the hook."""
    return property(partial(partial, _audit, EVENT, function))


class _Turns:
    """A generator of blocks, what is left of the items, and the block that was asked for last."""

    __slots__ = ("blocks", "out", "rest")
    __del__ = _bound(_close)

    def __init__(self, blocks: Any, rest: Any) -> None:
        self.blocks, self.rest = blocks, rest
        self.out: dict[None, Any] = {}


class _Loop:
    """What a loop iterates over; made in a call, asked once for its iterator."""

    __slots__ = ("__iter__",)
    __init__ = _bound(_loop)


class _Step:
    """True, as all objects of such a class are."""

    __slots__ = ()
    __init__ = staticmethod(partial(_audit, EVENT, _step))


class _Calls:
    loop = _Loop
    enter = partial(_audit, EVENT, _enter)
    step = _Step
    leave = partial(_audit, EVENT, _leave)
    begin = partial(_audit, EVENT, _begin)
    end = partial(_audit, EVENT, _end)
    heard = partial(_audit, EVENT, _heard)
