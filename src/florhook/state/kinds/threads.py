"""What belongs to a thread or a context: `threading.local`, `contextvars`; threads themselves."""

from __future__ import annotations

import _thread
import contextvars
import threading
from typing import TYPE_CHECKING, Any

from .base import Kind, Registry
from .builtin import Instance

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan

NUMBERS = ("_ident", "_native_id")
LOCKS = {type(threading.Lock()): "Lock", type(threading.RLock()): "RLock"}
UNKNOWN_HOLDER = -1
HANDLES: Any = _thread  # of Python 3.13 and newer


class Thread(Kind):
    """One that runs acts without being touched; one that does not is an object as any other."""

    name, how, varies = "running thread", "opaque", True

    def __init__(self, other: Kind) -> None:
        self.other = other

    def variant(self, obj: threading.Thread) -> Kind | None:
        return self if obj.is_alive() else self.other

    def shell(self, obj: threading.Thread, scan: Scan) -> str:
        return obj.name

    def create(self, spec: str, loader: Loader) -> Any:
        return loader.missing(f"thread {spec}")

    def content(self, obj: threading.Thread, scan: Scan) -> None:
        if obj is not threading.main_thread():
            scan.note_running(obj, f"thread {obj.name}")


class OtherThread(Instance):
    """One that has ended or not begun. The numbers that the system gave it are those of the process it runs in."""

    name = "thread"

    def content(self, obj: threading.Thread, scan: Scan) -> tuple[Any, ...]:
        items, *rest = super().content(obj, scan)
        kept = {name: value for name, value in zip(*items, strict=True) if name not in NUMBERS}
        return (tuple(kept), tuple(kept.values())), *rest

    def apply(self, obj: threading.Thread, content: tuple[Any, ...], loader: Loader) -> None:
        numbers = {name: vars(obj).get(name) for name in NUMBERS}
        super().apply(obj, content, loader)
        vars(obj).update(numbers)


class Handle(Kind):
    """What Python 3.13 and newer know a thread by; one is as good as another when the thread is over or not begun."""

    name, how, varies = "thread's handle", "in place", True

    def __init__(self, other: Kind) -> None:
        self.other = other

    def variant(self, obj: Any) -> Kind | None:
        return self if obj.is_done() or not obj.ident else self.other

    def shell(self, obj: Any, scan: Scan) -> bool:
        return bool(obj.is_done())

    def create(self, spec: bool, loader: Loader) -> Any:
        if not spec:
            return HANDLES._ThreadHandle()
        handle = HANDLES.start_joinable_thread(int)  # the only way to one that is done
        handle.join()
        return handle

    def content(self, obj: Any, scan: Scan) -> bool:
        return bool(obj.is_done())

    def apply(self, obj: Any, content: bool, loader: Loader) -> None:
        from ..restore import CannotRestoreError

        if obj.is_done() is not content:
            raise CannotRestoreError("a thread had not begun, or was not over")


class Lock(Kind):
    """One that is free, or held by the main thread. Which other thread holds one cannot be seen: it stays as it is."""

    name, how = "lock", "in place"

    def shell(self, obj: Any, scan: Scan) -> tuple[str, bool]:
        return LOCKS[type(obj)], times_held(obj) != UNKNOWN_HOLDER

    def create(self, spec: tuple[str, bool], loader: Loader) -> Any:
        name, is_known = spec
        return getattr(threading, name)() if is_known else loader.missing(f"{name} of another thread")

    def content(self, obj: Any, scan: Scan) -> int:
        return times_held(obj)

    def apply(self, obj: Any, content: int, loader: Loader) -> None:
        if content == UNKNOWN_HOLDER:
            return
        held = times_held(obj)
        if held != UNKNOWN_HOLDER:
            for _ in range(content - held):
                obj.acquire(blocking=False)
            for _ in range(held - content):
                obj.release()


def times_held(lock: Any) -> int:
    """How often the main thread has acquired a lock and not released it; UNKNOWN_HOLDER if that may be another one."""
    if LOCKS[type(lock)] == "Lock":
        if not lock.locked():
            return 0
        return 1 if threading.active_count() == 1 else UNKNOWN_HOLDER
    count = int(repr(lock).partition(" count=")[2].split(" ")[0])
    return count if not count or lock._is_owned() else UNKNOWN_HOLDER


class Local(Kind):
    """The attributes that the scanning thread sees: the main thread's."""

    name, how = "threading.local", "in place"

    def shell(self, obj: Any, scan: Scan) -> type:
        return type(obj)

    def create(self, spec: type, loader: Loader) -> Any:
        new: Any = spec.__new__
        return new(spec)

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        return tuple(attributes_of(obj).items()), type(obj) if scan.keeps_class(type(obj)) else None

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        own = attributes_of(obj)
        own.clear()
        own.update(content[0])


def attributes_of(obj: threading.local) -> dict[str, Any]:
    found: dict[str, Any] = threading.local.__getattribute__(obj, "__dict__")
    return found


class Variable(Kind):
    """A context variable: its value in the context that the loop runs in."""

    name, how = "ContextVar", "in place"

    def shell(self, obj: contextvars.ContextVar[Any], scan: Scan) -> Any:
        return obj.name, default_of(obj)

    def create(self, spec: Any, loader: Loader) -> contextvars.ContextVar[Any]:
        name, default = spec
        return contextvars.ContextVar(name, default=default[0]) if default else contextvars.ContextVar(name)

    def content(self, obj: contextvars.ContextVar[Any], scan: Scan) -> Any:
        context = contextvars.copy_context()
        return (context[obj],) if obj in context else (), default_of(obj)

    def apply(self, obj: contextvars.ContextVar[Any], content: Any, loader: Loader) -> None:
        from ..restore import CannotRestoreError

        value, _ = content
        if value:
            obj.set(value[0])
        elif obj in contextvars.copy_context():
            raise CannotRestoreError(f"context variable {obj.name} had no value, and none can be taken away")


def default_of(variable: contextvars.ContextVar[Any]) -> tuple[Any, ...]:
    """The default of a variable, which only shows in a context where it is not set."""
    try:
        return (contextvars.Context().run(variable.get),)
    except LookupError:
        return ()


def register(registry: Registry) -> None:
    other = OtherThread()
    registry.add(other)
    registry.add(Thread(other), threading.Thread, derived=True)
    registry.add(Lock(), *LOCKS)
    registry.add(Local(), threading.local, derived=True)
    registry.add(Variable(), contextvars.ContextVar)
    if hasattr(HANDLES, "_ThreadHandle"):
        registry.add(Handle(registry.opaque), HANDLES._ThreadHandle)
