"""Generators and coroutines: where they stand, told alike in any process that runs the same source.

A probe may have been added to a generator's function, and a replay rewrites functions otherwise than a recording does:
so a place is the number of the `yield`, not of the instruction, and variables are told by name, not in the frame's
order.
"""

from __future__ import annotations

import atexit
import bisect
import functools
import gc
import sys
import types
import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ...frames import variables_of
from .base import Kind, Missing, Registry

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan

FRAMES_OF_THEIR_OWN = sys.version_info < (3, 11)  # a generator's values are not in itself
SUSPENSIONS = frozenset({"YIELD_VALUE", "YIELD_FROM"})
HANDLING = frozenset({"PUSH_EXC_INFO", "SETUP_FINALLY", "SETUP_WITH", "SETUP_ASYNC_WITH"})
COUNTED: tuple[Any, ...] = ([], (), "", b"", range(0), range(2**70), bytearray())
COUNTING = tuple(type(iter(each)) for each in COUNTED)  # iterators that keep their place in a number
PREFIXES = {types.GeneratorType: "gi", types.CoroutineType: "cr", types.AsyncGeneratorType: "ag"}


class StandIn(Missing):
    """Stands for a generator that has moved on: it looks the same to a scan, and whoever draws from it is told.

    So is it where it is dropped, if the generator `closes` with a `finally` or the end of a `with`.
    """

    __slots__ = ("_closes", "_where")

    def __init__(self, kind: str, touched: Any, closes: bool) -> None:
        super().__init__(kind, touched)
        object.__setattr__(self, "_where", ())
        object.__setattr__(self, "_closes", closes)
        if closes:
            if not CLOSING:
                atexit.register(CLOSING.clear)
            CLOSING[id(self)] = weakref.ref(self)

    def __del__(self) -> None:
        if object.__getattribute__(self, "_closes") and CLOSING.pop(id(self), None) is not None:
            self._refuse()

    def __iter__(self) -> Any:  # a `zip` or `enumerate` of it can be made
        return self


CLOSING: dict[int, weakref.ref[StandIn]] = {}  # until Python ends


def closing() -> list[Any]:
    """The placeholders that tell when they are dropped."""
    return [obj for reference in list(CLOSING.values()) if (obj := reference()) is not None]


class Suspended(Kind):
    """A generator or coroutine: it cannot be moved but by running it, only found where it was.

    The one that a loop iterates over is driven to the recorded place before the restore (`state/iterators.py`). For
    others that have moved since the loop was entered there is a placeholder.
    """

    name, how, moves = "generator", "re-driven", True

    def same(self, obj: Any) -> Any:
        if type(obj) is StandIn:
            return id(obj)
        where = position_of(obj)
        return ANYWHERE if where[0] == "finished" else (where[:2], sign_of(where[2]))

    def shell(self, obj: Any, scan: Scan) -> str | tuple[str, bool]:
        if type(obj) is StandIn:
            return ""
        name = str(obj.__qualname__)
        return (name, True) if _closes(obj) else name

    def create(self, spec: str | tuple[str, bool], loader: Loader) -> Any:
        name, closes = spec if isinstance(spec, tuple) else (spec, False)
        return StandIn(f"generator {name}", loader.touched, closes)

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        if type(obj) is StandIn:
            return object.__getattribute__(obj, "_where")  # type: ignore[no-any-return]
        where = position_of(obj, scan.environment.variables)
        if where[0] != "finished":
            scan.note_suspended(obj, where[2])
        return where

    def prepare(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        """What its `finally` does is in the state that is restored after this."""
        if type(obj) is not StandIn and content[0] == "finished" and position_of(obj)[0] != "finished":
            obj.close()

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        if type(obj) is StandIn:
            object.__setattr__(obj, "_where", content)
        elif position_of(obj)[:2] != content[:2]:
            from ..restore import CannotRestoreError

            raise CannotRestoreError(f"generator {obj.__qualname__} is at another place than in the run")


class _Anywhere:
    """The place of a finished generator: any that stood there before can be finished."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


ANYWHERE = _Anywhere()


def sign_of(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """What stays equal while a generator stands still; mutable values are objects of their own."""
    names, variables, stack = values
    return names, tuple(map(_sign, variables + stack))


def _sign(value: Any) -> Any:
    if type(value) in (int, str, float, bool, bytes, type(None), complex):
        return value
    try:
        return (id(value), *value.__reduce__()[2:3]) if type(value) in COUNTING else id(value)
    except Exception:
        return id(value)


def position_of(
    obj: Any, known: Callable[[types.CodeType], Collection[str] | None] = lambda code: None
) -> tuple[Any, ...]:
    """Where a generator stands: "finished", "fresh" or "suspended"; at which `yield`; its values.

    The values are those of its variables, by name, and those on its frame's stack: what its loops iterate over. `known`
    are the variables that count, None for all.
    """
    import inspect  # takes milliseconds, and most programs keep no generator

    prefix = PREFIXES[type(obj)]
    frame = getattr(obj, f"{prefix}_frame")
    if frame is None:
        return ("finished", 0, ())
    code = getattr(obj, f"{prefix}_code")
    values = _values(obj, frame, code, known(code))
    if prefix == "gi" and inspect.getgeneratorstate(obj) == inspect.GEN_CREATED:
        return ("fresh", 0, values)
    return ("suspended", bisect.bisect_right(_suspensions(code), frame.f_lasti), values)


def _closes(obj: Any) -> bool:
    """Whether code of its own may run when a generator is dropped."""
    return position_of(obj)[0] == "suspended" and _handles(getattr(obj, f"{PREFIXES[type(obj)]}_code"))


@functools.lru_cache(maxsize=1000)
def _handles(code: types.CodeType) -> bool:
    import dis

    return any(each.opname in HANDLING for each in dis.get_instructions(code))


@functools.lru_cache(maxsize=1000)
def _suspensions(code: types.CodeType) -> tuple[int, ...]:
    import dis

    return tuple(each.offset for each in dis.get_instructions(code) if each.opname in SUSPENSIONS)


def _values(
    obj: Any, frame: types.FrameType, code: types.CodeType, known: Collection[str] | None
) -> tuple[Any, ...]:
    variables = variables_of(frame)
    slots = [name for name in code.co_varnames if name in variables and name not in code.co_cellvars]
    first = len(slots) + len(code.co_cellvars) + len(code.co_freevars)
    names = tuple(sorted(name for name in variables if known is None or name in known))
    return names, tuple(map(variables.__getitem__, names)), _held_by(obj, frame, code)[first:]


def _held_by(obj: Any, frame: types.FrameType, code: types.CodeType) -> tuple[Any, ...]:
    """All that a generator's frame holds, in the interpreter's order."""
    if FRAMES_OF_THEIR_OWN:
        return tuple(gc.get_referents(frame)[3:])  # after the code, the builtins and the globals
    found = gc.get_referents(obj)
    start = max(place for place, each in enumerate(found) if each is code)
    # The last may be None for an exception that it handled once, which is no place that it stands at.
    stop = len(found) - (found[-1] is None)
    return tuple(found[start + 1 : stop])


def register(registry: Registry) -> None:
    registry.add(Suspended(), *PREFIXES, StandIn)
