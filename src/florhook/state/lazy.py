"""Attributes that an instance computes when they are asked for, and keeps then: a print that asks changes nothing.

They are captured and restored as any attribute. Only where two states are compared, one of them may lack some.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from .kinds.attributes import getattr_dict
from .scan import Scan

LAZY = frozenset(
    {"cached_property", "lazy_property", "reify"}
)  # how libraries call what they wrote themselves


@functools.cache
def computed_on_demand(cls: type, name: str) -> bool:
    """Whether an attribute that an instance lacks is computed and kept as soon as it is asked for."""
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return any(base is functools.cached_property or base.__name__ in LAZY for base in type(found).__mro__)


@functools.cache
def _has_any(cls: type) -> bool:
    return any(computed_on_demand(cls, name) for base in cls.__mro__ for name in vars(base))


def without_lazy(scan: Scan) -> dict[int, Sequence[str]]:
    """For a scan that leaves all of them out: the other attributes of each instance that has some, by id."""
    found: dict[int, Sequence[str]] = {}
    for obj in scan.objects:
        cls: type = type(obj)
        attributes = getattr_dict(obj) if _has_any(cls) else None
        others = [name for name in attributes or () if not computed_on_demand(cls, name)]
        if attributes and len(others) < len(attributes):
            found[id(obj)] = others
    return found
