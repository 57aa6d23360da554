"""Kinds of objects that programs and libraries register: `florhook.register_kind`. Imports nothing of florhook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .dataclass import dataclass


@dataclass(frozen=True)
class Registration:
    """What `register_kind` was told."""

    cls: type
    name: str
    read: Callable[[Any], Any]
    make: Callable[..., Any]
    write: Callable[[Any, Any], object] | None
    subclasses: bool


registrations: list[Registration] = []  # in order; the scan takes over those that it has not seen


def register_kind(
    cls: type,
    *,
    read: Callable[[Any], Any],
    make: Callable[..., Any],
    write: Callable[[Any, Any], object] | None = None,
    subclasses: bool = False,
) -> None:
    """Tell florhook how objects of a class are captured and restored.

    `read(obj)` gives the state: any value, in which tensors, arrays and other objects may stand as themselves.

    With `write`, objects are restored in place: `write(obj, state)` puts a state into a live object, and `make()` gives
    an empty one where the object was born after the loop was entered. Without it, they are restored by value:
    `make(state)` gives an object with that state, and whatever held the old one holds the new one.

    `subclasses`: classes derived from `cls` are captured in the same way. A later registration of a class replaces
    an earlier one. Raises TypeError where `cls` is not a class or something that is to be called cannot be.
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_kind: {cls!r} is not a class")
    for name, function in (("read", read), ("make", make), ("write", write)):
        if not callable(function) and not (name == "write" and function is None):
            raise TypeError(f"register_kind: {name} must be callable, not {function!r}")
    kind = f"{cls.__module__}.{cls.__qualname__}"
    registrations.append(Registration(cls, kind, read, make, write, subclasses))
