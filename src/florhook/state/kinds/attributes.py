"""The attributes of an instance as they lie in it, whatever its class makes of attribute access."""

from __future__ import annotations

import types
from typing import Any

from .base import is_python_class


def getattr_dict(obj: Any) -> dict[str, Any] | None:
    """The instance's own dict, whatever its class makes of attributes."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


_SLOTS: dict[type, tuple[tuple[str, Any], ...]] = {}


def slots_of(cls: type) -> tuple[tuple[str, Any], ...]:
    """(unique name, descriptor) of every slot of a class, its bases' included."""
    found = _SLOTS.get(cls)
    if found is None:
        found = _SLOTS[cls] = tuple(
            (f"{depth}.{name}", value)
            for depth, base in enumerate(reversed(cls.__mro__))
            if is_python_class(base) or "__slots__" in vars(base)
            for name, value in vars(base).items()
            if type(value) is types.MemberDescriptorType
        )
    return found


def has_slot(slot: Any, obj: Any) -> bool:
    try:
        slot.__get__(obj)
    except AttributeError:
        return False
    return True
