"""Which attributes of a library's objects hold times that it takes itself, told from the library's source.

No library gets the run's clock in a replay, and a restore makes a plain number of what it took before.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import types
from collections.abc import Collection, Iterable
from typing import Any

from ..hook.timed import timed_names
from ..state.kinds.attributes import getattr_dict

_LAST_ATTRIBUTE = re.compile(r"\.(\w+)(?:\[-?\d+\])*$")  # of a path: its value, or a number in its list


def is_taken_time(
    path: str, was: Any, now: Any, objects: Iterable[Any], user_modules: Collection[str]
) -> bool:
    """Whether a path leads to a time, by the classes of all `objects` that have an attribute of that name."""
    named = _LAST_ATTRIBUTE.search(path)
    if named is None or not all(type(value) in (int, float) for value in (was, now)):
        return False
    name = named[1]
    owners = {type(each) for each in objects if name in (getattr_dict(each) or {}) or _is_slot(each, name)}
    return bool(owners) and all(_takes(owner, name, user_modules) for owner in owners)


def _is_slot(obj: Any, name: str) -> bool:
    found = (vars(cls).get(name) for cls in type(obj).__mro__)
    return any(isinstance(each, types.MemberDescriptorType) for each in found)


def _takes(owner: type, name: str, user_modules: Collection[str]) -> bool:
    modules = {cls.__module__ for cls in owner.__mro__}
    return modules.isdisjoint(user_modules) and any(name in _timed_in(module) for module in modules)


@functools.cache
def _timed_in(module: str) -> frozenset[str]:
    try:
        return timed_names([ast.parse(inspect.getsource(sys.modules[module]))])
    except (KeyError, OSError, TypeError, SyntaxError):  # nothing of it is written in Python
        return frozenset()
